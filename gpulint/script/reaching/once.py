"""Branches that are taken once at most: in the first step, or until a value is there.

Once for each key, where values are kept by keys, as `if n not in self.masks:`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import Definition
from gpulint.index.walk import dotted, walk
from gpulint.script.branches import all_of
from gpulint.script.given import is_always_given

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

_UNSET = (None, False, 0)
_ADDS = frozenset("add append insert setdefault update".split())
_EMPTIES = frozenset("clear pop popitem".split())


def holds_once(script: Script, branch: ast.If | ast.IfExp) -> bool:
    """Whether the test of a branch holds in one step only: `if step == 0:`.

    Or in one epoch, the last: `if epoch == epochs - 1:`. Or until the branch has run:
    `if total is None: total = torch.zeros(…)`. Or never, as every caller gives what it
    asks for.
    """
    loops = [x for x in script.loops_around(branch) if x.kind != "other"]
    return any(
        _is_first(script, part, loops)
        or _is_last(script, part, loops)
        or _until_set(script, branch, part, loops)
        or _until_kept(script, branch, part, loops)
        or is_always_given(script, part)
        for part in all_of(branch.test)
    )


def is_kept(script: Script, node: ast.AST) -> bool:
    """Whether a node is behind `if key in kept: return kept[key]`, and is kept next."""
    function = script.index.function(node)
    body = getattr(function, "body", None)
    if not isinstance(body, list):
        return False
    before = (s for s in body if s.end_lineno < getattr(node, "lineno", 0))
    for branch in (s for s in before if isinstance(s, ast.If)):
        found = _holder(branch.test, present=True)
        if found is None or not isinstance(branch.body[-1], ast.Return):
            continue
        name = dotted(found) or ""
        kept = any(_keeps(n, name) for s in body for n in walk(s))
        if kept and _lasts(script, found, name, branch, []):
            return True
    return False


# The first step, or another one


def _is_first(script: Script, test: ast.expr, loops: list[Loop]) -> bool:
    """`step == 0`, `not step`, for a number that counts the steps of a loop."""
    counter = _compared(test)
    if counter is None:
        return False
    definitions = script.definitions(counter)
    counts = [d for d in definitions if _counts(d, loops)]
    starts = [d for d in definitions if _starts(script, d, test, loops)]
    return bool(counts) and len(counts) + len(starts) == len(definitions)


def _is_last(script: Script, test: ast.expr, loops: list[Loop]) -> bool:
    """`epoch == epochs - 1`, for the number that `range` or `enumerate` gives."""
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq):
        return False
    counter, end = test.left, test.comparators[0]
    one = getattr(getattr(end, "right", None), "value", None)
    before = isinstance(end, ast.BinOp) and isinstance(end.op, ast.Sub) and one == 1
    if len(test.ops) > 1 or not before or not isinstance(counter, ast.Name):
        return False
    counts = [
        d.kind == "for" and _counts(d, loops) for d in script.definitions(counter)
    ]
    return bool(counts) and all(counts)


def _compared(test: ast.expr) -> ast.expr | None:
    """What a test compares with a whole number."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand if dotted(test.operand) else None
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq):
        return None
    number = test.comparators[0]
    whole = isinstance(number, ast.Constant) and type(number.value) is int
    return test.left if whole and len(test.ops) == 1 and dotted(test.left) else None


def _counts(definition: Definition, loops: list[Loop]) -> bool:
    """`step += 1`, or the number that `enumerate` or `range` gives."""
    if definition.kind == "augment":
        return True
    for loop in loops if definition.kind == "for" else ():
        target = [] if isinstance(loop.node, ast.While) else [loop.node.target]
        if any(part is definition.node for part in walk(*target)):
            return definition.node not in loop.targets or _is_range(loop)
    return False


def _is_range(loop: Loop) -> bool:
    return any(
        isinstance(iterable, ast.Call) and dotted(iterable.func) == "range"
        for iterable, _ in loop.items
    )


def _starts(
    script: Script, definition: Definition, test: ast.expr, loops: list[Loop]
) -> bool:
    """`step = 0` before the steps."""
    value = definition.value
    number = isinstance(value, ast.Constant) and type(value.value) is int
    before = not _in_step(script, definition.node, test, loops)
    return definition.kind == "assign" and number and before


def _in_step(script: Script, node: ast.AST, test: ast.AST, loops: list[Loop]) -> bool:
    """Whether a node runs in each step in which a test is made."""
    if loops:
        return script.index.inside(node, loops[0].node)
    return script.index.function(node) is script.index.function(test)


# Until it is set


def _until_set(
    script: Script, branch: ast.If | ast.IfExp, test: ast.expr, loops: list[Loop]
) -> bool:
    name, missing = _tested(test)
    if not name or not any(_fills(v, missing) for v in _given(script, branch, name)):
        return False
    head, _, last = name.rpartition(".")
    if not head and not loops:
        return False  # a name of a function has its first value in each call
    holder = test if head else next(n for n in walk(test) if isinstance(n, ast.Name))
    others: list[ast.AST] = [d.node for d in script.definitions(holder)]
    if head:
        writes = script.index.home(test).attribute_writes
        others = list(writes.get(last, ()))
    own = _targets(script, branch)
    return not any(
        _in_step(script, node, test, loops) and not _goes_on(script, node, name)
        for node in others
        if node not in own and not script.index.inside(node, branch)
    )


def _tested(test: ast.expr) -> tuple[str, bool]:
    """The name that a test finds unset (True), or set (False)."""
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.Is, ast.Eq)):
        right = test.comparators[0]
        none = isinstance(right, ast.Constant) and right.value is None
        return (dotted(test.left) or "" if none else ""), True
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        asked = test.operand
        if isinstance(asked, ast.Call) and dotted(asked.func) == "hasattr":
            return ".".join(map(_word, asked.args)), True
        return dotted(asked) or "", True
    return dotted(test) or "", False


def _word(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    return dotted(node) or ""


def _given(script: Script, branch: ast.If | ast.IfExp, name: str) -> Iterator[ast.expr]:
    """The values that a branch gives to a name."""
    if isinstance(branch, ast.IfExp):
        if name in map(dotted, _targets(script, branch)):
            yield branch.body
        return
    for node in walk(*branch.body):
        if isinstance(node, ast.Assign) and name in map(dotted, node.targets):
            yield node.value
        elif isinstance(node, ast.Call) and _registered(node) == name:
            yield node.args[1]


def _registered(call: ast.Call) -> str | None:
    """`self.table` of `self.register_buffer("table", torch.arange(8))`."""
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr != "register_buffer":
        return None
    named = call.args[0] if len(call.args) > 1 else None
    kept = named.value if isinstance(named, ast.Constant) else None
    return f"{dotted(func.value)}.{kept}" if isinstance(kept, str) else None


def _goes_on(script: Script, node: ast.AST, name: str) -> bool:
    """Whether a name gets a new value from its old one: `total = total + x`."""
    statement = script.index.statement(node)
    value = statement.value if isinstance(statement, ast.Assign) else None
    again = value is not None and name in map(dotted, walk(value))
    return again or isinstance(statement, ast.AugAssign)


def _targets(script: Script, branch: ast.If | ast.IfExp) -> list[ast.expr]:
    """The names that get just what a conditional expression gives."""
    statement = script.index.parent(branch)
    return statement.targets if isinstance(statement, ast.Assign) else []


def _fills(value: ast.expr, missing: bool) -> bool:
    """Whether the test fails once its name has a value."""
    unset = isinstance(value, ast.Constant) and value.value in _UNSET
    return unset is not missing


# Until it is kept


def _until_kept(
    script: Script, branch: ast.If | ast.IfExp, test: ast.expr, loops: list[Loop]
) -> bool:
    """`if key not in kept: kept[key] = …`, `if not kept: kept.append(…)`."""
    found = _holder(test, present=False)
    if found is None or not isinstance(branch, ast.If):
        return False
    name = dotted(found) or ""
    nodes = list(walk(*branch.body))
    if name.startswith("self."):
        nodes += walk(*_own_methods(script, nodes))
    kept = any(_keeps(node, name) for node in nodes)
    return kept and _lasts(script, found, name, branch, loops)


def _own_methods(script: Script, nodes: list[ast.AST]) -> Iterator[ast.AST]:
    """The methods of the same object that some code calls."""
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            function = script.resolver.calls.callee(node)
            if dotted(node.func.value) == "self" and function is not None:
                yield function


def _holder(test: ast.expr, *, present: bool) -> ast.expr | None:
    """The container in which a test finds something, or misses it."""
    found: ast.expr | None = None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _holder(test.operand, present=not present)
    if isinstance(test, ast.Compare):
        operator, right = test.ops[0], test.comparators[0]
        if isinstance(operator, ast.In if present else ast.NotIn):
            found = right
        elif isinstance(operator, ast.NotEq if present else ast.Eq):
            found = test.left if ast.unparse(right) in ("{}", "[]") else None
    elif present and isinstance(test, (ast.Name, ast.Attribute)):
        found = test
    return found if found is not None and dotted(found) else None


def _keeps(node: ast.AST, name: str) -> bool:
    """`name[key] = …`, `name.append(…)`."""
    if isinstance(node, ast.Assign):
        targets = (t.value for t in node.targets if isinstance(t, ast.Subscript))
        return name in map(dotted, targets)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return node.func.attr in _ADDS and dotted(node.func.value) == name


def _lasts(
    script: Script, holder: ast.expr, name: str, branch: ast.If, loops: list[Loop]
) -> bool:
    """Whether a container is not made anew, or emptied, in each step."""
    head, _, last = name.rpartition(".")
    made: list[ast.AST] = [d.node for d in script.definitions(holder)]
    if head:
        made = [*script.index.home(holder).attribute_writes.get(last, ())]
    emptied = (
        call
        for call in script.index.all(ast.Call)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in _EMPTIES
        and dotted(call.func.value) == name
    )
    return not any(_in_step(script, node, branch, loops) for node in [*made, *emptied])
