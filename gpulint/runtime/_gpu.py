"""Read what an accelerator is and what it can do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._nvml import NvmlFacts, nvml_facts

if TYPE_CHECKING:
    import torch

# AMD architectures with native bfloat16: MI100 and later, RDNA 3 and later.
ROCM_BF16 = re.compile(r"gfx(9(08|0a|4\w|5\w)|1[12]\w\w)\b")
ROCM_TF32 = re.compile(r"gfx9[45]\w\b")


@dataclass(frozen=True)
class Gpu:
    """One accelerator; what could not be read is None or False."""

    kind: str  # "cuda", "rocm", "xpu" or "mps"
    name: str
    capability: tuple[int, int] | None = None
    memory_total: int | None = None  # bytes
    memory_free: int | None = None
    bf16: bool = False  # in hardware; PyTorch emulates it on older GPUs, slowly
    fp16: bool = False
    tf32: bool = False
    mig: bool = False


def read_gpu(device: torch.device) -> Gpu | None:
    """Return the facts of an accelerator on this machine, None for a CPU.

    A device that refuses to answer gives a `Gpu` that knows only its kind.
    """
    readers = {"cuda": _read_cuda, "xpu": _read_xpu, "mps": _read_mps}
    reader = readers.get(device.type)
    if reader is None:
        return None
    try:
        return reader(device.index)
    # RuntimeError: no driver, a forked worker. AssertionError: built without CUDA.
    except (RuntimeError, AssertionError):
        return Gpu(device.type, f"unknown {device.type} device")


def _read_cuda(index: int | None) -> Gpu:
    import torch

    if torch.version.hip is not None:
        return _read_rocm(index)
    # Reading through CUDA opens a context (some 300 MiB); NVML needs none.
    cuda: Any = torch.cuda
    started = cuda.is_initialized()
    facts = None if started else nvml_facts(index or 0)
    if facts is None:
        facts = _facts_from_cuda(index)
    return Gpu(
        kind="cuda",
        name=facts.name,
        capability=facts.capability,
        memory_total=facts.memory_total,
        memory_free=facts.memory_free,
        bf16=facts.capability >= (8, 0),
        fp16=facts.capability >= (7, 0),
        tf32=facts.capability >= (8, 0),
        mig=" MIG " in facts.name,
    )


def _facts_from_cuda(index: int | None) -> NvmlFacts:
    import torch

    index = torch.cuda.current_device() if index is None else index
    properties = torch.cuda.get_device_properties(index)
    free, total = torch.cuda.mem_get_info(index)
    capability = (properties.major, properties.minor)
    return NvmlFacts(properties.name, capability, total, free)


def _read_rocm(index: int | None) -> Gpu:
    import torch

    index = torch.cuda.current_device() if index is None else index
    properties: Any = torch.cuda.get_device_properties(index)
    free, total = torch.cuda.mem_get_info(index)
    architecture = getattr(properties, "gcnArchName", "")
    bf16 = ROCM_BF16.match(architecture) is not None
    return Gpu(
        kind="rocm",
        name=properties.name,
        capability=(properties.major, properties.minor),
        memory_total=total,
        memory_free=free,
        bf16=bf16,
        fp16=bf16,
        tf32=ROCM_TF32.match(architecture) is not None,
    )


def _read_xpu(index: int | None) -> Gpu:
    import torch

    index = torch.xpu.current_device() if index is None else index
    properties: Any = torch.xpu.get_device_properties(index)
    mem_get_info = getattr(torch.xpu, "mem_get_info", None)  # torch 2.6
    free = mem_get_info(index)[0] if mem_get_info is not None else None
    return Gpu(
        kind="xpu",
        name=properties.name,
        memory_total=properties.total_memory,
        memory_free=free,
        bf16=True,
        fp16=True,
    )


def _read_mps(index: int | None) -> Gpu:  # noqa: ARG001 - there is only one
    import torch

    recommended = getattr(torch.mps, "recommended_max_memory", None)  # torch 2.5
    total = recommended() if recommended is not None else None
    free = None if total is None else total - torch.mps.driver_allocated_memory()
    return Gpu("mps", "Apple GPU", memory_total=total, memory_free=free)
