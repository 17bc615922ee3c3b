"""Comments that switch findings off: `# gpulint: ignore[GPU101] -- reason`."""

from __future__ import annotations

import bisect
import io
import math
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from gpulint.finding import Finding
from gpulint.index.settings_file import read_settings
from gpulint.source import Source, SourceError

IGNORE = re.compile(r"#\s*gpulint:\s*ignore\b(?:\[([^\]]*)\])?")
_BLOCK = re.compile(r"#\s*gpulint:\s*(off|on)\b(?:\[([^\]]*)\])?")
NOQA = re.compile(r"#\s*noqa:\s*([A-Z]+[0-9]+(?:[\s,]+[A-Z]+[0-9]+)*)", re.IGNORECASE)
_CODE = re.compile(r"gpu.*|[a-z]+[0-9]+", re.IGNORECASE)  # those of plugins, too
_SKIP_FILE = re.compile(r"#\s*gpulint:\s*skip-file\b")


class Comment(NamedTuple):
    """A comment, with the row and column (from 1) where it begins."""

    row: int
    column: int
    text: str


class Lines(NamedTuple):
    """Comments by row, and the first and last row of each statement (or its head).

    `open`: rows that a string or a backslash continues, which can have no comment.
    """

    comments: dict[int, Comment]
    logical: list[tuple[int, int]]
    open: frozenset[int]

    def statement(self, row: int) -> tuple[int, int]:
        """First and last row of the statement (or head of one) that a row is in."""
        # The list is sorted: the first that ends at the row or below it.
        index = bisect.bisect_left(self.logical, row, key=lambda pair: pair[1])
        found = self.logical[index : index + 1]
        return found[0] if found and found[0][0] <= row else (row, row)


class Unused(NamedTuple):
    """What a comment lists in vain. `code` is empty where it lists nothing."""

    comment: Comment
    code: str
    word: str


class Block(NamedTuple):
    """Rows between `off[code]` and `on[code]`, and the row of the first comment."""

    code: str
    first: int
    last: float


class Suppressions:
    """The comments of a file that switch findings off, and which of them did."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._used: set[tuple[int, str]] = set()

    @cached_property
    def _lines(self) -> Lines:
        return read_lines(self.source)

    @cached_property
    def _blocks(self) -> list[Block]:
        return list(_blocks(self._lines.comments))

    @property
    def _any(self) -> bool:
        return "gpulint:" in self.source.text or "noqa" in self.source.text

    @cached_property
    def skips_file(self) -> bool:
        """Whether a comment leaves the whole file out."""
        comments = self._lines.comments
        return any(_SKIP_FILE.search(c.text) for c in comments.values())

    def apply(self, findings: Iterable[Finding]) -> list[Finding]:
        """Mark findings whose line, statement or file carries a matching comment."""
        found = [self._in_skipped_cell(f) for f in findings]
        if not found or not self._any:
            return found
        if self.skips_file:
            return [f._replace(suppressed="inline") for f in found]
        comments = self._lines.comments
        codes = {row: _codes(comment.text) for row, comment in comments.items()}
        result = []
        for finding in found:
            rows = _rows(finding.place.start.row, self.source, self._lines)
            mine = {finding.code, finding.name}
            hits = {(r, c) for r in rows for c in codes.get(r, set()) & mine}
            hits |= self._around(finding.place.start.row, mine)
            self._used |= hits
            result.append(finding._replace(suppressed="inline") if hits else finding)
        return result

    def _around(self, row: int, codes: set[str]) -> set[tuple[int, str]]:
        """The blocks around a row that switch one of these off."""
        its = (b for b in self._blocks if b.first < row < b.last and b.code in codes)
        return {(block.first, block.code) for block in its}

    def _in_skipped_cell(self, finding: Finding) -> Finding:
        if self.source.is_skipped(finding.place.start.row):
            return finding._replace(suppressed="inline")
        return finding

    def unused(self) -> Iterator[Unused]:
        """Codes and names in `ignore[…]` and `off[…]` that no finding so far has."""
        if "gpulint:" not in self.source.text or self.skips_file:
            return
        for row, comment in self._lines.comments.items():
            for word, listed in _listings(comment.text):
                for code in _listed(listed) or [""]:
                    if (row, code) not in self._used:
                        yield Unused(comment, code, word)


def suppress_in_settings(finding: Finding) -> Finding:
    """The same for a finding in a settings file: a comment at the end of its line."""
    try:
        text = read_settings(finding.place.path).line(finding.place.start.row)
    except (SourceError, IndexError):
        return finding
    hit = _codes(text) & {finding.code, finding.name}
    return finding._replace(suppressed="inline") if hit else finding


def _listings(comment: str) -> Iterator[tuple[str, str]]:
    """`ignore` and `off` with what they list."""
    for match in IGNORE.finditer(comment):
        yield "ignore", match.group(1) or ""
    for match in _BLOCK.finditer(comment):
        if match.group(1) == "off":
            yield "off", match.group(2) or ""


def _blocks(comments: dict[int, Comment]) -> Iterator[Block]:
    """From each `off` to the next `on` for its code, or to the end of the file."""
    open_: dict[str, int] = {}
    for row, comment in sorted(comments.items()):
        for match in _BLOCK.finditer(comment.text):
            codes = _listed(match.group(2) or "")
            if match.group(1) == "off":
                for code in codes:
                    open_.setdefault(code, row)
            else:
                for code in codes or list(open_):
                    if code in open_:
                        yield Block(code, open_.pop(code), row)
    for code, row in open_.items():
        yield Block(code, row, math.inf)


def _codes(comment: str) -> set[str]:
    """Codes (upper case) and names that a comment switches off."""
    matches = [m for pattern in (IGNORE, NOQA) for m in pattern.finditer(comment)]
    return {code for match in matches for code in _listed(match.group(1) or "")}


def _listed(text: str) -> list[str]:
    """Codes and names in the spelling of rules, as they are listed."""
    listed = filter(None, re.split(r"[\s,]+", text))
    return [c.upper() if _CODE.fullmatch(c) else c.lower() for c in listed]


def read_lines(source: Source) -> Lines:
    """The comments and statements of a text; those before what is no Python."""
    comments: dict[int, Comment] = {}
    logical: list[tuple[int, int]] = []
    open_: set[int] = set()
    strings: list[int] = []  # rows where those begin that hold expressions
    first: int | None = None
    ignored = (tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
    try:
        for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
            name = tokenize.tok_name[token.type]
            if name.endswith("STRING_START"):
                strings.append(token.start[0])
            elif name.endswith("STRING_END"):
                open_.update(range(strings.pop(), token.end[0]))
            elif token.type == tokenize.STRING:
                open_.update(range(token.start[0], token.end[0]))
            if token.type == tokenize.COMMENT:
                row, column = token.start
                comments[row] = Comment(row, column + 1, token.string)
            elif token.type == tokenize.NEWLINE:
                logical.append((first or token.start[0], token.start[0]))
                first = None
            elif token.type not in ignored and first is None:
                first = token.start[0]
    except (tokenize.TokenError, IndentationError):
        pass
    rows = range(1, len(source.starts) + 1)
    marked = (r for r in rows if r not in comments and source.line(r).endswith("\\"))
    return Lines(comments, logical, frozenset(open_.union(marked)))


def _rows(row: int, source: Source, lines: Lines) -> set[int]:
    """Rows whose comment concerns a finding: its own, its statement's ends, above."""
    first, last = lines.statement(row)
    rows = {row, first, last}
    above = first - 1
    while above in lines.comments and source.line(above).lstrip().startswith("#"):
        rows.add(above)
        above -= 1
    return rows
