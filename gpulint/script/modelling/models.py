"""Which models a script trains, and the calls that make them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index.build import last_name
from gpulint.index.walk import dotted, walk
from gpulint.script.numerics.precision import names_half
from gpulint.script.numerics.reached import reached_from
from gpulint.script.training.training_step import find_steps

if TYPE_CHECKING:
    from gpulint.script.model import Script

_MOVES = frozenset("to to_empty cuda train eval float apply requires_grad_".split())
_WRAPPERS = frozenset(
    "torch.nn.DataParallel torch.nn.parallel.DistributedDataParallel torch.compile "
    "torch.nn.parallel.distributed.DistributedDataParallel torch.jit.script "
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm".split()
)
MAX_STEPS = 12  # wrappers and moves around a model


def trained_models(script: Script) -> list[ast.expr]:
    """The models whose parameters are asked for, else those that the steps run."""
    asked = script.index.calls_by_name.get("parameters", ())
    funcs = [c.func for c in asked if isinstance(c.func, ast.Attribute)]
    held = [_inside(script, func.value) for func in funcs]
    held += [whole for part in held for whole in _run_whole(script, part)]
    steps = find_steps(script)
    return held or [s.forward.func for s in steps if s.forward is not None]


def _run_whole(script: Script, part: ast.expr) -> Iterator[ast.expr]:
    """`encoder` of `encoder.linear`, where the file runs all of it: `encoder(x)`."""
    whole = part.value if isinstance(part, ast.Attribute) else None
    if isinstance(whole, ast.Name):
        calls = script.index.calls_by_name.get(whole.id, ())
        if any(isinstance(call.func, ast.Name) for call in calls):
            yield whole


def _inside(script: Script, model: ast.expr) -> ast.expr:
    """`model` for `model.module`, the model in a wrapper; not for `self.module`."""
    if not isinstance(model, ast.Attribute) or model.attr != "module":
        return model
    own = script.resolver.self_name(script.index.scope(model))
    holder = model.value
    return model if isinstance(holder, ast.Name) and holder.id == own else holder


def constructors(script: Script) -> list[ast.Call | None]:
    """The calls that make the trained models, each once; None: one is not known."""
    found = (c for m in trained_models(script) for c in makers(script, m))
    return list(dict.fromkeys(found))


def is_cast_elsewhere(script: Script) -> bool:
    """Whether a function that is given a trained model names a half format.

    `model = parallelize(model)`, which shards it with a `MixedPrecisionPolicy`.
    """
    names = dict.fromkeys(map(dotted, trained_models(script)))
    calls = [c for n in names if n for c in script.index.calls_given.get(n, ())]
    functions = dict.fromkeys(
        f for c in calls for f in script.resolver.calls.callees(c)
    )
    return any(map(names_half, walk(*functions)))


def is_made_in_half(script: Script) -> bool:
    """Whether what makes a trained model leads to half precision for some of it.

    `model, _ = build(config)`, where `build` hands it to what shards it with a policy
    of mixed precision, or has a part of it that is frozen in half: `encoder.half()`.
    """
    made = [call for call in constructors(script) if call is not None]
    around = [script.of(call).index.function(call) for call in made]
    inside = walk(*reached_from(script, made))
    if any(_makes_half(script, c) for c in inside if isinstance(c, ast.Call)):
        return True
    makers = [f for call in made for f in script.resolver.calls.callees(call)]
    makers += [f for f in around if f is not None]
    calls = (c for c in walk(*reached_from(script, makers)) if isinstance(c, ast.Call))
    return any(last_name(call).startswith("MixedPrecision") for call in calls)


def _makes_half(script: Script, call: ast.Call) -> bool:
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr not in ("half", "bfloat16"):
        return False
    return script.of(call).modules.is_module(func.value)


def makers(script: Script, model: ast.expr) -> Iterator[ast.Call | None]:
    """The calls that make a model, moves and wrappers taken off; None: not known."""
    yield from _makers(script, model, set())


def _makers(
    script: Script, model: ast.expr, seen: set[ast.AST]
) -> Iterator[ast.Call | None]:
    origins = script.resolver.origins(model)
    for origin in origins:
        if len(origins) > 1 and _is_unset(script, origin.expression):
            continue  # no other way in the class sets it
        if len(origins) > 1 and _is_saved(script, origin.expression):
            continue  # what another way made, in an earlier run
        inner = wrapped(script, origin.call)
        if origin.node in seen:
            continue  # `self.model = DataParallel(self.model)`
        seen.add(origin.node)
        if inner is None or len(seen) > MAX_STEPS:
            yield origin.call if inner is None else None
        else:
            yield from _makers(script, inner, seen)


def _is_saved(script: Script, node: ast.expr | None) -> bool:
    """Whether a model is read from a checkpoint: `torch.load(path)["model"]`."""
    held = node.value if isinstance(node, ast.Subscript) else node
    if held is None:
        return False
    calls = [origin.call for origin in script.resolver.origins(held)]
    return bool(calls) and all(
        call is not None and script.index.qualified(call.func) == "torch.load"
        for call in calls
    )


def _is_unset(script: Script, node: ast.expr | None) -> bool:
    """Whether what is read is an attribute of an object that does not have it yet.

    So it is on the way round `if kind == "a": self.model = A()`. What bases of other
    packages, `setattr` and `__dict__` set is not known.
    """
    scope = script.index.scope(node) if node is not None else None
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
        return False
    if scope is None or script.resolver.self_name(scope) != node.value.id:
        return False
    owner, text = script.index.owner(node), script.source_of(node).text
    if owner is None or "setattr(" in text or "__dict__" in text:
        return False
    classes = script.resolver.classes.bases(owner)
    bases = [base for known in classes for base in known.bases]
    return all(
        script.resolver.classes.named(base) is not None or dotted(base) == "object"
        for base in bases
    )


def wrapped(script: Script, call: ast.Call | None) -> ast.expr | None:
    """`net` for `net.cuda()` and `DataParallel(net)`; None: it is made here."""
    if call is None:
        return None
    if isinstance(call.func, ast.Attribute) and call.func.attr in _MOVES:
        return call.func.value
    wraps = script.index.qualified(call.func) in _WRAPPERS
    return call.args[0] if wraps and call.args else None
