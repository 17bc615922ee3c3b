"""Whether the workers of a loader could live on from one epoch to the next."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index.walk import dotted, walk
from gpulint.script.loaders import Loader, in_loop

if TYPE_CHECKING:
    from gpulint.script.model import Script

# What may be asked of a dataset every epoch without changing it.
_READS = frozenset(
    "__len__ __getitem__ keys items get index count size copy classes decode "
    "get_labels get_classes tolist".split()
)
_KEEP_ITERATORS = frozenset(
    "iter cycle itertools.cycle itertools.tee more_itertools.ichunked".split()
)


def kept_iterator(script: Script, loader: Loader) -> ast.AST | None:
    """Where an iterator of the loader is kept, or two are alive at once."""
    for name in _KEEP_ITERATORS:
        for call in script.index.calls.get(name, ()):
            if call.args and _is_loader(script, call.args[0], loader):
                return call
    for loop in loader.loops:
        mine = [i for i, _ in loop.items if _is_loader(script, i, loader)]
        outer = loop.parent
        while outer is not None:
            mine += [i for i, _ in outer.items if _is_loader(script, i, loader)]
            outer = outer.parent
        if len(mine) > 1:
            return mine[1]
    return None


def _is_loader(script: Script, node: ast.expr, loader: Loader) -> bool:
    return any(o.node is loader.call for o in script.resolver.origins(node))


def runs_once(script: Script, loader: Loader) -> bool:
    """Whether all loops around those over the loader surely run at most once."""
    counts = []
    for loop in loader.loops:
        outer = loop.parent
        while outer is not None:
            counts.append(_at_most_once(script, outer.node))
            outer = outer.parent
    return bool(counts) and all(counts)


def _at_most_once(script: Script, loop: ast.AST) -> bool:
    call = getattr(loop, "iter", None)
    if not isinstance(call, ast.Call) or script.index.qualified(call.func) != "range":
        return False
    last = call.args[-1] if len(call.args) == 1 else None
    return last is not None and script.evaluator.values(last).all_in(0, 1)


def built_again(script: Script, loader: Loader) -> bool:
    """Whether the loader itself is built in a loop."""
    return in_loop(script.resolver, loader.call)


def dataset_change(script: Script, loader: Loader) -> ast.AST | None:
    """Where the script changes the dataset, or a transform of it, after it is made.

    Workers that live on keep the dataset as it was when they started.
    """
    made = set(_made(script, loader))
    if dotted(loader.argument("dataset").direct) == "self":
        return loader.call  # what else happens to the object is not followed
    for attribute in script.index.all(ast.Attribute):
        stored = not isinstance(attribute.ctx, ast.Load)
        if stored and _is_part(script, attribute.value, loader, made):
            return attribute
    for item in script.index.all(ast.Subscript):
        stored = not isinstance(item.ctx, ast.Load)
        if stored and _is_attribute_of(script, item.value, loader, made):
            return item
    for call in script.index.all(ast.Call):
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr in _READS:
            continue
        if _is_part(script, func.value, loader, made) and _again(script, call):
            return call
    return None


def _again(script: Script, call: ast.Call) -> bool:
    """Whether a call may run after the first epoch: in a loop, or out of sight."""
    function = script.index.function(call)
    known = function is None or function.name == "main"
    if function is not None:
        known = known or bool(script.resolver.callers(function))
    return not known or in_loop(script.resolver, call)


def _made(script: Script, loader: Loader) -> Iterator[ast.AST]:
    """The calls that make the dataset and its transforms."""
    for node in loader.argument("dataset").nodes:
        for origin in script.resolver.origins(node):
            if not isinstance(origin.node, ast.Call):
                continue
            yield origin.node
            for value in [*origin.node.args, *(k.value for k in origin.node.keywords)]:
                for its in script.resolver.origins(value):
                    if isinstance(its.node, ast.Call) and _transforms(script, its.node):
                        yield its.node


def _transforms(script: Script, call: ast.Call) -> bool:
    name = (script.index.qualified(call.func) or "").lower()
    local = script.resolver.local_class(call.func) is not None
    return local or "transform" in name or "compose" in name


def _is_part(
    script: Script, node: ast.expr, loader: Loader, made: set[ast.AST]
) -> bool:
    """Whether an expression is the dataset, its transform, or `loader.dataset`."""
    for part in walk(node):
        if isinstance(part, ast.Attribute) and part.attr == "dataset":
            origins = script.resolver.origins(part.value)
            calls = [o.node for o in origins if isinstance(o.node, ast.Call)]
            if loader.call in calls or not calls:
                return True
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return False
    if not made and dotted(node) == dotted(loader.argument("dataset").direct):
        return True
    return any(o.node in made for o in script.resolver.origins(node))


def _is_attribute_of(
    script: Script, node: ast.expr, loader: Loader, made: set[ast.AST]
) -> bool:
    if isinstance(node, ast.Attribute):
        return _is_part(script, node.value, loader, made)
    return False
