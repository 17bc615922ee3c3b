"""Whether a value that a step reads is on the device: what it waits for."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.index import Definition, Where
from gpulint.index.build import last_name
from gpulint.index.tensor_names import NORMS
from gpulint.index.walk import COMPREHENSIONS, LOOPS, dotted, is_text, walk
from gpulint.script.branches import branches_of
from gpulint.script.loading.prepared import sends_models
from gpulint.script.neighbours import run_together
from gpulint.script.training.evaluation import called_module
from gpulint.script.training.losses import differentiated
from gpulint.script.training.training_step import is_loss
from gpulint.script.waiting.members import SAME_PLACE, member_on_device

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

_METER_OF_TIMES = re.compile(r"(?:^|[._])time\.(?:val|value|avg|average|sum|total)$")
_MADE_A_LIST = re.compile(r"not isinstance\(\w+, (list|tuple|\(list, tuple\))\)$")
_METADATA = "._meta["
_PLAIN = frozenset("str int float bool".split())


def on_device(script: Script, value: ast.expr, loop: Loop) -> bool:
    """Whether a value is on the device, a loss that is differentiated included."""
    if isinstance(value, (ast.Constant, ast.JoinedStr, ast.Dict, ast.Starred)):
        return False
    if isinstance(value, ast.BinOp) and is_text(value.left):
        return False
    if _is_called(script, value) or _is_declared_plain(script, value):
        return False  # the text of a model is its layers
    if _is_of_groups(value) or _is_of_times(value):
        return False
    where = script.where(value)
    if where.device or member_on_device(script, value):
        return True
    if _is_one_given(script, value, loop):
        return True
    if where == Where.HOST and not _calls_model(script, loop):
        return False
    if not where & (Where.UNKNOWN | Where.HOST):
        return False
    batch = moves_batch(script, loop)
    if Where.HOST in where and (where & (Where.UNKNOWN | Where.DEVICE) or batch):
        return False
    moved = batch or moves_anything(script, loop)
    return moved and _of_training(script, value, loop)


def _is_one_given(script: Script, value: ast.expr, loop: Loop) -> bool:
    """Whether it goes through what a step gives by name, and one of that is there."""
    return any(
        script.where(keyword.value).device
        for _, given in _given_by_name(script, value, loop)
        for keyword in given
    )


def is_given_alone(script: Script, value: ast.expr, loop: Loop) -> bool:
    """Whether it goes through what each call of a step gives by name: one value.

    `meters.update(loss=loss)`, whose loop over them makes one round, in no other loop.
    """
    given = _given_by_name(script, value, loop)
    return bool(given) and all(
        len(one) == 1
        and one[0].arg is not None
        and not _is_repeated(script, call, loop)
        for call, one in given
    )


def _is_repeated(script: Script, call: ast.Call, loop: Loop) -> bool:
    """Whether a call stands in a loop of its own in a step."""
    return any(
        isinstance(above, (*LOOPS, *COMPREHENSIONS))
        and script.index.inside(above, loop.node)
        and above is not loop.node
        for above in script.index.ancestors(call)
    )


def _given_by_name(
    script: Script, value: ast.expr, loop: Loop
) -> list[tuple[ast.Call, list[ast.keyword]]]:
    """For each call of a step, what it gives by name to what goes through that.

    `v` of `for k, v in kwargs.items()`, where a step calls `update(lr=lr, **losses)`.
    """
    its = script.of(value)
    for made in its.definitions(value) if isinstance(value, ast.Name) else ():
        function = its.index.function(value)
        over = made.value if made.kind == "for" else None
        if not isinstance(over, ast.Call) or not isinstance(over.func, ast.Attribute):
            return []
        rest = function.args.kwarg if function is not None else None
        if rest is None or dotted(over.func.value) != rest.arg:
            return []
        assert function is not None
        args = function.args
        own = {a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)}
        if _asks_for_name(its, made):
            return []
        return [
            (call, [keyword for keyword in call.keywords if keyword.arg not in own])
            for call in script.resolver.calls.callers(function)
            if script.index.inside(call, loop.node)
            and not script.runners.is_rare(call, loop.node)
        ]
    return []


def _asks_for_name(script: Script, made: Definition) -> bool:
    """`for k, v in kwargs.items(): if k == "lr":`, where not all are read alike."""
    statement = script.index.statement(made.node)
    target = statement.target if isinstance(statement, ast.For) else None
    names = {dotted(n) for n in walk(target)} if target is not None else set()
    others = names - {None, made.name}
    tests = (n.test for n in walk(statement) if isinstance(n, (ast.If, ast.IfExp)))
    return any(dotted(part) in others for test in tests for part in walk(test))


def is_norm(script: Script, value: ast.expr) -> bool:
    """Whether a value is what `clip_grad_norm_` gives: a tensor since torch 1.5."""
    newest = script.newest_torch
    if newest is not None and newest <= (1, 4):
        return False
    made = [origin.call for origin in script.resolver.origins(value)]
    return bool(made) and all(
        call is not None and last_name(call) in NORMS for call in made
    )


def moves_batch(script: Script, loop: Loop) -> bool:
    return any(its is loop for _, its in script.batch_moves)


def _calls_model(script: Script, loop: Loop) -> bool:
    """Whether a step runs a model, which may move what it is given itself."""
    called = (called_module(c) for c in loop.calls)
    return any(script.modules.is_module(m) and not is_loss(script, m) for m in called)


def _is_called(script: Script, value: ast.expr) -> bool:
    """Whether the file calls what a name stands for, as no tensor is."""
    name = dotted(value) or ""
    calls = script.index.calls_by_name.get(name.rpartition(".")[2], ())
    called = [call.func for call in calls if dotted(call.func) == name]
    if isinstance(value, ast.Name):
        mine = set(script.definitions(value))
        return any(mine & set(script.definitions(func)) for func in called)
    owner = script.index.owner(value)
    return any(script.index.owner(func) is owner for func in called)


def _is_declared_plain(script: Script, value: ast.expr) -> bool:
    """Whether it is a tensor's metadata, or declared as no tensor by its class.

    Or made a list where it is none.
    """
    if _is_made_a_list(script, value):
        return True
    nodes = [value, *(o.expression for o in script.resolver.origins(value))]
    chains = (node for node in nodes if node is not None)
    if any(_METADATA in ast.unparse(node) for node in chains):
        return True  # file names and the like, beside the tensor
    names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    declared = [
        ast.unparse(field.annotation)
        for index in (run_together(script) if names else ())
        for owner in index.classes.values()
        for field in owner.body
        if isinstance(field, ast.AnnAssign) and dotted(field.target) in names
    ]
    return bool(declared) and all(kind in _PLAIN for kind in declared)


def _is_of_groups(value: ast.expr) -> bool:
    """`optimizer.param_groups[0]["lr"]`, a number but for optimizers in graphs."""
    group = value.value if isinstance(value, ast.Subscript) else None
    its = group.value if isinstance(group, ast.Subscript) else None
    return isinstance(its, ast.Attribute) and its.attr == "param_groups"


def _is_of_times(value: ast.expr) -> bool:
    """`batch_time.avg`: seconds, whatever has brought them together."""
    return _METER_OF_TIMES.search(dotted(value) or "") is not None


def _is_made_a_list(script: Script, value: ast.expr) -> bool:
    """`if not isinstance(lengths, list): lengths = lengths.tolist()` before it."""
    names = [n for n in walk(value) if isinstance(n, ast.Name)]
    reached = [d for n in names for d in script.definitions(n) if d.kind == "assign"]
    tests = (
        ast.unparse(branch.test)
        for d in reached
        for branch, holds in branches_of(script.index, d.node)
        if isinstance(branch, ast.If) and holds
    )
    return any(map(_MADE_A_LIST.match, tests))


def moves_anything(script: Script, loop: Loop) -> bool:
    """Whether a file sends anything to the device: then the model is there.

    This one, another one of the functions that the steps run, or one that runs them.
    """
    if script.sends_anything or sends_models(script):
        return True
    return script.sends_around(loop)


def _of_training(script: Script, value: ast.expr, loop: Loop) -> bool:
    """Whether a value is a gradient or the norm of all, or what is differentiated."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr not in SAME_PLACE:
            break
        value = value.func.value
    if loop.backward and is_norm(script, value):
        return True
    if isinstance(value, ast.Call):
        return False
    if isinstance(value, ast.Attribute) and value.attr == "grad":
        return True
    losses = [differentiated(script, call) for call in loop.backward]
    mine = set(script.definitions(value))
    if any(mine & its for its in losses):
        return True
    made = {origin.expression for origin in script.resolver.origins(value)} - {None}
    return any(
        origin.expression in made
        for its in losses
        for d in its
        if d.value is not None and not d.path
        for origin in script.resolver.origins(d.value)
    )
