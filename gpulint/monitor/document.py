"""Samples and diagnoses as plain data for JSON; None is what is not known."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

from gpulint.monitor.diagnosis import TARGETS, Symptom, mean
from gpulint.monitor.host import HostFigures
from gpulint.monitor.watch import Sample
from gpulint.nvml.figures import GpuFigures

SCHEMA = 1
MEANS = (
    "utilisation",
    "memory_utilisation",
    "sm_active",
    "sm_occupancy",
    "tensor_active",
    "dram_active",
    "temperature",
    "power_watts",
    "sm_clock",
    "pcie_sent",
    "pcie_received",
)


def document(sample: Sample, symptoms: Sequence[Symptom] | None) -> dict[str, Any]:
    """One sample and, where there were enough before it, the diagnosis."""
    return {
        "schema": SCHEMA,
        "time": round(sample.time, 3),
        "trouble": sample.trouble,
        "gpus": [_gpu(gpu) for gpu in sample.gpus],
        "host": _host(sample.host),
        "diagnosis": _symptoms(symptoms),
    }


def summary(
    window: Sequence[Sample], symptoms: Sequence[Symptom] | None
) -> dict[str, Any]:
    """A window of samples: the means of its figures, the targets, the diagnosis."""
    last = window[-1] if window else None
    numbers = sorted({gpu.index for sample in window for gpu in sample.gpus})
    return {
        "schema": SCHEMA,
        "samples": len(window),
        "seconds": round(window[-1].time - window[0].time, 3) if window else 0.0,
        "trouble": last.trouble if last else None,
        "targets": {name: list(limits) for name, limits in TARGETS.items()},
        "gpus": [means(number, window) for number in numbers],
        "host": _host(last.host) if last else None,
        "diagnosis": _symptoms(symptoms),
    }


def means(number: int, window: Sequence[Sample]) -> dict[str, Any]:
    """The figures of one GPU over a window: means, and the most memory in use."""
    its = [g for sample in window for g in sample.gpus if g.index == number]
    found = {name: _short(mean(getattr(g, name) for g in its)) for name in MEANS}
    shares = [g.memory_share for g in its if g.memory_share is not None]
    used = [g.memory_used for g in its if g.memory_used is not None]
    return {
        "index": number,
        "name": its[-1].name,
        **found,
        "memory_used": max(used, default=None),
        "memory_total": its[-1].memory_total,
        "memory": _short(max(shares, default=None)),
        "utilisation_spread": _spread([g.utilisation for g in its]),
        "slowed_by": sorted({reason for g in its for reason in g.slowed_by or ()}),
    }


def _gpu(gpu: GpuFigures) -> dict[str, Any]:
    plain = {**dataclasses.asdict(gpu), "memory": gpu.memory_share}
    return {name: _short(value) for name, value in plain.items()}


def _host(host: HostFigures) -> dict[str, Any]:
    return {
        "cpus": host.cpus,
        "cpu": _short(host.cpu),
        "memory_used": host.memory_used,
        "memory_total": host.memory_total,
        "training_cpu": training_cpu(host),
        "processes": [
            {
                "pid": its.pid,
                "name": its.name,
                "role": its.role,
                "cpu": _short(its.cpu),
                "memory": its.memory,
            }
            for its in host.processes
        ],
    }


def training_cpu(host: HostFigures) -> float | None:
    """The CPU of all processes of the training together, in percent of one core."""
    known = [p.cpu for p in host.processes if p.root is not None and p.cpu is not None]
    return _short(sum(known)) if known else None


def _symptoms(symptoms: Sequence[Symptom] | None) -> list[dict[str, Any]] | None:
    return None if symptoms is None else [dataclasses.asdict(its) for its in symptoms]


def _spread(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return _short(statistics.pstdev(known)) if known else None


def _short(value: Any) -> Any:
    return round(value, 1) if isinstance(value, float) else value
