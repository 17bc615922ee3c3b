"""All findings as one JSON array, suppressed ones too, one finding a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TextIO

from gpulint.finding import Evidence, Finding, Fix, Place, Position
from gpulint.report import Report
from gpulint.source import Source
from gpulint.text_edits import complete


def write(report: Report, stream: TextIO) -> None:
    """The array; valid JSON on any stream, as all characters are ASCII."""
    lines = [
        f"  {json.dumps(record(finding, entry.source))}"
        for entry in report.entries
        for finding in entry.findings
    ]
    body = ",\n".join(lines)
    stream.write(f"[\n{body}\n]\n" if lines else "[]\n")


def record(finding: Finding, source: Source | None) -> dict[str, Any]:
    """One finding; rows and columns are 1-based and count code points."""
    return {
        "code": finding.code,
        "name": finding.name,
        "message": finding.message,
        "severity": finding.severity.value,
        "effect": finding.effect.value,
        "confidence": finding.confidence.value,
        "filename": _name(finding.path),
        **_place(finding.place, source),
        "related": [_related(place, source) for place in finding.related],
        "evidence": [_evidence(fact, source) for fact in finding.evidence],
        "fix": _fix(finding.fix, source) if finding.fix and source else None,
        "fix_withheld": finding.fix_withheld,
        "fingerprint": finding.fingerprint,
        "suppressed": finding.suppressed,
    }


def _fix(fix: Fix, source: Source) -> dict[str, Any]:
    return {
        "effect": fix.effect.value,
        "message": fix.title,
        "edits": [
            {
                "content": edit.content,
                **_between(
                    source.position(edit.start), source.position(edit.end), source
                ),
            }
            for edit in sorted(complete(source, fix))
        ],
    }


def _related(place: Place, source: Source | None) -> dict[str, Any]:
    return {
        "filename": _name(place.path),
        **_place(place, source),
        "message": place.message,
    }


def _evidence(fact: Evidence, source: Source | None) -> dict[str, Any]:
    its = _of(fact.path, source)
    at = Position(fact.row, 1)
    cell, at = its.in_cell(at) if its is not None else (None, at)
    return {
        "filename": _name(fact.path),
        "cell": cell,
        "row": at.row,
        "note": fact.note,
    }


def _place(place: Place, source: Source | None) -> dict[str, Any]:
    return _between(place.start, place.end, _of(place.path, source))


def _between(start: Position, end: Position, source: Source | None) -> dict[str, Any]:
    """From a place to another of the same cell, if it is a notebook's."""
    cell = None
    if source is not None:
        (cell, start), (_, end) = source.in_cell(start), source.in_cell(end)
    return {"cell": cell, "location": _position(start), "end_location": _position(end)}


def _of(path: Path, source: Source | None) -> Source | None:
    """The text of a file, where it is that of the finding."""
    return source if source is not None and source.path == path else None


def _position(position: Position) -> dict[str, int]:
    return {"row": position.row, "column": position.column}


def _name(path: Path) -> str:
    """Absolute, but for the standard input, which has no place."""
    return str(path if str(path) == "-" else path.absolute())
