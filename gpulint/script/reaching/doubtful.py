"""Branches of which nothing shows that a program ever takes them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index.build import last_name
from gpulint.index.walk import dotted, walk
from gpulint.script.branches import all_of, blocks_of, in_body
from gpulint.script.reaching.fields import is_default_of_given, is_field_left_off
from gpulint.script.reaching.switches import is_off, is_switched_off

if TYPE_CHECKING:
    from gpulint.script.model import Script

# Errors by which programs ask whether there is something.
_ASKS = frozenset(
    "StopIteration KeyError IndexError AttributeError ImportError ModuleNotFoundError "
    "NameError TypeError Empty KeyboardInterrupt SystemExit".split()
)
_ENDS = ("next", "getattr", "eval")
MAX_BETWEEN = 2  # statements from a reset up to what follows it


def may_never_run(script: Script, node: ast.AST) -> bool:
    """Whether a node stands behind a constant, a default, or a test of a type.

    Which types a function is given is not known: one of them may be for an export. A
    parameter that is None or False by default counts where nothing in the project gives
    another value; an option that is off by default counts as left off. Handlers of
    errors run where something else has failed. What is a field's default where all
    settings give the field is made by none.
    """
    if is_switched_off(script, node) or is_default_of_given(script, node):
        return True
    function = script.index.function(node)
    child = node
    for above in script.index.ancestors(node):
        if above is function:
            break
        if isinstance(above, ast.ExceptHandler) and _handles_failure(script, above):
            return True
        test = above.test if isinstance(above, (ast.If, ast.IfExp)) else None
        parts = walk(test) if test is not None and test is not child else ()
        if any(_asks_for_type(script, part) for part in parts):
            return True
        if isinstance(above, (ast.If, ast.IfExp)) and child is not above.test:
            taken = in_body(above, child)
            tests = all_of(above.test, taken)
            if any(_by_default(script, test) is (not taken) for test in tests):
                return True
            if taken and is_off(script, above.test):
                return True
            if taken and any(is_field_left_off(script, test) for test in tests):
                return True
            if any(_is_for_first_call(script, test, taken) for test in tests):
                return True
        child = above
    return False


def _handles_failure(script: Script, handler: ast.ExceptHandler) -> bool:
    """`except RuntimeError:`; not what ends an iterator, or asks for a package."""
    kind = handler.type
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    names = [(dotted(k) or "").rpartition(".")[2] for k in kinds if k is not None]
    if any(name in _ASKS for name in names):
        return False
    if names and "Exception" not in names and "BaseException" not in names:
        return True
    tried = script.index.parent(handler)
    return isinstance(tried, ast.Try) and not (
        any(map(_asks_for_key, tried.body))
        or any(
            isinstance(node, (ast.Import, ast.ImportFrom))
            or (isinstance(node, ast.Call) and dotted(node.func) in _ENDS)
            for node in walk(*tried.body)
        )
    )


def _asks_for_key(statement: ast.stmt) -> bool:
    """`mask = batch["mask"]`, and not `output = model(batch["image"])`."""
    value = getattr(statement, "value", None)
    while isinstance(value, (ast.Attribute, ast.Call)):
        value = value.func if isinstance(value, ast.Call) else value.value
    return isinstance(value, ast.Subscript) and not isinstance(value.slice, ast.Slice)


def _by_default(script: Script, test: ast.expr) -> bool | None:
    """What `x`, `not x`, `x is None`, `len(x) > 0` are if nothing sets `x`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _by_default(script, test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        last = getattr(test.comparators[0], "value", ...)
        counted = test.left.args if isinstance(test.left, ast.Call) else []
        if last == 0 and isinstance(test.ops[0], ast.Gt) and len(counted) == 1:
            its = dotted(test.left.func) if isinstance(test.left, ast.Call) else ""
            return False if its == "len" and _is_unset(script, counted[0]) else None
        if last is not None or not _is_unset(script, test.left, none=True):
            return None
        return isinstance(test.ops[0], ast.Is)
    return False if _is_unset(script, test) else None


def _is_for_first_call(script: Script, test: ast.expr, taken: bool) -> bool:
    """`if previous is None:`, of what calls in a loop give and those before do not."""
    function = script.index.function(test)
    if function is None or not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return False
    if not isinstance(test.left, ast.Name) or not _is_none(test.comparators[0]):
        return False
    if isinstance(test.ops[0], ast.Is) is not taken:
        return False
    made = script.definitions(test.left)
    if not made or any(d.kind != "parameter" or not _is_none(d.value) for d in made):
        return False
    first: list[ast.Call] = []
    others: list[ast.Call] = []
    for call in script.resolver.calls.callers(function):
        given, clear = script.resolver.calls.given(call, function, test.left.id)
        if not clear:
            return False
        (others if given and not all(map(_is_none, given)) else first).append(call)
    return bool(first and others) and all(
        _follows_reset(script, call)
        or any(_is_before_loop(script, call, other) for other in others)
        for call in first
    )


def _follows_reset(script: Script, call: ast.Call) -> bool:
    """Whether an environment begins anew right before a call, or for it."""
    index = script.index.home(call)
    statement = index.statement(call)
    for block in blocks_of(index.parent(statement)):
        if statement in block:
            at = block.index(statement)
            near = walk(*block[max(0, at - MAX_BETWEEN) : at + 1])
            calls = (n for n in near if isinstance(n, ast.Call))
            return any(last_name(c) == "reset" for c in calls)
    return False


def _is_before_loop(script: Script, call: ast.Call, other: ast.Call) -> bool:
    """Whether a call stands in no step, and another behind it in one more loop.

    Both in the same function.
    """
    index = script.index
    if index.function(call) is not index.function(other):
        return False
    around = script.of(call).loops_around(call)
    if any(loop.train or loop.eval or loop.batches for loop in around):
        return False
    outer = {loop.node for loop in around}
    inner = {loop.node for loop in script.of(other).loops_around(other)}
    return outer < inner and call.lineno < other.lineno


def _is_unset(script: Script, node: ast.expr, none: bool = False) -> bool:
    """Whether a parameter, also one kept on `self`, is left as it is by default.

    None, or but for `none` False or an empty list. So it is if callers write that None.
    """
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return False
    origins = script.resolver.origins(node)
    if any(o.default for o in origins) and all(_is_none(o.node) for o in origins):
        return True
    return bool(origins) and all(
        origin.default and (_is_none(origin.node) or not (none or _is_set(origin.node)))
        for origin in origins
    )


def _is_none(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_set(node: ast.AST) -> bool:
    """Whether a default is something other than False and an empty list."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return bool(node.elts)
    return not (isinstance(node, ast.Constant) and node.value is False)


def _asks_for_type(script: Script, node: ast.AST) -> bool:
    """`isinstance(offset, int)` of a parameter."""
    if not isinstance(node, ast.Call) or not node.args:
        return False
    asked = node.args[0]
    if script.index.qualified(node.func) != "isinstance":
        return False
    reached = script.definitions(asked) if isinstance(asked, ast.Name) else ()
    return any(d.kind == "parameter" for d in reached)
