"""Issues in Azure Pipelines: one logging command a finding.

learn.microsoft.com, "Logging commands", LogIssue; escapes as in node/taskcommand.ts of
microsoft/azure-pipelines-task-lib. There are errors and warnings only, so a note is a
warning whose message says that it is a note. Lines and columns begin with 1; columns
count characters.
"""

from __future__ import annotations

from typing import TextIO

from gpulint.finding import Severity
from gpulint.report import Report, one_line
from gpulint.report.places import Row, rows


def write(report: Report, stream: TextIO) -> None:
    """The commands; nothing where nothing is found."""
    stream.writelines(f"{_command(row)}\n" for row in rows(report))


def _command(row: Row) -> str:
    finding, start = row.finding, row.region.start
    properties = {
        "type": "error" if finding.severity is Severity.ERROR else "warning",
        "sourcepath": row.path,
        "linenumber": start.row,
        "columnnumber": start.column,
        "code": finding.code,
    }
    listed = "".join(f"{k}={_escape(str(v), '];')};" for k, v in properties.items())
    kind = "note: " if finding.severity is Severity.NOTE else ""
    message = f"{kind}{row.entry.marker(finding)}{one_line(finding.message)}"
    return f"##vso[task.logissue {listed}]{_escape(message)}"


def _escape(text: str, more: str = "") -> str:
    text = text.replace("%", "%AZP25")
    for character in f"\r\n{more}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text
