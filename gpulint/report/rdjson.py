"""Diagnostics for reviewdog, whose suggestions a reviewer accepts with one click.

proto/rdf/reviewdog.proto of reviewdog/reviewdog: ranges end behind their last
character, columns count UTF-8 bytes from 1. A comment takes the suggestions on its own
lines only (`buildSingleSuggestion` in service/github/github.go), and half a fix breaks
a script: so a fix is one suggestion of whole lines, from its first edit to its last.
Fixes whose effect is not allowed are none: one click would be all that they need.
"""

from __future__ import annotations

import json
from typing import Any, TextIO

from gpulint.finding import Fix, Position, Severity
from gpulint.report import Report, one_line
from gpulint.report.places import Region, Row, Unit, rows
from gpulint.source import Source
from gpulint.text_edits import complete

SEVERITIES = {
    Severity.ERROR: "ERROR",
    Severity.WARNING: "WARNING",
    Severity.NOTE: "INFO",
}
MAX_LINES = 100  # a suggestion of more is in no diff as a whole


def write(report: Report, stream: TextIO) -> None:
    """The result of the run."""
    document = {
        "source": {"name": "gpulint"},
        "severity": "WARNING",
        "diagnostics": [_diagnostic(row) for row in rows(report)],
    }
    stream.write(json.dumps(document, indent=2) + "\n")


def _diagnostic(row: Row) -> dict[str, Any]:
    finding, source = row.finding, row.entry.source
    diagnostic: dict[str, Any] = {
        "message": one_line(finding.message),
        "location": {"path": row.path, "range": _range(row.at(Unit.UTF8))},
        "severity": SEVERITIES[finding.severity],
        "code": {"value": finding.code},
    }
    fix = finding.fix
    known = source is not None and source.file is source  # lines of JSON are not edited
    if fix is not None and known and source and fix.effect in row.entry.allow:
        suggestion = _suggestion(source, fix)
        if suggestion is not None:
            diagnostic["suggestions"] = [suggestion]
    related = [
        {
            "message": one_line(message),
            "location": {"path": row.path, "range": _range(region)},
        }
        for message, region in row.related(Unit.UTF8)
    ]
    if related:
        diagnostic["related_locations"] = related
    return diagnostic


def _suggestion(source: Source, fix: Fix) -> dict[str, Any] | None:
    """All edits as the lines that they make of the lines from first to last."""
    edits = sorted(complete(source, fix))
    if not edits:
        return None
    start, end = edits[0].start, max(edit.end for edit in edits)
    first, last = source.position(start).row, source.position(end).row
    if last > first and source.position(end).column == 1:
        last -= 1  # the edit ends with the end of the line before
    if last - first >= MAX_LINES:
        return None
    begin = source.starts[first - 1]
    stop = source.starts[last] if last < len(source.starts) else len(source.text)
    text = source.text[begin:stop]
    for edit in reversed(edits):
        text = text[: edit.start - begin] + edit.content + text[edit.end - begin :]
    mark = "\ufeff" if first == 1 and source.bom else ""
    rows = {"start": {"line": first}, "end": {"line": last}}
    return {"range": rows, "text": mark + _without_end(text)}


def _without_end(text: str) -> str:
    for newline in ("\r\n", "\n", "\r"):
        if text.endswith(newline):
            return text[: -len(newline)]
    return text


def _range(region: Region) -> dict[str, Any]:
    return {"start": _position(region.start), "end": _position(region.end)}


def _position(position: Position) -> dict[str, int]:
    return {"line": position.row, "column": position.column}
