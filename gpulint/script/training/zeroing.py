"""Loops that fill gradients with zeros, and the training step that they belong to."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index.walk import walk
from gpulint.script.branches import branches_of
from gpulint.script.loops import Loop
from gpulint.script.training.step_calls import is_backward, is_step

if TYPE_CHECKING:
    from gpulint.script.model import Script


def is_optimizer(script: Script, owner: ast.ClassDef | None) -> bool:
    """Whether a class is an optimizer, whose state may rest on gradients of zeros."""
    names = script.resolver.classes.base_names(owner) if owner is not None else ()
    return any(name.startswith("torch.optim.") for name in names)


def training_step(script: Script, node: ast.AST) -> Loop | ast.AST | None:
    """The training loop that runs a node, or its function if that calls backward.

    Not a function whose loop does, which the node stands before: once an epoch.
    """
    around = [loop for loop in script.loops_around(node) if loop.train]
    loop = around[0] if around else script.step_loop(node)
    if loop is not None:
        return loop if loop.train else None
    function = script.index.function(node)
    if function is None:
        return None
    outside = set(script.loops_around(node))
    calls = (n for n in walk(function) if isinstance(n, ast.Call) and is_backward(n))
    beside = any(outside.issuperset(script.loops_around(call)) for call in calls)
    return function if beside else None


def freezes_some(script: Script, zeroed: ast.AST) -> bool:
    """Whether gradients are zeroed to keep some parameters as they are.

    Between the backward pass and the optimizer's step, unread, or by a function without
    a backward pass that is called there, or zeroes now these, now those: it is called
    under a condition, or more than once, with parameters of some part.
    """
    function = script.index.function(zeroed)
    calls = _calls_beside(script, zeroed)
    if any(map(is_backward, calls)):
        return _before_step(calls, zeroed) and not _reads_beside(script, zeroed)
    if function is None or any(
        isinstance(n, ast.Call) and is_backward(n) for n in walk(function)
    ):
        return False
    callers = script.resolver.calls.callers(function)
    return len(callers) > 1 or any(
        any(isinstance(above, ast.If) for above, _ in branches_of(script.index, call))
        or _before_step(_calls_beside(script, call), call)
        for call in callers
        if script.index.holds(call)
    )


def _calls_beside(script: Script, zeroed: ast.AST) -> list[ast.Call]:
    """The calls of the step that a loop over parameters is a part of, in order."""
    loops = script.loops_around(zeroed)
    outside = {loop.node for loop in loops if not _is_over_parameters(script, loop)}
    around = next((loop.node for loop in loops if loop.node in outside), None)
    place = around or script.index.function(zeroed) or script.index.tree
    found = [
        node
        for node in walk(place)
        if isinstance(node, ast.Call)
        and {loop.node for loop in script.loops_around(node)} == outside
    ]
    return sorted(found, key=lambda call: (call.lineno, call.col_offset))


def _reads_beside(script: Script, zeroed: ast.AST) -> bool:
    """Whether the loop over parameters does more with gradients than to zero some."""
    loops = (loop.node for loop in script.loops_around(zeroed))
    inner = next(loops, None)
    statement = script.index.statement(zeroed)
    return inner is not None and any(
        isinstance(node, ast.Attribute)
        and node.attr == "grad"
        and not script.index.inside(node, statement)
        and not _is_asked(script, node)
        for node in walk(*inner.body)
    )


def _is_asked(script: Script, node: ast.AST) -> bool:
    """Whether a node stands in the test of an `if`."""
    statement = script.index.statement(node)
    return isinstance(statement, ast.If)


def _is_over_parameters(script: Script, loop: Loop) -> bool:
    return isinstance(loop.node, ast.For) and "param" in script.text(loop.node.iter)


def _before_step(calls: list[ast.Call], zeroed: ast.AST) -> bool:
    """Whether the last pass or step before a place is a pass, the next one a step."""
    line = getattr(zeroed, "lineno", 0)
    parts = [call for call in calls if is_backward(call) or is_step(call)]
    before = [call for call in parts if call.lineno < line]
    after = [call for call in parts if call.lineno > line]
    return bool(
        before and after and is_backward(before[-1]) and not is_backward(after[0])
    )


def gradient_of(node: ast.expr) -> ast.Name | None:
    """`p` of `p.grad`, `p.grad.data`, `p.grad.detach()`."""
    if isinstance(node, ast.Call):
        node = node.func
    while isinstance(node, ast.Attribute) and node.attr in (
        "data",
        "detach",
        "detach_",
    ):
        node = node.value
    if isinstance(node, ast.Attribute) and node.attr == "grad":
        return node.value if isinstance(node.value, ast.Name) else None
    return None


def places_gradients(script: Script) -> bool:
    """Whether the script gives tensors gradients of its own: `p.grad = flat[a:b]`."""
    return any(
        isinstance(target, ast.Attribute)
        and target.attr == "grad"
        and not (isinstance(node.value, ast.Constant) and node.value.value is None)
        for node in script.index.all(ast.Assign)
        for target in node.targets
    )


def over_parameters(script: Script, name: ast.Name) -> ast.AST | None:
    """The loop or comprehension over parameters that binds a name."""
    for definition in script.definitions(name):
        text = script.text(definition.value) if definition.value is not None else ""
        if definition.kind == "for" and "param" in text:
            return script.index.parent(definition.node)
    return None


def only_zeroes(loop: ast.For, call: ast.Call) -> bool:
    """Whether a loop's body is the call, perhaps behind `if p.grad is not None`."""
    body = loop.body
    if len(body) == 1 and isinstance(body[0], ast.If) and not body[0].orelse:
        test = body[0].test
        left = test.left if isinstance(test, ast.Compare) else test
        if not (isinstance(left, ast.Attribute) and left.attr == "grad"):
            return False
        body = body[0].body
    alone = len(body) == 1 and isinstance(body[0], ast.Expr)
    return alone and body[0].value is call and not loop.orelse  # type: ignore[attr-defined]


def whole_model(loop: ast.For) -> ast.expr | None:
    """`model` of `for p in model.parameters()`."""
    call = loop.iter
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    plain = call.func.attr == "parameters" and not call.args and not call.keywords
    return call.func.value if plain else None
