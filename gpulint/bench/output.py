"""Print a comparison: a table on the terminal, JSON, Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TextIO

from gpulint.bench.compare import Comparison, Side
from gpulint.bench.rows import About, conclusions, rows
from gpulint.bench.statistics import DECIDES, SHOWN, Interval

SCHEMA = 1


def print_table(comparison: Comparison, about: About, stream: TextIO) -> None:
    """A table, and what it comes to."""
    from rich.table import Table

    from gpulint.report.full import console

    first, second = comparison.sides
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    for name in (first.label, second.label, "change"):
        table.add_column(name, justify="right", overflow="fold")
    for row in rows(comparison):
        table.add_row(*row)
    screen = console(stream)
    for line in filter(None, (about.title, about.fixes, about.setup)):
        screen.print(line, soft_wrap=True)
    screen.print()
    screen.print(table)
    screen.print()
    for line in (*conclusions(comparison), *about.warnings):
        screen.print(line, soft_wrap=True)


def markdown(comparison: Comparison, about: About) -> str:
    """A table for a pull request."""
    first, second = comparison.sides
    lines = [f"### {about.title}", ""]
    lines += [f"{about.fixes}  "] if about.fixes else []
    lines += [f"{about.machine}  ", about.setup, ""]
    lines += [f"|  | {_cell(first.label)} | {_cell(second.label)} | change |"]
    lines += ["|---|---:|---:|---:|"]
    for row in rows(comparison):
        lines.append(f"| {' | '.join(map(_cell, row))} |")
    lines.append("")
    for line in (*conclusions(comparison), *about.warnings):
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
        "decisive": _interval(its.decisive, DECIDES),
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
        "step_ms": {f"p{p}": value for p, value in side.step_ms.items()},
        "data_wait": side.wait,
        "device": side.device,
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


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
