"""What random numbers in code are drawn from, and how often a test of one holds."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index.build import last_name

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_DEPTH = 6
MOST_VALUES = 64  # of whole numbers that are drawn from
# Calls that draw from 0 to 1, from a range, and whole numbers (1: the end is one).
_UNIT = frozenset(
    "random.random numpy.random.rand numpy.random.random numpy.random.random_sample "
    "torch.rand".split()
)
_RANGE = frozenset(("random.uniform", "numpy.random.uniform"))
_WHOLE = {"random.randint": 1, "numpy.random.randint": 0, "random.randrange": 0}
_NORMAL = frozenset(("numpy.random.normal",))
_STANDARD = frozenset(("numpy.random.randn", "torch.randn", "torch.randn_like"))
_PLAIN = ("item", "float", "float32", "astype")  # give the number as another type


SELDOM = 0.5  # of the steps, where a test holds


class Drawn(NamedTuple):
    """A number that code draws evenly, or a fixed one (`call` is None).

    `values` are all that can be drawn, where those are few; `whole` whether there is
    nothing between them. `literal` is whether the file itself says so: no option or
    setting can change it.
    """

    low: float
    high: float
    call: ast.Call | None = None
    values: tuple[float, ...] = ()
    literal: bool = True
    whole: bool = False


class Chance(NamedTuple):
    """How often a test holds: the part, and the draw that it asks."""

    p: float
    call: ast.Call
    literal: bool


class Numbers:
    """Reads expressions with one draw in them: `1 + 0.2 * random.uniform(-1, 1)`."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def read(self, node: ast.expr, depth: int = 0) -> Drawn | None:
        """The range of an expression; None where it is not understood."""
        if depth > MAX_DEPTH:
            return None
        if isinstance(node, ast.BinOp):
            return self._arithmetic(node, depth)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.read(node.operand, depth + 1)
            return None if inner is None else _mapped(inner, lambda x: -x)
        if isinstance(node, ast.Call):
            return self._called(node, depth)
        if isinstance(node, ast.Name):
            value = self._assigned(node)
            if value is not None and not isinstance(value, ast.Constant):
                return self.read(value, depth + 1)
        constant = self.script.evaluator.constant(node)
        if isinstance(constant, int | float) and not isinstance(constant, bool):
            return Drawn(constant, constant, literal=self._is_written(node))
        return None

    def _assigned(self, node: ast.Name) -> ast.expr | None:
        """The expression that a variable of the same function has its value from."""
        found = self.script.definitions(node)
        if len(found) != 1 or found[0].kind != "assign" or found[0].path:
            return None
        same = self.script.index.scope(found[0].node) is self.script.index.scope(node)
        return found[0].value if same else None

    def _is_written(self, node: ast.expr) -> bool:
        """Whether the file says what a constant is, where it is used or beside."""
        if isinstance(node, ast.Name):
            found = self.script.definitions(node)
            value = found[0].value if len(found) == 1 else None
            return isinstance(value, ast.Constant) and found[0].kind == "assign"
        return isinstance(node, ast.Constant)

    def _arithmetic(self, node: ast.BinOp, depth: int) -> Drawn | None:
        left, right = (self.read(n, depth + 1) for n in (node.left, node.right))
        if left is None or right is None or (left.call and right.call):
            return None
        first, second = left, right
        change: Callable[[float], float]
        if isinstance(node.op, ast.Add):
            first, second = (left, right) if left.call else (right, left)
            change = lambda x: x + second.low  # noqa: E731
        elif isinstance(node.op, ast.Sub):
            first, second = (left, right) if not right.call else (right, left)
            sign = -1 if first is right else 1
            change = lambda x: sign * (x - second.low)  # noqa: E731
        elif isinstance(node.op, ast.Mult):
            first, second = (left, right) if left.call else (right, left)
            change = lambda x: x * second.low  # noqa: E731
        elif isinstance(node.op, ast.Div) and not right.call and right.low:
            change = lambda x: x / second.low  # noqa: E731
        else:
            return None
        mapped = _mapped(first, change)
        return mapped._replace(literal=left.literal and right.literal)

    def _called(self, call: ast.Call, depth: int) -> Drawn | None:
        name = self.script.index.qualified(call.func) or ""
        if name in _UNIT:
            one = all(self._is_one(a) for a in call.args) and not call.keywords
            return Drawn(0.0, 1.0, call) if one else None
        if name in _RANGE:
            return self._range(call, depth)
        if name in _WHOLE:
            return self._whole(call, _WHOLE[name], depth)
        if name == "random.choice":
            return self._choice(call)
        inner = self._inside(call)
        return self.read(inner, depth + 1) if inner is not None else None

    def _inside(self, call: ast.Call) -> ast.expr | None:
        """`draw` of `draw.item()` and `float(draw)`."""
        if last_name(call) not in _PLAIN:
            return None
        if isinstance(call.func, ast.Attribute) and not call.args:
            return call.func.value
        return call.args[0] if len(call.args) == 1 and not call.keywords else None

    def _is_one(self, node: ast.expr) -> bool:
        return self.script.evaluator.constant(node) == 1

    def _range(self, call: ast.Call, depth: int) -> Drawn | None:
        ends = {"low": 0.0, "high": 1.0}
        literal = True
        names = dict(zip(ends, call.args, strict=False))
        names |= {k.arg: k.value for k in call.keywords if k.arg in ends}
        if len(call.args) > 2 or len(names) != len(call.args) + len(call.keywords):
            return None
        for name, node in names.items():
            end = self.read(node, depth + 1)
            if end is None or end.call is not None:
                return None
            ends[name] = end.low
            literal = literal and end.literal
        low, high = sorted(ends.values())
        return Drawn(low, high, call, literal=literal)

    def _whole(self, call: ast.Call, last: int, depth: int) -> Drawn | None:
        ends = [self.read(a, depth + 1) for a in call.args]
        known = [e for e in ends if e is not None and e.call is None]
        if call.keywords or len(known) != len(ends) or len(ends) not in (1, 2):
            return None
        start = known[0].low if len(known) == 2 else 0
        stop = known[-1].low + last
        values = range(int(start), min(int(stop), int(start) + MOST_VALUES + 1))
        if not values:
            return None
        few = tuple(float(v) for v in values) if len(values) <= MOST_VALUES else ()
        literal = all(e.literal for e in known)
        return Drawn(float(start), float(stop - 1), call, few, literal, whole=True)

    def _choice(self, call: ast.Call) -> Drawn | None:
        listed = call.args[0] if len(call.args) == 1 else None
        items = listed.elts if isinstance(listed, (ast.List, ast.Tuple)) else []
        found = [n.value for n in items if isinstance(n, ast.Constant)]
        values = tuple(float(v) for v in found if isinstance(v, int | float))
        if not values or len(values) != len(items):
            return None
        return Drawn(min(values), max(values), call, values, whole=True)

    # Tests

    def chance(self, test: ast.expr, depth: int = 0) -> Chance | None:
        """How often a test of one draw holds."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.chance(test.operand, depth + 1)
            return None if inner is None else inner._replace(p=1 - inner.p)
        if isinstance(test, ast.Compare):
            return self._compared(test)
        if isinstance(test, ast.Name) and depth < MAX_DEPTH:
            value = self._assigned(test)
            if isinstance(value, (ast.Compare, ast.UnaryOp)):
                return self.chance(value, depth + 1)
        drawn = self.read(test)
        if drawn is None or drawn.call is None or not drawn.values:
            return None
        return Chance(_part(map(bool, drawn.values)), drawn.call, drawn.literal)

    def _compared(self, test: ast.Compare) -> Chance | None:
        if len(test.ops) != 1:
            return None
        left, right = self.read(test.left), self.read(test.comparators[0])
        if left is None or right is None or bool(left.call) is bool(right.call):
            return None
        drawn, limit = (left, right) if left.call else (right, left)
        assert drawn.call is not None
        literal = drawn.literal and limit.literal
        if drawn.values:
            compare = _COMPARED.get(type(test.ops[0]))
            if compare is None:
                return None
            held = (
                compare(v, limit.low) if drawn is left else compare(limit.low, v)
                for v in drawn.values
            )
            return Chance(_part(held), drawn.call, literal)
        below = isinstance(test.ops[0], (ast.Lt, ast.LtE))
        if not below and not isinstance(test.ops[0], (ast.Gt, ast.GtE)):
            return None
        width = drawn.high - drawn.low
        if width <= 0:
            return None
        part = min(max((limit.low - drawn.low) / width, 0.0), 1.0)
        p = part if below is (drawn is left) else 1 - part
        return Chance(round(p, 12), drawn.call, literal)


_COMPARED: dict[type, Callable[[float, float], bool]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
}


def _part(held: Iterator[bool]) -> float:
    """The part of equally likely values for which something holds."""
    all_of = list(held)
    return round(sum(all_of) / len(all_of), 12)


def _mapped(drawn: Drawn, change: Callable[[float], float]) -> Drawn:
    low, high = sorted(round(change(x), 12) for x in (drawn.low, drawn.high))
    values = tuple(round(change(x), 12) for x in drawn.values)
    return drawn._replace(low=low, high=high, values=values)


def deviation(script: Script, node: ast.expr) -> Drawn | None:
    """The standard deviation of noise that is drawn for every pixel of an image.

    `np.random.normal(0, 0.1, image.shape)`, `0.1 * torch.randn_like(image)`.
    """
    numbers = Numbers(script)
    factor: Drawn | None = Drawn(1.0, 1.0)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        sides = [(node.left, node.right), (node.right, node.left)]
        noise = next((s for s in sides if _is_noise(script, s[0])), None)
        if noise is None:
            return None
        node, factor = noise[0], numbers.read(noise[1])
    if factor is None or factor.call or not isinstance(node, ast.Call):
        return None
    name = script.index.qualified(node.func) or ""
    if name in _STANDARD:
        return factor._replace(call=node)
    if name not in _NORMAL:
        return None
    given = {k.arg: k.value for k in node.keywords}
    mean, spread, size = (
        node.args[number] if number < len(node.args) else given.get(key)
        for number, key in enumerate(("loc", "scale", "size"))
    )
    ends = [numbers.read(n) if n is not None else None for n in (mean, spread)]
    if size is None or ends[1] is None or ends[1].call:
        return None
    if mean is not None and (ends[0] is None or ends[0].call or ends[0].low):
        return None
    width = ends[1].low * factor.low
    return Drawn(width, width, node, literal=ends[1].literal and factor.literal)


def _is_noise(script: Script, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return (script.index.qualified(node.func) or "") in _NORMAL | _STANDARD


def holds_seldom(script: Script, test: ast.expr, holds: bool = True) -> bool:
    """Whether a test of a random number holds, or fails, in few steps only.

    `random.random() < 0.1`; how often it does must be known, or an option's default.
    """
    chance = Numbers(script).chance(test)
    return chance is not None and (chance.p if holds else 1 - chance.p) <= SELDOM
