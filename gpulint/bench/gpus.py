"""What the GPUs did in the measured part of a run, from readings of NVML beside it."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from gpulint.nvml.figures import GpuFigures
from gpulint.nvml.sampler import Reading

INTERVAL = 0.1  # seconds between two readings
LEAST_SECONDS = 1.0  # NVML's utilisation is a mean of up to a second
OFTEN = 0.2  # of the readings


@dataclass(frozen=True)
class GpuUse:
    """The GPUs of one run; None is what they do not tell.

    Shares (percent), clocks (MHz) and PCIe (bytes a second of one GPU) are means over
    time and GPUs, watts and joules are those of all GPUs together, the memory (bytes)
    is the most of one. `slowed_by`: what kept the clocks low often.
    """

    seconds: float
    utilisation: float | None
    sm_active: float | None
    sm_occupancy: float | None
    tensor_active: float | None
    dram_active: float | None
    power_watts: float | None
    energy_joules: float | None
    memory_peak: int | None
    sm_clock: float | None
    pcie_sent: float | None
    pcie_received: float | None
    slowed_by: tuple[str, ...]


def gpu_use(
    readings: Iterable[Reading], began: float, ended: float, uuids: Collection[str]
) -> GpuUse | None:
    """What is known of the GPUs between two times by `time.monotonic`.

    `uuids`: of the GPUs that the run has used, as NVML names them; where torch does not
    tell, a single GPU is the one. None: too short, no driver, or not certain which.
    """
    within = [its for its in readings if began <= its.at <= ended]
    if ended - began < LEAST_SECONDS or len(within) < 2:
        return None
    cards = _cards(within, uuids)
    if not cards:
        return None
    every = [figures for card in cards for _, figures in card]
    peaks = [g.memory_used for g in every if g.memory_used is not None]
    known = [g.slowed_by for g in every if g.slowed_by is not None]
    reasons = sorted({reason for its in known for reason in its})
    power = _sum(_mean(g.power_watts for _, g in card) for card in cards)
    return GpuUse(
        seconds=ended - began,
        utilisation=_mean(g.utilisation for g in every),
        sm_active=_mean(g.sm_active for g in every),
        sm_occupancy=_mean(g.sm_occupancy for g in every),
        tensor_active=_mean(g.tensor_active for g in every),
        dram_active=_mean(g.dram_active for g in every),
        power_watts=power,
        energy_joules=_sum(_energy(card, ended - began) for card in cards),
        memory_peak=max(peaks, default=None),
        sm_clock=_mean(g.sm_clock for g in every),
        pcie_sent=_mean(g.pcie_sent for g in every),
        pcie_received=_mean(g.pcie_received for g in every),
        slowed_by=tuple(
            reason
            for reason in reasons
            if sum(reason in its for its in known) >= OFTEN * len(known)
        ),
    )


def middle(values: Sequence[float | None]) -> float | None:
    """The median over runs; None where one run does not know it."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known and len(known) == len(values) else None


Card = list[tuple[float, GpuFigures]]


def _cards(readings: Sequence[Reading], uuids: Collection[str]) -> list[Card]:
    """The readings of each GPU that was used; none where a reading lacks one."""
    numbers = [
        gpu.index
        for gpu in readings[0].gpus
        if gpu.uuid in uuids or (not uuids and len(readings[0].gpus) == 1)
    ]
    if len(numbers) != max(len(set(uuids)), 1):
        return []
    return [
        [(its.at, gpu) for its in readings for gpu in its.gpus if gpu.index == number]
        for number in numbers
    ]


def _energy(card: Card, seconds: float) -> float | None:
    """Joules, by the counter of the GPU, else by its power."""
    counted = [(at, g.energy_joules) for at, g in card if g.energy_joules is not None]
    if len(counted) > 1:
        (first, before), (last, after) = counted[0], counted[-1]
        assert before is not None
        assert after is not None
        return (after - before) / (last - first) * seconds
    watts = _mean(g.power_watts for _, g in card)
    return None if watts is None else watts * seconds


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _sum(values: Iterable[float | None]) -> float | None:
    """The sum; None where one is not known."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if known and len(known) == len(found) else None
