"""Findings made by pointing at words of a text."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from gpulint import report
from gpulint.finding import (
    Confidence,
    Effect,
    Evidence,
    Finding,
    Fix,
    Place,
    Severity,
    TextEdit,
)
from gpulint.source import Source

DATASET = """\
import torch

class Windows:
    def process(self, batch_data):
        lat = batch_data[:, 0].to(self.device)
        lon = batch_data[:, 1].to(self.device)
        return lat, lon
"""


def source_of(text: str, path: Path | None = None) -> Source:
    """A text in a file of the current folder."""
    return Source(path or Path.cwd() / "a.py", text)


def place(source: Source, words: str, message: str = "", nth: int = 0) -> Place:
    """Where `words` stand for the nth time."""
    start = -1
    for _ in range(nth + 1):
        start = source.text.index(words, start + 1)
    end = start + len(words)
    return Place(source.path, source.position(start), source.position(end), message)


def edit(source: Source, old: str, new: str, nth: int = 0) -> TextEdit:
    """`old` becomes `new`; an empty `new` after `old` inserts nothing."""
    start = -1
    for _ in range(nth + 1):
        start = source.text.index(old, start + 1)
    return TextEdit(start, start + len(old), new)


def finding(at: Place, **changes: Any) -> Finding:
    """A warning of GPU101 unless `changes` say otherwise."""
    values: dict[str, Any] = {
        "code": "GPU101",
        "name": "per-column-transfer",
        "message": "2 columns of `batch_data` are copied to the device one by one",
        "severity": Severity.WARNING,
        "effect": Effect.EXACT,
        "confidence": Confidence.HIGH,
        "place": at,
        "context": "process",
    }
    return Finding(**{**values, **changes})


def columns(source: Source) -> Finding:
    """A finding with everything in it."""
    old = "        lat = batch_data[:, 0].to(self.device)\n"
    new = (
        "        batch_data = batch_data.to(self.device)\n"
        "        lat = batch_data[:, 0]\n"
    )
    return finding(
        place(source, ".to(self.device)", "1 of 2 copies"),
        related=(place(source, ".to(self.device)", "2 of 2", 1),),
        evidence=(Evidence(source.path, 4, "`process` runs once a step"),),
        fix=Fix(
            "Copy `batch_data` once, then slice",
            Effect.EXACT,
            (edit(source, old, new), edit(source, ".to(self.device)", "", 1)),
            ("import torch", "from gpulint import runtime"),
        ),
    )


def render(
    *entries: report.Entry,
    form: str = "full",
    quiet: bool = False,
    statistics: bool = False,
) -> str:
    """A report as text, paths relative to the current folder."""
    stream = io.StringIO()
    report.write(report.Report(entries, quiet=quiet), form, stream, statistics)
    return stream.getvalue()


def entry(
    source: Source | None, *findings: Finding, allow: tuple[Effect, ...] = ()
) -> report.Entry:
    """A file's findings under the effects allowed for it."""
    return report.Entry(source, findings, frozenset({Effect.EXACT, *allow}))
