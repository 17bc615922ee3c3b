"""Uses of autocast that cost or go wrong: with bfloat16 scaled, or entered twice."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index.walk import walk
from gpulint.script.neighbours import run_together
from gpulint.script.numerics.loss_scaling import SCALERS
from gpulint.script.numerics.reached import reached_from

if TYPE_CHECKING:
    from gpulint.script.model import Script

_AUTOCAST = {"torch.autocast": 1, "torch.cuda.amp.autocast": 1}
# What makes halves that may need a scale, here and in other files.
_FLOAT16 = re.compile(r"(?<!b)float16|fp16|\.half\(|HalfTensor")
_HALVES = re.compile(rf"autocast|{_FLOAT16.pattern}")


def needless_scalers(script: Script) -> list[ast.Call]:
    """Scalers that are on where every autocast of the program is in bfloat16."""
    made = [c for name in SCALERS for c in script.index.calls.get(name, ())]
    if not made or not _all_bfloat16(script):
        return []
    return [call for call in made if _is_on(call)]


def _is_on(call: ast.Call) -> bool:
    """Whether nothing but the call's defaults, or `True`, decides that it is on."""
    if len(call.args) > 1 or any(k.arg is None for k in call.keywords):
        return False
    switch = next((k.value for k in call.keywords if k.arg == "enabled"), None)
    return switch is None or (isinstance(switch, ast.Constant) and switch.value is True)


def _all_bfloat16(script: Script) -> bool:
    """Whether all halves of this file are bfloat16, and files beside it have none."""
    index = script.index
    files = run_together(script)
    if any(i.source.has(_HALVES) for i in files if i is not index):
        return False
    casts = [
        (call, place)
        for name, place in _AUTOCAST.items()
        for call in index.calls.get(name, ())
    ]
    if not casts or script.source.has(_FLOAT16):
        return False
    if index.source.text.count("autocast(") > len(casts):
        return False
    for call, place in casts:
        given = script.evaluator.argument(call, "dtype", place).direct
        if given is None or index.qualified(given) != "torch.bfloat16":
            return False
    return True


def nested_autocasts(script: Script) -> Iterator[tuple[ast.With, ast.With]]:
    """`with` statements that enter the very object that one around them has entered.

    Pairs of the inner and the outer statement.
    """
    if not script.index.calls.keys() & _AUTOCAST.keys():
        return
    entered = {
        node: held
        for node in script.index.all(ast.With)
        if (held := _entered(script, node))
    }
    for outer, objects in entered.items():
        for part in reached_from(script, outer.body):
            for inner in walk(part):
                if not isinstance(inner, ast.With) or inner is outer:
                    continue
                if entered.get(inner, frozenset()) & objects:
                    yield inner, outer


def _entered(script: Script, node: ast.With) -> frozenset[ast.AST]:
    """The calls of autocast that made, elsewhere, what a statement enters."""
    made = (
        origin.call
        for item in node.items
        if isinstance(item.context_expr, (ast.Name, ast.Attribute))
        for origin in script.resolver.origins(item.context_expr)
    )
    return frozenset(
        call
        for call in made
        if call is not None
        and script.index.holds(call)
        and script.index.qualified(call.func) in _AUTOCAST
        and not _is_off(call)
        and _is_made_once(script, call, node)
    )


def _is_off(call: ast.Call) -> bool:
    switch = next((k.value for k in call.keywords if k.arg == "enabled"), None)
    return isinstance(switch, ast.Constant) and not switch.value


def _is_made_once(script: Script, call: ast.Call, node: ast.With) -> bool:
    """Whether the object is not made anew for each use, as by a property."""
    scope = script.index.scope(call)
    if isinstance(scope, ast.Module) or scope is script.index.scope(node):
        return True
    return getattr(scope, "name", "") == "__init__"
