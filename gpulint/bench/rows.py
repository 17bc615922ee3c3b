"""The comparison as rows of text, for the terminal, Markdown and HTML alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpulint.bench.compare import PERCENTILES, Comparison, Side
from gpulint.bench.statistics import Interval
from gpulint.runtime._hardware import in_units

MISSING = "n/a"


class Row(NamedTuple):
    """What was measured, of both variants, and the change."""

    name: str
    before: str
    after: str
    change: str = ""


class About(NamedTuple):
    """What was compared, and where."""

    title: str
    fixes: str  # which, and what they may change; empty for two scripts
    machine: str
    setup: str
    warnings: Sequence[str] = ()


def rows(comparison: Comparison) -> list[Row]:
    """Speed, data, memory."""
    first, second = comparison.sides
    table = [
        Row(
            comparison.unit,
            _rate(first.rate),
            _rate(second.rate),
            times(comparison.ratio),
        )
    ]
    for p in PERCENTILES:
        name = "step ms, median" if p == 50 else f"step ms, {p} %"
        table.append(Row(name, _ms(first.step_ms[p]), _ms(second.step_ms[p])))
    table += [
        Row("data wait", *(f"{100 * side.wait:.0f} %" for side in comparison.sides)),
        Row("GPU memory", *(_bytes(s.device_peak, s) for s in comparison.sides)),
        Row("host memory", *(_size(side.host_peak) for side in comparison.sides)),
    ]
    if first.skipped or second.skipped:
        table.append(Row("skipped steps", str(first.skipped), str(second.skipped)))
    for its in comparison.alone:
        side = its.sides[1]
        table.append(Row(side.label, its.unit, _rate(side.rate), times(its.ratio)))
    return table


def conclusions(comparison: Comparison) -> list[str]:
    """What it comes to, a sentence a line."""
    its = comparison.decisive
    lines = [f"losses: {comparison.losses.text}"]
    lines += [
        f"losses with {its.sides[1].label}: {its.losses.text}"
        for its in comparison.alone
        if its.losses.differ
    ]
    if not comparison.whole:
        lines.append(
            "The two take other batches: what comes between passes does not count."
        )
    if comparison.unit == "steps/s":
        lines.append("Not all batches have a known size: steps are compared.")
    wide = f"99 % interval {its.low:.3g} to {its.high:.3g}"
    lines.append(f"verdict: {comparison.verdict} ({its.value:.3g}x, {wide})")
    return lines


def times(ratio: Interval) -> str:
    """A ratio with its interval."""
    return f"{ratio.value:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}]"


def number(value: float) -> str:
    """Three or more digits, thousands apart."""
    if value >= 100:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.3g}"


def _rate(its: Interval) -> str:
    return f"{number(its.value)} [{number(its.low)}, {number(its.high)}]"


def _ms(value: float) -> str:
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _bytes(size: int | None, side: Side) -> str:
    return _size(size) if side.device else MISSING


def _size(size: int | None) -> str:
    return MISSING if size is None else in_units(size)
