"""Whether a member of a dict, such as `losses["total"]`, is on the device."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import Definition
from gpulint.index.walk import walk_scope

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_DEPTH = 3
SAME_PLACE = frozenset("detach mean sum float norm abs max min clone".split())


def member_on_device(script: Script, value: ast.expr) -> bool:
    """Whether all that a function puts under a key is on the device.

    Of a dict that it makes, or that a helper gives back to it: `reduced =
    reduce(losses)`, where `reduce` returns what it was given on one of its ways.
    """
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr not in SAME_PLACE:
            return False
        value = value.func.value
    key = value.slice if isinstance(value, ast.Subscript) else None
    if not isinstance(value, ast.Subscript) or not isinstance(key, ast.Constant):
        return False
    given = list(_given(script, value.value, key.value, 0))
    return bool(given) and all(given)


def _given(script: Script, holder: ast.expr, key: object, depth: int) -> Iterator[bool]:
    """For each value that a dict gets under a key: whether it is on the device."""
    if not isinstance(holder, ast.Name) or depth > MAX_DEPTH:
        yield False
        return
    for definition in script.definitions(holder):
        value = definition.value
        if definition.kind != "assign" or definition.path:
            yield False
        elif isinstance(value, ast.Dict):
            yield from _put(script, definition, value, key)
        elif isinstance(value, ast.Call):
            yield from _handed_back(script, value, key, depth)
        else:
            yield False


def _put(
    script: Script, definition: Definition, made: ast.Dict, key: object
) -> Iterator[bool]:
    for name, value in zip(made.keys, made.values, strict=True):
        if not isinstance(name, ast.Constant):
            yield False  # unpacked, or not known
        elif name.value == key:
            yield script.where(value).device
    for node in walk_scope(*getattr(script.index.scope(made), "body", ())):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if (
                isinstance(target, ast.Subscript)
                and isinstance(target.slice, ast.Constant)
                and target.slice.value == key
                and definition in script.definitions(target.value)
            ):
                yield script.where(node.value).device


def _handed_back(
    script: Script, call: ast.Call, key: object, depth: int
) -> Iterator[bool]:
    """What a helper was given as the argument that one of its ways returns as it is."""
    function = script.resolver.calls.callee(call)
    returned = script.resolver.flow(function).returns if function is not None else []
    if function is None:
        yield False
        return
    names = {r.id for r in returned if isinstance(r, ast.Name)}
    parameters = [a.arg for a in function.args.args]
    found = [n for n in parameters if n in names]
    if len(found) != 1 or call.keywords or len(call.args) != len(parameters):
        yield False
        return
    yield from _given(script, call.args[parameters.index(found[0])], key, depth + 1)
