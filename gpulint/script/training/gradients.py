"""Whether every parameter surely receives a gradient in each training step."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gpulint.index import Where
from gpulint.index.walk import dotted, walk
from gpulint.script.loading.loaders import in_loop
from gpulint.script.loops import Loop
from gpulint.script.training.step_calls import is_backward, is_step
from gpulint.script.training.training_step import model_calls

if TYPE_CHECKING:
    from gpulint.script.model import Script

_BRANCHES = (ast.If, ast.IfExp, ast.While, ast.Try, ast.Match)
_SHARDED = ("FullyShardedDataParallel", "fully_shard", "FSDP", "deepspeed.initialize")
_LIBRARIES = ("torch", "torchvision", "math", "numpy", "collections", "copy", "typing")
_RANDOM = ("random.", "numpy.random.")
_QUIET = frozenset("print format log info debug set_postfix set_description".split())


def why_gradients_may_miss(
    script: Script, loop: Loop | ast.AST, apart_from: Iterable[ast.AST] = ()
) -> str | None:
    """What keeps it from being proven; None when each step fills all gradients.

    `loop`: the training loop, or the function where none is seen. `apart_from`: nodes
    that do not count, such as the loop that zeroes.
    """
    if isinstance(loop, ast.AST):
        return "the step is not seen in a loop"
    model = _only_model(script)
    if isinstance(model, str):
        return model
    mine = set(apart_from)
    return (
        _frozen_or_read(script, mine)
        or _step_varies(script, loop, mine)
        or _forward_varies(script, model)
    )


def trained_model(script: Script) -> str | None:
    """The model, as written, whose parameters the file's one optimizer holds."""
    model = _only_model(script)
    return None if isinstance(model, str) else dotted(model)


def _only_model(script: Script) -> ast.expr | str:
    """The model of the one optimizer, or why there is none."""
    optimizers = [
        (name, call)
        for name, calls in script.index.calls.items()
        if name.startswith("torch.optim.") and name.count(".") == 2
        for call in calls
        if name.rpartition(".")[2][0].isupper()
    ]
    if len(optimizers) != 1:
        return f"{len(optimizers) or 'no'} optimizers are built in this file"
    name, call = optimizers[0]
    if name.endswith("LBFGS"):
        return "LBFGS computes gradients several times a step"
    given = script.evaluator.argument(call, "params", 0)
    origins = [o for node in given.nodes for o in script.resolver.origins(node)]
    made = origins[0].call if len(origins) == 1 else None
    if made is None or not isinstance(made.func, ast.Attribute):
        return "the optimizer may hold more or less than one model's parameters"
    if made.func.attr != "parameters" or made.args or made.keywords:
        return "the optimizer may hold more or less than one model's parameters"
    return made.func.value


def _frozen_or_read(script: Script, apart_from: set[ast.AST]) -> str | None:
    index = script.index
    for attribute in index.all(ast.Attribute):
        stored = isinstance(attribute.ctx, ast.Store)
        if attribute.attr == "requires_grad" and stored:
            return "`requires_grad` is written"
        reads = attribute.attr == "grad" and attribute not in apart_from
        if reads and index.qualified(attribute) != "torch.autograd.grad":
            return f"`{script.text(attribute)}` is used elsewhere"
    if any(text.value == "grad" for text in index.all(ast.Constant)):
        return "`grad` is looked up by its name"
    for call in index.all(ast.Call):
        name = dotted(call.func) or ""
        if name.endswith(".requires_grad_") and not _is_true(call):
            return "parameters are frozen with `requires_grad_`"
        if name.endswith(_SHARDED):
            return "the parameters are sharded"
        if any(k.arg == "find_unused_parameters" for k in call.keywords):
            return "`find_unused_parameters` says that some stay unused"
    return None


def _is_true(call: ast.Call) -> bool:
    """Whether `requires_grad_` is called with True, or with nothing."""
    values = [*call.args, *(k.value for k in call.keywords)]
    return all(isinstance(v, ast.Constant) and v.value is True for v in values)


def _step_varies(script: Script, loop: Loop, apart_from: set[ast.AST]) -> str | None:
    """Why an iteration may leave a gradient out."""
    index = script.index
    backward = [c for c in index.all(ast.Call) if is_backward(c)]
    if len(backward) != 1 or not index.inside(backward[0], loop.node):
        return "backward is not called at exactly one place in the loop"
    for above in index.ancestors(backward[0]):
        if above is loop.node:
            break
        if isinstance(above, (*_BRANCHES, ast.For)):
            return "backward is not called in every step"
    steps = [
        c for c in index.all(ast.Call) if is_step(c) and _is_of_optimizer(script, c)
    ]
    if len(steps) != 1 or steps[0] not in loop.steps:
        return "the optimizer does not step at exactly one place in the loop"
    helper = index.function(steps[0])
    if helper in loop.helpers and len(script.resolver.calls.callers(helper)) != 1:
        return "the optimizer does not step at exactly one place in the loop"
    bodies: list[ast.AST] = [*loop.node.body, *loop.helpers]
    for node in walk(*bodies):
        early = not _after(node, backward[0], loop, script)
        picks = _picks(script, node, loop) if early else None
        if picks is not None:
            return picks
        if not isinstance(node, _BRANCHES) or node in apart_from:
            continue
        if _after(node, backward[0], loop, script):
            continue
        if any(map(_changes, walk(*_branches(node)))):
            return f"what is computed depends on a condition in line {node.lineno}"
    return None


def _is_of_optimizer(script: Script, call: ast.Call) -> bool:
    """Whether `x.step()` may be an optimizer's, and not a schedule's or profiler's."""
    assert isinstance(call.func, ast.Attribute)
    origins = script.resolver.origins(call.func.value)
    made = [o.call for o in origins]
    names = [script.index.qualified(c.func) or "" for c in made if c is not None]
    others = ("torch.optim.lr_scheduler.", "torch.profiler.")
    return not (names and all(n.startswith(others) for n in names))


def _may_be_run(script: Script, node: ast.Subscript) -> bool:
    """Whether an item may be a module or a result: it is called, or passed on."""
    if not isinstance(node.ctx, ast.Load):
        return False
    above = script.index.parent(node)
    if isinstance(above, ast.Call) and node is above.func:
        return True
    made = [node.value, *(o.node for o in script.resolver.origins(node.value))]
    if any(next(model_calls(script, part), None) is not None for part in made):
        return True  # of several results, the loss may take one at a time
    if script.where(node.value) & (Where.HOST | Where.DEVICE):
        return False
    if not isinstance(above, ast.Assign):
        return isinstance(above, (ast.Call, ast.keyword))
    names = {dotted(target) for target in above.targets}
    calls = (c for c in walk(script.index.scope(node)) if isinstance(c, ast.Call))
    return any(dotted(c.func) in names for c in calls)


def _picks(script: Script, node: ast.AST, loop: Loop) -> str | None:
    """Why a node of a step may use another part of the model each time."""
    run = isinstance(node, ast.Subscript) and _may_be_run(script, node)
    chosen = walk(node.slice) if isinstance(node, ast.Subscript) and run else ()
    if any(isinstance(part, (ast.Name, ast.Call)) for part in chosen):
        return f"`{script.text(node)}` may pick another part each time"
    if not isinstance(node, ast.Call):
        return None
    name = script.index.qualified(node.func) or ""
    if name.startswith(_RANDOM) or name == "getattr":
        return f"`{script.text(node)}` may pick another part each time"
    if isinstance(node.func, ast.Name):
        for made in script.resolver.definitions(node.func):
            outside = not script.index.inside(made.node, loop.node)
            if (
                made.kind == "assign"
                and outside
                and in_loop(script.resolver, made.node)
            ):
                return f"`{name}` is set in a loop around the step"
    return None


def _branches(node: ast.AST) -> Iterator[ast.AST]:
    """The parts that run or do not."""
    if isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)
        return
    for name in ("body", "orelse", "handlers", "cases", "finalbody"):
        yield from getattr(node, name, ())


def _changes(node: ast.AST) -> bool:
    """Whether a node computes something: a value is set, a call is made."""
    if isinstance(node, ast.Call):
        return (dotted(node.func) or "").rpartition(".")[2] not in _QUIET
    return isinstance(node, (ast.Assign, ast.AugAssign, ast.Return, ast.Continue))


def _after(node: ast.AST, backward: ast.Call, loop: Loop, script: Script) -> bool:
    inside = script.index.inside(node, loop.node)
    return inside and getattr(node, "lineno", 0) > backward.lineno


def _forward_varies(script: Script, model: ast.expr) -> str | None:
    """Why the model may leave out a part of itself in a step."""
    origins = script.resolver.origins(model)
    if not origins:
        return "how the model is made is not known"
    for origin in origins:
        call = _constructor(origin.call)
        owner = script.resolver.classes.named(call.func) if call is not None else None
        if owner is not None:
            found = _class_varies(script, owner, set())
            if found is not None:
                return found
            continue
        name = script.index.qualified(call.func) if call is not None else None
        if not (name or "").startswith(("torch.nn.", "torchvision.models.")):
            return "how the model is made is not known"
        if call is not None:
            found = _parts_vary(script, call, set())
            if found is not None:
                return found
    return None


def _constructor(call: ast.Call | None) -> ast.Call | None:
    """`Net()` of `Net().to(device)`, `DataParallel(Net()).cuda()`."""
    while call is not None and isinstance(call.func, ast.Attribute):
        if call.func.attr not in ("to", "cuda", "train", "float", "double", "apply"):
            return call
        inner = call.func.value
        call = inner if isinstance(inner, ast.Call) else None
    return call


def _class_varies(script: Script, owner: ast.ClassDef, seen: set[str]) -> str | None:
    if owner.name in seen:
        return None
    seen.add(owner.name)
    for name, method in script.resolver.classes.methods(owner).items():
        if name == "__init__":
            found = _parts_vary(script, method, seen)
            if found is not None:
                return found
            continue
        for node in walk(*method.body):
            if isinstance(node, _BRANCHES):
                return f"`{owner.name}.{name}` computes by a condition"
            if isinstance(node, ast.Subscript) and not _fixed(node):
                return f"`{owner.name}.{name}` picks parts of the model"
            if isinstance(node, ast.Call) and _chooses(script, node):
                return f"`{owner.name}.{name}` picks parts of the model"
    return None


def _chooses(script: Script, call: ast.Call) -> bool:
    """Whether a call draws a number, or may take some of the model's parts."""
    name = script.index.qualified(call.func) or ""
    if name.startswith(_RANDOM) or name == "getattr":
        return True
    if name.startswith("torch.") or name in ("enumerate", "reversed", "len", "super"):
        return False
    owned = (a for a in call.args if (dotted(a) or "").startswith("self."))
    whole = not (dotted(call.func) or "").startswith("self.")
    return whole and any(True for _ in owned)


def _parts_vary(script: Script, init: ast.AST, seen: set[str]) -> str | None:
    for node in walk(init):
        if not isinstance(node, ast.Call):
            continue
        local = script.resolver.classes.named(node.func)
        if local is not None:
            found = _class_varies(script, local, seen)
            if found is not None:
                return found
            continue
        name = script.index.qualified(node.func) or ""
        head = (dotted(node.func) or "").partition(".")[0]
        if head in script.index.imports and not name.startswith(_LIBRARIES):
            return f"what `{script.text(node.func)}` computes is not known"
    return None


def _fixed(node: ast.Subscript) -> bool:
    """Whether a subscript cannot pick a layer: not one of `self`, or by a constant."""
    if not (dotted(node.value) or "").startswith("self."):
        return True
    return all(not isinstance(part, (ast.Name, ast.Call)) for part in walk(node.slice))
