"""Samples of trainings that were made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gpulint
from gpulint.monitor.host import HostFigures, Process
from gpulint.monitor.watch import Sample
from gpulint.nvml.figures import GpuFigures, GpuProcess

FAKE = Path(__file__).parent / "fake"
REPO = Path(gpulint.__file__).resolve().parent.parent
GIB = 1024**3
ROOT = 4711


def gpu(**changes: Any) -> GpuFigures:
    """An H100 that is well used."""
    facts: dict[str, Any] = {
        "index": 0,
        "name": "NVIDIA H100 80GB HBM3",
        "utilisation": 92.0,
        "sm_active": 85.0,
        "memory_used": 64 * GIB,
        "memory_total": 80 * GIB,
        "temperature": 65,
        "power_watts": 600.0,
        "power_limit_watts": 700.0,
        "sm_clock": 1900,
        "sm_clock_max": 1980,
        "slowed_by": (),
        "mig": False,
        "processes": (GpuProcess(ROOT, 60 * GIB),),
    }
    return GpuFigures(**{**facts, **changes})


def trainer(cpu: float = 50.0, **changes: Any) -> Process:
    """The training's first process."""
    facts: dict[str, Any] = {
        "pid": ROOT,
        "parent": 1,
        "name": "python",
        "memory": 2 * GIB,
        "root": ROOT,
    }
    return Process(**{**facts, "cpu": cpu, **changes})


def workers(*cpus: float) -> list[Process]:
    """Workers of its loader."""
    return [
        trainer(cpu, pid=5000 + i, parent=ROOT, name="pt_data_worker", worker=True)
        for i, cpu in enumerate(cpus)
    ]


def host(*processes: Process, **changes: Any) -> HostFigures:
    """Sixteen CPUs."""
    facts: dict[str, Any] = {
        "cpus": 16,
        "cpu": 25.0,
        "memory_used": 8 * GIB,
        "memory_total": 64 * GIB,
    }
    return HostFigures(**{**facts, **changes, "processes": processes})


def window(
    *gpus: GpuFigures, on: HostFigures | None = None, count: int = 30, **changes: Any
) -> list[Sample]:
    """As many samples that are all alike."""
    figures = on if on is not None else host(trainer())
    return [Sample(1e9 + i, gpus, figures, **changes) for i in range(count)]
