"""Whether the same loader is iterated again and again: epochs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import Function, Resolver
from gpulint.index.walk import FUNCTIONS, LOOPS, walk
from gpulint.script.branches import branches_of
from gpulint.script.call_modes import Way, may_lead_through
from gpulint.script.loops import iterated
from gpulint.script.runs import holds_runs

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.model import Script

MAX_DEPTH = 4
MAX_SITES = 40
_GOES_ON = re.compile(r"epoch|round|iter|step|cycle|stage|^[a-z_]$", re.IGNORECASE)


def iterated_again(loader: Loader) -> bool:
    """Whether some loop repeats a pass over the loader without building it anew.

    Not for each of several trainings alone: beside these the pass takes no time.
    """
    index = loader.evaluator.index
    sites = built_at(loader)
    return any(
        not any(index.inside(site, around) for site in sites)
        and not _is_of_runs(loader.script.of(around), around)
        for node in _passes(loader)
        for around in _loops_around(loader, node, ())
    )


def _is_of_runs(script: Script, around: ast.AST) -> bool:
    """Whether a loop trains anew in each round: for a seed, a fold, a layer.

    A round of federated learning, in which clients train for an epoch, goes on with it.
    """
    loop = script.loop_at(around)
    if loop is None or any(_GOES_ON.search(t.id) for t in loop.targets):
        return False
    return holds_runs(script, loop)


def _passes(loader: Loader) -> Iterator[ast.AST]:
    """Loops over the loader, and `next(iter(loader))`, which starts a pass too."""
    yield from (loop.node for loop in loader.loops)
    for index in loader.files:
        for call in index.calls.get("next", ()):
            inner = call.args[0] if call.args else None
            if (
                isinstance(inner, ast.Call)
                and index.qualified(inner.func) == "iter"
                and _is_given(loader, inner)
            ):
                yield call


def begun_for_each_batch(loader: Loader) -> bool:
    """`next(iter(loader))` in a training step: a pass, and workers, for a batch."""
    return any(
        isinstance(node, ast.Call) and _is_in_step(loader.script.of(node), node)
        for node in _passes(loader)
    )


def _is_in_step(script: Script, node: ast.AST) -> bool:
    """Whether the loop around a node trains on what it gives, once in each round."""
    loop = script.loop_of(node)
    if loop is None or not loop.train or branches_of(script.index, node, loop.node):
        return False
    if any(isinstance(a, ast.ExceptHandler) for a in script.index.ancestors(node)):
        return False  # where a pass has ended
    return not any(inner.train for inner in script.loops if inner.parent is loop)


def built_at(loader: Loader, most: int = MAX_SITES) -> list[ast.AST]:
    """The call that builds the loader, and the calls that lead to it."""
    resolver, index = loader.evaluator.resolver, loader.evaluator.index
    found: list[ast.AST] = [loader.call]
    for site in found:
        function = index.function(site)
        if function is not None and len(found) < most:
            found += [c for c in resolver.calls.callers(function) if c not in found]
    return found


def _loops_around(
    loader: Loader, node: ast.AST, ways: tuple[Way, ...]
) -> Iterator[ast.AST]:
    """Loops around a node, here and where its function is called with the loader.

    A loop over what a generator makes of the loader calls it once: it is the pass.
    `ways`: the calls that lead from a node to the pass, the last one first.
    """
    resolver, index = loader.evaluator.resolver, loader.evaluator.index
    child = node
    for above in index.ancestors(node):
        head, child = _head(above) is child, above
        if isinstance(above, LOOPS) and not head and not _takes_each(above, node):
            yield above
        if not isinstance(above, FUNCTIONS):
            continue
        if isinstance(above, ast.Lambda) or len(ways) > MAX_DEPTH:
            return
        if index.inside(loader.call, above):
            return  # each call builds a new one
        calls = [
            c for f in overridden(resolver, above) for c in resolver.calls.callers(f)
        ]
        mine = [call for call in calls if _is_given(loader, call)]
        taken = node if ways else _taken_at(loader, node)
        for call in mine or calls:
            on = (*ways, Way(taken, above, call))
            if may_lead_through(loader.script, on):
                yield from _loops_around(loader, call, on)
        return


def _taken_at(loader: Loader, node: ast.AST) -> ast.AST:
    """Where the name gets the loader that a loop goes over: in a branch, if one does.

    `data = self.test_loader`, behind `if mode == "test":`.
    """
    over, resolver = _head(node), loader.evaluator.resolver
    names = [n for n in walk(*filter(None, [over])) if isinstance(n, ast.Name)]
    given = [
        definition.node
        for name in names
        for definition in resolver.definitions(name)
        if definition.value is not None
        if any(loader.is_made_by(o.node) for o in resolver.origins(definition.value))
    ]
    return given[0] if len(given) == 1 else node


def _takes_each(loop: ast.AST, inner: ast.AST) -> bool:
    """`for phase in ("train", "val")`, around a loop over `loaders[phase]`."""
    taken = _head(inner)
    if not isinstance(loop, ast.For) or not isinstance(loop.target, ast.Name):
        return False
    if not isinstance(loop.iter, (ast.List, ast.Tuple)) or taken is None:
        return False
    return any(
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Name)
        and node.slice.id == loop.target.id
        for node in walk(taken)
    )


def _head(loop: ast.AST) -> ast.expr | None:
    """What a `for` loop iterates, which is evaluated once."""
    return loop.iter if isinstance(loop, (ast.For, ast.AsyncFor)) else None


def overridden(resolver: Resolver, method: Function) -> list[Function]:
    """A function, and the methods of base classes that it stands for when called."""
    owner = resolver.index.parent(method)
    if not isinstance(owner, ast.ClassDef):
        return [method]
    return [method] + [
        item
        for base in resolver.classes.bases(owner)[1:]
        for item in base.body
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))
        and item.name == method.name
    ]


def _is_given(loader: Loader, call: ast.Call) -> bool:
    resolver = loader.evaluator.resolver
    values = [*call.args, *(k.value for k in call.keywords)]
    return any(loader.is_made_by(o.node) for v in values for o in iterated(resolver, v))
