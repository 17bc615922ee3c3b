"""find_batch_size(): what fits a made-up GPU, and everything as it was before."""

from __future__ import annotations

import copy
import gc
import random
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gpulint import runtime
from gpulint.runtime._probe import is_out_of_memory

MIB = 1024**2
Gpu = Callable[..., "FakeGpu"]


class FakeGpu:
    """Memory in MiB: a step takes 1 for each sample; and a clock."""

    def __init__(self, total: float, others: float, rate: Callable[[int], float]):
        self.total, self.others, self.rate = total, others, rate
        self.held, self.peak, self.now = 0.0, 0.0, 0.0
        self.random = [torch.zeros(2)]
        self.tried: list[int] = []

    def step(self, size: int) -> None:
        if not self.tried or self.tried[-1] != size:
            self.tried.append(size)
        if size > self.total - self.others:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate")
        self.held = max(self.held, size)
        self.peak = max(self.peak, size)
        self.now += size / self.rate(size)
        self.random[0] += 1

    def begin(self, device: Any) -> None:
        self.peak = self.held

    def free(self) -> None:
        self.held = 0.0

    def info(self, device: Any) -> tuple[int, int]:
        return int((self.total - self.others - self.held) * MIB), int(self.total * MIB)

    def put_random(self, states: list[torch.Tensor]) -> None:
        self.random = [state.clone() for state in states]


@pytest.fixture
def gpu(cuda: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Gpu:
    def give(
        total: float = 1000,
        others: float = 0,
        rate: Callable[[int], float] = lambda size: size,
    ) -> FakeGpu:
        cuda()
        its = FakeGpu(total, others, rate)
        stand_ins: dict[str, Callable[..., Any]] = {
            "synchronize": lambda device: None,
            "empty_cache": its.free,
            "reset_peak_memory_stats": its.begin,
            "max_memory_reserved": lambda device: int(its.peak * MIB),
            "memory_reserved": lambda device: int(its.held * MIB),
            "mem_get_info": its.info,
            "get_rng_state_all": lambda: [state.clone() for state in its.random],
            "set_rng_state_all": its.put_random,
        }
        for name, stand_in in stand_ins.items():
            monkeypatch.setattr(torch.cuda, name, stand_in)
        monkeypatch.setattr("time.perf_counter", lambda: its.now)
        return its

    return give


def explained() -> str:
    lines = runtime.explain().splitlines()
    (line,) = [line for line in lines if "batch size search" in line]
    return line.strip().removeprefix("batch size search: ")


@pytest.mark.parametrize(
    "total,start,most,expected,tried",
    [
        # the first that fails, and then round numbers below it
        (1000, 64, 4096, "896 (more does not fit)", [64, 128, 256, 512, 1024]),
        (256, 64, 512, "224 (more does not fit)", [64, 128, 256, 192]),
        (10, 4, 64, "8 (more does not fit)", [4, 8, 16]),
        (7, 4, 64, "6 (more does not fit)", [4, 8, 6, 7]),
        (1000, 32, 100, "100 (the most that may be tried)", [32, 64, 100]),
        (1000, 32, 32, "32 (the most that may be tried)", [32]),
        (20, 64, 128, "16 (64 do not fit)", [64, 32, 16, 24]),
        (0.5, 2, 4, "2 (not even 1 fits)", [2, 1]),
    ],
)
def test_the_largest_that_fits(
    total: float, start: int, most: int, expected: str, tried: list[int], gpu: Gpu
) -> None:
    its = gpu(total)
    found = runtime.find_batch_size(its.step, start=start, max_size=most, restore=())
    assert explained() == expected
    assert found == int(expected.split()[0])
    assert its.held == 0.0  # what was tried leaves no memory behind
    assert its.tried[: len(tried)] == tried
    assert len(its.tried) == len(set(its.tried))


def test_more_that_is_not_faster(gpu: Gpu) -> None:
    its = gpu(rate=lambda size: min(size, 130))
    found = runtime.find_batch_size(its.step, start=32, max_size=512, restore=())
    assert found == 128
    assert explained() == "128 (256 are hardly faster)"


def test_memory_of_other_processes_is_theirs(gpu: Gpu) -> None:
    its = gpu(1000, others=900)
    found = runtime.find_batch_size(its.step, start=32, max_size=512, restore=())
    assert found == 88
    assert its.tried[:3] == [32, 64, 128]


def test_each_try_is_told(gpu: Gpu, caplog: pytest.LogCaptureFixture) -> None:
    its = gpu(100)
    with caplog.at_level("INFO", logger="gpulint"):
        runtime.find_batch_size(its.step, start=48, max_size=192, restore=())
    assert [m for m in caplog.messages if m.startswith("batch size search")] == [
        "batch size search: 48 fit (48.0 MiB, 48 samples/s)",
        "batch size search: 96 take 96.0 MiB of 100.0 MiB, too close",
        "batch size search: 72 fit (72.0 MiB, 72 samples/s)",
        "batch size search: 88 fit (88.0 MiB, 88 samples/s)",
        "batch size search: 88 (more does not fit)",
    ]


def test_memory_of_a_failed_step_is_free_for_the_next(gpu: Gpu) -> None:
    its = gpu(100)
    left: list[tuple[int, weakref.ref[nn.Module]]] = []

    def step(size: int) -> None:
        assert all(held() is None for tried, held in left if tried != size)
        activations = nn.Module()
        object.__setattr__(activations, "itself", activations)  # a cycle
        left.append((size, weakref.ref(activations)))
        its.step(size)

    gc.disable()
    try:
        assert runtime.find_batch_size(step, start=64, max_size=256, restore=()) == 88
    finally:
        gc.enable()


# Everything is as it was


class Net(nn.Module):
    """All that a step changes: buffers, one made anew, draws, counters."""

    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
        self.head = nn.Linear(4, 1)
        self.register_buffer("mean", torch.zeros(4), persistent=False)
        self.steps = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        self.steps += 1
        return torch.as_tensor(self.head(self.body(x)))

    def get_extra_state(self) -> Any:
        return {"steps": self.steps}

    def set_extra_state(self, state: Any) -> None:
        self.steps = state["steps"]


class Training:
    def __init__(self) -> None:
        torch.manual_seed(1)
        self.model = Net()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, max_lr=1.0, total_steps=6
        )
        self.scaler = torch.amp.GradScaler("cpu")
        self.generator = torch.Generator().manual_seed(3)
        self.fails: Exception | None = None

    def things(self) -> list[Any]:
        return [
            self.model,
            self.optimizer,
            self.schedule,
            self.scaler,
            self.generator,
        ]

    def step(self, size: int) -> None:
        self.model.train()
        x = torch.randn(size + 1, 4) * random.random() + np.random.rand()
        x = x + torch.randn(4, generator=self.generator)
        self.optimizer.zero_grad()
        self.scaler.scale(self.model(x).mean()).backward()
        self.scaler.unscale_(self.optimizer)
        if self.fails is not None:
            raise self.fails
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.schedule.step()

    def state(self) -> Any:
        model = self.model
        return copy.deepcopy(
            {
                "parameters": [p.detach() for p in model.parameters()],
                "buffers": dict(model.named_buffers()),
                "gradients": [p.grad for p in model.parameters()],
                "modes": [layer.training for layer in model.modules()],
                "steps": model.steps,
                "optimizer": self.optimizer.state_dict(),
                "schedule": self.schedule.state_dict(),
                "scaler": self.scaler.state_dict(),
                "generator": self.generator.get_state(),
                "random": [random.getstate(), torch.get_rng_state()],
                "numpy": np.random.get_state()[1],
            }
        )


def assert_same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            assert_same(found[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, torch.Tensor | np.ndarray):
        assert np.array_equal(np.asarray(found), np.asarray(expected))
    else:
        assert found == expected


@pytest.fixture(params=["fresh", "trained"])
def training(request: pytest.FixtureRequest) -> Training:
    its = Training()
    if request.param == "trained":
        its.step(3)
        its.step(3)
    its.model.head.eval()
    return its


Probe = Callable[[Training, FakeGpu], int]


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Probe:
    """Search with a training on the CPU as if it were on the GPU."""

    def search(training: Training, its: FakeGpu) -> int:
        def step(size: int) -> None:
            training.step(size)
            its.step(size)

        where = "gpulint.runtime._probe._device_of"
        monkeypatch.setattr(where, lambda things: torch.device("cuda"))
        return runtime.find_batch_size(
            step, start=8, max_size=64, restore=training.things()
        )

    return search


def test_everything_is_as_before(training: Training, gpu: Gpu, probe: Probe) -> None:
    its = gpu(30)
    before = training.state()
    kept = [(p, p.grad) for p in training.model.parameters()]
    assert probe(training, its) == 24
    assert_same(training.state(), before)
    assert all(p.grad is grad for p, grad in kept)
    assert its.random[0].tolist() == [0, 0]
    training.step(4)  # a scaler whose step was cut short would refuse this one


def test_training_goes_on_as_without_it(gpu: Gpu, probe: Probe) -> None:
    its = gpu(30)
    states = []
    for tries in (False, True):
        torch.manual_seed(5)
        random.seed(5)
        np.random.seed(5)
        training = Training()
        training.step(4)
        if tries:
            assert probe(training, its) == 24
        for _ in range(3):
            training.step(4)
        states.append(training.state())
    assert_same(states[1], states[0])


def test_other_errors_are_raised_after_restoring(
    training: Training, gpu: Gpu, probe: Probe
) -> None:
    its = gpu()
    before = training.state()
    training.fails = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    with pytest.raises(RuntimeError, match="mat1"):
        probe(training, its)
    assert_same(training.state(), before)
    training.fails = torch.cuda.OutOfMemoryError("CUDA out of memory.")
    assert probe(training, its) == 8
    assert explained() == "8 (not even 1 fits)"
    assert_same(training.state(), before)


def test_without_numpy(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    its = gpu(30)
    monkeypatch.delitem(sys.modules, "numpy")
    assert runtime.find_batch_size(its.step, start=8, max_size=8, restore=()) == 8


@pytest.mark.parametrize("thing", [3, "model", object()])
def test_what_cannot_be_restored(thing: Any, gpu: Gpu) -> None:
    its = gpu()
    with pytest.raises(TypeError, match=r"has no state_dict\(\) to restore$"):
        runtime.find_batch_size(its.step, start=1, max_size=2, restore=[thing])
    assert its.tried == []


@pytest.mark.parametrize("start,most", [(0, 8), (9, 8), (-1, 8)])
def test_wrong_bounds(start: int, most: int, gpu: Gpu) -> None:
    message = f"start={start} is not between 1 and max_size={most}"
    with pytest.raises(ValueError, match=message):
        runtime.find_batch_size(gpu().step, start=start, max_size=most, restore=())


# Errors that mean too little memory


@pytest.mark.parametrize(
    "error,is_shortage",
    [
        (torch.cuda.OutOfMemoryError("CUDA out of memory."), True),
        (RuntimeError("HIP out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED."), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("CUDA error: device-side assert triggered"), False),
        (RuntimeError("CUDA error: an illegal memory access"), False),
        (RuntimeError("size mismatch"), False),
    ],
)
def test_shortages(error: RuntimeError, is_shortage: bool) -> None:
    assert is_out_of_memory(error) is is_shortage


# Where nothing is tried


def never(size: int) -> None:
    raise AssertionError(size)


def test_on_a_cpu_nothing_is_tried() -> None:
    model = nn.Linear(2, 2)
    found = runtime.find_batch_size(never, start=8, max_size=64, restore=[model])
    assert found == 8
    reason = "nothing tried, cpu does not say when memory runs short"
    assert explained() == f"8 ({reason})"


def test_a_module_without_parameters(gpu: Gpu) -> None:
    its = gpu()
    things = [nn.ReLU()]
    found = runtime.find_batch_size(its.step, start=8, max_size=16, restore=things)
    assert found == 16


@pytest.mark.parametrize(
    "variable,value,expected",
    [
        ("GPULINT_DEBUG", "1", "8 (GPULINT_DEBUG)"),
        ("GPULINT_BATCH_SIZE", "24", "24 (GPULINT_BATCH_SIZE)"),
        (
            "WORLD_SIZE",
            "2",
            "8 (the ranks cannot agree before there is a process group)",
        ),
    ],
)
def test_where_the_environment_decides(
    variable: str, value: str, expected: str, gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu()
    monkeypatch.setenv(variable, value)
    found = runtime.find_batch_size(never, start=8, max_size=64, restore=())
    assert explained() == expected
    assert found == int(expected.split()[0])


def test_off_and_workers(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu()
    monkeypatch.setattr("gpulint.runtime._probe.in_worker", lambda: True)
    assert runtime.find_batch_size(never, start=8, max_size=64, restore=()) == 8
    monkeypatch.undo()
    monkeypatch.setenv("GPULINT_RUNTIME", "off")
    runtime._reset()
    assert runtime.find_batch_size(never, start=8, max_size=64, restore=()) == 8


def test_an_old_torch_for_xpu(xpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.xpu, "mem_get_info")
    found = runtime.find_batch_size(never, start=8, max_size=64, restore=())
    assert found == 8
    assert "this torch cannot tell the memory of xpu" in explained()


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second rank, for which 16 is the largest."""

    def gather(found: list[Any], its: Any) -> None:
        found[:] = [its, 16]

    stand_in = types.SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_rank=lambda: 0,
        get_world_size=lambda: 2,
        all_gather_object=gather,
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", stand_in)


@pytest.mark.usefixtures("group")
def test_the_lowest_of_all_ranks(gpu: Gpu) -> None:
    its = gpu()
    assert runtime.find_batch_size(its.step, start=8, max_size=64, restore=()) == 16
    assert explained() == "16 (the lowest of all ranks)"


@pytest.mark.usefixtures("group")
def test_wrapped_modules_are_refused(gpu: Gpu) -> None:
    class DistributedDataParallel(nn.Module):
        pass

    gpu()
    things = [DistributedDataParallel()]
    with pytest.raises(ValueError, match="restore the module in it"):
        runtime.find_batch_size(never, start=8, max_size=64, restore=things)
