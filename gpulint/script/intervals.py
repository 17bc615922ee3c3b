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
MAX_NAMES = 3  # from a test back to what decides it


def is_interval(script: Script, test: ast.expr) -> bool:
    """Whether a test is one for some steps: by a count, or by the name of what it asks.

    `step % n == 0`, `if log_now:`, `if args.verbose:`.
    """
    for node in walk(test):
        name = (dotted(node) or "").rpartition(".")[2]
        if isinstance(node, (ast.Name, ast.Attribute)) and _INTERVAL.search(name):
            return True
        if isinstance(node, ast.Name) and _is_made_of_count(script, node):
            return True
        if is_remainder(node):
            return True
        if isinstance(node, ast.Call) and _is_due_seldom(script, node):
            return True
    return False


def holds_mostly(script: Script, test: ast.expr, depth: int = 0) -> bool:
    """Whether a test holds but now and then: `step % n != 0`, `not log_now`.

    No countdown (`if skipped > 0: skipped -= 1`), and no way to run less at all
    (`if args.debug:`).
    """
    if depth > MAX_NAMES:
        return False
    if isinstance(test, ast.BoolOp):
        return any(holds_mostly(script, part, depth) for part in test.values)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        if _counts(script, test.operand):
            return False
        seldom = is_interval(script, test.operand)
        return seldom and not holds_mostly(script, test.operand, depth)
    if isinstance(test, ast.Compare):
        sides = (test.left, *test.comparators)
        equal = isinstance(test.ops[0], (ast.Eq, ast.Is))
        if any(_counts(script, side) for side in sides):
            return not equal
        if isinstance(test.left, ast.Compare):  # `(step % n == 0) is False`
            return any(getattr(s, "value", None) is False for s in sides) is not (
                holds_mostly(script, test.left, depth + 1)
            )
        named = any(map(_names_interval, sides))
        return named and isinstance(test.ops[0], (ast.Lt, ast.LtE))
    if isinstance(test, ast.NamedExpr):
        return holds_mostly(script, test.value, depth + 1)
    if isinstance(test, ast.Call):
        inner = test.args if dotted(test.func) == "bool" else []
        asked = script.resolver.calls.callees(test)
        returned = [v for f in asked for v in script.resolver.flow(f).returns if v]
        return any(holds_mostly(script, v, depth + 1) for v in (*inner, *returned))
    if isinstance(test, ast.Name):
        made = [d.value for d in script.definitions(test) if d.kind == "assign"]
        return any(v and holds_mostly(script, v, depth + 1) for v in made)
    return is_remainder(test)


def _counts(script: Script, node: ast.expr) -> bool:
    """`step % n`, also under a name of its own."""
    if isinstance(node, ast.NamedExpr):
        node = node.value
    if isinstance(node, ast.Name):
        made = [d.value for d in script.definitions(node) if d.kind == "assign"]
        return bool(made) and all(v is not None and is_remainder(v) for v in made)
    return is_remainder(node)


def _names_interval(node: ast.expr) -> bool:
    """`next_log`, and no `args.debug`."""
    name = (dotted(node) or "").rpartition(".")[2]
    return _INTERVAL.search(name) is not None


def is_remainder(node: ast.AST) -> bool:
    """`step % n`."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)


def is_due(script: Script, test: ast.expr) -> bool:
    """`due = step % 50 == 0` before `if due:`; surely not in every step.

    Perhaps also in the last: `due = step % 50 == 0 or step == steps - 1`.
    """
    if isinstance(test, ast.BoolOp):
        whether = all if isinstance(test.op, ast.Or) else any
        return whether(is_due(script, part) for part in test.values)
    made = script.definitions(test) if isinstance(test, ast.Name) else ()
    values = [d.value for d in made if d.kind == "assign" and not d.path]
    return len(values) == len(made) > 0 and all(
        value is not None and _is_seldom(value) for value in values
    )


def _is_seldom(value: ast.expr) -> bool:
    """`step % n == 0`, alone or beside equations that hold once."""
    if isinstance(value, ast.BoolOp):
        parts = value.values
        if isinstance(value.op, ast.And):
            return any(map(_is_seldom, parts))
        return any(map(_is_seldom, parts)) and all(map(_is_equation, parts))
    return (
        _is_equation(value)
        and _compares_count(value)
        and not any(isinstance(n, (ast.Call, ast.Subscript)) for n in walk(value))
    )


def _is_equation(node: ast.expr) -> bool:
    return isinstance(node, ast.Compare) and [type(o) for o in node.ops] == [ast.Eq]


def _is_made_of_count(script: Script, node: ast.Name) -> bool:
    """The same of a name somewhere in a test, and of any number made by a count."""
    return any(
        is_remainder(part)
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
    return (
        isinstance(node, ast.Return)
        and node.value is not None
        and any(map(_compares_count, walk(node.value)))
    )


def _compares_count(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Compare)
        and is_remainder(node.left)
        and "rank" not in ast.dump(node.left)
    )
