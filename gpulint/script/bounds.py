"""The largest and the smallest number that an expression can be."""

from __future__ import annotations

import ast
from collections.abc import Callable
from math import inf, prod
from typing import TYPE_CHECKING

from gpulint.index.appended import appended_to, grows
from gpulint.index.walk import LOOPS

if TYPE_CHECKING:
    from gpulint.script.model import Script

Bound = Callable[["Script", ast.expr], float]

MAX_DEPTH = 8
MAX_POWER = 8
BITS = 64  # of a number that counts something: its logarithm is no larger
_ROUNDING = frozenset("int round math.floor math.ceil math.trunc".split())
_OF_DICTS = frozenset("items keys values".split())
_PASSED_ON = frozenset("list tuple sorted reversed enumerate set zip tqdm".split())
_LOGARITHMS = frozenset("math.log2 math.log numpy.log2 numpy.log".split())


def at_most(script: Script, node: ast.expr, depth: int = 0) -> float:
    """The largest whole number that an expression can be; infinite: not known.

    Elements of a list of known numbers are known, whichever of them is meant:
    `widths[i]` after `widths = [args.hidden] * args.levels`.
    """
    its = script.evaluator.values(node)
    if its.complete and its.known:
        numbers = [v.constant for v in its.known]
        whole = [n for n in numbers if isinstance(n, int)]
        return max(whole) if len(whole) == len(numbers) else inf
    if depth > MAX_DEPTH:
        return inf
    found = [
        _written(script, o.expression, depth) for o in script.resolver.origins(node)
    ]
    return max(found, default=inf)


def most_turns(script: Script, iterated: ast.expr, depth: int = 0) -> float:
    """How often a loop over something runs at most; infinite: not known.

    Over `range(4)`, a list that is written or filled by such a loop, the items of a
    dict, and what is made of them one by one.
    """
    if isinstance(iterated, ast.Call):
        return _turns_of_call(script, iterated, depth)
    if depth > MAX_DEPTH:
        return inf
    origins = script.resolver.origins(iterated)
    found = [_length(script, o.expression, depth + 1) for o in origins if not o.path]
    return max(found, default=inf) if len(found) == len(origins) else inf


def _turns_of_call(script: Script, call: ast.Call, depth: int) -> float:
    name = script.index.qualified(call.func) or ""
    func = call.func
    if name == "range":
        return at_most(script, call.args[0]) if len(call.args) == 1 else inf
    if isinstance(func, ast.Attribute) and func.attr in _OF_DICTS and not call.args:
        return most_turns(script, func.value, depth + 1)
    if name.rpartition(".")[2] in _PASSED_ON and call.args:
        return most_turns(script, call.args[0], depth + 1)
    return inf


def _length(script: Script, node: ast.expr | None, depth: int) -> float:
    """How many elements something has at most."""
    if isinstance(node, ast.Call):
        return most_turns(script, node, depth)
    if node is None or grows(script.index, node):
        return inf
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp)):
        return prod(most_turns(script, its.iter, depth) for its in node.generators)
    if isinstance(node, ast.Dict):
        return len(node.keys) if node.keys and None not in node.keys else inf
    if not isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return inf
    if any(isinstance(part, ast.Starred) for part in node.elts):
        return inf
    added = _added(script, node, depth) if isinstance(node, ast.List) else 0
    return len(node.elts) + added or inf


def _added(script: Script, written: ast.List, depth: int) -> float:
    """How many elements a list gets by `xs.append(x)`, in loops of its scope."""
    found: float = 0
    for item in appended_to(script.index, written):
        around = script.index.ancestors(item)
        loops = [above for above in around if isinstance(above, LOOPS)]
        over = [loop.iter for loop in loops if isinstance(loop, ast.For)]
        if len(over) < len(loops) or any(
            script.index.inside(written, loop) for loop in loops
        ):
            return inf
        found += prod(most_turns(script, its, depth) for its in over)
    return found


def at_least(script: Script, node: ast.expr, depth: int = 0) -> float:
    """The smallest whole number that is known to reach an expression; 0: none is.

    A default counts, and what callers give in its place. Sums and products of such
    numbers, and quotients, are as large at least.
    """
    its = script.evaluator.values(node)
    if its.known:
        numbers = [v.constant for v in its.known]
        return min((n for n in numbers if isinstance(n, int)), default=0)
    if depth > MAX_DEPTH:
        return 0
    found = [
        _least_of(script, o.expression, depth) for o in script.resolver.origins(node)
    ]
    return min(found, default=0)


def _least_of(script: Script, node: ast.expr | None, depth: int) -> float:
    if not isinstance(node, ast.BinOp):
        return 0
    left = at_least(script, node.left, depth + 1)
    if isinstance(node.op, ast.FloorDiv):
        by = at_most(script, node.right, depth + 1)
        return left // by if 0 < by < inf else 0
    right = at_least(script, node.right, depth + 1)
    if isinstance(node.op, ast.Mult):
        return left * right
    return left + right if isinstance(node.op, ast.Add) else 0


def _written(script: Script, node: ast.expr | None, depth: int) -> float:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, int) else inf
    if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
        return _element(script, node.value, depth + 1)
    if isinstance(node, ast.Call):
        return _called(script, node, depth)
    if isinstance(node, ast.BinOp):
        left = at_most(script, node.left, depth + 1)
        if isinstance(node.op, (ast.FloorDiv, ast.Sub)):
            return left  # of numbers that are not negative
        right = at_most(script, node.right, depth + 1)
        if isinstance(node.op, ast.Mod):
            return min(left, right)
        if isinstance(node.op, ast.Mult):
            return left * right if left and right else 0
        if isinstance(node.op, ast.Pow):
            return left**right if left < inf and 0 <= right <= MAX_POWER else inf
        return left + right if isinstance(node.op, ast.Add) else inf
    return inf


def _called(script: Script, call: ast.Call, depth: int) -> float:
    """The largest number that `max(a, b)`, `int(n / 2)` and the like can give."""
    name = script.index.qualified(call.func) or ""
    if name in _LOGARITHMS:
        return BITS
    if call.keywords or any(isinstance(a, ast.Starred) for a in call.args):
        return inf
    if name in ("max", "min") and len(call.args) > 1:
        found = [at_most(script, given, depth + 1) for given in call.args]
        return max(found) if name == "max" else min(found)
    if name in _ROUNDING and len(call.args) == 1:
        given = call.args[0]
        if isinstance(given, ast.BinOp) and isinstance(given.op, ast.Div):
            by = script.evaluator.constant(given.right)
            given = given.left if isinstance(by, int) and by > 0 else given
        return at_most(script, given, depth + 1)
    return inf


def _element(script: Script, holder: ast.expr, depth: int) -> float:
    """The largest element of a list or tuple."""
    if depth > MAX_DEPTH:
        return inf
    found = [
        _of_list(script, o.expression, depth) for o in script.resolver.origins(holder)
    ]
    return max(found, default=inf)


def _of_list(script: Script, node: ast.expr | None, depth: int) -> float:
    if isinstance(node, (ast.List, ast.Tuple)):
        return max((at_most(script, e, depth + 1) for e in node.elts), default=inf)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):  # `[n] * times`
        lists = (ast.List, ast.Tuple)
        written = [side for side in (node.left, node.right) if isinstance(side, lists)]
        return _of_list(script, written[0], depth + 1) if len(written) == 1 else inf
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = [node.left, node.right]
        return max(_element(script, side, depth + 1) for side in sides)
    return inf
