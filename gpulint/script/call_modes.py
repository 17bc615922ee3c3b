"""What a call decides in its function: `step(batch, mode="train")`, `mask(x, n)`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Function
from gpulint.index.walk import walk
from gpulint.script.branches import branches_of
from gpulint.script.given import gives

if TYPE_CHECKING:
    from gpulint.script.model import Script

# The constant that a parameter gets; None: something else, that is never None.
Constants = Mapping[str, ast.Constant | None]


def constants_of(
    script: Script, function: Function, calls: Iterable[ast.Call]
) -> Constants:
    """The parameters that all of some calls give the same constant, or never None.

    A default is given by what leaves it out.
    """
    args = function.args
    names = [a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    calls = list(calls)
    defaults = _defaults(args)
    asked = _asked_for_none(function)
    found: dict[str, ast.Constant | None] = {}
    for name in names:
        given = [script.resolver.calls.given(call, function, name) for call in calls]
        default = defaults.get(name)
        values = [
            (nodes[0] if nodes else default) if clear else None
            for nodes, clear in given
        ]
        first = values[0] if values else None
        if isinstance(first, ast.Constant) and all(
            value is not None and ast.dump(value) == ast.dump(first) for value in values
        ):
            found[name] = first
        elif name in asked and all(
            gives(script, call, function, name) and not _hands_on(script, nodes)
            for call, (nodes, _) in zip(calls, given, strict=True)
        ):
            found[name] = None
    return found


def _defaults(args: ast.arguments) -> dict[str, ast.expr]:
    plain = [*args.posonlyargs, *args.args]
    named = zip(plain[len(plain) - len(args.defaults) :], args.defaults, strict=True)
    found = {argument.arg: default for argument, default in named}
    for argument, value in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        if value is not None:
            found[argument.arg] = value
    return found


def _asked_for_none(function: Function) -> set[str]:
    """The names in `length is None` and `length is not None` of a function."""
    return {
        node.left.id
        for node in walk(function)
        if isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Name)
        and isinstance(node.ops[0], (ast.Is, ast.IsNot))
    }


def _hands_on(script: Script, given: Iterable[ast.expr]) -> bool:
    """Whether what a call gives may be a parameter of which no call is known.

    Or a member of a dict of settings: either may be None.
    """
    return any(
        isinstance(origin.node, (ast.arg, ast.Subscript))
        and script.batches.loop_of(node) is None
        for node in given
        for origin in script.resolver.origins(node)
    )


def may_lead_to(
    script: Script, node: ast.AST, function: Function, call: ast.Call
) -> bool:
    """Whether a call of a function may come to a node of it, by the constants it gives.

    Not `self._step(batch, "training")` to what stands behind `if stage == "test":`.
    """
    constants = constants_of(script.of(call), function, [call])
    return _leads(script, node, constants)


def _leads(script: Script, node: ast.AST, constants: Constants) -> bool:
    """Whether no branch around a node is closed by what a call gives."""
    return all(
        not isinstance(branch, (ast.If, ast.IfExp))
        or answer(script, branch.test, constants) is not (not holds)
        for branch, holds in branches_of(script.index, node)
    )


class Way(NamedTuple):
    """A place in a function, and a call of the function that may lead there."""

    node: ast.AST
    function: Function
    call: ast.Call


def may_lead_through(script: Script, ways: Iterable[Way]) -> bool:
    """The same of calls that lead to each other, that of the last function last.

    `evaluate()` leaves `mode="val"`, which `self._pass(mode)` hands on.
    """
    constants: Constants = {}
    for node, function, call in reversed(list(ways)):
        its = script.of(call)
        found = dict(constants_of(its, function, [call]))
        for argument in (*function.args.args, *function.args.kwonlyargs):
            handed = its.resolver.calls.given(call, function, argument.arg)[0]
            for name in handed:
                if isinstance(name, ast.Name) and _is_known(its, name, constants):
                    found[argument.arg] = constants[name.id]
        constants = found
        if not _leads(script.of(node), node, constants):
            return False
    return True


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
    if isinstance(test, ast.Name) and _is_known(script, test, constants):
        given = constants[test.id]
        return None if given is None else bool(given.value)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _compared(script, test, constants)
    return None


def _compared(script: Script, test: ast.Compare, constants: Constants) -> bool | None:
    operator, asked = test.ops[0], test.comparators[0]
    name = test.left
    if not isinstance(name, ast.Name) or not _is_known(script, name, constants):
        return None
    given = constants[name.id]
    if given is None:
        none = isinstance(asked, ast.Constant) and asked.value is None
        asks = isinstance(operator, (ast.Is, ast.IsNot))
        return isinstance(operator, ast.IsNot) if none and asks else None
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


def _is_known(script: Script, name: ast.Name, constants: Constants) -> bool:
    """Whether a name is a parameter that nothing but the call gives a value."""
    return name.id in constants and all(
        d.kind == "parameter" for d in script.definitions(name)
    )
