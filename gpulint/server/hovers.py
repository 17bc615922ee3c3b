"""What an editor says about the code under the pointer: why it is found, or ignored."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpulint.finding import Finding
from gpulint.registry import find_rule
from gpulint.report.rule_texts import explanation
from gpulint.server.documents import Document, Point, Text
from gpulint.suppress import IGNORE, NOQA, read_lines

_CODE = re.compile(r"[\w-]+")


def about_findings(findings: list[Finding]) -> str | None:
    """What is found here, and what its rules say, in Markdown; None: nothing is."""
    parts = []
    for finding in findings:
        rule = find_rule(finding.code)
        text = explanation(rule) if rule is not None else f"# {finding.code}\n"
        withheld = finding.fix_withheld
        why = f"\n\nNo fix: {_first_line(withheld)}" if withheld else ""
        parts.append(f"**{finding.message}**{why}\n\n{text}")
    return "\n---\n\n".join(dict.fromkeys(parts)) or None


def about_comment(document: Document, text: Text, at: Point) -> str | None:
    """What the rules say that a comment under the pointer names; `at`: code points."""
    row = document.row(at.uri, at.line)
    if row is None or not _mentions(text, at):
        return None
    comment = read_lines(document.source).comments.get(row)
    if comment is None:
        return None
    line = text.page.line(at.line + 1)
    start = line.rfind(comment.text)
    if start < 0:
        return None
    rules = (find_rule(c) for c in _named(comment.text, at.character - start))
    parts = dict.fromkeys(explanation(rule) for rule in rules if rule is not None)
    return "\n---\n\n".join(parts) or None


def _mentions(text: Text, at: Point) -> bool:
    """A cheap look, before the comments of the whole text are read."""
    known = at.line < len(text.page.starts)
    return known and "#" in text.page.line(at.line + 1)[: at.character + 1]


def _named(comment: str, column: int) -> Iterator[str]:
    """The rule at a column of a comment, or all it lists where that is no rule."""
    for pattern in (IGNORE, NOQA):
        for match in pattern.finditer(comment):
            if not (match.start() <= column < match.end()) or match[1] is None:
                continue
            start = match.start(1)
            codes = list(_CODE.finditer(match[1]))
            on = [c for c in codes if start + c.start() <= column < start + c.end()]
            yield from (code.group() for code in on or codes)


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
