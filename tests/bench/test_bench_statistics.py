"""Intervals: what they hold, and how often chance alone makes a difference of equals."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from gpulint.bench.runs import orders
from gpulint.bench.statistics import (
    DECIDES,
    Interval,
    median_interval,
    quantile,
    ratio_interval,
    shared,
    student,
    verdict,
)


@pytest.mark.parametrize(
    "freedom,level,expected",
    # tables of Student's distribution
    [(1, 0.95, 12.706), (2, 0.99, 9.925), (4, 0.99, 4.604), (30, 0.95, 2.042)],
)
def test_student(freedom: int, level: float, expected: float) -> None:
    assert student(freedom, level) == pytest.approx(expected, abs=5e-4)


def rates(seed: int, center: float = 1000, drift: float = 0.0) -> list[float]:
    draw = random.Random(seed)
    return [center * math.exp(draw.gauss(0, 0.05) - drift * i) for i in range(5)]


def test_no_change_shows_no_difference() -> None:
    found = [verdict(rates(2 * s), rates(2 * s + 1)) for s in range(100)]
    assert found.count("no difference shown") >= 95


def test_no_change_on_a_machine_that_slows_down() -> None:
    found = [
        verdict(rates(2 * s, drift=0.2), rates(2 * s + 1, drift=0.2))
        for s in range(100)
    ]
    assert found.count("no difference shown") >= 95


def wandering(draw: random.Random, count: int) -> list[float]:
    values = [0.0]
    for _ in range(count):
        values.append(values[-1] + draw.gauss(0, 0.05))
    return values


def interrupted(draw: random.Random, count: int) -> list[float]:
    return [
        draw.gauss(0, 0.01) - (draw.random() < 0.2) * draw.random()
        for _ in range(count)
    ]


def coming_and_going(draw: random.Random, count: int) -> list[float]:
    period, start = draw.choice((2, 3, 4, 5, 6, 8)), draw.randrange(24)
    return [
        draw.gauss(0, 0.003) + 0.2 * (2 * ((i + start) % period) < period)
        for i in range(count)
    ]


@pytest.mark.parametrize("noise", [wandering, interrupted, coming_and_going])
def test_no_change_on_a_restless_machine(noise: Any) -> None:
    found = []
    for seed in range(100):
        draw = random.Random(seed)
        logs = iter(noise(draw, 12))
        both: tuple[list[float], list[float]] = ([], [])
        for order in orders(2, 6, draw):
            for place in order:
                both[place].append(math.exp(next(logs)))
        found.append(verdict(*both))
    assert found.count("no difference shown") >= 95


def test_intervals_that_hold_together() -> None:
    assert shared(0.99, 4) == pytest.approx(0.9975)
    assert shared(0.99, 1) == shared(0.99, 0) == pytest.approx(0.99)


def test_changes_are_seen() -> None:
    found = [verdict(rates(2 * s), rates(2 * s + 1, 1500)) for s in range(100)]
    assert found.count("faster") >= 95
    found = [verdict(rates(2 * s), rates(2 * s + 1, 600)) for s in range(100)]
    assert found.count("slower") >= 95


def test_the_ratio_and_its_interval() -> None:
    its = ratio_interval([100, 200, 400], [210, 400, 800])
    assert its.value == pytest.approx(2 * 1.05 ** (1 / 3))
    assert its.low < 2 < its.value < its.high
    wider = ratio_interval([100, 200, 400], [210, 400, 800], DECIDES)
    assert wider.low < its.low
    assert wider.high > its.high
    exact = ratio_interval([100, 200, 400], [200, 400, 800])
    assert (exact.low, exact.high) == pytest.approx((2, 2))


def test_the_median_and_its_interval() -> None:
    assert median_interval([3.0]) == Interval(3.0, 3.0, 3.0)
    its = median_interval([10, 11, 12, 13, 90])
    assert its.value == 12
    assert (its.low, its.high) == (10, 90)
    assert median_interval([10, 11, 12, 13, 90]) == its
    many = median_interval([float(i) for i in range(101)])
    assert 30 < many.low < 50 < many.high < 70


def test_quantiles_between_values() -> None:
    assert quantile([1, 2, 4], 0.5) == 2
    assert quantile([1, 2, 4], 0.75) == 3
    assert quantile([7], 0.99) == 7
