"""Meters that keep tensors where they are: `losses.avg.item()` waits for the device."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index.walk import dotted, walk
from gpulint.script.waiting.located import on_device

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

_NUMBERS = frozenset("avg average mean val value sum total global_avg".split())
_UPDATES = frozenset("update add push".split())
_WAITS = frozenset("item float int cpu numpy tolist cuda to".split())


def is_of_meter(script: Script, value: ast.expr, loop: Loop) -> bool:
    """Whether it is a meter's number, made of what each step gives it on the device.

    By methods of the project that neither read nor copy anything themselves.
    """
    if not isinstance(value, ast.Attribute) or value.attr not in _NUMBERS:
        return False
    meter = dotted(value.value)
    updates = [
        call
        for call in script.index.calls_below(loop.node)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in _UPDATES
        and dotted(call.func.value) == meter
    ]
    return bool(updates) and all(
        call.args and on_device(script, call.args[0], loop) and _keeps(script, call)
        for call in updates
    )


def _keeps(script: Script, update: ast.Call) -> bool:
    """Whether the functions that a call may run are known, and wait for nothing."""
    methods = script.resolver.calls.callees(update)
    called = (n.func for n in walk(*methods) if isinstance(n, ast.Call))
    names = {(dotted(func) or getattr(func, "attr", "")) for func in called}
    return bool(methods) and _WAITS.isdisjoint(n.rpartition(".")[2] for n in names)
