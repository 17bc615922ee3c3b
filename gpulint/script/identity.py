"""What identifies a finding when lines move, when layout changes and beside a fix."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index.loaded_settings import is_settings
from gpulint.script.settings.setting_values import setting_name
from gpulint.source import node_span

if TYPE_CHECKING:
    from gpulint.index import FileIndex
    from gpulint.script.model import Script

MAX_LENGTH = 200
_WORDS = re.compile(r"""\w+|[^\w\s(),"'\\]""")


def identity(script: Script, node: ast.AST) -> str:
    """The definition around a node, what its statement binds, and its own text.

    Not all of the statement, and no keyword arguments: a fix that adds one would make
    other findings new. In a settings file: the keys of the value, and the value.
    """
    index = script.index.home(node)
    if is_settings(index) and isinstance(node, ast.expr):
        return f"{setting_name(script, node)}\0{script.text(node)}"
    text = script.source_of(node).text
    _, end = node_span(index.source, node)
    body = getattr(node, "body", None)
    if isinstance(node, ast.stmt) and isinstance(body, list) and body:
        end = node_span(index.source, body[0])[0]  # its head alone
    own = "".join(text[a:b] for a, b in _without_keywords(index, node, end))
    statement = index.statement(node)
    bound = ""
    value = _value(statement)
    if value is not None and statement is not node:
        head, tail = (node_span(index.source, n)[0] for n in (statement, value))
        bound = normal(text[head:tail])
    return "\0".join((index.qualname(node), bound, normal(own)[:MAX_LENGTH]))


def normal(text: str) -> str:
    """Code without comments and without what formatters change."""
    return " ".join(_WORDS.findall(_without_comments(text) if "#" in text else text))


def _without_keywords(
    index: FileIndex, node: ast.AST, end: int
) -> Iterator[tuple[int, int]]:
    """The parts of a node up to `end` that are outside of keyword arguments."""
    at, _ = node_span(index.source, node)
    given = (n for n in ast.walk(node) if isinstance(n, ast.keyword))
    for first, last in sorted(node_span(index.source, k) for k in given):
        if at <= first < end:
            yield at, first
            at = last
    yield at, max(at, end)


def _value(statement: ast.stmt) -> ast.expr | None:
    """What a statement binds to names."""
    if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        return statement.value
    return statement.iter if isinstance(statement, (ast.For, ast.AsyncFor)) else None


def _without_comments(text: str) -> str:
    lines = io.StringIO(text).readlines()
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                row, column = token.start
                lines[row - 1] = lines[row - 1][:column] + "\n"
    except (tokenize.TokenError, IndentationError):
        pass  # the text is a part of a file: its brackets may be open
    return "".join(lines)
