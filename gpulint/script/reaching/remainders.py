"""Intervals that never meet: `step % n == 0` around `(step + 1) % n == 0`."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index.walk import LOOPS

if TYPE_CHECKING:
    from gpulint.script.model import Script


class Remainder(NamedTuple):
    """`(step + 1) % n == 0`: a count, what is added to it, and the interval."""

    counter: ast.Name
    shift: int
    interval: ast.expr


def never_meet(script: Script, tests: Iterable[ast.expr]) -> bool:
    """Whether two of some tests that must all hold ask a count for different steps."""
    found = [its for its in map(_remainder, tests) if its is not None]
    return any(
        _differ(a, b) and _is_same(script, a.counter, b.counter)
        for a, b in combinations(found, 2)
    )


def _is_same(script: Script, a: ast.Name, b: ast.Name) -> bool:
    """Whether nothing sets a count between two places that read it."""
    loops = [
        next((x for x in script.index.ancestors(n) if isinstance(x, LOOPS)), None)
        for n in (a, b)
    ]
    return loops[0] is loops[1] and script.definitions(a) == script.definitions(b)


def _differ(a: Remainder, b: Remainder) -> bool:
    if a.counter.id != b.counter.id:
        return False
    apart = abs(a.shift - b.shift)
    sizes = _number(a.interval), _number(b.interval)
    if sizes[0] and sizes[1]:
        return apart % math.gcd(*sizes) != 0
    # An interval that is not known may be any number but 1.
    return apart == 1 and (
        _is_multiple(a.interval, b.interval) or _is_multiple(b.interval, a.interval)
    )


def _remainder(test: ast.expr) -> Remainder | None:
    """What a test of a remainder asks; None: it is none, or not of whole numbers."""
    match test:
        case ast.Compare(
            ast.BinOp(count, ast.Mod(), interval), [ast.Eq()], [ast.Constant(int(rest))]
        ):
            shift = 0
        case _:
            return None
    match count:
        case ast.BinOp(inner, ast.Add(), ast.Constant(int(shift))):
            count = inner
        case ast.BinOp(inner, ast.Sub(), ast.Constant(int(less))):
            count, shift = inner, -less
    if not isinstance(count, ast.Name):
        return None
    return Remainder(count, shift - rest, interval)


def _number(node: ast.expr) -> int:
    value = node.value if isinstance(node, ast.Constant) else 0
    return value if isinstance(value, int) else 0


def _is_multiple(node: ast.expr, interval: ast.expr) -> bool:
    """Whether an interval is another one, or some times that: `10 * n`."""
    sides = [node]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        sides += [node.left, node.right]
    asked = ast.dump(interval)
    return any(ast.dump(side) == asked for side in sides)
