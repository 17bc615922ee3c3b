"""How MindSpore trains in a file: models, steps written by hand, precision, waits."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Function
from gpulint.index.walk import walk, walk_scope
from gpulint.script.frameworks.ms_context import mentioned
from gpulint.script.frameworks.ms_pipelines import is_step, model_of, train_calls

if TYPE_CHECKING:
    from gpulint.script.frameworks.ms_pipelines import TrainLoop
    from gpulint.script.model import Script

HALF = re.compile(
    r"amp_level|auto_mixed_precision|build_train_network|to_float|float16|bfloat16|"
    r"\bamp\b|fp16|loss_scale|LossScale|[Qq]uantiz|golden_stick"
)
GRAPH = re.compile(r"GRAPH_MODE|\bjit\b|ms_function|set_context\([^)]*mode\s*=\s*0")
_COMPILED = re.compile(r"(^|\.)(jit|ms_function|ms_class)$")
_WAITS = ("asnumpy", "item", "tolist")
_CASTS = ("float", "int", "bool")


class Training(NamedTuple):
    """A model that trains, and where: `model.train(…)` of `Model(…)`."""

    model: ast.Call
    call: ast.Call


def trainings(script: Script) -> Iterator[Training]:
    """What trains by `Model`, each call once."""
    for call in train_calls(script):
        model = model_of(script, call)
        if model is not None:
            yield Training(model, call)


def step_functions(script: Script) -> Iterator[Function]:
    """Functions that compute gradients and update weights, run by a training loop."""
    run: dict[Function, None] = {}
    for loop in script.ms_pipelines.train_loops:
        function = script.resolver.calls.callee(loop.step)
        if function is not None and is_step(script, function):
            run[function] = None
    yield from (f for f in run if script.index.holds(f))


def is_compiled(script: Script, function: Function) -> bool:
    """Whether a function is compiled: by a decorator, or by a call that names it."""
    for decorator in function.decorator_list:
        made = decorator.func if isinstance(decorator, ast.Call) else decorator
        if _COMPILED.search(script.index.qualified(made) or ""):
            return True
    given = script.index.calls_given.get(function.name, ())
    names = (script.index.qualified(call.func) or "" for call in given)
    return any(_COMPILED.search(name) or "data_sink" in name for name in names)


def uses_half(script: Script) -> bool:
    """Whether anything in the file or its folder speaks of lower precision."""
    return mentioned(script, HALF)


def waits(script: Script, loop: TrainLoop) -> list[ast.Call]:
    """Where a training loop waits in every step for what the step gives back."""
    results = _results(script, loop)
    branches = (ast.If, ast.For, ast.While)
    return [
        node
        for statement in loop.node.body
        if not isinstance(statement, branches)
        for node in walk_scope(statement)
        if isinstance(node, ast.Call) and _waits(script, node, results, loop)
    ]


def _results(script: Script, loop: TrainLoop) -> set[str]:
    """Names that the step's call is assigned to."""
    statement = script.index.statement(loop.step)
    if not isinstance(statement, ast.Assign):
        return set()
    return {
        n.id
        for target in statement.targets
        for n in walk(target)
        if isinstance(n, ast.Name)
    }


def _waits(script: Script, call: ast.Call, results: set[str], loop: TrainLoop) -> bool:
    func = call.func
    waited: ast.expr | None = None
    if isinstance(func, ast.Attribute) and func.attr in _WAITS:
        waited = func.value
    elif isinstance(func, ast.Name) and func.id in _CASTS and len(call.args) == 1:
        waited = call.args[0]
    if waited is None or _is_conditional(script, call, loop):
        return False
    head: ast.expr = waited
    while isinstance(head, (ast.Subscript, ast.Attribute, ast.Call)):
        if head is loop.step:
            return True
        head = head.func if isinstance(head, ast.Call) else head.value
    return isinstance(head, ast.Name) and head.id in results


def _is_conditional(script: Script, node: ast.AST, loop: TrainLoop) -> bool:
    inside = (ast.If, ast.IfExp, ast.BoolOp, ast.Try, ast.Lambda)
    for above in script.index.ancestors(node):
        if above is loop.node:
            return False
        if isinstance(above, inside):
            return True
    return False
