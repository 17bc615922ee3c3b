"""Comments that switch findings off: `# gpulint: ignore[GPU101] -- reason`."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable

from gpulint.finding import Finding
from gpulint.index.settings_file import read_settings
from gpulint.source import Source, SourceError

_IGNORE = re.compile(r"#\s*gpulint:\s*ignore\[([^\]]*)\]")
_NOQA = re.compile(r"#\s*noqa:\s*([A-Z]+[0-9]+(?:[\s,]+[A-Z]+[0-9]+)*)", re.IGNORECASE)
_SKIP_FILE = re.compile(r"#\s*gpulint:\s*skip-file\b")


def suppress(findings: Iterable[Finding], source: Source) -> list[Finding]:
    """Mark findings whose line, statement or file carries a matching comment."""
    found = list(findings)
    if not found or ("gpulint:" not in source.text and "noqa" not in source.text):
        return found
    comments, logical = _comments(source)
    if any(_SKIP_FILE.search(text) for text in comments.values()):
        return [f._replace(suppressed="inline") for f in found]
    codes = {row: _codes(text) for row, text in comments.items()}
    result = []
    for finding in found:
        rows = _rows(finding.place.start.row, source, comments, logical)
        named = set().union(*(codes.get(row, set()) for row in rows))
        hit = named & {finding.code, finding.name}
        result.append(finding._replace(suppressed="inline") if hit else finding)
    return result


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
    listed: list[str] = []
    for pattern in (_IGNORE, _NOQA):
        for match in pattern.finditer(comment):
            listed += re.split(r"[\s,]+", match.group(1).strip())
    return {c.upper() if c.upper().startswith("GPU") else c.lower() for c in listed}


def _comments(source: Source) -> tuple[dict[int, str], list[tuple[int, int]]]:
    """Comments by row, and the first and last row of each logical line."""
    comments: dict[int, str] = {}
    logical: list[tuple[int, int]] = []
    first: int | None = None
    ignored = (tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
    try:
        for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
            if token.type == tokenize.COMMENT:
                comments[token.start[0]] = token.string
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
    comments: dict[int, str],
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
