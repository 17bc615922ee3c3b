"""What `gpulint check` prints: full, concise or JSON."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TextIO

from gpulint.finding import Effect, Finding, Severity
from gpulint.source import Source

WRITERS = {
    "full": "gpulint.report.full:write",
    "concise": "gpulint.report.concise:write",
    "json": "gpulint.report.json_array:write",
}
STATISTICS = {
    "full": "gpulint.report.statistics:write",
    "concise": "gpulint.report.statistics:write",
    "json": "gpulint.report.statistics:write_json",
}
LEVELS = (Severity.ERROR, Severity.WARNING, Severity.NOTE)


class Entry(NamedTuple):
    """One file: its text, what was found, and which effects its settings allow."""

    source: Source | None
    findings: tuple[Finding, ...]
    allow: frozenset[Effect]

    @property
    def shown(self) -> tuple[Finding, ...]:
        """The findings that are not suppressed."""
        return tuple(f for f in self.findings if f.suppressed is None)

    def marker(self, finding: Finding) -> str:
        """`[*] `: `gpulint fix` rewrites it; `[**] `: if its effect is allowed."""
        if finding.fix is None:
            return ""
        return "[*] " if finding.fix.effect in self.allow else "[**] "


@dataclass(frozen=True)
class Report:
    """All files of a run; paths are shown relative to `folder`."""

    entries: tuple[Entry, ...]
    folder: Path = field(default_factory=Path.cwd)
    quiet: bool = False

    def path(self, path: Path) -> str:
        """How a path is shown: relative where it lies below the folder."""
        if path.is_relative_to(self.folder):
            return str(path.relative_to(self.folder))
        return str(path)

    def place(self, finding: Finding) -> str:
        """`path:row:col`."""
        start = finding.place.start
        return f"{self.path(finding.path)}:{start.row}:{start.column}"


def write(report: Report, form: str, stream: TextIO, statistics: bool = False) -> None:
    """Write a report to a stream in one of the formats."""
    module, _, name = (STATISTICS if statistics else WRITERS)[form].partition(":")
    writer: Callable[[Report, TextIO], None] = getattr(
        importlib.import_module(module), name
    )
    writer(report, stream)


def summary(report: Report, verb: str = "Found") -> list[str]:
    """The closing lines: how many findings, and how many can be fixed how."""
    found = [(entry, f) for entry in report.entries for f in entry.shown]
    if not found:
        return ["All checks passed!"]
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
    return lines


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
