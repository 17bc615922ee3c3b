"""Findings as plain lists for JSON, and back without losing anything."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from gpulint.finding import (
    Confidence,
    Effect,
    Evidence,
    Finding,
    Fix,
    Place,
    Position,
    Severity,
    TextEdit,
)


def to_lists(finding: Finding) -> list[Any]:
    """All that a finding says; the edits of its fix are made for it."""
    fix = finding.fix
    return [
        finding.code,
        finding.name,
        finding.message,
        finding.severity.value,
        finding.effect.value,
        finding.confidence.value,
        _place(finding.place),
        [_place(place) for place in finding.related],
        [[str(e.path), e.row, e.note] for e in finding.evidence],
        None if fix is None else _fix(fix),
        finding.fix_withheld,
        finding.context,
        finding.suppressed,
        finding.ordinal,
    ]


def from_lists(data: list[Any]) -> Finding:
    """The finding of which `to_lists` made this."""
    code, name, message, severity, effect, confidence, place, *more = data
    related, evidence, fix, withheld, context, suppressed, ordinal = more
    return Finding(
        code,
        name,
        message,
        Severity(severity),
        Effect(effect),
        Confidence(confidence),
        _as_place(place),
        tuple(map(_as_place, related)),
        tuple(Evidence(_path(path), row, note) for path, row, note in evidence),
        None if fix is None else _as_fix(fix),
        withheld,
        context,
        suppressed,
        ordinal,
    )


def _place(place: Place) -> list[Any]:
    start, end = place.start, place.end
    rows = [start.row, start.column, end.row, end.column]
    return [str(place.path), *rows, place.message]


def _as_place(data: list[Any]) -> Place:
    path, row, column, end_row, end_column, message = data
    start, end = Position(row, column), Position(end_row, end_column)
    return Place(_path(path), start, end, message)


@functools.lru_cache(maxsize=256)
def _path(text: str) -> Path:
    return Path(text)


def _fix(fix: Fix) -> list[Any]:
    edits = [[edit.start, edit.end, edit.content] for edit in fix.edits]
    return [fix.title, fix.effect.value, edits, list(fix.imports)]


def _as_fix(data: list[Any]) -> Fix:
    title, effect, edits, imports = data
    its = tuple(TextEdit(start, end, content) for start, end, content in edits)
    return Fix(title, Effect(effect), its, tuple(imports))
