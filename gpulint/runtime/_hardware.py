"""Describe the machine that a script runs on."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

from ._compile import mark_constant
from ._gpu import Gpu, read_gpu
from ._limits import available_cpus, ram_limit, shm_free
from ._log import decide, speaks
from ._placement import choose_device
from ._policy import follow_policy
from ._ranks import in_worker, local_world_size
from ._settings import settings


@dataclass(frozen=True)
class Hardware:
    """The machine as this process may use it; sizes are in bytes, None is unknown."""

    kind: str  # "cpu", "cuda", "rocm", "xpu" or "mps"
    name: str
    capability: tuple[int, int] | None  # CUDA compute capability
    memory_total: int | None  # of the accelerator; None on a CPU
    memory_free: int | None
    bf16: bool  # in hardware
    tf32: bool
    mig: bool  # a slice of a GPU
    cpus: int  # schedulable, within the control group's quota and SLURM's grant
    ram_limit: int | None
    shm_free: int | None
    local_world_size: int  # ranks that share the machine


def hardware() -> Hardware:
    """Return what this process may use, read anew at each call.

    Describes the device that `device()` would choose. Does not open a CUDA context
    where NVML can answer instead.
    """
    gpu = read_gpu(choose_device()) or Gpu("cpu", _cpu_name(Path("/")))
    return Hardware(
        kind=gpu.kind,
        name=gpu.name,
        capability=gpu.capability,
        memory_total=gpu.memory_total,
        memory_free=gpu.memory_free,
        bf16=gpu.bf16,
        tf32=gpu.tf32,
        mig=gpu.mig,
        cpus=available_cpus(),
        ram_limit=ram_limit(),
        shm_free=shm_free(),
        local_world_size=local_world_size(),
    )


def introduce() -> None:
    """Log the machine once, before the first decision about it, and its policy."""
    if _introduced or in_worker():
        return
    _introduced.append(True)
    if settings().off:
        decide("runtime", "off (GPULINT_RUNTIME), the script runs as it was written")
        return
    if speaks():  # the other ranks leave this rank's GPU alone
        decide("hardware", describe(hardware()))
    follow_policy()


mark_constant(introduce)


def forget_introduction() -> None:
    """Begin anew, as in a fresh process."""
    _introduced.clear()


_introduced: list[bool] = []


def describe(machine: Hardware) -> str:
    """Return one line: name, software version, memory."""
    import torch

    parts = [machine.name]
    if machine.kind == "cuda":
        parts.append(f"CUDA {torch.version.cuda}")
    elif machine.kind == "rocm":
        parts.append(f"ROCm {torch.version.hip}")
    if machine.memory_total is not None:
        parts.append(f"{in_units(machine.memory_total)} of GPU memory")
    if machine.kind == "cpu":
        parts.append("no GPU")
        if machine.ram_limit is not None:
            parts.append(f"{in_units(machine.ram_limit)} of memory")
    return ", ".join(parts)


def in_units(size: int) -> str:
    """Return a number of bytes in the unit that suits it: `15.1 MiB`."""
    value = float(size)
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024:
            return f"{size} bytes" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def _cpu_name(root: Path) -> str:
    try:
        text = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or "CPU"
