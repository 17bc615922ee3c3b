"""The training step: forward, loss, backward and update as a loop writes them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpulint.index import FileIndex, Function
from gpulint.index.walk import LOOPS, dotted, walk, walk_scope
from gpulint.script.loops import Loop
from gpulint.script.modelling.frozen import has_no_weights

if TYPE_CHECKING:
    from gpulint.script.model import Script

_LOSS = re.compile(
    r"loss|crit|objective|entropy|^(ce|bce|mse|l1|nll|kl|kld)$", re.IGNORECASE
)
_CLIP = re.compile(r"^torch\.nn\.utils\.(clip_grad\.)?clip_grad_(norm|value)_?$")
_NOT_FORWARD = frozenset(
    "parameters named_parameters train eval zero_grad state_dict load_state_dict to "
    "cuda cpu children named_children modules named_modules requires_grad_ buffers "
    "init_hidden append update step item float half double apply register_buffer "
    "size dim view reshape".split()
)
_PLAIN = ("torch.nn.Module", "abc.ABC", "object")
BLOCKS = ("body", "orelse", "finalbody")


@dataclass(frozen=True, eq=False)
class Step:
    """One backward pass and what its loss is made of.

    `made_of` are the statements between the start of the iteration and the backward
    call that the loss depends on, in source order; `forward` the first call of a
    model among them, None where it cannot be told.
    """

    loop: Loop
    function: Function | None
    backward: ast.Call
    made_of: tuple[ast.stmt, ...]
    forward: ast.Call | None

    @property
    def by_engine(self) -> bool:
        """`strategy.backward(loss)`: by an object that may choose the precision."""
        func, given = self.backward.func, self.backward.args
        assert isinstance(func, ast.Attribute)
        holder = dotted(func.value) or ""
        of_loss = bool(given) and "loss" in (dotted(given[0]) or "").lower()
        return of_loss and "loss" not in holder.lower()

    @property
    def loss(self) -> ast.expr:
        """What `backward` is called on."""
        assert isinstance(self.backward.func, ast.Attribute)
        return self.backward.func.value


def find_steps(script: Script) -> list[Step]:
    """The first backward pass of each training loop, each once."""
    steps: dict[ast.Call, Step] = {}
    for loop in script.training_loops:
        for backward in loop.backward[:1]:
            if backward not in steps:
                steps[backward] = _read(script, loop, backward)
    return list(steps.values())


def step_after(script: Script, step: Step, backward: ast.Call, row: int) -> Step:
    """Another backward pass of a step, made of statements below a row alone."""
    return _read(script, step.loop, backward, row)


def _read(script: Script, loop: Loop, backward: ast.Call, row: int = 0) -> Step:
    found = reversed(list(_made_of(script, backward)))
    made_of = tuple(s for s in found if s.lineno > row)
    plain = [s for s in made_of if not differentiates(script, s)]
    calls = (c for s in [*plain, *made_of] for c in model_calls(script, s))
    trained = [c for c in calls if not script.without_grad(c)]
    names = _asked_for(script)
    asked = [c for c in trained if _root(c.func) in names]
    forward = next(iter(asked or trained), None)
    forward = forward or next(model_calls(script, backward), None)
    return Step(loop, script.index.function(backward), backward, made_of, forward)


def _asked_for(script: Script) -> set[str]:
    """The names of models whose parameters a file asks for, to train them."""
    calls = script.index.calls_by_name.get("parameters", ())
    holders = (c.func.value for c in calls if isinstance(c.func, ast.Attribute))
    return {name for name in map(_root, holders) if name}


def _root(node: ast.expr) -> str:
    """`model` of `model.module.forward`, `self.model` of `self.model.encode`."""
    parts = (dotted(node) or "").split(".")
    return ".".join(parts[:2] if parts[0] == "self" else parts[:1])


def clips(index: FileIndex, call: ast.Call) -> bool:
    """Whether a call is one of torch's that clip gradients."""
    return bool(_CLIP.match(index.qualified(call.func) or ""))


def block_of(script: Script, statement: ast.stmt) -> list[ast.stmt]:
    """The statements of the block that a statement stands in."""
    holder = script.index.parent(statement)
    for name in BLOCKS:
        block = getattr(holder, name, None)
        if isinstance(block, list) and statement in block:
            return block
    return [statement]


def _made_of(script: Script, backward: ast.Call) -> Iterator[ast.stmt]:
    """Statements that the loss depends on, last first, up to the innermost loop."""
    assert isinstance(backward.func, ast.Attribute)
    needed = loads(backward.func.value)
    current: ast.AST = script.index.statement(backward)
    while isinstance(current, ast.stmt):
        block = block_of(script, current)
        for statement in reversed(block[: block.index(current)]):
            stored = stores(statement)
            if not stored & needed:
                continue
            yield statement
            if isinstance(statement, (ast.Assign, ast.AnnAssign)):
                needed = needed - stored
            needed = needed | loads(statement)
        above = script.index.parent(current)
        while isinstance(above, (ast.ExceptHandler, ast.match_case)):
            above = script.index.parent(above)
        if above is None or isinstance(above, (*LOOPS, ast.FunctionDef)):
            return
        current = above


def loads(node: ast.AST) -> frozenset[str]:
    """Names, and chains such as `self.loss`, that are read below a node."""
    found = set()
    for part in walk(node):
        if isinstance(part, (ast.Name, ast.Attribute)):
            name = dotted(part)
            if name and isinstance(part.ctx, ast.Load):
                found.add(name)
    return frozenset(found)


def stores(node: ast.AST) -> frozenset[str]:
    """Names and chains that are assigned below a node."""
    found = set()
    for part in walk_scope(node):
        if isinstance(part, (ast.Name, ast.Attribute)):
            name = dotted(part)
            if name and isinstance(part.ctx, ast.Store):
                found.add(name)
    return frozenset(found)


def model_calls(script: Script, node: ast.AST) -> Iterator[ast.Call]:
    """Calls below a node that run a model, inner ones of an expression first."""
    calls = [n for n in walk(node) if isinstance(n, ast.Call)]
    calls.sort(key=lambda c: (c.end_lineno or 0, c.end_col_offset or 0))
    return (c for c in calls if runs_model(script, c))


def runs_model(script: Script, call: ast.Call, depth: int = 0) -> bool:
    """Whether a call runs a model: itself, a method of one, or a function that does."""
    func = call.func
    function = script.resolver.calls.callee(call)
    if function is not None:
        owner = script.index.parent(function)
        if isinstance(owner, ast.ClassDef) and script.modules.is_module_class(owner):
            runs = _may_run(function.name) and not is_loss(script, func)
            return runs and (function.name == "forward" or _has_parts(script, owner))
        return depth < 4 and any(
            isinstance(n, ast.Call) and runs_model(script, n, depth + 1)
            for n in walk(*function.body)
        )
    name = script.index.qualified(func) or ""
    if name.startswith(("torch.", "numpy.")):
        return False
    if isinstance(func, ast.Attribute) and _may_run(func.attr):
        holder = None if dotted(func.value) in (None, "self") else func.value
        if holder is not None and script.modules.is_module(holder):
            return not is_loss(script, holder)
    if is_loss(script, func) or not script.modules.is_module(func):
        return False
    return not has_no_weights(script, func)


def _has_parts(script: Script, owner: ast.ClassDef) -> bool:
    """Whether a module may hold weights: not if `nn.Module` alone makes it."""
    resolver = script.resolver
    outside = (
        base
        for known in resolver.classes.bases(owner)
        for base in known.bases
        if resolver.classes.named(base) is None
    )
    plain = all(script.index.qualified(base) in _PLAIN for base in outside)
    return not plain or "__init__" in resolver.classes.methods(owner)


def _may_run(method: str) -> bool:
    """Whether a method of a model may be one that runs it: not `initHidden()`."""
    return method not in _NOT_FORWARD and not method.startswith(("init", "reset"))


def differentiates(script: Script, statement: ast.stmt) -> bool:
    """Whether a statement, or a function of this file it calls, derives twice."""
    second = script.precision.second_order
    if not second:
        return False
    todo: list[ast.AST] = [statement]
    for root in todo:
        for node in walk(root):
            if node in second:
                return True
            if isinstance(node, ast.Call) and len(todo) < 30:
                function = script.resolver.calls.callee(node)
                if function is not None and function not in todo:
                    todo.append(function)
    return False


def is_loss(script: Script, callee: ast.expr) -> bool:
    """Whether a callee computes a loss, by its name or by how it is made."""
    if isinstance(callee, ast.Call):
        callee = callee.func
    name = (dotted(callee) or "").rpartition(".")[2]
    if _LOSS.search(name):
        return True
    made = (o.call for o in script.resolver.origins(callee))
    names = (script.index.qualified(c.func) or "" for c in made if c is not None)
    return any(_LOSS.search(n.rpartition(".")[2]) for n in names)


def inputs_vary(script: Script, step: Step) -> bool:
    """Whether a step sees new data: not one fixed input, as of a graph or a picture."""
    if step.loop.batches:
        return True
    if step.forward is None:
        return False
    call = step.forward
    inside = step.loop.node
    for name in walk(*call.args, *(k.value for k in call.keywords)):
        if not isinstance(name, ast.Name):
            continue
        for definition in script.resolver.definitions(name):
            if _made_of_weights(script, definition.value):
                continue
            local = script.index.scope(definition.node) is step.function
            if script.index.inside(definition.node, inside) or (
                local and step.loop.function is not step.function
            ):
                return definition.kind in ("assign", "for", "parameter", "augment")
    return False


def _made_of_weights(script: Script, value: ast.expr | None) -> bool:
    """Whether a value comes out of a model that takes no data."""
    call = value if isinstance(value, ast.Call) else None
    taken = call is not None and bool(call.args or call.keywords)
    return call is not None and not taken and script.modules.is_module(call.func)


def one_sample_each(script: Script, step: Step) -> bool:
    """Whether weights change every `batch_size` iterations: a sample each."""
    return any(
        isinstance(above, ast.If)
        and script.index.inside(above, step.loop.node)
        and any(map(_counts_samples, walk(above.test)))
        for update in step.loop.steps
        for above in script.index.ancestors(update)
    )


def _counts_samples(node: ast.AST) -> bool:
    """`i % batch_size`, `i % args.batch_size`, `i % params["batch_size"]`."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mod):
        return False
    right = node.right
    if isinstance(right, ast.Subscript):
        return getattr(right.slice, "value", None) == "batch_size"
    return (dotted(right) or "").rpartition(".")[2].lower() == "batch_size"


def is_before(script: Script, statement: ast.stmt, node: ast.AST) -> bool:
    """Whether a statement comes earlier in a block that holds `node`, loops apart."""
    block = block_of(script, statement)
    holder = next((s for s in block if script.index.inside(node, s)), None)
    return (
        holder is not None
        and holder is not statement
        and not isinstance(statement, LOOPS)
        and block.index(statement) < block.index(holder)
    )
