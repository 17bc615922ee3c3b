"""Findings with the source around them, and what their fixes change."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.control import strip_control_codes
from rich.text import Text

from gpulint.finding import Finding, Place, Position, Severity
from gpulint.report import Entry, Report, one_line, summary
from gpulint.report.characters import visible
from gpulint.report.diff import changes
from gpulint.report.frame import Line, Mark, frame, wrap
from gpulint.report.places import cell_of
from gpulint.source import Source, SourceError, read_source

COLORS = {
    Severity.ERROR: "bold red",
    Severity.WARNING: "bold yellow",
    Severity.NOTE: "bold cyan",
}
KINDS = {"primary": "bold red", "related": "bold blue", "source": "", "gap": ""}
SIGNS = {"-": "red", "+": "green"}
BAR = "bold blue"
NEWLINE = "\n"
PIPE_WIDTH = 120
MAX_RELATED = 8


def write(report: Report, stream: TextIO) -> None:
    """All findings, then the summary."""
    page = Page(report, stream)
    for entry in report.entries:
        for finding in entry.shown:
            page.finding(entry, finding)
    if not report.quiet:
        for line in summary(report):
            page.paragraph(line)


class Page:
    """Prints findings to one stream, in its width and with its colours."""

    def __init__(self, report: Report, stream: TextIO) -> None:
        self.report = report
        self.console = console(stream)
        fixed = self.console.is_terminal or "COLUMNS" in os.environ
        self.width = self.console.width if fixed else PIPE_WIDTH
        self.wrap_width = self.width if fixed else None
        self._stream = stream
        self._files: dict[Path, Source | None] = {}

    def finding(self, entry: Entry, finding: Finding) -> None:
        """One finding and an empty line."""
        self._files[finding.path] = entry.source
        self._header(entry, finding)
        here, there = self._sorted(entry.source, finding)
        digits = _digits([finding.place, *here, *there])
        self._bar(
            digits,
            f"{'-->':>{digits + 3}} ",
            self.report.place(finding.place, entry.source),
        )
        self._frame(entry.source, _marks(finding.place, here), digits)
        for place in there:
            its = self._file(place.path)
            at = self.report.place(place, its)
            self._bar(digits, f"{':::':>{digits + 3}} ", at)
            self._frame(its, _marks(None, [place]), digits)
        hidden = len(finding.related) - len(here) - len(there)
        for fact in self._facts(entry, finding, hidden):
            self.paragraph(f"{' ' * (digits + 1)}= {one_line(fact)}", digits + 3)
        self._by_hand(finding, digits)
        self._help(entry.source, finding, digits)
        self._print("")

    def _sorted(
        self, source: Source | None, finding: Finding
    ) -> tuple[list[Place], list[Place]]:
        """The places that a finding names: in its file, or cell, and elsewhere."""
        here: list[Place] = []
        there: list[Place] = []
        for place in finding.related:
            near = place.path == finding.path
            near = near and cell_of(source, place) == cell_of(source, finding.place)
            (here if near else there).append(place)
        return here[:MAX_RELATED], there[:MAX_RELATED]

    def paragraph(self, text: str, indent: int = 0) -> None:
        """A line, wrapped where the width is known."""
        width = self.wrap_width and max(self.wrap_width - indent, 20)
        head, *rest = wrap(text[indent:], width)
        self._print(text[:indent] + head)
        for line in rest:
            self._print(" " * indent + line)

    def _header(self, entry: Entry, finding: Finding) -> None:
        marker = entry.marker(finding)
        message = one_line(finding.message)
        text = f"{finding.code} {finding.name} {marker}{message}"
        for index, part in enumerate(wrap(text, self.wrap_width)):
            line = Text(part)
            if not index:
                line.stylize(COLORS[finding.severity], 0, len(finding.code))
                start = len(finding.code) + len(finding.name) + 2
                line.stylize("cyan", start, start + len(marker.strip()))
            self._print(line)

    def _frame(self, source: Source | None, marks: list[Mark], digits: int) -> None:
        if source is None:
            return
        own = {source.in_cell(Position(mark.row, 1))[0] for mark in marks}

        def line_of(row: int) -> str | None:
            cell, _ = source.in_cell(Position(row, 1))
            outside = row > len(source.starts) or cell not in own
            return None if outside or source.is_head(row) else source.line(row)

        lines = frame(
            line_of,
            marks,
            self.width - digits - 3,
            lambda row: source.in_cell(Position(row, 1))[1].row,
        )
        if not lines:
            return
        self._bar(digits, f"{'':>{digits}} |", "")
        for line in lines:
            self._source_line(line, digits)
        self._bar(digits, f"{'':>{digits}} |", "")

    def _source_line(self, line: Line, digits: int) -> None:
        if line.kind == "gap":
            self._print((line.gutter, BAR))
            return
        bar = f"{line.gutter:>{digits}} | "
        self._print((bar, BAR), (line.text, KINDS[line.kind]))

    def _facts(self, entry: Entry, finding: Finding, hidden: int) -> Iterator[str]:
        effect = finding.effect.value
        if finding.fix is None:
            effect_note = ""
        elif finding.fix.effect in entry.allow:
            effect_note = f"effect: {finding.fix.effect.value} · "
        else:
            effect = finding.fix.effect.value
            effect_note = f"effect: {effect} → needs --allow {effect} · "
        yield (
            f"severity: {finding.severity.value} · {effect_note}"
            f"confidence: {finding.confidence.value}"
        )
        if hidden:
            yield f"and {hidden} more places"
        for fact in finding.evidence:
            its = self._file(fact.path)
            at = self.report.row(fact.path, fact.row, its)
            yield f"because: {fact.note} ({at})"
        if finding.fix_withheld:
            yield f"no fix: {finding.fix_withheld.partition(NEWLINE)[0]}"

    def _by_hand(self, finding: Finding, digits: int) -> None:
        """Code that a user can put in where there is no fix, line by line."""
        lines = (finding.fix_withheld or "").split(NEWLINE)[1:]
        if not lines:
            return
        self.paragraph("help: By hand")
        for line in ["", *lines, ""]:
            self._print((f"{'':>{digits}} |", BAR), (f" {visible(line)}", ""))

    def _help(self, source: Source | None, finding: Finding, digits: int) -> None:
        if finding.fix is None or source is None:
            return
        self.paragraph(f"help: {one_line(finding.fix.title)}")
        self._bar(digits, f"{'':>{digits}} |", "")
        room = max(self.width - digits - 3, 20)
        for sign, line in changes(source, finding.fix):
            if sign == "...":
                self._print((sign, BAR))
                continue
            style = SIGNS.get(sign, "")
            for index, part in enumerate(_fold(visible(line), room)):
                mark = sign if index == 0 else ""
                self._print((f"{mark:>{digits}}", style), (" | ", BAR), (part, style))
        self._bar(digits, f"{'':>{digits}} |", "")

    def _bar(self, digits: int, bar: str, text: str) -> None:
        self._print((bar, BAR), text)

    def _file(self, path: Path) -> Source | None:
        if path not in self._files:
            try:
                self._files[path] = read_source(path)
            except SourceError:
                self._files[path] = None
        return self._files[path]

    def _print(self, *parts: str | tuple[str, str] | Text) -> None:
        """One line of texts, some with a style."""
        if self.console.color_system is None:
            texts = [p[0] if isinstance(p, tuple) else str(p) for p in parts]
            line = strip_control_codes("".join(texts)).rstrip()
            self._stream.write(f"{line}\n")
            return
        text = Text.assemble(*parts)
        text.rstrip()
        self.console.print(text, soft_wrap=True)


def console(stream: TextIO) -> Console:
    """A console that prints text as it is; NO_COLOR leaves no escapes at all."""
    plain = bool(os.environ.get("NO_COLOR"))
    return Console(
        file=stream,
        color_system=None if plain else "auto",
        markup=False,
        highlight=False,
        emoji=False,
    )


def _digits(places: Iterable[Place]) -> int:
    return len(str(max(place.start.row for place in places)))


def _marks(place: Place | None, related: Iterable[Place]) -> list[Mark]:
    marks = [_mark(place, True)] if place else []
    return marks + [_mark(other, False) for other in related]


def _mark(place: Place, primary: bool) -> Mark:
    one_row = place.start.row == place.end.row
    end = place.end.column if one_row else None
    return Mark(place.start.row, place.start.column, end, place.message, primary)


def _fold(line: str, room: int) -> list[str]:
    """A line of code in pieces; nothing of a change is left out."""
    from rich.cells import cell_len, chop_cells

    return chop_cells(line, room) if cell_len(line) > room else [line]
