"""amp_dtype() and accumulator_dtype()."""

from __future__ import annotations

import timeit
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gpulint import runtime

Cuda = Callable[..., list[torch.device]]


@pytest.mark.parametrize(
    "capability,dtype",
    [
        ((6, 1), None),
        ((7, 0), torch.float16),
        ((7, 5), torch.float16),
        ((8, 0), torch.bfloat16),
        ((8, 9), torch.bfloat16),
        ((9, 0), torch.bfloat16),
        ((10, 0), torch.bfloat16),
        ((12, 0), torch.bfloat16),
    ],
)
def test_cuda(
    capability: tuple[int, int], dtype: torch.dtype | None, cuda: Cuda
) -> None:
    cuda(capability)
    for name in ("cuda", "cuda:0", torch.device("cuda"), 0):
        assert runtime.amp_dtype(name) is dtype


@pytest.mark.parametrize("name", ["cpu", "cuda", "mps", "xpu", 0, "meta"])
@pytest.mark.parametrize("prefer", ["auto", "bf16", "fp16"])
def test_no_gpu(name: str | int, prefer: str) -> None:
    assert runtime.amp_dtype(name, prefer) is None


@pytest.mark.usefixtures("mps")
def test_mps() -> None:
    assert runtime.amp_dtype("mps") is None
    assert runtime.amp_dtype("mps", prefer="fp16") is None


@pytest.mark.usefixtures("xpu")
def test_xpu() -> None:
    assert runtime.amp_dtype("xpu") is torch.bfloat16
    assert runtime.amp_dtype("xpu", "fp16") is torch.float16


@pytest.mark.parametrize(
    "architecture,dtype", [("gfx90a", torch.bfloat16), ("gfx1030", None)]
)
def test_rocm(architecture: str, dtype: torch.dtype | None, cuda: Cuda) -> None:
    cuda(architecture=architecture)
    assert runtime.amp_dtype("cuda") is dtype


@pytest.mark.parametrize(
    "capability,prefer,asked,dtype",
    [
        ((9, 0), "fp16", "", torch.float16),
        ((9, 0), "fp16", "bf16", torch.float16),  # the argument comes first
        ((9, 0), "auto", "fp16", torch.float16),
        ((7, 5), "bf16", "", torch.float16),  # never emulated
        ((7, 5), "auto", "bf16", torch.float16),
        ((9, 0), "auto", "off", None),
        ((9, 0), "fp16", "off", None),
        ((6, 1), "fp16", "fp16", None),
    ],
)
def test_preferences(
    capability: tuple[int, int],
    prefer: str,
    asked: str,
    dtype: torch.dtype | None,
    cuda: Cuda,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda(capability)
    monkeypatch.setenv("GPULINT_AMP", asked)
    assert runtime.amp_dtype("cuda", prefer) is dtype


@pytest.mark.parametrize(
    "variable,value", [("GPULINT_RUNTIME", "off"), ("GPULINT_DEBUG", "1")]
)
def test_off_and_debug(
    variable: str, value: str, cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda()
    monkeypatch.setenv(variable, value)
    assert runtime.amp_dtype("cuda", "bf16") is None


def test_the_reason_is_told(cuda: Cuda) -> None:
    cuda((6, 1), name="NVIDIA GeForce GTX 1080")
    runtime.amp_dtype("cuda")
    reason = "amp: off on cuda (NVIDIA GeForce GTX 1080 gains nothing by it)"
    assert reason in runtime.explain()


def test_unknown_preference() -> None:
    with pytest.raises(ValueError, match="prefer='fp8' is not one of auto, bf16, fp16"):
        runtime.amp_dtype("cpu", "fp8")


def test_a_training_step_costs_nothing(cuda: Cuda) -> None:
    cuda()
    device = torch.device("cuda")
    runtime.amp_dtype(device)
    calls = 10_000
    seconds = timeit.timeit(lambda: runtime.amp_dtype(device), number=calls)
    assert seconds / calls < 20e-6


def test_scaler_and_autocast_take_the_answer() -> None:
    device = torch.device("cpu")
    dtype = runtime.amp_dtype(device)
    scaler = torch.amp.GradScaler(device.type, enabled=dtype is torch.float16)
    with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
        loss = (torch.ones(2, 2, requires_grad=True) @ torch.ones(2, 2)).sum()
    assert loss.dtype is torch.float32
    assert not scaler.is_enabled()


@pytest.mark.parametrize(
    "device,dtype",
    [
        ("cpu", torch.float64),
        ("cuda:1", torch.float64),
        (0, torch.float64),
        ("mps", torch.float32),
    ],
)
@pytest.mark.parametrize("state", ["on", "off"])
def test_accumulator(
    device: Any, dtype: torch.dtype, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPULINT_RUNTIME", state)
    assert runtime.accumulator_dtype(device) is dtype


@pytest.mark.parametrize(
    "made,dtype", [("float64", torch.float64), ("nothing", torch.float32)]
)
def test_accumulator_of_an_accelerator_is_tried(
    made: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    zeros = torch.zeros

    def stand_in(*size: Any, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
        if made == "nothing":
            raise RuntimeError("Required aspect fp64 is not supported on the device")
        return zeros(*size, dtype=dtype)

    monkeypatch.setattr(torch, "zeros", stand_in)
    assert runtime.accumulator_dtype("xpu") is dtype
