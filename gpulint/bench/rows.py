"""The comparison as rows of text, for the terminal, Markdown and HTML alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpulint.bench.compare import PERCENTILES, STEPS, Comparison, Side
from gpulint.bench.gpus import GpuUse
from gpulint.bench.statistics import SHOWN, Interval
from gpulint.runtime._hardware import in_units

MISSING = "n/a"
ALONE = " alone"  # ends the label of a variant with the fixes of one rule
INTERVAL = f"{100 * SHOWN:.4g} % interval"


class Row(NamedTuple):
    """What was measured, of both variants, and the change."""

    name: str
    before: str
    after: str
    change: str = ""


class Alone(NamedTuple):
    """What the fixes of one rule do."""

    name: str
    rate: str
    change: str
    wide: str  # the change's interval
    verdict: str


class About(NamedTuple):
    """What was compared, and where."""

    title: str
    fixes: str  # which, and what they may change; empty for two scripts
    machine: str
    setup: str
    warnings: Sequence[str] = ()
    failures: Sequence[str] = ()  # why the exit code is not 0


def rows(comparison: Comparison) -> list[Row]:
    """Speed, data, what the device does, memory; a measure a row."""
    first, second = comparison.sides
    values = [number(side.rate.value) for side in comparison.sides]
    table = [
        Row(comparison.unit, values[0], values[1], times(comparison.ratio)),
        Row(f"  {INTERVAL}", _wide(first), _wide(second), wide(comparison.ratio)),
        *(Row(name, show(first), show(second)) for name, show in MEASURES),
    ]
    if comparison.energy:
        table += _energy(comparison)
    if first.skipped or second.skipped:
        table.append(Row("skipped steps", str(first.skipped), str(second.skipped)))
    return table


def by_rule(comparison: Comparison) -> list[Alone]:
    """Each rule's fixes alone, against the first."""
    return [
        Alone(
            its.sides[1].label.removesuffix(ALONE),
            number(its.sides[1].rate.value),
            times(its.ratio),
            wide(its.ratio),
            its.verdict,
        )
        for its in comparison.alone
    ]


def conclusions(comparison: Comparison) -> list[str]:
    """What it comes to, a sentence a line; the verdict is the last."""
    lines = []
    if comparison.alone:
        level = _level(comparison.alone[0].level)
        lines.append(
            "By rule: its fixes alone against the first variant; gains do not multiply."
        )
        together = _level(comparison.level)
        lines.append(
            f"Each is judged at {level}, so that all hold together at {together}."
        )
    if not comparison.whole:
        lines.append(
            "The two take other batches: what comes between passes does not count."
        )
    if comparison.unit == STEPS:
        lines.append("Not all batches have a known size: steps are compared.")
    lines.append(f"losses: {comparison.losses.text}")
    lines += [
        f"losses with {its.sides[1].label}: {its.losses.text}"
        for its in comparison.alone
        if its.losses.differ
    ]
    lines.append(f"verdict: {judgement(comparison)}")
    return lines


def judgement(comparison: Comparison) -> str:
    """The verdict and what it rests on; where there is none, what would have shown."""
    its, level = comparison.decisive, _level(comparison.level)
    found = f"{its.value:.3g}x, {level} interval {its.low:.3g} to {its.high:.3g}"
    text = f"{comparison.verdict} ({found})"
    if its.low <= 1 <= its.high:
        least = its.high / its.value
        text += f"; in runs that vary so much, {least:.3g}x or more would show"
    return text


def times(ratio: Interval) -> str:
    """A ratio."""
    return f"{_ratio(ratio.value)}x"


def wide(ratio: Interval) -> str:
    """The interval of a ratio."""
    return f"{_ratio(ratio.low)} – {_ratio(ratio.high)}"


def number(value: float) -> str:
    """Three or more digits, thousands apart."""
    if value >= 100:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.3g}"


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def _wide(side: Side) -> str:
    return f"{number(side.rate.low)} – {number(side.rate.high)}"


def _level(level: float) -> str:
    """As text: 99 %, 99.9 %."""
    return f"{100 * level:.4g} %"


def _time(percentile: int) -> Callable[[Side], str]:
    def show(side: Side) -> str:
        value = side.step_ms[percentile]
        return f"{value:.1f} ms" if value >= 10 else f"{value:.2f} ms"

    return show


def _syncs(side: Side) -> str:
    return MISSING if side.host_syncs is None else f"{side.host_syncs:.3g} a step"


def _energy(comparison: Comparison) -> list[Row]:
    sides, unit = comparison.sides, comparison.unit
    watts = [side.of_gpus(lambda its: its.power_watts) for side in sides]
    joules = [side.joules(unit) for side in sides]
    return [
        Row("GPU power", *(MISSING if w is None else f"{w:.0f} W" for w in watts)),
        Row(
            f"energy of 1000 {unit.removesuffix('/s')}",
            *(MISSING if j is None else f"{number(j)} J" for j in joules),
        ),
    ]


def _of_gpus(value: Callable[[GpuUse], float | None]) -> Callable[[Side], str]:
    def show(side: Side) -> str:
        share = side.of_gpus(value)
        return MISSING if share is None else f"{share:.0f} %"

    return show


def _size(size: int | None) -> str:
    return MISSING if size is None else in_units(size)


# What is measured of each variant beside its rate; a row each, in this order.
MEASURES: tuple[tuple[str, Callable[[Side], str]], ...] = (
    *(
        ("step time, median" if p == 50 else f"  {p} % are below", _time(p))
        for p in PERCENTILES
    ),
    ("data wait", lambda side: f"{100 * side.wait:.0f} %"),
    ("host syncs", _syncs),
    ("GPU utilisation", _of_gpus(lambda its: its.utilisation)),
    ("SM activity", _of_gpus(lambda its: its.sm_active)),
    ("GPU memory", lambda side: _size(side.device_peak if side.device else None)),
    ("host memory", lambda side: _size(side.host_peak)),
)
