"""What the child's program asks of a torch with a GPU, which tests do not have."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpulint.running import device, script
from gpulint.tuning import child

GIB = 1024**3


class Gpus:
    """As much of `torch.cuda` as is asked."""

    def __init__(self, *reserved: int, free: int = 70 * GIB) -> None:
        self.reserved, self.free = reserved, free
        self.waits = 0

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return len(self.reserved)

    def max_memory_reserved(self, index: int) -> int:
        return self.reserved[index]

    def memory_reserved(self, index: int) -> int:
        return self.reserved[index] - GIB

    def mem_get_info(self, index: int) -> tuple[int, int]:
        return self.free, 80 * GIB

    def synchronize(self) -> None:
        self.waits += 1


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    mps = SimpleNamespace(is_available=lambda: False)
    fake = SimpleNamespace(backends=SimpleNamespace(mps=mps))
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


def test_memory_of_the_fullest_gpu(torch: SimpleNamespace) -> None:
    assert device.device_peak() is None
    torch.cuda = Gpus(0, 7 * GIB)
    # 7 GiB at most, and 4 GiB of other things: 10 GiB are taken, 6 of them reserved
    assert device.device_peak() == 11 * GIB
    torch.cuda = Gpus(0, 0)
    assert device.device_peak() is None


def test_memory_of_other_accelerators(torch: SimpleNamespace) -> None:
    torch.xpu = SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: 1,
        max_memory_reserved=lambda index: 3 * GIB,
    )
    assert device.device_peak() == 3 * GIB
    torch.xpu = None
    torch.backends.mps.is_available = lambda: True
    torch.mps = SimpleNamespace(driver_allocated_memory=lambda: 5)
    assert device.device_peak() == 5


def test_waiting_for_the_device(
    torch: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.cuda = Gpus(GIB)
    device.synchronize()
    assert torch.cuda.waits == 1
    torch.cuda.is_initialized = lambda: False
    device.synchronize()
    assert torch.cuda.waits == 1
    torch.backends.mps.is_available = lambda: True
    torch.mps = Gpus()
    device.synchronize()
    assert torch.mps.waits == 1
    monkeypatch.delitem(sys.modules, "torch")
    device.synchronize()
    assert device.device_peak() is None


class Weight:
    def __init__(self, dimensions: int, last: bool = False) -> None:
        self.dimensions, self.last = dimensions, last
        self.data = self

    def dim(self) -> int:
        return self.dimensions

    def is_contiguous(self, *, memory_format: object) -> bool:
        return self.last

    def contiguous(self, *, memory_format: object) -> Weight:
        return Weight(self.dimensions, True)


def options(tmp_path: Path, **more: Any) -> dict[str, Any]:
    return {"report": str(tmp_path / "report"), "steps": 5, "seconds": 0.0, **more}


def events(tmp_path: Path) -> list[dict[str, Any]]:
    lines = (tmp_path / "report").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_weights_of_convolutions_in_another_format(
    torch: SimpleNamespace, tmp_path: Path
) -> None:
    torch.channels_last = object()

    class Optimizer:
        def __init__(self, params: list[Weight], lr: float) -> None:
            self.param_groups = [{"params": params, "lr": lr}]

    module = SimpleNamespace(
        Optimizer=Optimizer, register_optimizer_step_post_hook=lambda hook: None
    )
    run = child.Child(options(tmp_path, channels_last=True))
    run.watch_optimizers(module)
    weights = [Weight(4), Weight(2), Weight(4, last=True)]
    module.Optimizer(weights, lr=0.1)
    assert [weight.data.last for weight in weights] == [True, False, True]
    assert events(tmp_path) == [{"event": "converted", "weights": 1}]


def test_forked_workers_say_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = child.Child(options(tmp_path))
    run.say("progress", steps=1)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    run.say("progress", steps=2)
    run.on_step(SimpleNamespace(param_groups=[]))
    assert events(tmp_path) == [{"event": "progress", "steps": 1}]


def test_learning_rates_that_are_no_numbers(tmp_path: Path) -> None:
    run = child.Child(options(tmp_path))
    run.on_step(SimpleNamespace(param_groups=[{"lr": object()}]))
    assert events(tmp_path)[0] == {
        "event": "optimizer",
        "kind": "SimpleNamespace",
        "lr": None,
    }


def test_the_size_where_no_loader_says_it(tmp_path: Path) -> None:
    run = child.Child(options(tmp_path))
    assert run._batch() == 1
    for name, size in (("eval", 9), ("critic", 8), ("train", 7)):
        facts = {"name": name, "default": size, "size": size}
        run.asked("batch_size", facts)
        assert run._batch() == {"eval": 1, "critic": 8, "train": 7}[name]


def test_a_parent_that_has_died_before(monkeypatch: pytest.MonkeyPatch) -> None:
    import ctypes

    class Stopped(Exception):
        pass

    def stop(code: int) -> None:
        raise Stopped(code)

    library = SimpleNamespace(prctl=lambda *arguments: 0)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(os, "_exit", stop)
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(Stopped):
        script.die_with(os.getppid() + 1)
    script.die_with(os.getppid())
    monkeypatch.setattr(sys, "platform", "darwin")
    script.die_with(os.getppid() + 1)


def test_other_finders_find_the_rest() -> None:
    called: list[Any] = []
    finder = script.AfterImport(
        {"json.tool": called.append, "no_such_module": called.append}
    )
    assert finder.find_spec("json", None) is None
    assert finder.find_spec("no_such_module", None) is None
    spec = finder.find_spec("json.tool", None)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert called == [module]
    assert finder.find_spec("json.tool", None) is None
