"""What a child measures, without a process of its own."""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpulint.bench.child import Child
from gpulint.bench.losses import Losses
from gpulint.bench.syncs import HostSyncs
from gpulint.running import device
from gpulint.running.steps import Recorder, read_loop


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def loader(size: int = 8, samples: int | None = 20, **more: Any) -> Any:
    class Sized:
        def __init__(self, length: int) -> None:
            self.length = length

        def __len__(self) -> int:
            return self.length

    class Loader(Sized):
        batch_size: Any = size
        sampler: Any = None if samples is None else Sized(samples)

    made = Loader(3)
    vars(made).update(more)
    return made


def test_samples_of_whole_and_last_batches() -> None:
    loop = read_loop(loader())
    assert [loop.take() for _ in range(3)] == [8, 8, 4]
    dropping = read_loop(loader(samples=26))  # the last 2 are dropped
    assert [dropping.take() for _ in range(3)] == [8, 8, 8]
    stream = read_loop(loader(samples=None))
    assert [stream.take() for _ in range(4)] == [8] * 4
    own = loader(batch_size=None, batch_sampler=SimpleNamespace(batch_size=5))
    assert read_loop(own).take() == 5
    whole = SimpleNamespace(batch_size=8, sampler=range(20))  # as torch's BatchSampler
    grouped = read_loop(loader(batch_size=None, batch_sampler=whole))
    assert [grouped.take() for _ in range(3)] == [8, 8, 4]
    assert read_loop(loader(batch_size=None)).take() is None


def test_steps_and_what_lies_between_them() -> None:
    clock, waits = Clock(), []
    recorder = Recorder(1, 4, clock, lambda: waits.append(clock.now))
    train = recorder.begin(loader())

    def step(*loops: Any) -> bool:
        for loop in loops:
            clock.now += 0.25
            recorder.deliver(loop, 0.25)
        clock.now += 1
        return recorder.step()

    assert [step(train), step(train), step(train, train)] == [False] * 3
    evaluation = recorder.begin(loader(size=100, samples=1000))
    recorder.deliver(evaluation, 0.0)
    again = recorder.begin(loader())
    assert step(again) is False
    assert step() is True  # a second optimizer, no batch of its own
    taken = [(s.seconds, s.wait, s.samples, s.between) for s in recorder.taken]
    assert taken == [
        (1.25, 0.25, 8, False),
        (1.5, 0.5, 4, False),
        (1.25, 0.25, 8, True),
        (1.0, 0.0, 0, False),
    ]
    assert waits == [1.25, clock.now]  # nothing waits for the device between


def test_steps_without_a_loader() -> None:
    recorder = Recorder(1, 1, Clock())
    assert [recorder.step(), recorder.step()] == [False, True]
    assert recorder.taken[0].samples is None


class Tensor:
    """A value on a device; `backward` does nothing."""

    def __init__(self, value: float, count: int = 1) -> None:
        self.value, self.count = value, count

    def numel(self) -> int:
        return self.count

    def detach(self) -> Tensor:
        return self

    def clone(self) -> Tensor:
        return Tensor(self.value)

    def reshape(self, shape: object) -> Tensor:
        return self

    def to(self, *where: object) -> Tensor:
        return self

    def __float__(self) -> float:
        return self.value

    def backward(self) -> str:
        return "called"


class Scaler:
    """Multiplies losses; leaves out a step where it is told to."""

    def __init__(self, factor: float | None) -> None:
        self._scale = None if factor is None else Tensor(factor)
        self.skips = False

    def scale(self, loss: Tensor) -> Tensor:
        factor = 1.0 if self._scale is None else self._scale.value
        return type(loss)(loss.value * factor)

    def step(self, optimizer: list[int]) -> None:
        if not self.skips:
            optimizer.append(1)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> tuple[Losses, Any, Any, list[int]]:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(float64=None))
    steps: list[int] = []
    losses = Losses(lambda: True)

    class Loss(Tensor):
        pass

    class Watched(Scaler):
        pass

    losses.watch_tensors(SimpleNamespace(Tensor=Loss))
    losses.watch_scalers(SimpleNamespace(GradScaler=Watched), lambda: len(steps))
    return losses, Loss, Watched, steps


def test_losses_are_copies(watched: Any) -> None:
    losses, loss, _, _ = watched
    its = loss(3.0)
    assert its.backward() == "called"
    its.value = 99.0
    loss(1.0, count=4).backward()  # no single value
    assert losses.fetch() == [3.0]


def test_losses_are_unscaled(watched: Any) -> None:
    losses, loss, scaler, steps = watched
    its = scaler(4.0)
    its.scale(loss(3.0)).backward()
    its._scale.value = 8.0  # as `update` does, in place
    half = its.scale(loss(3.0))
    loss(half.value / 2).backward()  # divided for accumulation: another tensor
    its.step(steps)
    its.skips = True
    its.scale(loss(2.0)).backward()
    its.step(steps)
    loss(5.0).backward()
    scaler(None).scale(loss(7.0)).backward()
    assert losses.fetch() == [3.0, 1.5, 2.0, 5.0, 7.0]
    assert losses.skipped == 1


def test_forked_processes_say_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "report"
    child = Child({"report": str(report), "warmup": 1, "steps": 5})
    child.say("progress", steps=1)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    child.say("progress", steps=2)
    child.on_step()
    child.losses.watch_tensors(SimpleNamespace(Tensor=type("Other", (Tensor,), {})))
    assert child.recorder.seen == 0
    assert [json.loads(x) for x in report.read_text().splitlines()] == [
        {"event": "progress", "steps": 1}
    ]


class Event:
    def synchronize(self) -> str:
        return "done"


def test_waits_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    modes: list[str] = []
    used = [False]

    def own(message: Any, *where: Any, **more: Any) -> None:
        heard.append(str(message))

    cuda = SimpleNamespace(
        is_initialized=lambda: used[0],
        set_sync_debug_mode=modes.append,
        synchronize=lambda device=None: device,
        Event=type("Watched", (Event,), {}),
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))

    def step() -> None:
        warnings.warn(
            "called a synchronizing CUDA operation (Triggered …)", stacklevel=1
        )
        assert cuda.synchronize(device=3) == 3
        assert cuda.Event().synchronize() == "done"
        warnings.warn("a word of the script", stacklevel=1)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", own)
        syncs = HostSyncs()
        syncs.watch_cuda(cuda)
        syncs.listen()
        assert syncs.per_step(1) is None  # no device was used
        step()
        used[0] = True
        for _ in range(2):
            syncs.listen()
            step()
            # as `logging.captureWarnings` and scripts do
            monkeypatch.setattr(warnings, "showwarning", own)
            warnings.simplefilter("ignore")
        assert syncs.per_step(2) == 3
    assert modes == ["warn"]
    assert [x for x in heard if "synchronizing" in x] == heard[:1]  # before it listened


def test_what_a_seed_reaches() -> None:
    given = {"report": "report", "warmup": 1, "steps": 5}
    plain = Child(given).actions()
    seeded = Child({**given, "seed": 2**32 + 3, "syncs": True}).actions()
    assert set(seeded) - set(plain) == {"torch", "numpy", "torch.cuda"}
    seeds: list[int] = []
    seeded["torch"](SimpleNamespace(manual_seed=seeds.append))
    seeded["numpy"](SimpleNamespace(random=SimpleNamespace(seed=seeds.append)))
    assert seeds == [2**32 + 3, 3]


def test_names_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    mps = SimpleNamespace(is_available=lambda: True)
    torch = SimpleNamespace(backends=SimpleNamespace(mps=mps))
    monkeypatch.setitem(sys.modules, "torch", torch)
    torch.mps = SimpleNamespace(driver_allocated_memory=lambda: 0)
    assert device.device_name() is None
    torch.mps = SimpleNamespace(driver_allocated_memory=lambda: 5)
    assert device.device_name() == "Apple GPU"
    torch.cuda = SimpleNamespace(
        is_initialized=lambda: True, get_device_name=lambda: "H100"
    )
    assert device.device_name() == "H100"
    monkeypatch.delitem(sys.modules, "torch")
    assert device.device_name() is None
