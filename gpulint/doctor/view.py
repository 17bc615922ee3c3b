"""Show a report on a terminal, or as plain lines elsewhere."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

from rich.control import strip_control_codes
from rich.text import Text

from gpulint.report.frame import wrap
from gpulint.report.full import console

PIPE_WIDTH = 120
LABELS = {"ok": "ok", "note": "note", "warn": "WARN", "error": "ERROR"}
STYLES = {
    "ok": "green",
    "note": "bold cyan",
    "warn": "bold yellow",
    "error": "bold red",
}
WORDS = {"error": "error", "warn": "warning", "note": "note"}
ARROW = "-> "


def show(report: Mapping[str, Any], stream: TextIO) -> None:
    """Print the checks with their advice, what the runtime chooses, and a count."""
    screen = console(stream)
    fixed = screen.is_terminal or "COLUMNS" in os.environ
    width = max(screen.width if fixed else PIPE_WIDTH, 40)
    for line in lines(report, width):
        screen.print(line, soft_wrap=True)


def lines(report: Mapping[str, Any], width: int) -> Iterator[Text]:
    """Yield the report in lines of at most `width` cells."""
    yield Text(f"gpulint doctor {report['gpulint']}, {report['date']}")
    yield Text()
    column = max((len(check["subject"]) for check in report["checks"]), default=0) + 2
    previous = ""
    for check in report["checks"]:
        subject = "" if check["subject"] == previous else check["subject"]
        previous = check["subject"]
        yield from _check(check, subject, column, width)
    yield from _choices(report, width)
    yield Text()
    for part in wrap(_summary(report), width):
        yield Text(part)


def _check(
    check: Mapping[str, Any], subject: str, column: int, width: int
) -> Iterator[Text]:
    status = check["status"]
    indent = 6 + column
    head, *rest = wrap(strip_control_codes(check["text"]), width - indent)
    yield Text.assemble(
        (f"{LABELS[status]:<6}", STYLES[status]), f"{subject:<{column}}", head
    )
    for part in rest:
        yield Text(" " * indent + part)
    if check["advice"]:
        for index, part in enumerate(
            wrap(check["advice"], width - indent - len(ARROW))
        ):
            yield Text(" " * indent + (" " * len(ARROW) if index else ARROW) + part)


def _choices(report: Mapping[str, Any], width: int) -> Iterator[Text]:
    chosen = ((report["torch"] or {}).get("runtime") or {}).get("decisions")
    if not chosen:
        return
    yield Text()
    yield Text("Scripts that import gpulint.runtime would get here")
    for line in chosen:
        head, *rest = wrap(strip_control_codes(line), width - 4)
        yield Text(f"  {head}")
        for part in rest:
            yield Text(f"    {part}")


def _summary(report: Mapping[str, Any]) -> str:
    counts = Counter(check["status"] for check in report["checks"])
    found = [
        f"{counts[status]} {word}{'' if counts[status] == 1 else 's'}"
        for status, word in WORDS.items()
        if counts[status]
    ]
    text = f"{', '.join(found) or 'Nothing to change'}."
    if report["redacted"]:
        text += " Names, paths and identifiers are hidden (--no-redact shows them)."
    return text
