"""What `gpulint check` prints, in any of its formats."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TextIO

from gpulint.finding import (
    Effect,
    Finding,
    Place,
    Position,
    Severity,
    torch_allowed,
)
from gpulint.formats import FORMATS
from gpulint.source import Source

LEVELS = (Severity.ERROR, Severity.WARNING, Severity.NOTE)


class Entry(NamedTuple):
    """One file: its text, what was found, and which effects its settings allow.

    `fail_level`: the severity from which on a finding fails the build.
    """

    source: Source | None
    findings: tuple[Finding, ...]
    allow: frozenset[Effect]
    fail_level: Severity = Severity.WARNING

    @property
    def shown(self) -> tuple[Finding, ...]:
        """The findings that are not suppressed."""
        return tuple(f for f in self.findings if f.suppressed is None)

    def fails(self, finding: Finding) -> bool:
        """Whether a finding fails the build."""
        if finding.suppressed is not None:
            return False
        return finding.severity.rank >= self.fail_level.rank

    def marker(self, finding: Finding) -> str:
        """`[*] `: `gpulint fix` rewrites it; `[**] `: if its effect is allowed."""
        if finding.fix is None:
            return ""
        return "[*] " if finding.fix.effect in self.allow else "[**] "


def _warn(message: str) -> None:
    sys.stderr.write(f"gpulint: warning: {message}\n")


@dataclass(frozen=True)
class Report:
    """All files of a run; paths are shown relative to `folder`.

    `warn` is told what a format leaves out.
    """

    entries: tuple[Entry, ...]
    folder: Path = field(default_factory=Path.cwd)
    quiet: bool = False
    warn: Callable[[str], None] = _warn

    def path(self, path: Path) -> str:
        """How a path is shown: relative where it lies below the folder."""
        if path.is_relative_to(self.folder):
            return str(path.relative_to(self.folder))
        return str(path)

    def place(self, place: Place, source: Source | None) -> str:
        """`path:row:col`, in a notebook `path:cell 3:row:col`."""
        return f"{self.path(place.path)}:{in_cell(place.start, source)}"

    def row(self, path: Path, row: int, source: Source | None) -> str:
        """The same without a column."""
        at = in_cell(Position(row, 1), source)
        return f"{self.path(path)}:{at.rpartition(':')[0]}"


def in_cell(position: Position, source: Source | None) -> str:
    """`row:col`, in a notebook `cell 3:row:col`."""
    cell = None
    if source is not None:
        cell, position = source.in_cell(position)
    at = f"{position.row}:{position.column}"
    return at if cell is None else f"cell {cell}:{at}"


def write(report: Report, form: str, stream: TextIO, statistics: bool = False) -> None:
    """Write a report to a stream in one of the formats."""
    its = FORMATS[form]
    function = (its.statistics if statistics else None) or its.findings
    module, _, name = function.partition(":")
    writer: Callable[[Report, TextIO], None] = getattr(
        importlib.import_module(module), name
    )
    writer(report, stream)


def summary(report: Report, verb: str = "Found") -> list[str]:
    """The closing lines: how many findings, and how many can be fixed how."""
    found = [(entry, f) for entry in report.entries for f in entry.shown]
    accepted = _accepted(report)
    if not found:
        return ["All checks passed!", *accepted]
    findings = [finding for _, finding in found]
    lines = [f"{verb} {total(findings)} ({levels(findings)})"]
    markers = Counter(entry.marker(finding) for entry, finding in found)
    withheld = {f.fix.effect for e, f in found if f.fix and f.fix.effect not in e.allow}
    allow = ",".join(e.value for e in sorted(withheld, key=lambda e: e.rank))
    more = "more " if markers["[*] "] else ""
    parts = [
        (markers["[*] "], "[*] {} fixable with `gpulint fix`"),
        (markers["[**] "], f"[**] {{}} {more}with `--allow {allow}`"),
        (markers[""], "{} shown only"),
    ]
    if markers["[*] "] or markers["[**] "]:
        lines.append("   ".join(text.format(n) for n, text in parts if n))
    return lines + for_newer_torch(findings) + accepted


def for_newer_torch(findings: Iterable[Finding]) -> list[str]:
    """How many findings have no fix because the project allows an old torch."""
    allowed = Counter(filter(None, (torch_allowed(f.fix_withheld) for f in findings)))
    return [
        f"{count(number, 'finding')} without a fix for torch {release}: "
        "`--torch-version` names another"
        for release, number in allowed.most_common()
    ]


def _accepted(report: Report) -> list[str]:
    all_of = [f for entry in report.entries for f in entry.findings]
    number = sum(f.suppressed == "baseline" for f in all_of)
    return [f"{count(number, 'finding')} accepted by the baseline"] if number else []


def total(findings: Collection[Finding]) -> str:
    """`6 findings in 3 files`."""
    files = {finding.path for finding in findings}
    return f"{count(len(findings), 'finding')} in {count(len(files), 'file')}"


def levels(findings: Collection[Finding]) -> str:
    """`2 error, 3 warning, 1 note`, without those that do not occur."""
    counts = Counter(finding.severity for finding in findings)
    return ", ".join(f"{counts[s]} {s.value}" for s in LEVELS if counts[s])


def count(number: int, what: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def one_line(text: str) -> str:
    """A message without line breaks and control characters."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " for c in text)
