"""Print a comparison: a table on the terminal, JSON, Markdown."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from gpulint.bench.compare import Comparison, Side
from gpulint.bench.rows import INTERVAL, About, by_rule, conclusions, rows
from gpulint.bench.statistics import SHOWN, Interval

SCHEMA = 1


def print_table(comparison: Comparison, about: About, stream: TextIO) -> None:
    """Tables, and what they come to."""
    from gpulint.report.full import console

    first, second = comparison.sides
    screen = console(stream)
    for line in filter(None, (about.title, about.fixes, about.machine, about.setup)):
        screen.print(line, soft_wrap=True)
    screen.print()
    names: tuple[str, ...] = ("", first.label, second.label, "change")
    screen.print(_table(names, rows(comparison)))
    if comparison.alone:
        screen.print()
        names = ("by rule", comparison.unit, "change", INTERVAL, "")
        screen.print(_table(names, by_rule(comparison)))
    screen.print()
    for line in (*about.warnings, *conclusions(comparison), *about.failures):
        screen.print(line, soft_wrap=True)


def _table(names: Sequence[str], lines: Iterable[Sequence[str]]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(names[0])
    for name in names[1:]:
        table.add_column(name, justify="right" if name else "left", overflow="fold")
    for line in lines:
        table.add_row(*line)
    return table


def markdown(comparison: Comparison, about: About) -> str:
    """A table for a pull request."""
    first, second = comparison.sides
    lines = [f"### {about.title}", ""]
    lines += [f"{about.fixes}  "] if about.fixes else []
    lines += [f"{about.machine}  ", about.setup, ""]
    names: tuple[str, ...] = ("", first.label, second.label, "change")
    lines += [_line(names), "|---|---:|---:|---:|"]
    lines += [_line(row) for row in rows(comparison)]
    if comparison.alone:
        names = ("by rule", comparison.unit, "change", INTERVAL, "")
        lines += ["", _line(names), "|---|---:|---:|---:|---|"]
        lines += [_line(row) for row in by_rule(comparison)]
    lines.append("")
    for line in (*about.warnings, *conclusions(comparison), *about.failures):
        lines.append(f"- {line}")
    return "\n".join(lines) + "\n"


def as_json(
    comparison: Comparison, facts: Mapping[str, Any], exit_code: int
) -> dict[str, Any]:
    """All that was measured; `facts` say what of and where. Every number is finite."""
    found = {
        "schema": SCHEMA,
        **facts,
        **_compared(comparison),
        "alone": [_compared(its) for its in comparison.alone],
        "exit_code": exit_code,
    }
    finite: dict[str, Any] = _finite(found)
    return finite


def _compared(its: Comparison) -> dict[str, Any]:
    return {
        "unit": its.unit,
        "whole": its.whole,
        "sides": [_side(side) for side in its.sides],
        "ratio": _interval(its.ratio, SHOWN),
        "decisive": _interval(its.decisive, its.level),
        "verdict": its.verdict,
        "losses": {
            "text": its.losses.text,
            "differ": its.losses.differ,
            "max_relative_deviation": its.losses.deviation,
            "compared": its.losses.count,
        },
    }


def _side(side: Side) -> dict[str, Any]:
    return {
        "label": side.label,
        "rate": _interval(side.rate, SHOWN),
        "rates": side.rates,
        "step_seconds": [list(run.seconds) for run in side.runs],
        "step_ms": {f"p{p}": value for p, value in side.step_ms.items()},
        "data_wait": side.wait,
        "host_syncs_per_step": side.host_syncs,
        "device": side.device,
        "gpus": [run.gpus and dataclasses.asdict(run.gpus) for run in side.runs],
        "device_peak_bytes": side.device_peak,
        "host_peak_bytes": side.host_peak,
        "skipped_steps": side.skipped,
        "losses": side.runs[0].losses,
    }


def _interval(its: Interval, level: float) -> dict[str, float]:
    return {"value": its.value, "low": its.low, "high": its.high, "level": level}


def _finite(value: Any) -> Any:
    """The same with what JSON has no number for as text: `nan`, `inf`."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {key: _finite(its) for key, its in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(its) for its in value]
    return value


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(c.strip().replace("|", "\\|") for c in cells) + " |"
