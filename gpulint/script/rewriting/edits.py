"""What a rewrite consists of: edits on nodes, all of them or none."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import NamedTuple

Build = Callable[[str], str]


class CannotFix(Exception):
    """A rewrite that this text does not allow; the message names the reason."""


class NotBorne(CannotFix):
    """A rewrite that values of this text may not bear: it would raise, or go wrong."""


class Replace(NamedTuple):
    """Replace an expression by what `build` makes of its text.

    The text includes the parentheses around it, and edits of the same rewrite inside
    it are applied first.
    """

    node: ast.expr
    build: Build


class ReplaceCode(NamedTuple):
    """Replace an expression, parameter or simple statement by code as it is."""

    node: ast.expr | ast.stmt | ast.arg
    code: str


class InsertBefore(NamedTuple):
    """Insert lines before a statement, at its indentation."""

    statement: ast.stmt
    code: str


class InsertAfter(NamedTuple):
    """Insert lines after a statement, at its indentation."""

    statement: ast.stmt
    code: str


class Wrap(NamedTuple):
    """Put consecutive statements of one block under a header line."""

    statements: tuple[ast.stmt, ...]
    header: str


class Remove(NamedTuple):
    """Delete a simple statement with its line and the comment on it."""

    statement: ast.stmt


Edit = Replace | ReplaceCode | InsertBefore | InsertAfter | Wrap | Remove


def place_of(edit: Edit) -> ast.expr | ast.stmt | ast.arg:
    """The node that an edit changes, or stands beside."""
    if isinstance(edit, (Replace, ReplaceCode)):
        return edit.node
    return edit.statements[0] if isinstance(edit, Wrap) else edit.statement


class Rewrite(NamedTuple):
    """What a rule wants changed: all edits or none.

    `imports` are statements such as `import torch` that the new text needs.
    `torch` is the lowest release of what is emitted, where it differs from the
    rule's.
    """

    title: str
    edits: tuple[Edit, ...]
    imports: tuple[str, ...] = ()
    torch: tuple[int, int] | None = None
