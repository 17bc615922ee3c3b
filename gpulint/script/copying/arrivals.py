"""Where a tensor that a script makes from nothing on the host comes to the device."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import NOT_CUDA, Definition, Move, Where
from gpulint.index.walk import dotted, same, walk_scope
from gpulint.script.copying.creations import (
    LIKE,
    RANDOM_LIKE,
    Creation,
    creation,
)
from gpulint.script.copying.named_devices import is_of_host

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_NAMES = 3  # of one tensor, one after another
_SENDS = frozenset("to cuda type type_as".split())
_EXPRESSIONS = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Subscript, ast.Name)
# What is asked of a tensor without its values.
_ASKED = frozenset("shape size dim ndim numel dtype".split())
# What tensors have, and devices and types have not.
_OF_TENSORS = frozenset("shape size dim ndim numel device dtype".split())


class Arrival(NamedTuple):
    """A tensor that is made on the host, and the `call` by which it leaves that.

    `move` copies it to a device; without one it goes where the tensor `like` is, and
    becomes of its type. `names`: those that it has on the way, the last one first.
    """

    call: ast.Call
    made: Creation
    move: Move | None
    like: ast.expr | None
    names: tuple[Definition, ...] = ()


def arrivals(script: Script) -> Iterator[Arrival]:
    """All of a file, in the order of the calls."""
    for call in script.index.all(ast.Call):
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr not in _SENDS:
            continue
        names: list[Definition] = []
        made = _made(script, func.value, names)
        if made is None:
            continue
        move, like = script.devices.move(call), None
        if move is None:
            like = _like(script, call)
        elif move.target in NOT_CUDA or is_of_host(script, move.device):
            continue
        arrival = Arrival(call, made, move, like, tuple(names))
        if (move or like) and not _is_there(arrival) and _is_alone(script, arrival):
            yield arrival


def _made(script: Script, node: ast.expr, names: list[Definition]) -> Creation | None:
    """The creation that an expression is, also by way of names of the same function."""
    if not isinstance(node, _EXPRESSIONS):
        return None

    def named(name: ast.Name) -> ast.expr | None:
        reached = script.definitions(name) if len(names) < MAX_NAMES else ()
        its = reached[0] if len(reached) == 1 else None
        if its is None or its.kind != "assign" or its.path or its.value is None:
            return None
        if script.index.scope(its.node) is not script.index.scope(name):
            return None
        names.append(its)
        return its.value

    return creation(script, node, named)


def _like(script: Script, call: ast.Call) -> ast.expr | None:
    """The tensor of `.to(x)`, `.type_as(x)` and `.type(x.type())`, on the device."""
    func = call.func
    if not isinstance(func, ast.Attribute) or call.keywords or len(call.args) != 1:
        return None
    given = call.args[0]
    if func.attr == "to":
        like = given if _is_tensor(script, given) else None
    elif func.attr == "type_as":
        like = given
    else:
        like = _typed(script, given) if func.attr == "type" else None
    return None if like is None or script.where(like).host else like


def _is_tensor(script: Script, node: ast.expr) -> bool:
    """Whether a name is a tensor: by where it is, or by what its function asks it."""
    name = dotted(node)
    where = script.where(node)
    if where & (Where.HOST | Where.DEVICE) and not where & (
        Where.UNKNOWN | Where.PLAIN
    ):
        return True
    return name is not None and any(
        isinstance(asked, ast.Attribute)
        and asked.attr in _OF_TENSORS
        and dotted(asked.value) == name
        for asked in walk_scope(script.index.scope(node))
    )


def _typed(script: Script, node: ast.expr) -> ast.expr | None:
    """The `x` of `x.type()`, `x.data.type()`, or of a name that is given that."""
    for origin in script.resolver.origins(node):
        made = origin.call
        func = made.func if made is not None else None
        if not isinstance(func, ast.Attribute) or func.attr != "type":
            return None
        if made is None or made.args or made.keywords:
            return None
        its = func.value
        data = isinstance(its, ast.Attribute) and its.attr == "data"
        return its.value if data else its  # type: ignore[attr-defined]
    return None


def _is_there(arrival: Arrival) -> bool:
    """`zeros_like(x).to(x.device)`: made where `x` is, so that nothing is copied."""
    made, move, like = arrival.made, arrival.move, arrival.like
    if made.name not in LIKE | RANDOM_LIKE:
        return False
    if move is not None and isinstance(move.device, ast.Attribute):
        like = move.device.value if move.device.attr == "device" else None
    return like is not None and same(like, made.call.args[0])


def _is_alone(script: Script, arrival: Arrival) -> bool:
    """Whether nothing but its way to the device reads what has names on the host.

    Nor writes into it. Its size and type may be asked, and where it is moved under a
    condition, what stands behind may read it for want of the copy.
    """
    way = set(ast.walk(arrival.call))
    for definition in arrival.names:
        way.update(ast.walk(definition.value) if definition.value else ())
    around = choice(script, arrival)
    for definition in arrival.names:
        for use in walk_scope(script.index.scope(definition.node)):
            if not isinstance(use, ast.Name) or use.id != definition.name:
                continue
            if use in way or use is definition.node or _is_asked(script, use):
                continue
            if around is not None and _is_otherwise(script, arrival, around, use):
                continue
            if isinstance(use.ctx, ast.Load) and definition in script.definitions(use):
                return False
    return True


def choice(script: Script, arrival: Arrival) -> ast.If | ast.IfExp | None:
    """What decides whether a name gets the copy: `if cuda: x = x.cuda()`."""
    if not arrival.names:
        return None
    made = arrival.names[0].node
    for above in script.index.ancestors(arrival.call):
        if isinstance(above, (ast.If, ast.IfExp)):
            return None if script.index.inside(made, above) else above
    return None


def _is_otherwise(
    script: Script, arrival: Arrival, around: ast.If | ast.IfExp, use: ast.Name
) -> bool:
    """Whether a name is read for want of the copy, which would have taken its place."""
    statement = script.index.statement(arrival.call)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if use.id not in {t.id for t in targets if isinstance(t, ast.Name)}:
        return False
    end = (around.end_lineno or 0, around.end_col_offset or 0)
    if (use.lineno, use.col_offset) >= end:
        return True
    body = around.body if isinstance(around, ast.If) else [around.body]

    def taken(node: ast.AST) -> bool:
        return any(script.index.inside(node, part) for part in body)

    return script.index.inside(use, around) and taken(use) is not taken(arrival.call)


def _is_asked(script: Script, use: ast.Name) -> bool:
    above = script.index.parent(use)
    return isinstance(above, ast.Attribute) and above.attr in _ASKED
