"""Findings as the diagnostics of an editor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from lsprotocol import types
from pygls.uris import from_fs_path

from gpulint.finding import Finding, Place, Severity
from gpulint.report.places import Unit, in_unit, line_in_text, one_line
from gpulint.server.checker import Looked
from gpulint.server.documents import Change, Document, Point
from gpulint.source import Source, SourceError, read_source

SOURCE = "gpulint"
SEVERITIES = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
    Severity.NOTE: types.DiagnosticSeverity.Information,
}
Shown = tuple[str, types.Diagnostic]


def diagnostics(looked: Looked) -> Iterator[Shown]:
    """The findings in a document, each with the URI of the text it stands in."""
    found = (shown(looked.document, finding) for finding in looked.findings)
    return (its for its in found if its is not None)


def shown(document: Document, finding: Finding) -> Shown | None:
    """One finding in a document; None: the editor has no place for it."""
    place = location(document, finding.place)
    if place is None:
        return None
    related = list(_related(document, finding))
    return place.uri, _diagnostic(finding, place.range, related)


def _diagnostic(
    finding: Finding,
    where: types.Range,
    related: list[types.DiagnosticRelatedInformation] | None = None,
) -> types.Diagnostic:
    return types.Diagnostic(
        range=where,
        message=f"{finding.message} ({finding.name})",
        severity=SEVERITIES[finding.severity],
        code=finding.code,
        source=SOURCE,
        related_information=related or None,
    )


def in_settings(finding: Finding, unit: Unit) -> types.Diagnostic:
    """A finding in a settings file, which lies on the disk."""
    return _diagnostic(finding, _on_disk(finding.place, unit).range)


def location(document: Document, place: Place) -> types.Location | None:
    """Where an editor shows a place: its first line. None: nowhere."""
    try:
        start, end = map(document.point, line_in_text(place, document.source))
    except SourceError:  # too large
        start = end = Point(document.texts[0].uri, 0, 0)
    if start is None or end is None:
        return None
    return types.Location(start.uri, range_of(start, end))


def range_of(start: Point, end: Point) -> types.Range:
    """Two places of one text."""
    return types.Range(
        types.Position(start.line, start.character),
        types.Position(end.line, end.character),
    )


def text_edit(change: Change) -> types.TextEdit:
    """One change of a text."""
    return types.TextEdit(range_of(change.start, change.end), change.content)


def _related(
    document: Document, finding: Finding
) -> Iterator[types.DiagnosticRelatedInformation]:
    for place in _places(finding):
        if place.path == document.path:
            where = location(document, place)
        else:
            where = _on_disk(place, document.unit)
        if where is not None:
            yield types.DiagnosticRelatedInformation(where, place.message)


def _places(finding: Finding) -> Iterable[Place]:
    return (place for place in finding.related if place.message)


def _on_disk(place: Place, unit: Unit) -> types.Location:
    """A place in a file that is not the one that was looked at."""
    source = _read(place.path)
    start, end = in_unit(one_line(place, source), source, unit)
    return types.Location(
        from_fs_path(str(place.path)) or "",
        types.Range(
            types.Position(start.row - 1, start.column - 1),
            types.Position(end.row - 1, end.column - 1),
        ),
    )


def _read(path: Path) -> Source | None:
    try:
        return read_source(path)
    except SourceError:
        return None
