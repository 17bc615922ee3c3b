"""Comments that switch findings off: `# gpulint: ignore[GPU101] -- reason`."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from gpulint.finding import Finding
from gpulint.index.settings_file import read_settings
from gpulint.source import Source, SourceError

_IGNORE = re.compile(r"#\s*gpulint:\s*ignore\b(?:\[([^\]]*)\])?")
_NOQA = re.compile(r"#\s*noqa:\s*([A-Z]+[0-9]+(?:[\s,]+[A-Z]+[0-9]+)*)", re.IGNORECASE)
_SKIP_FILE = re.compile(r"#\s*gpulint:\s*skip-file\b")


class Comment(NamedTuple):
    """A comment, with the row and column (from 1) where it begins."""

    row: int
    column: int
    text: str


class Suppressions:
    """The comments of a file that switch findings off, and which of them did."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._used: set[tuple[int, str]] = set()

    @cached_property
    def _read(self) -> tuple[dict[int, Comment], list[tuple[int, int]]]:
        return _comments(self.source)

    @property
    def _any(self) -> bool:
        return "gpulint:" in self.source.text or "noqa" in self.source.text

    @cached_property
    def skips_file(self) -> bool:
        """Whether a comment leaves the whole file out."""
        comments, _ = self._read
        return any(_SKIP_FILE.search(c.text) for c in comments.values())

    def apply(self, findings: Iterable[Finding]) -> list[Finding]:
        """Mark findings whose line, statement or file carries a matching comment."""
        found = list(findings)
        if not found or not self._any:
            return found
        if self.skips_file:
            return [f._replace(suppressed="inline") for f in found]
        comments, logical = self._read
        codes = {row: _codes(comment.text) for row, comment in comments.items()}
        result = []
        for finding in found:
            rows = _rows(finding.place.start.row, self.source, comments, logical)
            mine = {finding.code, finding.name}
            hits = {(r, c) for r in rows for c in codes.get(r, set()) & mine}
            self._used |= hits
            result.append(finding._replace(suppressed="inline") if hits else finding)
        return result

    def unused(self) -> Iterator[tuple[Comment, str]]:
        """Codes and names in `ignore[…]` that no finding so far has; "": none given."""
        if "gpulint:" not in self.source.text or self.skips_file:
            return
        comments, _ = self._read
        for row, comment in comments.items():
            for match in _IGNORE.finditer(comment.text):
                codes = _listed(match.group(1) or "")
                used = {code for code in codes if (row, code) in self._used}
                for code in codes or [""]:
                    if code not in used:
                        yield comment, code


def suppress_in_settings(finding: Finding) -> Finding:
    """The same for a finding in a settings file: a comment at the end of its line."""
    try:
        text = read_settings(finding.place.path).line(finding.place.start.row)
    except (SourceError, IndexError):
        return finding
    hit = _codes(text) & {finding.code, finding.name}
    return finding._replace(suppressed="inline") if hit else finding


def _codes(comment: str) -> set[str]:
    """Codes (upper case) and names that a comment switches off."""
    matches = [m for pattern in (_IGNORE, _NOQA) for m in pattern.finditer(comment)]
    return {code for match in matches for code in _listed(match.group(1) or "")}


def _listed(text: str) -> list[str]:
    """Codes and names in the spelling of rules, as they are listed."""
    listed = filter(None, re.split(r"[\s,]+", text))
    return [c.upper() if c.upper().startswith("GPU") else c.lower() for c in listed]


def _comments(source: Source) -> tuple[dict[int, Comment], list[tuple[int, int]]]:
    """Comments by row, and the first and last row of each logical line."""
    comments: dict[int, Comment] = {}
    logical: list[tuple[int, int]] = []
    first: int | None = None
    ignored = (tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
    try:
        for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
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
    return comments, logical


def _rows(
    row: int,
    source: Source,
    comments: dict[int, Comment],
    logical: list[tuple[int, int]],
) -> set[int]:
    """Rows whose comment concerns a finding: its own, its statement's ends, above."""
    first, last = next(((a, b) for a, b in logical if a <= row <= b), (row, row))
    rows = {row, first, last}
    above = first - 1
    while above in comments and source.line(above).lstrip().startswith("#"):
        rows.add(above)
        above -= 1
    return rows
