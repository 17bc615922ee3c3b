"""Annotations in GitHub Actions: one workflow command a finding.

docs.github.com, "Workflow commands for GitHub Actions"; escapes as in
packages/core/src/command.ts of actions/toolkit. The runner drops columns of a place on
several lines and shows ten errors and ten warnings of a step; it takes paths from the
root of the repository. Columns count characters, as in other linters' annotations.
"""

from __future__ import annotations

from typing import TextIO

from gpulint.finding import Severity
from gpulint.report import Report, one_line
from gpulint.report.places import Row, rows

COMMANDS = {
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.NOTE: "notice",
}


def write(report: Report, stream: TextIO) -> None:
    """The commands; nothing where nothing is found."""
    stream.writelines(f"{_command(row)}\n" for row in rows(report))


def _command(row: Row) -> str:
    finding, (start, end) = row.finding, row.region
    properties = {
        "title": f"gpulint ({finding.code})",
        "file": row.path,
        "line": start.row,
        "endLine": end.row,
        "col": start.column,
        "endColumn": end.column,
    }
    listed = ",".join(f"{k}={_escape(str(v), ':,')}" for k, v in properties.items())
    marker = row.entry.marker(finding)
    where = f"{row.path}:{start.row}:{start.column}"
    message = f"{where}: {finding.code} {marker}{one_line(finding.message)}"
    return f"::{COMMANDS[finding.severity]} {listed}::{_escape(message)}"


def _escape(text: str, more: str = "") -> str:
    for character in f"%\r\n{more}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text
