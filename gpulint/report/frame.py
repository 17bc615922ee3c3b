"""Lines of source with the places under them marked, fitted to a width in cells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from rich.cells import cell_len, chop_cells, get_character_cell_size

from gpulint.report.characters import visible

CUT = "…"
MIN_WIDTH = 20
# How many cells of a marked place must stand inside the width without a shift.
SEEN = 24


class Mark(NamedTuple):
    """A range of one row (1-based code points); `end` None: to the end of the row."""

    row: int
    start: int
    end: int | None
    message: str = ""
    primary: bool = False


class Line(NamedTuple):
    """One printed line: what stands left of the bar, right of it, and of what kind."""

    gutter: str
    text: str
    kind: str = "source"


def frame(
    line_of: Callable[[int], str | None],
    marks: Iterable[Mark],
    width: int,
    number: Callable[[int], int] = int,
) -> list[Line]:
    """The marked rows, the row before them, and dots where rows are left out.

    `number`: what a row is called, left of the bar.
    """
    by_row: dict[int, list[Mark]] = defaultdict(list)
    for mark in marks:
        if line_of(mark.row) is not None:
            by_row[mark.row].append(mark)
    width = max(width, MIN_WIDTH)
    lines: list[Line] = []
    last = 0
    for row in sorted(by_row):
        before = line_of(row - 1) if row > 1 else None
        if last and row - last > 2:
            lines.append(Line("...", "", "gap"))
        elif row - 1 != last and before is not None and (last or before.strip()):
            before = crop(visible(before), 0, width)
            lines.append(Line(str(number(row - 1)), before))
        own = _marked(line_of(row) or "", by_row[row], width)
        lines.append(Line(str(number(row)), next(own).text))
        lines += own
        last = row
    return lines


def _marked(line: str, marks: list[Mark], width: int) -> Iterator[Line]:
    marks = sorted(marks, key=lambda mark: (not mark.primary, mark.start))
    spans = [_span(line, mark) for mark in marks]
    text = visible(line)
    shift = _shift(*spans[0], cell_len(text), width)
    yield Line("", crop(text, shift, width))
    for mark, (start, end) in zip(marks, spans, strict=True):
        start = min(max(start - shift, 0), width - 1)
        end = min(max(end - shift, start + 1), width)
        sign = "^" if mark.primary else "-"
        kind = "primary" if mark.primary else "related"
        yield from _underline(" " * start + sign * (end - start), mark, kind, width)


def _underline(under: str, mark: Mark, kind: str, width: int) -> Iterator[Line]:
    """The message stands behind the signs, or below them where it does not fit."""
    message = visible(mark.message)
    if not message or len(under) + 1 + cell_len(message) <= width:
        yield Line("", f"{under} {message}".rstrip(), kind)
        return
    yield Line("", under, kind)
    start = len(under) - len(under.lstrip())
    fits = start + cell_len(message) <= width
    indent = start if fits else min(start, max(width - 40, 0))
    for part in wrap(message, width - indent):
        yield Line("", " " * indent + part, kind)


def _span(line: str, mark: Mark) -> tuple[int, int]:
    """First cell of a mark and the cell behind its last."""
    start = cell_len(visible(line[: mark.start - 1]))
    stop = line.rstrip() if mark.end is None else line[: mark.end - 1]
    return start, max(cell_len(visible(stop)), start + 1)


def _shift(start: int, end: int, total: int, width: int) -> int:
    """How many cells to leave out on the left so that a mark is seen."""
    if total <= width or min(end, start + SEEN) < width:
        return 0
    return max(start - width // 3, 0)


def crop(text: str, shift: int, width: int) -> str:
    """`width` cells of a text from cell `shift` on, with dots where it is cut."""
    total = cell_len(text)
    if not shift and total <= width:
        return text
    first = shift + (1 if shift else 0)
    last = shift + width - (1 if total > shift + width else 0)
    kept, cell = [CUT] if shift else [], 0
    for character in text:
        size = get_character_cell_size(character)
        if cell < first < cell + size:
            kept.append(" ")  # the second half of a wide character
        elif cell >= first and cell + size <= last:
            kept.append(character)
        cell += size
        if cell >= last:
            break
    if total > shift + width:
        kept.append(CUT)
    return "".join(kept)


def wrap(text: str, width: int | None) -> list[str]:
    """Words in lines of at most `width` cells; longer words are cut."""
    if width is None or cell_len(text) <= width:
        return [text]
    lines, line = [], ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if cell_len(longer) <= width:
            line = longer
            continue
        if line:
            lines.append(line)
        *full, line = chop_cells(word, max(width, 2)) or [""]
        lines += full
    return [*lines, line]
