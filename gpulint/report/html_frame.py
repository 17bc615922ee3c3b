"""Code in the HTML report: lines with their marked places, and what a fix changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from html import escape

from gpulint.finding import Finding, Fix, Place, Position
from gpulint.report.characters import visible
from gpulint.report.diff import changes
from gpulint.report.places import cell_of, line_of
from gpulint.source import Source

AROUND = 2  # lines before and after the finding
MAX_LINES = 8  # of one place
MAX_RELATED = 8
MAX_WIDTH = 400
LEAD = 120  # characters kept before the first mark of a longer line

# First and last column (the one behind), whether it is the finding itself, its message.
Span = tuple[int, int, bool, str]


def frame(source: Source, finding: Finding) -> str:
    """The lines around a finding and those of the places that it names."""
    spans: dict[int, list[Span]] = defaultdict(list)
    for row, span in _spans(source, finding.place, True):
        spans[row].append(span)
    related = [p for p in finding.related if p.path == finding.path]
    cell = cell_of(source, finding.place)
    related = [p for p in related if cell_of(source, p) == cell][:MAX_RELATED]
    for place in related:
        for row, span in _spans(source, place, False):
            spans[row].append(span)
    own = [row for row, its in spans.items() if any(span[2] for span in its)]
    rows = range(min(own) - AROUND, max(own) + AROUND + 1)
    around = {row for row in rows if source.in_cell(Position(row, 1))[0] == cell}
    lines, last = [], 0
    for row in _filled(source, around, set(spans)):
        if last and row > last + 1:
            lines.append('<span class="soft"><span class="at">⋯</span></span>')
        lines.append(_line(source, row, spans.get(row, [])))
        last = row
    return f"<pre>{''.join(lines)}</pre>" if lines else ""


def _filled(source: Source, around: set[int], marked: set[int]) -> list[int]:
    """The rows to show: empty lines at both ends of those around tell nothing."""
    rows = sorted(row for row in around if 0 < row <= len(source.starts))
    while rows and rows[0] not in marked and not line_of(source, rows[0]).strip():
        del rows[0]
    while rows and rows[-1] not in marked and not line_of(source, rows[-1]).strip():
        del rows[-1]
    return sorted({*rows, *(row for row in marked if row <= len(source.starts))})


def diff(source: Source, fix: Fix) -> str:
    """The lines that a fix takes away and puts in."""
    lines = []
    for sign, text in changes(source, fix):
        kind = {"+": "plus", "-": "minus"}.get(sign, "soft")
        sign = "⋯" if sign == "..." else sign
        code = escape(visible(text))
        lines.append(
            f'<span class="{kind}"><span class="at">{sign}</span>{code}</span>'
        )
    return f"<pre>{''.join(lines)}</pre>"


def _spans(source: Source, place: Place, own: bool) -> Iterator[tuple[int, Span]]:
    """The part of a place on each of its lines; the last says what it is."""
    first, last = place.start.row, min(place.end.row, place.start.row + MAX_LINES - 1)
    for row in range(first, last + 1):
        line = line_of(source, row)
        margin = len(line) - len(line.lstrip()) + 1
        start = place.start.column if row == first else margin
        end = place.end.column if row == place.end.row else len(line.rstrip()) + 1
        message = place.message if row == last else ""
        yield row, (start, max(end, start), own, message)


def _line(source: Source, row: int, spans: list[Span]) -> str:
    line = line_of(source, row)
    ordered = sorted(spans)
    first = ordered[0][0] if ordered else 1
    begin = max(first - LEAD, 0) if len(line) > MAX_WIDTH and first > LEAD else 0
    stop = min(len(line), begin + MAX_WIDTH)
    parts = ["…"] if begin else []
    at = begin
    for start, end, own, _ in ordered:
        start, end = max(start - 1, at), min(end - 1, stop)
        if end > start:
            parts.append(_code(line[at:start]))
            kind = "" if own else ' class="near"'
            parts.append(f"<mark{kind}>{_code(line[start:end])}</mark>")
            at = end
    parts.append(_code(line[at:stop]))
    parts += ["…"] if stop < len(line) else []
    said = list(dict.fromkeys(escape(visible(span[3])) for span in ordered if span[3]))
    if said:
        parts.append(f'<span class="said">{" · ".join(said)}</span>')
    number = source.in_cell(Position(row, 1))[1].row
    return f'<span><span class="at">{number}</span>{"".join(parts)}</span>'


def _code(text: str) -> str:
    return escape(visible(text))
