"""What an editor holds open: a file, or a notebook as the texts of its cells.

Positions go from the text that is checked to the texts of the editor here, and changes
of the one to edits of the others.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from gpulint.finding import Position
from gpulint.notebook import Notebook, compose_notebook
from gpulint.report.places import Region, Unit, in_unit
from gpulint.source import NOTEBOOK, Source

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def split_lines(text: str) -> list[str]:
    """The lines as the protocol and Python count them: a form feed ends none."""
    return _LINE.findall(text)


class Point(NamedTuple):
    """A place in one text of an editor: line and character, both from 0."""

    uri: str
    line: int
    character: int


class Change(NamedTuple):
    """What stands between two places of one text, and what comes there."""

    start: Point
    end: Point
    content: str


@dataclass(frozen=True)
class Text:
    """One text of an editor: that of a file, or of a cell; `python`: code in Python.

    `tags`: those of the cell.
    """

    uri: str
    version: int | None
    content: str
    python: bool = True
    tags: tuple[str, ...] = ()

    @cached_property
    def page(self) -> Source:
        """The text with its lines."""
        return Source(Path(self.uri), self.content)

    def point(self, at: Position, unit: Unit) -> Point:
        """A place in it, as its editor counts."""
        row = min(at.row, len(self.page.starts))
        at = Position(row, at.column if row == at.row else 1)
        found = in_unit(Region(at, at), self.page, unit).start
        return Point(self.uri, found.row - 1, found.column - 1)

    def changes(self, content: str, unit: Unit) -> Iterator[Change]:
        """What makes another content of it, line by line, as little as possible."""
        old, new = split_lines(self.content), split_lines(content)
        matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
        for tag, i1, i2, j1, j2 in matcher.get_opcodes():
            if tag == "equal":
                continue
            start = len("".join(old[:i1]))
            before, after = "".join(old[i1:i2]), "".join(new[j1:j2])
            skipped = _alike(before, after)
            before, after = before[skipped:], after[skipped:]
            start += skipped
            same = _alike(before[::-1], after[::-1])
            end = start + len(before) - same
            first, last = (
                self.point(self.page.position(at), unit) for at in (start, end)
            )
            yield Change(first, last, after[: len(after) - same])


@dataclass(frozen=True)
class Document:
    """A file or notebook as it was at one moment; `unit` is that of its editor."""

    uri: str
    path: Path
    texts: tuple[Text, ...]
    version: int | None
    unit: Unit = Unit.UTF16

    @property
    def is_notebook(self) -> bool:
        """Whether its texts are cells."""
        return self.path.suffix == NOTEBOOK

    @cached_property
    def source(self) -> Source:
        """The text that is checked. SourceError: it is too large."""
        if not self.is_notebook:
            return Source(self.path, self.texts[0].content)
        return compose_notebook(
            (
                {
                    "cell_type": "code" if text.python else "markdown",
                    "metadata": {"tags": list(text.tags)},
                    "source": text.content,
                }
                for text in self.texts
            ),
            self.path,
        )

    def point(self, at: Position) -> Point | None:
        """Where the editor has a place of the source; None: it has no text at all."""
        source = self.source
        if not isinstance(source, Notebook):
            return self.texts[0].point(at, self.unit)
        cell = source.cell_at(at.row)
        if cell is None:
            return (
                self.texts[0].point(Position(1, 1), self.unit) if self.texts else None
            )
        row = max(at.row - cell.row + 1, 1)
        indent = _indent(cell.written, cell.python, row)
        inner = Position(row, at.column + indent)
        return self.texts[cell.number - 1].point(inner, self.unit)

    def row(self, uri: str, line: int) -> int | None:
        """The row of the source that a line of a text became, if it is code."""
        source = self.source
        if not isinstance(source, Notebook):
            return line + 1
        its = (c for c in source.cells if self.texts[c.number - 1].uri == uri)
        cell = next(its, None)
        return cell.row + line if cell is not None else None

    def changes(self, text: str) -> list[tuple[Text, list[Change]]]:
        """What makes another text of the source, by the texts of the editor.

        SourceError: a cell would be no Python.
        """
        source = self.source
        if not isinstance(source, Notebook):
            pairs = [(self.texts[0], text)]
        else:
            cells = zip(source.cells, source.with_text(text).cells, strict=True)
            pairs = [(self.texts[old.number - 1], new.written) for old, new in cells]
        found = [(its, list(its.changes(new, self.unit))) for its, new in pairs]
        return [(its, changes) for its, changes in found if changes]


def _indent(written: str, python: str, row: int) -> int:
    """By how much a line of a cell is indented where its Python is not."""
    lines = [split_lines(text)[row - 1 : row] for text in (written, python)]
    if not all(lines) or not lines[0][0].endswith(lines[1][0]):
        return 0
    return len(lines[0][0]) - len(lines[1][0])


def _alike(one: str, other: str) -> int:
    """How many characters both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))
