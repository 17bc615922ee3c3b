"""The findings of each file under its name, as `row:col CODE [*] message`."""

from __future__ import annotations

from typing import TextIO

from gpulint.finding import Finding
from gpulint.report import Entry, Report, in_cell, one_line, summary


def write(report: Report, stream: TextIO) -> None:
    """All files with findings, then the summary."""
    for entry in report.entries:
        if entry.shown:
            stream.write(f"{report.path(entry.shown[0].path)}:\n")
            width = max(len(_at(entry, finding)) for finding in entry.shown)
            stream.writelines(_line(entry, finding, width) for finding in entry.shown)
            stream.write("\n")
    if not report.quiet:
        stream.writelines(f"{text}\n" for text in summary(report))


def _line(entry: Entry, finding: Finding, width: int) -> str:
    message = one_line(finding.message)
    at = f"{_at(entry, finding):<{width}}"
    return f"  {at}  {finding.code} {entry.marker(finding)}{message}\n"


def _at(entry: Entry, finding: Finding) -> str:
    return in_cell(finding.place.start, entry.source)
