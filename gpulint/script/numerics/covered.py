"""Whether a training loop runs in mixed precision, at least where a switch is on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index.build import last_name
from gpulint.index.walk import walk
from gpulint.script.numerics.amp_switches import branch_off

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

_ELSEWHERE = ("cpu", "mps")


def may_be_mixed(script: Script, loop: Loop) -> bool:
    """Whether autocast or a gradient scaler is in the steps, behind a flag or not."""
    apex = script.index.calls.get("apex.amp.initialize", ())
    if any(branch_off(script, call) is None for call in apex):
        return True
    scaled = (getattr(call.func, "value", None) for call in loop.backward)
    if any(isinstance(s, ast.Call) and last_name(s) == "scale" for s in scaled):
        return True
    return any(_is_autocast(script, context) for context in _contexts(script, loop))


def _contexts(script: Script, loop: Loop) -> Iterator[ast.expr]:
    """What a step enters or is decorated with, while gradients are recorded."""
    for helper in loop.helpers:
        yield from helper.decorator_list
    for node in walk(loop.node, *loop.helpers):
        if isinstance(node, ast.With) and not script.without_grad(node.body[0]):
            yield from (item.context_expr for item in node.items)


def _is_autocast(script: Script, context: ast.expr) -> bool:
    """Whether an expression opens autocast on a GPU, on some path."""
    made = [origin.expression for origin in script.resolver.origins(context)]
    return any(_opens(script, node) for node in [context, *made] if node is not None)


def _opens(script: Script, node: ast.expr) -> bool:
    call = node if isinstance(node, ast.Call) else None
    name = script.index.qualified(call.func if call else node) or ""
    if not name.endswith("autocast"):
        return False
    values = [] if call is None else [*call.args, *(k.value for k in call.keywords)]
    constants = [value.value for value in values if isinstance(value, ast.Constant)]
    return False not in constants and not any(c in _ELSEWHERE for c in constants)
