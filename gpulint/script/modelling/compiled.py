"""Which models of training loops are compiled, where, and with which options."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from gpulint.script.branches import branches_of
from gpulint.script.loops import Loop
from gpulint.script.modelling.models import MAX_STEPS, wrapped
from gpulint.script.training.training_step import find_steps

if TYPE_CHECKING:
    from gpulint.script.model import Script

_OPTIONS = frozenset("fullgraph dynamic backend mode options disable".split())
_GRAPHS = ("reduce-overhead", "max-autotune")
# What a test asks that switches `torch.compile` off where it does not work.
_WORKS = re.compile(
    r"hasattr\(torch\b|__version__|sys\.platform|os\.name|platform\.system|"
    r"cuda\.is_available|get_device_capability"
)
_SET_ELSEWHERE = re.compile(
    r"mark_dynamic|mark_unbacked|mark_static|dynamic_shapes|set_stance|"
    r"assume_static_by_default|force_parameter_static_shapes|_dynamo\.disable"
)


class Compiled(NamedTuple):
    """A model that is compiled for the shapes it sees, and the call that asks for it.

    `static`: never with dynamic shapes; `graphs`: it records CUDA graphs.
    """

    model: ast.expr
    call: ast.Call
    static: bool
    graphs: bool


def compiled_model(script: Script, loop: Loop) -> Compiled | None:
    """The compiled model that a training loop runs, if it surely is compiled."""
    home = script.of(loop.node)
    if any(s.source.has(_SET_ELSEWHERE) for s in (script, home)):
        return None
    for step in find_steps(home):
        if step.loop is not loop or step.forward is None:
            continue
        model = step.forward.func
        call = _compiling(home, model) or _compiled_in_place(home, model)
        if call is not None and _is_on(home, call) and _is_for_shapes(home, call):
            return _with_options(home, model, call)
    return None


def _compiling(script: Script, model: ast.expr) -> ast.Call | None:
    """The `torch.compile(…)` that makes a model, moves and other wrappers taken off."""
    todo = [model]
    seen: set[ast.AST] = set()
    for current in todo:
        for origin in script.resolver.origins(current):
            call = origin.call
            if call is None or call in seen or len(seen) > MAX_STEPS:
                continue
            seen.add(call)
            if script.index.qualified(call.func) == "torch.compile":
                return call
            inner = wrapped(script, call)
            if inner is not None:
                todo.append(inner)
    return None


def _compiled_in_place(script: Script, model: ast.expr) -> ast.Call | None:
    """`model.compile()` of the same model."""
    made = {origin.node for origin in script.resolver.origins(model)}
    for call in script.index.calls_by_name.get("compile", ()):
        func = call.func
        if not isinstance(func, ast.Attribute) or call.args:
            continue
        if any(keyword.arg not in _OPTIONS for keyword in call.keywords):
            continue
        origins = script.resolver.origins(func.value)
        if made & {o.node for o in origins} and script.modules.is_module(func.value):
            return call
    return None


def _is_on(script: Script, call: ast.Call) -> bool:
    """Whether the tests around a call hold, as far as constants and defaults tell."""
    for branch, holds in branches_of(script.index.home(call), call):
        test = branch.test if isinstance(branch, (ast.If, ast.IfExp)) else None
        if test is None:
            return False
        if holds and _WORKS.search(ast.unparse(test)):
            continue
        values = script.evaluator.values(test)
        found = {bool(value.constant) for value in values.known}
        if not values.complete or found != {holds}:
            return False
    return True


def _is_for_shapes(script: Script, call: ast.Call) -> bool:
    """Whether code is compiled for the shapes that come, and not for any."""
    return (
        _is_always(script, call, "dynamic", None, False)
        and _is_always(script, call, "disable", False)
        and _is_always(script, call, "backend", "inductor", "cudagraphs")
    )


def _is_always(script: Script, call: ast.Call, name: str, *constants: object) -> bool:
    """Whether an option is left out, or surely one of some constants."""
    given = script.evaluator.argument(call, name)
    if given.absent:
        return True
    its = [script.evaluator.values(node) for node in given.nodes]
    return given.given and all(values.all_in(*constants) for values in its)


def _with_options(script: Script, model: ast.expr, call: ast.Call) -> Compiled:
    dynamic = script.evaluator.argument(call, "dynamic")
    static = dynamic.given and _is_always(script, call, "dynamic", False)
    mode = script.evaluator.argument(call, "mode")
    graphs = mode.given and _is_always(script, call, "mode", *_GRAPHS)
    return Compiled(model, call, static, graphs)
