"""Batches and samples that are to be tuples, of which pinning makes lists."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, TypeGuard

from gpulint.index.walk import children, dotted, walk
from gpulint.script.loading.batch_objects import hands_on_samples
from gpulint.script.neighbours import run_together

if TYPE_CHECKING:
    from gpulint.index import FileIndex
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.model import Script


def needs_tuple(script: Script, loader: Loader) -> str | None:
    """Why what a collate function gives must stay a tuple.

    Pinning by torch up to 2.10 makes a list of it. A loop takes the batch for one. Or
    the batch is a sample as it is, and some file that runs with the loop takes nothing
    but a tuple.
    """
    if not loader.argument("collate_fn").given:
        return None
    if hands_on_samples(script, loader):
        found = (_asked_in(index) for index in run_together(script))
        return next(filter(None, found), None)
    for loop in loader.loops:
        whole = {t for _, t in loop.items if isinstance(t, ast.Name)}
        for node in walk(loop.node):
            if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
                continue
            if whole.isdisjoint(d.node for d in script.definitions(node)):
                continue
            above = script.index.parent(node)
            if _asks(above) or _is_joined(above):
                line = getattr(above, "lineno", 0)
                return f"line {line} needs a tuple, of which pinning may make a list"
    return None


def _asked_in(index: FileIndex) -> str | None:
    """Where a file takes only a tuple for what it looks for: a list will not do."""
    if "tuple" not in index.source.text:
        return None
    for call in index.all(ast.Call):
        if _asks(call) and "list" not in map(dotted, walk(call.args[1])):
            place = f"{index.source.path.name}:{call.lineno}"
            return f"{place} asks for a tuple, and pinning may make lists of those"
    return None


def _asks(node: ast.AST | None) -> TypeGuard[ast.Call]:
    """`isinstance(…, tuple)`."""
    if not isinstance(node, ast.Call) or len(node.args) < 2:
        return False
    asked = dotted(node.func) == "isinstance"
    return asked and "tuple" in map(dotted, walk(node.args[1]))


def _is_joined(node: ast.AST | None) -> bool:
    """`batch + (weights,)`."""
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Add)
        and any(isinstance(n, ast.Tuple) for n in children(node))
    )
