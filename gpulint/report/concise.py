"""One finding a line, as `path:row:col: CODE [*] message`."""

from __future__ import annotations

from typing import TextIO

from gpulint.finding import Finding
from gpulint.report import Entry, Report, one_line, summary


def write(report: Report, stream: TextIO) -> None:
    """All findings, then the summary."""
    for entry in report.entries:
        stream.writelines(
            f"{line(report, entry, finding)}\n" for finding in entry.shown
        )
    if not report.quiet:
        stream.writelines(f"{text}\n" for text in summary(report))


def line(report: Report, entry: Entry, finding: Finding) -> str:
    """One finding as one line."""
    marker = entry.marker(finding)
    message = one_line(finding.message)
    return (
        f"{report.place(finding.place, entry.source)}: {finding.code} {marker}{message}"
    )
