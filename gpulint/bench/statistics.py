"""Intervals for a handful of measured rates and for the ratio of two of them.

A run is one observation: the steps of a run share the state of the machine, so more of
them tell more about that run only. Two runs of one round make a pair, whose ratio is
free of slow drifts; which of them goes first is drawn, as often the one as the other.
Six ratios are too few for a bootstrap: at a level of 99 % that of their median called
64 of 1000 pairs of equals different, where Student's interval of their logarithms
called 10. Ratios therefore get the latter; rates, which only describe, a bootstrap of
the median.

`benchmarks/bench_no_change.py --simulate` says how often chance alone makes a verdict
of equals, under noise of many kinds.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

SHOWN = 0.95  # the level of intervals that are printed
DECIDES = 0.99  # the level of the interval that the verdict rests on
RESAMPLES = 2000
SEED = 0  # the same measurements give the same interval
PARTS = 400  # of the integration: even; errors below 1e-9


@dataclass(frozen=True)
class Interval:
    """A value, and the range that holds it at some level."""

    value: float
    low: float
    high: float


def median_interval(values: Sequence[float], level: float = SHOWN) -> Interval:
    """The median of at least one value, with its percentile bootstrap interval."""
    draw = random.Random(SEED)
    medians = sorted(
        statistics.median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES)
    )
    tail = (1 - level) / 2
    low, high = (quantile(medians, q) for q in (tail, 1 - tail))
    return Interval(statistics.median(values), low, high)


def ratio_interval(
    before: Sequence[float], after: Sequence[float], level: float = SHOWN
) -> Interval:
    """How many times greater `after` is, of pairs of positive values; at least two."""
    logs = [math.log(b / a) for a, b in zip(before, after, strict=True)]
    mean = statistics.fmean(logs)
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    wide = student(len(logs) - 1, level) * error
    return Interval(math.exp(mean), math.exp(mean - wide), math.exp(mean + wide))


def verdict(
    before: Sequence[float], after: Sequence[float], level: float = DECIDES
) -> str:
    """`faster`, `slower` or `no difference shown`, by an interval of the ratio."""
    its = ratio_interval(before, after, level)
    if its.low > 1:
        return "faster"
    return "slower" if its.high < 1 else "no difference shown"


def quantile(ordered: Sequence[float], q: float) -> float:
    """The q-quantile of sorted values, between neighbours where it falls there."""
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def shared(level: float, count: int) -> float:
    """The level for each of `count` intervals that are to hold all together."""
    return 1 - (1 - level) / max(count, 1)


@lru_cache
def student(freedom: int, level: float) -> float:
    """How many standard errors wide, to each side, an interval of this level is.

    With t = sqrt(freedom) tan(angle), the density of Student's distribution is
    cos(angle) ** (freedom - 1): smooth, and over a finite range.
    """
    whole = _area(math.pi / 2, freedom)
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        if _area(angle, freedom) < level * whole:
            low = angle
        else:
            high = angle
    return math.sqrt(freedom) * math.tan(low)


def _area(angle: float, freedom: int) -> float:
    """The integral of cos(x) ** (freedom - 1) from 0 to an angle, by Simpson's rule."""
    width = angle / PARTS
    heights = [math.cos(i * width) ** (freedom - 1) for i in range(PARTS + 1)]
    inner = 4 * sum(heights[1:-1:2]) + 2 * sum(heights[2:-1:2])
    return width / 3 * (heights[0] + inner + heights[-1])
