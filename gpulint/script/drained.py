"""Values that are there already when they are read: the host has waited before."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpulint.index.walk import walk
from gpulint.script.every_step import Part

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script


def is_drained(
    script: Script, loop: Loop, part: Part, value: ast.expr, reads: Iterable[Part]
) -> bool:
    """Whether a read before a part has waited for all that its value is made of.

    The device works in order: once the host has one result, it has all queued earlier.
    """
    base = value
    while isinstance(base, (ast.Attribute, ast.Subscript)) and not _calls(base):
        base = base.value
    if not isinstance(base, ast.Name):
        return False
    made = script.definitions(base)
    if not made or any(d.kind not in ("assign", "augment") for d in made):
        return False
    inside = [d.node for d in made if script.index.inside(d.node, loop.node)]
    return any(
        _runs_before(read, part) and all(_stands_before(n, read.node) for n in inside)
        for read in reads
    )


def _calls(node: ast.expr) -> bool:
    """Whether an expression computes an index of its own."""
    return isinstance(node, ast.Subscript) and any(
        isinstance(n, ast.Call) for n in walk(node.slice)
    )


def _runs_before(read: Part, part: Part) -> bool:
    """Whether a read runs before a part in every step in which the part runs."""
    same = read.helper is part.helper and read.call is part.call
    certain = part.branches[: len(read.branches)] == read.branches
    return same and certain and not read.inner and _stands_before(read.node, part.node)


def _stands_before(node: ast.AST, other: ast.AST) -> bool:
    return _place(node) < _place(other)


def _place(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
