"""What the runs of two variants show: speed, memory and losses."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gpulint.bench.gpus import GpuUse, middle
from gpulint.bench.runs import Run
from gpulint.bench.statistics import (
    DECIDES,
    SHOWN,
    Interval,
    median_interval,
    quantile,
    ratio_interval,
    verdict,
)

PERCENTILES = (50, 90, 99)
FAR = 10  # times what runs of one text differ by: more than their chance
SAMPLES, STEPS = "samples/s", "steps/s"
ORDER = ("exact", "numerics", "random", "hyperparams")


@dataclass(frozen=True)
class Side:
    """What was measured of one variant."""

    label: str
    runs: Sequence[Run]
    rates: Sequence[float]  # of each run
    rate: Interval
    step_ms: dict[int, float]  # by percentile
    wait: float  # the share of the time spent on data
    host_syncs: float | None = None  # a step; None: no CUDA device, or not counted

    @property
    def device(self) -> str | None:
        """The GPU that it ran on."""
        return next((run.device for run in self.runs if run.device), None)

    @property
    def device_peak(self) -> int | None:
        """The most bytes of the GPU in use in any of the runs."""
        return max(filter(None, (r.device_peak for r in self.runs)), default=None)

    @property
    def host_peak(self) -> int | None:
        """The most bytes that the script's own process has held."""
        return max(filter(None, (r.host_peak for r in self.runs)), default=None)

    def of_gpus(self, value: Callable[[GpuUse], float | None]) -> float | None:
        """The median over the runs of what NVML has seen; None where one lacks it."""
        uses = [run.gpus for run in self.runs]
        return middle([None if use is None else value(use) for use in uses])

    def joules(self, unit: str) -> float | None:
        """The energy of the GPUs for 1000 samples; steps, where these are counted."""
        return middle([_joules(run, unit) for run in self.runs])

    @property
    def slowed_by(self) -> list[str]:
        """What kept the clocks of the GPUs low in any of the runs."""
        return sorted(
            {why for run in self.runs if run.gpus for why in run.gpus.slowed_by}
        )

    @property
    def skipped(self) -> int:
        """The steps that a GradScaler left out, of all runs."""
        return sum(run.skipped for run in self.runs)


@dataclass(frozen=True)
class Losses:
    """How the losses of the two variants compare."""

    text: str
    differ: bool  # where they must not
    deviation: float | None = None  # the greatest, relative; None: not comparable
    count: int = 0  # losses compared in a run


@dataclass(frozen=True)
class Comparison:
    """All that is said of two variants."""

    sides: tuple[Side, Side]
    unit: str  # samples/s or steps/s
    whole: bool  # evaluation and other work between passes counts
    ratio: Interval  # at 95 %
    decisive: Interval  # the same ratio at `level`
    verdict: str
    losses: Losses
    level: float = DECIDES
    energy: bool = False  # power and energy are shown
    alone: tuple[Comparison, ...] = ()  # of the first with single fixes

    def failures(self, least: float) -> list[str]:
        """What must not be: slower than `least` times the first, other losses."""
        found = []
        if self.decisive.high < least:
            found.append(f"shown to be less than {least:g}x as fast (--min-speedup)")
        if any(its.losses.differ for its in (self, *self.alone)):
            found.append("losses differ that must not")
        return found


def compare(
    labels: tuple[str, str],
    runs: tuple[Sequence[Run], Sequence[Run]],
    effects: frozenset[str] | None,
    tolerance: float | None,
    level: float = DECIDES,
) -> Comparison:
    """Compare as many runs of each; those at one place ran in one round.

    `effects`: what the fixes between the two may change; None for two unrelated texts.
    `level`: of the interval that decides; it grows with the comparisons that are made.
    """
    every = [*runs[0], *runs[1]]
    known = all(size is not None for run in every for size in run.samples)
    # Steps of the same samples are the same work, with all that comes between.
    same = all(list(run.samples) == list(every[0].samples) for run in every)
    whole = same or any(all(run.between) for run in every)
    first, second = (
        _side(label, its, known, whole) for label, its in zip(labels, runs, strict=True)
    )
    return Comparison(
        (first, second),
        SAMPLES if known else STEPS,
        whole,
        ratio_interval(first.rates, second.rates, SHOWN),
        ratio_interval(first.rates, second.rates, level),
        verdict(first.rates, second.rates, level),
        compare_losses(runs[0], runs[1], effects, tolerance),
        level,
    )


def _joules(run: Run, unit: str) -> float | None:
    if run.gpus is None or run.gpus.energy_joules is None:
        return None
    samples = sum(size or 0 for size in run.samples)
    count = samples if unit == SAMPLES else len(run.seconds)
    return 1000 * run.gpus.energy_joules / max(count, 1)


def _side(label: str, runs: Sequence[Run], known: bool, whole: bool) -> Side:
    counted = [_counted(run, whole) for run in runs]
    rates = [_rate(run, its, known) for run, its in zip(runs, counted, strict=True)]
    pairs = [
        (r.seconds[i], r.waits[i])
        for r, c in zip(runs, counted, strict=True)
        for i in c
    ]
    ordered = sorted(1000 * seconds for seconds, _ in pairs)
    return Side(
        label,
        runs,
        rates,
        median_interval(rates),
        {p: quantile(ordered, p / 100) for p in PERCENTILES},
        sum(wait for _, wait in pairs) / sum(seconds for seconds, _ in pairs),
    )


def _counted(run: Run, whole: bool) -> list[int]:
    """The steps whose time counts."""
    return [i for i, between in enumerate(run.between) if whole or not between]


def _rate(run: Run, counted: Sequence[int], known: bool) -> float:
    seconds = sum(run.seconds[i] for i in counted)
    done = sum((run.samples[i] or 0) if known else 1 for i in counted)
    return max(done, 1) / max(seconds, 1e-9)


def compare_losses(
    before: Sequence[Run],
    after: Sequence[Run],
    effects: frozenset[str] | None,
    tolerance: float | None,
) -> Losses:
    """Hold the losses against what the fixes may change, and against chance.

    Where runs of one text differ among themselves, as without a seed, a difference
    counts only if it is far greater than theirs.
    """
    loose = [
        e for e in ORDER if e in (effects or ()) and e in ("random", "hyperparams")
    ]
    if loose:
        what = " and ".join(loose)
        return Losses(f"not comparable step by step: the fixes change {what}", False)
    if not all(run.losses for run in (*before, *after)):
        return Losses("not seen: no call of `Tensor.backward` on a scalar", False)
    counts = {len(run.losses) for run in (*before, *after)}
    exact = effects is not None and "numerics" not in effects
    if len(counts) > 1 and exact:
        shown = " and ".join(map(str, sorted(counts)))
        return Losses(f"DIFFER: {shown} losses in as many steps", True)
    crossing = _greatest((a, b) for a in before for b in after)
    chance = max(
        _greatest(itertools.combinations(before, 2)),
        _greatest(itertools.combinations(after, 2)),
    )
    allowed = 0.0 if exact else tolerance
    return _judged(crossing, chance, allowed, min(counts))


def _judged(crossing: float, chance: float, allowed: float | None, n: int) -> Losses:
    measured = f"max relative deviation {_percent(crossing)} over {n} losses"
    if allowed is not None and crossing > allowed:
        if crossing <= FAR * chance:
            text = f"not comparable: {measured}, {_percent(chance)} among runs of one"
            return Losses(f"{text} text (no seed?)", False, crossing, n)
        over = f", more than {_percent(allowed)}" if allowed else ""
        return Losses(f"DIFFER: {measured}{over}", True, crossing, n)
    return Losses("equal" + f" ({n})" if not crossing else measured, False, crossing, n)


def _greatest(pairs: Iterable[tuple[Run, Run]]) -> float:
    return max((deviation(a.losses, b.losses) for a, b in pairs), default=0.0)


def deviation(before: Sequence[float], after: Sequence[float]) -> float:
    """The greatest difference of two losses of one step, relative to the first.

    A loss near zero is held against the mean of all. Infinite where one is no number.
    """
    finite = [abs(x) for x in before if math.isfinite(x)]
    usual = statistics.fmean(finite) if finite else 0.0
    worst = 0.0
    for a, b in zip(before, after, strict=False):
        if a == b or (math.isnan(a) and math.isnan(b)):
            continue
        if not (math.isfinite(a) and math.isfinite(b)):
            return math.inf
        scale = max(abs(a), usual)
        worst = max(worst, abs(a - b) / scale if scale else math.inf)
    return worst


def _percent(share: float) -> str:
    return "infinite" if math.isinf(share) else f"{100 * share:.2g} %"
