"""Where findings stand, as the programs that read reports count: paths, rows, columns.

All formats take their places from `rows`; what differs is the unit of a column.
"""

from __future__ import annotations

import enum
import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gpulint.finding import Finding, Place, Position
from gpulint.report import Entry, Report
from gpulint.source import Source


class Unit(enum.Enum):
    """What a column counts."""

    CODE_POINTS = "code points"
    UTF16 = "UTF-16 units"
    UTF8 = "UTF-8 bytes"


class Region(NamedTuple):
    """From a position to the one behind its last character, both 1-based."""

    start: Position
    end: Position

    @property
    def empty(self) -> bool:
        """Whether there is no character in it."""
        return self.end <= self.start


class Row(NamedTuple):
    """One finding as a format shows it.

    `path`: from the root of the repository, with slashes; absolute where it lies
    outside. `region`: on one line, so that it is in a diff wherever its line is. It is
    empty only on an empty line or where the text is not known. `identity`: 32 hex
    digits, stable under line moves and unique in the report.
    """

    entry: Entry
    finding: Finding
    path: str
    region: Region
    identity: str

    def at(self, unit: Unit) -> Region:
        """The region in another unit."""
        return in_unit(self.region, self.entry.source, unit)

    def related(self, unit: Unit) -> Iterator[tuple[str, Region]]:
        """Messages and first lines of the places that it names in the same file."""
        source = self.entry.source
        for place in self.finding.related:
            if place.path == self.finding.path:
                yield place.message, in_unit(one_line(place, source), source, unit)


def rows(report: Report, suppressed: bool = False) -> Iterator[Row]:
    """All findings in the order of the report, without those that are suppressed."""
    paths = Paths(report.folder)
    seen: Counter[tuple[str, str]] = Counter()
    for entry in report.entries:
        for finding in entry.findings:
            path = paths.of(finding.path)
            key = (path, finding.fingerprint)
            identity = _identity(*key, seen[key])
            seen[key] += 1
            if suppressed or finding.suppressed is None:
                region = one_line(finding.place, entry.source)
                yield Row(entry, finding, path, region, identity)


class Paths:
    """Paths as they are called in a repository."""

    def __init__(self, folder: Path) -> None:
        around = (folder, *folder.parents)
        self.root = next((p for p in around if (p / ".git").exists()), folder)

    def of(self, path: Path) -> str:
        """From the root of the repository, with slashes."""
        if path.is_relative_to(self.root):
            path = path.relative_to(self.root)
        return path.as_posix()


def raw_region(place: Place, source: Source | None) -> Region:
    """A place in the file as it lies on the disk; in a notebook, in its JSON."""
    return _in_file(_in_text(place, source), source)


def _in_text(place: Place, source: Source | None) -> Region:
    """A place in the text.

    A syntax error may be said to stand behind the last line, which programs refuse.
    """
    last = len(source.starts) if source is not None else place.end.row
    if place.end.row <= last:
        return Region(place.start, place.end)
    return Region(*(at if at.row <= last else Position(last, 1) for at in place[1:3]))


def _in_file(region: Region, source: Source | None) -> Region:
    return region if source is None else Region(*map(source.in_file, region))


def raw_text(source: Source) -> str:
    """The characters of the file as programs read it that know UTF-8 only."""
    try:
        return source.encode(source.text).decode("utf-8", "replace")
    except UnicodeEncodeError:
        return source.text


def one_line(place: Place, source: Source | None) -> Region:
    """The first line of a place in the file; a point takes what stands behind it."""
    return _in_file(line_in_text(place, source), source)


def line_in_text(place: Place, source: Source | None) -> Region:
    """The same in the text that is checked: of a notebook, that of its cells."""
    start, end = _in_text(place, source)
    if source is None:
        return Region(start, end if start.row == end.row else start)
    line = line_of(source, start.row)
    last = len(line.rstrip()) + 1
    if end.row != start.row:
        end = Position(start.row, max(last, start.column))
    if end > start:
        return Region(start, end)
    first = min(len(line) - len(line.lstrip()) + 1, last)
    column = max(start.column, first)
    if column >= last:  # behind the text: all of it
        column = first
    return Region(Position(start.row, column), Position(start.row, max(last, column)))


def cell_of(source: Source | None, place: Place) -> int | None:
    """The cell of a notebook in which a place begins."""
    return None if source is None else source.in_cell(place.start)[0]


def line_of(source: Source | None, row: int) -> str:
    """A line without its end; empty where there is none."""
    known = source is not None and row <= len(source.starts)
    return source.line(row) if known and source is not None else ""


def in_unit(region: Region, source: Source | None, unit: Unit) -> Region:
    """The same place with columns in another unit."""
    return Region(*(_converted(at, source, unit) for at in region))


def _converted(at: Position, source: Source | None, unit: Unit) -> Position:
    before = line_of(source and source.file, at.row)[: at.column - 1]
    if unit is Unit.CODE_POINTS:
        return at
    if unit is Unit.UTF16:
        return Position(at.row, at.column + sum(c > "\uffff" for c in before))
    size = len(before.encode("utf-8", "surrogatepass"))
    # Who counts bytes counts the mark at the beginning of the file as well.
    mark = len(source.bom) if source and at.row == 1 else 0
    return Position(at.row, at.column + size - len(before) + mark)


def _identity(path: str, fingerprint: str, number: int) -> str:
    key = os.fsencode(f"{path}\0{fingerprint}\0{number}")
    return hashlib.sha256(key).hexdigest()[:32]
