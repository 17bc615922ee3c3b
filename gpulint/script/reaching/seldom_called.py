"""Modules and methods whose every known call stands where few steps come."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.script.named_calls import named_calls

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_CALLS = 4  # from a function back to what its loop does now and then


def is_seldom_called(script: Script, function: Function, depth: int = 0) -> bool:
    """Whether all calls of a method stand behind `step % n == 0`, or lead there.

    The calls that are seen, in any file: a `forward` by the attributes that hold the
    objects of its class, another method by its name, where nothing says of which class
    an object is. False where an object is kept in another way, or nothing calls it.
    """
    if depth > MAX_CALLS:
        return False
    calls = script.resolver.calls.callers(function) or named_calls(script, function)
    calls = [call for call in calls if not script.of(call).is_test]
    return bool(calls) and all(_is_seldom(script.of(c), c, depth) for c in calls)


def _is_seldom(script: Script, call: ast.Call, depth: int) -> bool:
    if script.runners.is_rare(call):
        return True
    function = script.index.function(call)
    if function is None or script.loops_around(call):
        return False
    return is_seldom_called(script, function, depth + 1)
