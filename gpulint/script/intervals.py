"""Tests that hold now and then: every n-th step, or when something is shown."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.index.walk import dotted, walk

if TYPE_CHECKING:
    from gpulint.script.model import Script

_INTERVAL = re.compile(
    r"(^|_)(log|logging|print|display|report|verbose|debug|interval|freq|frequency|every|"
    r"plot|vis|visualize|save|saving|summary|dump|profile|dry_run|tick)(_|$)",
    re.IGNORECASE,
)


def is_interval(script: Script, test: ast.expr) -> bool:
    """Whether a test asks for every n-th step: `step % n == 0`, `if log_now:`.

    Also by a name that was given such a test before, or a method that returns one.
    """
    for node in walk(test):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            return True
        name = (dotted(node) or "").rpartition(".")[2]
        if isinstance(node, (ast.Name, ast.Attribute)) and _INTERVAL.search(name):
            return True
        if isinstance(node, ast.Name) and _counts(script, node):
            return True
        if isinstance(node, ast.Call) and _is_due_seldom(script, node):
            return True
    return False


def _counts(script: Script, node: ast.Name) -> bool:
    """`due = step % 50 == 0` before `if due:`."""
    return any(
        isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod)
        for d in script.definitions(node)
        if d.kind == "assign" and d.value is not None
        for part in walk(d.value)
        if isinstance(d.value, (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp))
    )


def _is_due_seldom(script: Script, call: ast.Call) -> bool:
    """`recorder.is_due()`, which returns `self.step % self.every == 0`."""
    asked = script.resolver.calls.callees(call)
    return bool(asked) and all(any(map(_counts_rounds, walk(f))) for f in asked)


def _counts_rounds(node: ast.AST) -> bool:
    """`return step % every == 0`, perhaps beside other reasons; not `rank % gpus`."""
    return isinstance(node, ast.Return) and any(
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.BinOp)
        and isinstance(test.left.op, ast.Mod)
        and "rank" not in ast.dump(test.left.left)
        for test in (walk(node.value) if node.value is not None else ())
    )
