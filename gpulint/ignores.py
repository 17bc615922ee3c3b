"""Writes comments that switch findings off, beside what they concern."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpulint.finding import Finding
from gpulint.index import SETTINGS
from gpulint.index.settings_file import parse_settings
from gpulint.source import Source, SourceError, decode
from gpulint.suppress import IGNORE, NOQA, Lines, read_lines

MAX_COLUMNS = 100
_INDENT = re.compile(r"[ \t\f]*")


class Form(NamedTuple):
    """Which comment: `# gpulint: ignore[…]` or `# noqa: …`, and the reason in it."""

    noqa: bool = False
    reason: str = ""

    def comment(self, codes: Iterable[str]) -> str:
        """The whole comment."""
        listed = ", ".join(codes)
        own = f"# noqa: {listed}" if self.noqa else f"# gpulint: ignore[{listed}]"
        return f"{own} -- {self.reason}" if self.reason else own

    def extended(self, comment: str, codes: Sequence[str]) -> str | None:
        """A comment that lists rules, with these as well; None: it lists none."""
        match = (NOQA if self.noqa else IGNORE).search(comment)
        if match is None:
            return None
        had = match.group(1)
        listed = ", ".join(codes)
        if had is None:  # `ignore` alone
            return f"{comment[: match.end()]}[{listed}]{comment[match.end() :]}"
        start, end = match.span(1)
        listed = f"{had.strip()}, {listed}" if had.strip() else listed
        return comment[:start] + listed + comment[end:]


def may_be_ignored(finding: Finding) -> bool:
    """Whether a comment may answer it; not what is said of files and of comments."""
    return finding.suppressed is None and not finding.code.startswith("GPU00")


def add_ignores(source: Source, findings: Iterable[Finding], form: Form) -> str | None:
    """The text of a file with a comment for each finding in it.

    None where that cannot be: no comments in JSON, or the file would mean something
    else. What Python compiles is the same as before, node by node.
    """
    by_row: dict[int, list[str]] = {}
    for finding in sorted(findings, key=lambda f: f.order):
        codes = by_row.setdefault(finding.place.start.row, [])
        if finding.code not in codes:
            codes.append(finding.code)
    settings = source.path.suffix in SETTINGS
    page = _Page(source, form, None if settings else read_lines(source))
    for row, codes in by_row.items():
        page.add(row, codes)
    text = page.text()
    same = _same_settings if settings else _same_code
    return text if same(source, text) else None


class _Page:
    """The lines of a file while comments are added."""

    def __init__(self, source: Source, form: Form, lines: Lines | None) -> None:
        self._source, self._form = source, form
        self._lines = lines
        self._own = {row: c.text for row, c in lines.comments.items()} if lines else {}
        self._rows: dict[int, str] = {}  # lines that change
        self._above: dict[int, list[str]] = {}  # codes for a comment of its own

    def add(self, row: int, codes: list[str]) -> None:
        """Switch rules off for a row."""
        if self._lines is None:
            self._rows[row] = self._with_comment(row, codes)
            return
        first, last = self._lines.statement(row)
        if self._form.noqa and row in self._lines.open:
            row = last
        changed = self._with_comment(row, codes)
        fits = self._form.noqa or len(changed) <= MAX_COLUMNS
        if row not in self._lines.open and fits:
            self._rows[row] = changed
        else:
            self._above.setdefault(first, []).extend(
                code for code in codes if code not in self._above.get(first, ())
            )

    def _with_comment(self, row: int, codes: list[str]) -> str:
        line = self._rows.get(row, self._source.line(row))
        column = self._column(row)
        comment = line[column:]
        extended = self._form.extended(comment, codes)
        if extended is not None:
            return line[:column] + extended
        return f"{line.rstrip()}  {self._form.comment(codes)}"

    def _column(self, row: int) -> int:
        """Where the comment of a row begins (from 0), its length if there is none."""
        if self._lines is None:
            found = re.search(r"(?:^|\s)#\s*(?:gpulint|noqa):", self._source.line(row))
            return found.start() if found else len(self._source.line(row))
        comment = self._lines.comments.get(row)
        return comment.column - 1 if comment else len(self._source.line(row))

    def text(self) -> str:
        """The file with all comments."""
        for first, codes in self._above.items():
            self._put_above(first, codes)
        parts = []
        for row, start in enumerate(self._source.starts, 1):
            line = self._source.line(row)
            following = self._source.starts[row : row + 1]
            end = following[0] if following else len(self._source.text)
            changed = self._rows.get(row, line)
            parts.append(changed + self._source.text[start + len(line) : end])
        return "".join(parts)

    def _put_above(self, first: int, codes: list[str]) -> None:
        """A line of its own above a statement, or more in one that is there."""
        assert self._lines is not None
        above = first - 1
        while self._is_comment(above):
            line = self._rows.get(above, self._source.line(above))
            extended = self._form.extended(line, codes)
            if extended is not None:
                self._rows[above] = extended
                return
            above -= 1
        line = self._rows.get(first, self._source.line(first))
        indent = _INDENT.match(line)
        assert indent is not None
        comment = f"{indent.group()}{self._form.comment(codes)}"
        self._rows[first] = comment + self._source.newline + line

    def _is_comment(self, row: int) -> bool:
        assert self._lines is not None
        if row not in self._lines.comments:
            return False
        return self._source.line(row).lstrip().startswith("#")


def _same_code(source: Source, text: str) -> bool:
    """Whether both are the same to Python, read from their bytes as it reads them."""
    try:
        again = decode(source.encode(text), source.path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            old, new = (ast.dump(ast.parse(t)) for t in (source.text, again.text))
    except (SourceError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return old == new


def _same_settings(source: Source, text: str) -> bool:
    """Whether the values of a settings file are the same."""
    if source.path.suffix == ".json":
        return False
    try:
        old, new = (
            ast.dump(parse_settings(its)) for its in (source, source.with_text(text))
        )
    except SourceError:
        return False
    return old == new
