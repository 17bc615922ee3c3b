"""What a child asks of the torch that its script has imported, without importing it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def synchronize() -> None:
    """Wait until the accelerator has done what it was given."""
    torch = sys.modules.get("torch")
    for name in ("cuda", "xpu"):
        backend = getattr(torch, name, None)
        if backend is not None and backend.is_initialized():
            backend.synchronize()
    if torch is not None and torch.backends.mps.is_available():
        torch.mps.synchronize()


def device_peak() -> int | None:
    """The bytes that were in use on the fullest accelerator; None: none was used.

    What the allocator held at most, and what else of the device is in use: the context,
    libraries and other processes.
    """
    torch = sys.modules.get("torch")
    peaks = []
    for name in ("cuda", "xpu"):
        backend: Any = getattr(torch, name, None)
        if backend is None or not backend.is_initialized():
            continue
        for index in range(backend.device_count()):
            reserved = backend.max_memory_reserved(index)
            if reserved and hasattr(backend, "mem_get_info"):
                free, total = backend.mem_get_info(index)
                reserved += max(total - free - backend.memory_reserved(index), 0)
            peaks.append(reserved)
    if torch is not None and torch.backends.mps.is_available():
        peaks.append(torch.mps.driver_allocated_memory())
    return max(filter(None, peaks), default=None)


def uses_cuda() -> bool:
    """Whether the script has used a device of CUDA, or of ROCm under that name."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda is not None and bool(cuda.is_initialized())


def gpu_ids() -> list[str]:
    """NVML's names of the GPUs whose memory the script has used; PyTorch 2.4 and later.

    A MIG slice is not among them: what NVML says is of the whole GPU.
    """
    torch = sys.modules.get("torch")
    cuda: Any = getattr(torch, "cuda", None)
    if torch is None or not uses_cuda() or torch.version.hip:
        return []
    used = [i for i in range(cuda.device_count()) if cuda.max_memory_reserved(i)]
    found = [getattr(cuda.get_device_properties(i), "uuid", None) for i in used]
    return [f"GPU-{uuid}" for uuid in found if uuid is not None]


def host_peak() -> int | None:
    """The most bytes of host memory that this process alone has held."""
    try:  # what `getrusage` says on Linux counts the process that started this one too
        lines = Path("/proc/self/status").read_text("ascii", "replace").splitlines()
        return next(int(x.split()[1]) * 1024 for x in lines if x.startswith("VmHWM:"))
    except (OSError, StopIteration):
        pass
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def to_channels_last(optimizer: Any) -> int:
    """Turn the weights of convolutions; what they give then has that format as well."""
    torch = sys.modules["torch"]
    count = 0
    for group in optimizer.param_groups:
        for weight in group["params"]:
            last = torch.channels_last
            if weight.dim() == 4 and not weight.is_contiguous(memory_format=last):
                weight.data = weight.data.contiguous(memory_format=last)
                count += 1
    return count


def device_name() -> str | None:
    """The accelerator that the script has used; None: the host alone."""
    torch = sys.modules.get("torch")
    for name in ("cuda", "xpu"):
        backend: Any = getattr(torch, name, None)
        if backend is not None and backend.is_initialized():
            return str(backend.get_device_name())
    if torch is not None and torch.backends.mps.is_available():
        return "Apple GPU" if torch.mps.driver_allocated_memory() else None
    return None
