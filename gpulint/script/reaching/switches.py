"""Branches that a constant of the program, or an option by default, switches off."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, TypeGuard

from gpulint.index.walk import dotted
from gpulint.script.reaching.commands import is_passed

if TYPE_CHECKING:
    from gpulint.script.model import Script

_OFF = (False, None, 0)


def is_switched_off(script: Script, node: ast.AST) -> bool:
    """Whether a node stands behind `if train:` with `train = False` in this file.

    An option, or a default that a caller may replace, is no such constant.
    """
    child = node
    for above in script.index.ancestors(node):
        if isinstance(above, ast.If) and child is not above.test:
            taken = _constant(script, above.test)
            if taken is not None and taken is not (child in above.body):
                return True
        child = above
    return False


def _constant(script: Script, test: ast.expr) -> bool | None:
    """What a test always is; None: not known, or not written as a name of this file."""
    negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    name = test.operand if isinstance(test, ast.UnaryOp) else test
    if not isinstance(name, ast.Name):
        return None
    origins = script.resolver.origins(name)
    value = origins[0].expression if len(origins) == 1 else None
    if not isinstance(value, ast.Constant) or origins[0].default:
        return None
    if not isinstance(value.value, int) or not script.index.holds(value):
        return None
    return bool(value.value) is not negated


def is_off(script: Script, test: ast.expr) -> bool:
    """Whether a test fails with the options' defaults: `wandb and args.wandb`."""
    return _fails_by_default(script, test) or _is_left_out(script, test)


def _fails_by_default(script: Script, test: ast.expr) -> bool:
    if isinstance(test, ast.BoolOp):
        enough = any if isinstance(test.op, ast.And) else all
        return enough(is_off(script, value) for value in test.values)
    if _asks_if_given(test):
        return _stays_off(script, test.left, None)
    return _stays_off(script, test, *_OFF)


def _stays_off(script: Script, node: ast.expr, *off: object) -> bool:
    """Whether a value is off, and no command that is known gives the option."""
    its = script.evaluator.values(node)
    return its.all_in(*off) and not any(
        value.default and is_passed(script, value) for value in its.known
    )


def _is_left_out(script: Script, test: ast.expr) -> bool:
    """Whether `color` is off, of `color = (0.1, 0.1) if args.color else None`."""
    if not isinstance(test, (ast.Name, ast.Attribute)):
        return False
    origins = script.resolver.origins(test)
    made = [o.expression for o in origins if not _is_in_off_part(script, o.node)]
    return 0 < len(made) < len(origins) and all(
        isinstance(node, ast.Constant) and node.value in _OFF for node in made
    )


def _is_in_off_part(script: Script, node: ast.AST) -> bool:
    """Whether a value is `a` of `a if args.x else b`, where that option is off.

    By its own values: what the test asks may be what it decides, in a loop.
    """
    its = script.of(node)
    above = its.index.parent(node)
    return (
        isinstance(above, ast.IfExp)
        and above.body is node
        and _stays_off(its, above.test, *_OFF)
    )


def _asks_if_given(test: ast.expr) -> TypeGuard[ast.Compare]:
    """`args.project is not None`; what callers give a function is less well known."""
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.IsNot):
        return False
    if (dotted(test.left) or "self").partition(".")[0] in ("self", "cls"):
        return False
    if not isinstance(test.left, ast.Attribute):
        return False
    right = test.comparators[0]
    return isinstance(right, ast.Constant) and right.value is None
