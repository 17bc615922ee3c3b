"""What the constants of a call decide in its function: `step(batch, mode="train")`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from gpulint.index import Function

if TYPE_CHECKING:
    from gpulint.script.model import Script

Constants = Mapping[str, ast.Constant]


def constants_of(
    script: Script, function: Function, calls: Iterable[ast.Call]
) -> Constants:
    """The parameters for which all of some calls write the same constant."""
    args = function.args
    names = [a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    found: dict[str, ast.Constant] = {}
    for name in names:
        given = [script.resolver.calls.given(call, function, name) for call in calls]
        values = [nodes[0] if clear and nodes else None for nodes, clear in given]
        first = values[0] if values else None
        if isinstance(first, ast.Constant) and all(
            value is not None and ast.dump(value) == ast.dump(first) for value in values
        ):
            found[name] = first
    return found


def answer(script: Script, test: ast.expr, constants: Constants) -> bool | None:
    """What a test of a function gives for such parameters; None: it asks for more."""
    if not constants:
        return None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = answer(script, test.operand, constants)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        parts = [answer(script, value, constants) for value in test.values]
        deciding = isinstance(test.op, ast.Or)
        if deciding in parts:
            return deciding
        return None if None in parts else not deciding
    if isinstance(test, ast.Name):
        given = _constant(script, test, constants)
        return None if given is None else bool(given.value)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _compared(script, test, constants)
    return None


def _compared(script: Script, test: ast.Compare, constants: Constants) -> bool | None:
    given = _constant(script, test.left, constants)
    operator, asked = test.ops[0], test.comparators[0]
    if given is None:
        return None
    if isinstance(operator, (ast.In, ast.NotIn)):
        among = asked.elts if isinstance(asked, (ast.List, ast.Tuple, ast.Set)) else ()
        values = [n.value for n in among if isinstance(n, ast.Constant)]
        if not values or len(values) < len(among):
            return None
        return (given.value in values) is isinstance(operator, ast.In)
    if not isinstance(asked, ast.Constant):
        return None
    if isinstance(operator, (ast.Eq, ast.NotEq)):
        return (given.value == asked.value) is isinstance(operator, ast.Eq)
    if isinstance(operator, (ast.Is, ast.IsNot)):
        return (given.value is asked.value) is isinstance(operator, ast.Is)
    return None


def _constant(
    script: Script, node: ast.expr, constants: Constants
) -> ast.Constant | None:
    """What a name is that nothing but the call gives a value."""
    if not isinstance(node, ast.Name) or node.id not in constants:
        return None
    alone = all(d.kind == "parameter" for d in script.definitions(node))
    return constants[node.id] if alone else None
