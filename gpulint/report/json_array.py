"""All findings as one JSON array, suppressed ones too, one finding a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TextIO

from gpulint.engine import complete
from gpulint.finding import Evidence, Finding, Fix, Place, Position
from gpulint.report import Report
from gpulint.source import Source


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
        "cell": None,
        "location": _position(finding.place.start),
        "end_location": _position(finding.place.end),
        "related": [_related(place) for place in finding.related],
        "evidence": [_evidence(fact) for fact in finding.evidence],
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
                "location": _position(source.position(edit.start)),
                "end_location": _position(source.position(edit.end)),
            }
            for edit in sorted(complete(source, fix))
        ],
    }


def _related(place: Place) -> dict[str, Any]:
    return {
        "filename": _name(place.path),
        "location": _position(place.start),
        "end_location": _position(place.end),
        "message": place.message,
    }


def _evidence(fact: Evidence) -> dict[str, Any]:
    return {"filename": _name(fact.path), "row": fact.row, "note": fact.note}


def _position(position: Position) -> dict[str, int]:
    return {"row": position.row, "column": position.column}


def _name(path: Path) -> str:
    """Absolute, but for the standard input, which has no place."""
    return str(path if str(path) == "-" else path.absolute())
