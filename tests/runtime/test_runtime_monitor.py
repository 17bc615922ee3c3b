"""Monitor: what it measures, what it says, and that the training is the same."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from gpulint import runtime
from gpulint.runtime._monitor import EpochFigures, Monitor

GIB = 1024**3
Cuda = Callable[..., list[torch.device]]
Said = Callable[[], list[str]]


class NVMLError(Exception):
    pass


class FakeNvml(types.ModuleType):
    """NVML that says how busy the GPUs are that have an identifier."""

    NVMLError = NVMLError

    def __init__(self, known: str, percent: int | None) -> None:
        super().__init__("pynvml")
        self.known, self.percent = known, percent
        self.running, self.asked = 0, 0

    def nvmlInit(self) -> None:
        self.running += 1

    def nvmlShutdown(self) -> None:
        self.running -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != self.known:
            raise NVMLError
        return uuid

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> types.SimpleNamespace:
        self.asked += 1
        if self.percent is None:
            raise NVMLError
        return types.SimpleNamespace(gpu=self.percent, memory=1)


@pytest.fixture(autouse=True)
def no_logging(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain script sets up no logging; pytest does."""
    monkeypatch.setattr(logging.getLogger("gpulint"), "hasHandlers", lambda: False)


@pytest.fixture
def gpu(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, int | None], FakeNvml]:
    """Give the machine a GPU "1234", in which this process has 3 GiB."""

    def give(known: str, percent: int | None) -> FakeNvml:
        cuda(count=2)
        properties = types.SimpleNamespace(total_memory=24 * GIB, uuid="1234")
        fake = FakeNvml(known, percent)
        stand_ins: dict[str, Any] = {
            "get_device_properties": lambda index: properties,
            "memory_reserved": lambda index: index * 3 * GIB,
            "max_memory_reserved": lambda index: index * 6 * GIB,
        }
        for name, stand_in in stand_ins.items():
            monkeypatch.setattr(torch.cuda, name, stand_in)
        monkeypatch.setitem(sys.modules, "pynvml", fake)
        return fake

    return give


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)
    assert condition()


def test_items_come_through_and_figures_are_said(said: Said) -> None:
    monitor = runtime.Monitor()
    loader = [(torch.zeros(4, 2), torch.zeros(4)), (torch.zeros(3, 2), torch.zeros(3))]
    seen = [
        (e, len(x)) for e in monitor.epochs("ab") for x, _ in monitor.batches(loader)
    ]
    assert seen == [("a", 4), ("a", 3), ("b", 4), ("b", 3)]
    assert [figures.samples for figures in monitor.history] == [7, 7]
    lines = said()
    assert len(lines) == 2
    shape = r"gpulint: monitor: epoch 2: 0\.0 s, \d+ samples/s, memory n/a, "
    assert re.fullmatch(shape + "GPU in use n/a of the time", lines[1])


def test_figures_of_a_gpu(
    gpu: Callable[[str, int | None], FakeNvml], said: Said
) -> None:
    fake = gpu("GPU-1234", 87)
    monitor = Monitor(interval=0.001)
    for _ in monitor.epochs(range(1)):
        wait_for(lambda: fake.asked > 2)
    (figures,) = monitor.history
    assert (figures.utilisation, figures.memory_peak) == (87, 6 * GIB)
    (line,) = said()
    assert line.endswith("memory 6.0 of 24.0 GiB at most, GPU in use 87 % of the time")
    wait_for(lambda: fake.running == 0)  # no connection is left behind


@pytest.mark.parametrize("kind", ["MIG", "GPU"], ids=["a slice", "under WSL"])
def test_some_have_no_utilisation(
    kind: str, gpu: Callable[[str, int | None], FakeNvml], said: Said
) -> None:
    fake = gpu(f"{kind}-1234", None)
    monitor = Monitor(interval=0.001)
    for _ in monitor.epochs(range(1)):
        wait_for(lambda: fake.asked == 1)
    assert monitor.history[0].utilisation is None
    assert "GPU in use n/a of the time" in said()[0]


def test_without_a_driver(
    gpu: Callable[[str, int | None], FakeNvml], said: Said
) -> None:
    class NoDriver(FakeNvml):
        def nvmlInit(self) -> None:
            self.asked += 1
            raise NVMLError

    fake = gpu("GPU-1234", 87)
    fake.__class__ = NoDriver
    monitor = Monitor(interval=0.001)
    for _ in monitor.epochs(range(1)):
        wait_for(lambda: fake.asked == 1)
    assert monitor.history[0].utilisation is None
    assert "memory 6.0 of 24.0 GiB at most, GPU in use n/a" in said()[0]


def test_a_gpu_that_is_lost_meanwhile(
    gpu: Callable[[str, int | None], FakeNvml],
) -> None:
    fake = gpu("GPU-1234", 40)
    monitor = Monitor(interval=0.001)
    for epoch in monitor.epochs(range(2)):
        if epoch == 0:
            wait_for(lambda: fake.asked >= 2)  # the first answer has come
            fake.percent = None
    assert monitor.history[0].utilisation == 40
    assert len(monitor.history) == 2
    wait_for(lambda: fake.running == 0)


def test_unknown_gpu_is_not_asked(
    gpu: Callable[[str, int | None], FakeNvml],
) -> None:
    fake = gpu("GPU-5678", 50)
    monitor = Monitor(interval=0.001)
    for _ in monitor.epochs(range(1)):
        time.sleep(0.02)
    assert monitor.history[0].utilisation is None
    assert (fake.asked, fake.running) == (0, 0)


def test_amd_gpus_have_no_nvml(
    gpu: Callable[[str, int | None], FakeNvml], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = gpu("GPU-1234", 50)
    monkeypatch.setattr(torch.version, "hip", "6.2")
    monitor = Monitor(interval=0.001)
    for _ in monitor.epochs(range(1)):
        time.sleep(0.01)
    assert (fake.asked, monitor.history[0].memory_peak) == (0, 6 * GIB)


def test_other_ranks_are_silent(
    gpu: Callable[[str, int | None], FakeNvml],
    monkeypatch: pytest.MonkeyPatch,
    said: Said,
) -> None:
    fake = gpu("GPU-1234", 50)
    monkeypatch.setenv("RANK", "1")
    monitor = Monitor(interval=0.001)
    for _ in monitor.epochs(range(2)):
        time.sleep(0.01)
    assert (fake.asked, said(), len(monitor.history)) == (0, [], 2)


def test_forked_process_goes_on_alone(
    gpu: Callable[[str, int | None], FakeNvml],
) -> None:
    fake = gpu("GPU-1234", 50)
    monitor = Monitor(interval=0.0)
    for _ in monitor.epochs(range(1)):
        wait_for(lambda: fake.asked > 2)
        for _ in range(20):
            child = os.fork()
            if child == 0:  # the lock is free here, and nobody asks
                asked = fake.asked
                time.sleep(0.001)
                alone = (
                    fake.asked == asked
                )  # said without an exit, which costs coverage
                os.kill(os.getpid(), signal.SIGKILL if alone else signal.SIGTERM)
            assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert not any(t.name == "gpulint-monitor" for t in threading.enumerate())


def test_leaving_early_ends_the_epoch(said: Said) -> None:
    monitor = Monitor()
    for epoch in monitor.epochs(range(10)):
        for batch in monitor.batches([torch.zeros(2), torch.zeros(2)]):
            assert batch.sum() == 0
            break
        if epoch == 1:
            break
    assert [figures.samples for figures in monitor.history] == [2, 2]
    assert len(said()) == 2


def test_error_in_the_loop_is_the_scripts_own() -> None:
    monitor = Monitor()

    def train() -> None:
        for _ in monitor.epochs(range(3)):
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        train()


@pytest.mark.parametrize(
    "batch, samples",
    [
        (torch.zeros(5, 2), 5),
        ([torch.zeros(5), None], 5),
        ({"x": [torch.zeros(5), 1], "y": torch.zeros(2)}, 5),
        (torch.zeros(()), None),
        ("text", None),
        ([], None),
        ({}, None),
        ([[[[[torch.zeros(3)]]]]], None),
    ],
)
def test_samples_of_a_batch(batch: object, samples: int | None) -> None:
    monitor = Monitor()
    for _ in monitor.epochs(range(1)):
        list(monitor.batches([batch]))
    assert monitor.history[0].samples == samples


def test_rate_is_unknown_without_samples() -> None:
    figures = EpochFigures(2.0, 0, 0.0, None, None, None)
    assert figures.samples_per_second is None
    assert str(figures).startswith("2.0 s, memory n/a")


def test_no_batch_is_kept_alive() -> None:
    class Batch:
        alive = 0

        def __init__(self) -> None:
            Batch.alive += 1

        def __del__(self) -> None:
            Batch.alive -= 1

    def make() -> Iterator[Batch]:
        for _ in range(3):
            yield Batch()

    for batch in Monitor().batches(make()):
        del batch
        assert Batch.alive == 0


def test_length_is_the_loaders() -> None:
    loader = DataLoader(TensorDataset(torch.arange(10)), batch_size=4)
    assert len(Monitor().batches(loader)) == 3  # type: ignore[arg-type]


def test_training_is_the_same_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    data = TensorDataset(torch.arange(12.0).reshape(12, 1))

    def train(monitor: Monitor | None) -> tuple[list[torch.Tensor], torch.Tensor]:
        torch.manual_seed(0)
        loader = DataLoader(data, batch_size=5, shuffle=True)
        seen = []
        epochs = range(3) if monitor is None else monitor.epochs(range(3))
        for _ in epochs:
            batches = loader if monitor is None else monitor.batches(loader)
            for (x,) in batches:
                seen.append(x + torch.rand(1))
        return seen, torch.get_rng_state()

    plain, state = train(None)
    measured, after = train(Monitor())
    assert all(map(torch.equal, plain, measured))
    assert torch.equal(state, after)


def test_off_gives_back_what_it_got(
    monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    monkeypatch.setenv("GPULINT_RUNTIME", "off")
    monitor, epochs, loader = Monitor(), range(3), [torch.zeros(2)]
    assert monitor.epochs(epochs) is epochs
    assert monitor.batches(loader) is loader
    assert said() == []
