"""Whether the workers of a loader could live on from one epoch to the next."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index.measured import measured
from gpulint.index.walk import dotted, walk
from gpulint.script.loading.changes import dataset_changes
from gpulint.script.loading.loaders import Loader, in_loop

if TYPE_CHECKING:
    from gpulint.index import Function
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

_KEEP_ITERATORS = frozenset(
    "iter cycle itertools.cycle itertools.tee more_itertools.ichunked".split()
)

# How far a training has come, in Lightning's modules and trainers and in others.
_PROGRESS = frozenset({"current_epoch", "global_step"})


def kept_iterator(script: Script, loader: Loader) -> ast.AST | None:
    """Where an iterator of the loader is kept, or two are alive at once."""
    for index in loader.files:
        for name in _KEEP_ITERATORS:
            for call in index.calls.get(name, ()):
                above = index.parent(call)
                once = isinstance(above, ast.Call) and dotted(above.func) == "next"
                if call.args and _is_loader(script, call.args[0], loader) and not once:
                    return call
    for loop in loader.loops:
        mine = [i for i, _ in loop.items if _is_loader(script, i, loader)]
        outer = loop.parent
        while outer is not None:
            mine += [i for i, _ in outer.items if _is_loader(script, i, loader)]
            outer = outer.parent
        if len(mine) > 1:
            return mine[1]
        again = _used_inside(script, loop, loader)
        if again is not None:
            return again
    return None


def _used_inside(script: Script, loop: Loop, loader: Loader) -> ast.AST | None:
    """Where the loader is iterated, or handed on, during a pass over it."""
    for node in walk(*loop.node.body):
        if not isinstance(node, (ast.Name, ast.Attribute)):
            continue
        above = script.index.parent(node)
        if isinstance(above, ast.keyword):
            above = script.index.parent(above)
        if not isinstance(above, ast.Call) or node is above.func:
            continue
        sized = script.index.qualified(above.func) in ("len", "print", "range")
        if not sized and _is_loader(script, node, loader):
            return node
    for other in loader.loops:
        if other.function is None or other is loop:
            continue
        if _runs_inside(script, other.function, loop, 0):
            return other.node
    makes_batches = loop.function is not None and any(
        isinstance(n, (ast.Yield, ast.YieldFrom)) for n in walk(*loop.node.body)
    )
    if makes_batches and loop.function is not None:
        alone = len(script.resolver.calls.callers(loop.function)) == 1
        alone = alone and len(loader.loops) == 1
        return (
            None if alone or _is_used_up(script, loop.function, loader) else loop.node
        )
    return None


def _is_used_up(script: Script, generator: Function, loader: Loader) -> bool:
    """Whether loops iterate each generator at once, as in `for x in log(loader):`."""
    calls = script.resolver.calls.callers(generator)
    given = [c for c in calls if any(_is_loader(script, a, loader) for a in c.args)]
    heads = [
        x.node.iter for x in loader.loops if isinstance(x.node, (ast.For, ast.AsyncFor))
    ]
    return bool(given) and all(
        any(script.index.inside(call, head) for head in heads) for call in given
    )


def _runs_inside(script: Script, function: Function, loop: Loop, depth: int) -> bool:
    """Whether a function may be called from the body of a loop."""
    for call in script.resolver.calls.callers(function):
        if any(script.index.inside(call, s) for s in loop.node.body):
            return True
        caller = script.index.function(call)
        further = caller is not None and caller is not function and depth < 3
        if further and caller and _runs_inside(script, caller, loop, depth + 1):
            return True
    return False


def _is_loader(script: Script, node: ast.expr, loader: Loader) -> bool:
    return any(loader.is_made_by(o.node) for o in script.resolver.origins(node))


def runs_once(script: Script, loader: Loader) -> bool:
    """Whether all loops around those over the loader surely run at most once."""
    counts = []
    for loop in loader.loops:
        outer = loop.parent
        while outer is not None:
            counts.append(at_most_once(script, outer.node))
            outer = outer.parent
    return bool(counts) and all(counts)


def at_most_once(script: Script, loop: ast.AST) -> bool:
    """Whether a loop makes one pass at most: `range(1)`, `range(1, epochs + 1)`."""
    call = getattr(loop, "iter", None)
    if isinstance(call, ast.Call):
        call = measured(script.resolver, call) or call
    if not isinstance(call, ast.Call) or script.index.qualified(call.func) != "range":
        return False
    last = call.args[0] if len(call.args) == 1 else _counted_from(call.args)
    return last is not None and script.evaluator.values(last).all_in(0, 1)


def _counted_from(ends: list[ast.expr]) -> ast.expr | None:
    """The number of passes in `range(1, epochs + 1)`."""
    first, last = ends if len(ends) == 2 else (None, None)
    if not isinstance(first, ast.Constant) or not isinstance(last, ast.BinOp):
        return None
    added = last.right if isinstance(last.op, ast.Add) else None
    same = isinstance(added, ast.Constant) and added.value == first.value
    return last.left if same else None


def built_again(script: Script, loader: Loader) -> bool:
    """Whether the loader itself is built in a loop."""
    return in_loop(script.resolver, loader.call)


def dataset_change(
    script: Script, loader: Loader, loop: ast.AST | None = None
) -> ast.AST | None:
    """Where the script changes the dataset, or a transform of it, after it is made.

    What a loop changes before it builds the loader anew counts only for the given one.

    Workers that live on keep the dataset as it was when they started, and all that
    it holds: the trainer or module, whose state moves on with each epoch.
    """
    given = loader.argument("dataset")
    if dotted(given.direct) == "self":
        return loader.call  # what else happens to the object is not followed
    for origin in (o for n in given.nodes for o in script.resolver.origins(n)):
        made = origin.call
        handed = [*made.args, *(k.value for k in made.keywords)] if made else []
        if any(dotted(argument) == "self" for argument in handed):
            return made
    for node in walk(*loader.dataset.methods):
        if isinstance(node, ast.Attribute) and node.attr in _PROGRESS:
            return node
    return next(iter(dataset_changes(script, loader, loop)), None)
