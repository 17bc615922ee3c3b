"""Evaluations that are no loop of their own: one pass over all data, or one mode."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import Function, Where
from gpulint.index.walk import dotted, walk_scope
from gpulint.script.modelling.frozen import is_frozen_before
from gpulint.script.training.evaluation import (
    always_without_grad,
    called_module,
    differentiates,
    forwards,
    may_switch_off,
    model_calls,
    reachable,
)
from gpulint.script.training.step_calls import is_backward, is_step

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

_KEEPS = frozenset("append extend add insert put".split())


def single_passes(script: Script) -> Iterator[ast.Call]:
    """Calls of a model after its `.eval()` that build a graph, outside all loops over
    batches; nothing that they give is differentiated or kept.
    """
    if not _trains_here(script):
        return
    seen: set[ast.Call] = set()
    for mode in script.index.calls_by_name.get("eval", ()):
        if mode.args or not isinstance(mode.func, ast.Attribute):
            continue
        if script.modules.is_module(mode.func.value):
            found = [c for c in _calls_after(script, mode) if c not in seen]
            seen.update(found)
            yield from (c for c in found if _graph_is_waste(script, c))


def _trains_here(script: Script) -> bool:
    if not _decides_nothing(script) or "lightning" in script.frameworks:
        return False
    return any(map(is_backward, script.index.calls_by_name.get("backward", ())))


def _decides_nothing(script: Script) -> bool:
    """Whether a file runs on the GPU and nowhere calls `set_grad_enabled(flag)`."""
    names = script.index.called_names
    switched = any(name.endswith("set_grad_enabled") for name in names)
    return script.uses_gpu and not script.is_test and not switched


def _calls_after(script: Script, mode: ast.Call) -> Iterator[ast.Call]:
    """Calls of a model on tensors from its `.eval()` to its next `.train()`."""
    assert isinstance(mode.func, ast.Attribute)
    model = dotted(mode.func.value)
    scope = script.index.scope(mode)
    after = [
        node
        for node in walk_scope(scope)
        if isinstance(node, ast.Call) and node.lineno > mode.lineno
    ]
    again = [
        call.lineno
        for call in after
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "train"
        and dotted(call.func.value) == model
    ]
    for call in after:
        if model is None or dotted(called_module(call)) != model:
            continue
        tensors = any(script.where(a) is not Where.PLAIN for a in call.args)
        if tensors and call.lineno < min(again, default=call.lineno + 1):
            yield call


def _graph_is_waste(script: Script, call: ast.Call) -> bool:
    function = script.index.function(call)
    around = script.loops_around(call)
    if isinstance(script.index.parent(call), ast.Expr):
        return False  # a first run that fills lazy layers: its graph is gone at once
    if script.without_grad(call) or any(
        x.eval or (x.batches and not x.train) or not (x.train or x.kind == "epoch")
        for x in around
    ):
        return False
    if is_frozen_before(script, call):
        return False
    caller = script.step_loop(call)
    if function is None or (caller is not None and (caller.eval or caller.batches)):
        return False
    if script.evaluator.outside.handed_on(function):
        return False  # who calls it may do so without gradients
    callers = script.resolver.calls.callers(function)
    switched = any(map(script.without_grad, callers))
    if switched or may_switch_off(function) or always_without_grad(script, function):
        return False
    rest = _rest(script, function, call)
    if differentiates(script, [*rest, *reachable(script, forwards(script))]):
        return False
    if script.backpropagated.computed_in(script.index.statement(call)):
        return False
    return not any(_leads_out(script, node) for node in rest)


def _rest(script: Script, function: Function, call: ast.Call) -> list[ast.AST]:
    """What a function runs from a call on."""
    first = script.index.statement(call).lineno
    return [
        node
        for node in walk_scope(function)
        if isinstance(node, (ast.stmt, ast.Call)) and node.lineno >= first
    ]


def _leads_out(script: Script, node: ast.AST) -> bool:
    """Whether a result may be used after the function, or trained with in it."""
    values: list[ast.expr | None] = []
    if isinstance(node, ast.Call):
        if is_backward(node) or is_step(node):
            return True
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr in _KEEPS:
            values += node.args
    elif isinstance(node, ast.Return):
        values.append(node.value)
    elif isinstance(node, ast.Assign):
        kept = (ast.Attribute, ast.Subscript)
        values += [node.value for t in node.targets if isinstance(t, kept)]
    elif isinstance(node, ast.Expr) and isinstance(
        node.value, (ast.Yield, ast.YieldFrom)
    ):
        return True
    return any(_may_hold_graph(script, v) for v in values if v is not None)


def _may_hold_graph(script: Script, value: ast.expr) -> bool:
    parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else [value]
    return any(script.where(part) is not Where.PLAIN for part in parts)


# Loops that train, or do not, as a parameter says


def modes_without_grad(script: Script) -> Iterator[tuple[Loop, ast.Call, ast.Call]]:
    """Training loops that a call runs as an evaluation: `iteration(data, train=False)`.

    The loop, its first model call that builds a graph, and the call.
    """
    for loop in script.training_loops if _decides_nothing(script) else ():
        function = loop.function
        if function is None or loop.no_grad:
            continue
        if may_switch_off(function) or _without_grad_somewhere(script, loop):
            continue
        model = next(model_calls(script, loop), None)
        switched = _switched_off(script, function, loop)
        if model is not None and switched is not None:
            yield loop, model, switched


def _without_grad_somewhere(script: Script, loop: Loop) -> bool:
    """Whether the function, or one it calls, picks a context for gradients itself."""
    words = ("no_grad", "inference_mode", "enable_grad", "is_grad_enabled")
    scopes = [script.index.scope(loop.node), *reachable(script, loop.helpers)]
    return any(
        (dotted(node) or "").rpartition(".")[2] in (*words, "set_grad_enabled")
        for scope in scopes
        for node in walk_scope(scope)
        if isinstance(node, (ast.Name, ast.Attribute))
    )


def _switched_off(script: Script, function: Function, loop: Loop) -> ast.Call | None:
    """The call that keeps all `backward()` of a loop from running."""
    tests = [_parameter_tested(script, call, loop) for call in loop.backward]
    names = {name for name in tests if name is not None}
    if len(names) != 1 or None in tests:
        return None
    name = names.pop()
    parameters = [
        d
        for d in script.resolver.flow(function).definitions.get(name, ())
        if d.kind == "parameter"
    ]
    all_ = script.resolver.flow(function).definitions.get(name, ())
    if len(parameters) != 1 or len(all_) != 1:
        return None
    position = script.resolver.calls.position(function, name)
    for call in script.resolver.calls.callers(function):
        if not script.index.holds(call) or script.without_grad(call):
            continue
        argument = script.evaluator.argument(call, name, position)
        nodes = argument.nodes if argument.given else ()
        if argument.absent and parameters[0].value is not None:
            nodes = (parameters[0].value,)
        caller = script.index.function(call)
        if caller is not None and always_without_grad(script, caller):
            continue
        if nodes and all(
            isinstance(n, ast.Constant) and n.value in (False, None) for n in nodes
        ):
            return call
    return None


def _parameter_tested(script: Script, call: ast.Call, loop: Loop) -> str | None:
    """The name that must be true, or not None, for a call in a loop to run."""
    child: ast.AST = call
    for above in script.index.ancestors(call):
        if above is loop.node:
            return None
        if isinstance(above, ast.If) and child in above.body:
            test = above.test
            if isinstance(test, ast.Compare) and len(test.ops) == 1:
                none = test.comparators[0]
                plain = isinstance(none, ast.Constant) and none.value is None
                if not plain or not isinstance(test.ops[0], ast.IsNot):
                    return None
                test = test.left
            if isinstance(test, ast.Name):
                return test.id
        child = above
    return None
