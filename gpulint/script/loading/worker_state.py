"""What worker processes would not share with the training process."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import Definition, FileIndex
from gpulint.index.walk import dotted, walk, whole_of
from gpulint.script.loading.changes import dataset_changes, everywhere
from gpulint.script.loading.loaders import Loader, in_loop
from gpulint.script.reaching.failures import fails
from gpulint.script.samples.albumentations_draws import REPEATS, repeats_draws
from gpulint.script.samples.lasting_changes import changed_by

if TYPE_CHECKING:
    from gpulint.script.model import Script

# Ask no other object than themselves for random numbers, and only when they start.
_SAMPLERS = ("torch.utils.data.",)
_EPOCHS = frozenset({"set_epoch"})


def why_not_shared(script: Script, loader: Loader) -> str | None:
    """Why samples of workers would differ from those of the training process."""
    dataset = loader.dataset
    if dataset.gradients is not None:
        return "samples require gradients, which workers cannot hand over"
    if dataset.unpicklable is not None:
        text = script.text(dataset.unpicklable).splitlines()[0]
        return f"the dataset holds `{text}`, which cannot be sent to spawned workers"
    for name, definitions in _variables(script, loader):
        if any(main_guard(script, d.node) is not None for d in definitions):
            return f"samples read `{name}`, which exists only under the main guard"
    changing = changing_variable(script, loader)
    if changing is not None:
        return (
            f"samples read `{changing}`, which changes while workers have a copy of it"
        )
    starts = _cannot_start(script, loader)
    if starts is not None:
        return f"`{starts}` raises an error, and is called where there are workers"
    if repeats_draws(script):
        return REPEATS
    for change in dataset_changes(script, loader):
        if _during_an_epoch(script, change, loader):
            text = script.text(change).splitlines()[0]
            return f"`{text}` changes the dataset while workers read ahead"
    for name in ("sampler", "batch_sampler"):
        steered = _steered(script, loader, name)
        if steered is not None:
            text = script.text(steered).splitlines()[0]
            return f"`{text}` steers the {name} while workers read ahead"
    return None


def _cannot_start(script: Script, loader: Loader) -> str | None:
    """A `worker_init_fn` that fails, which nobody has met without workers."""
    for node in loader.argument("worker_init_fn").nodes:
        for origin in script.resolver.origins(node):
            function = origin.node
            if isinstance(function, ast.FunctionDef) and fails(script, function, 1):
                return function.name
    return None


def _variables(
    script: Script, loader: Loader
) -> Iterator[tuple[str, list[Definition]]]:
    """Global names that samples and batches read, with their definitions."""
    seen: set[str] = set()
    for node in walk(*loader.dataset.methods, *_collating(script, loader)):
        if not isinstance(node, ast.Name) or node.id in seen:
            continue
        if isinstance(script.index.scope(node), ast.Module):
            continue
        seen.add(node.id)
        reached = script.resolver.definitions(node)
        top = [d for d in reached if _is_top(script, d.node)]
        if top:
            yield node.id, top


def _is_top(script: Script, node: ast.AST) -> bool:
    return isinstance(script.index.scope(node), ast.Module)


def _collating(script: Script, loader: Loader) -> Iterator[ast.AST]:
    """The functions of this project that put batches together."""
    for node in loader.argument("collate_fn").nodes:
        for origin in script.resolver.origins(node):
            if isinstance(origin.node, (ast.FunctionDef, ast.Lambda)):
                yield origin.node
            elif origin.call is not None:
                owner = script.resolver.classes.named(origin.call.func)
                methods = (
                    script.resolver.classes.methods(owner) if owner is not None else {}
                )
                yield from methods.values()


def changing_variable(script: Script, loader: Loader) -> str | None:
    """A global variable that samples read and that changes in a loop or function."""
    for name, definitions in _variables(script, loader):
        home = script.index.home(definitions[0].node)
        if not any(d.kind == "assign" for d in definitions):
            continue
        if home not in script.changed_names:
            script.changed_names[home] = _changed_names(script, home)
        for change in script.changed_names[home].get(name, ()):
            if in_loop(script.resolver, change) or script.index.function(change):
                return name
    return None


def _changed_names(script: Script, home: FileIndex) -> dict[str, list[ast.AST]]:
    """Where variables are set again or changed in place, by the name at the root."""
    found: dict[str, list[ast.AST]] = {}
    kinds = (ast.Assign, ast.AugAssign, ast.Delete, ast.Call)
    for kind in kinds:
        for node in home.all(kind):
            targets = changed_by(node, script.evaluator)
            if isinstance(node, ast.Assign):
                targets += [
                    p
                    for p in walk(*node.targets)
                    if isinstance(p, ast.Name) and isinstance(p.ctx, ast.Store)
                ]
            for target in targets:
                root = whole_of(target)
                if isinstance(root, ast.Name) and _is_global(script, root):
                    found.setdefault(root.id, []).append(node)
    return found


def _is_global(script: Script, name: ast.Name) -> bool:
    scope = script.index.scope(name)
    if isinstance(scope, ast.Module):
        return True
    flow = script.resolver.flow(scope)
    return name.id in flow.outer or name.id not in flow.definitions


def main_guard(script: Script, node: ast.AST) -> ast.If | None:
    """The `if __name__ == "__main__":` that a node stands under."""
    for above in script.index.ancestors(node):
        if isinstance(above, ast.If) and any(
            dotted(n) == "__name__" for n in walk(above.test)
        ):
            return above
        if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return None
    return None


def _during_an_epoch(script: Script, node: ast.AST, loader: Loader) -> bool:
    """Whether a node may run while the loader is iterated."""
    if not loader.loops:
        return True
    if any(script.index.inside(node, loop.node) for loop in loader.loops):
        return True
    function = script.index.function(node)
    if function is None or any(loop.function is function for loop in loader.loops):
        return False
    callers = script.resolver.calls.callers(function)
    return not callers or any(
        script.index.inside(call, loop.node)
        for call in callers
        for loop in loader.loops
    )


def _steered(script: Script, loader: Loader, name: str) -> ast.AST | None:
    """Where the script changes a sampler in a loop over its loader."""
    nodes = loader.argument(name).nodes
    made = {o.node for n in nodes for o in script.resolver.origins(n)}
    if not made:
        return None
    for attribute in everywhere(loader, ast.Attribute):
        called = isinstance(script.index.parent(attribute), ast.Call)
        changes = not isinstance(attribute.ctx, ast.Load) or called
        if not changes or attribute.attr in _EPOCHS:
            continue
        within = any(script.index.inside(attribute, x.node) for x in loader.loops)
        its = script.resolver.origins(attribute.value) if within else ()
        if any(o.node in made for o in its):
            return attribute
    return None


def draws_alike(script: Script, loader: Loader) -> bool:
    """Whether a loader draws its order at the same time with and without workers.

    Workers ask for their first batches at once. Where the loader is not iterated by a
    loop of its own, other draws may have come in between before.
    """
    for name in ("sampler", "batch_sampler"):
        for node in loader.argument(name).nodes:
            if not _is_of_torch(script, node):
                return False
    plain = loader.argument("sampler").absent and loader.argument("shuffle").absent
    if plain or loader.values("shuffle").all_in(False):
        return True
    if not loader.loops or loader.argument("batch_sampler").given:
        return False
    for call in everywhere(loader, ast.Call):
        name = script.index.qualified(call.func) or ""
        if name in ("iter", "next", "zip", "itertools.cycle") and any(
            loader.is_made_by(o.node)
            for a in call.args
            for o in script.resolver.origins(a)
        ):
            return False
    return True


def _is_of_torch(script: Script, node: ast.expr) -> bool:
    made = script.resolver.origins(node)
    return bool(made) and all(
        o.call is not None
        and (script.index.qualified(o.call.func) or "").startswith(_SAMPLERS)
        for o in made
    )
