"""Where a loader goes in other files: who calls what builds it, who iterates it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from gpulint.index import FileIndex, Resolver
from gpulint.index.walk import dotted, walk
from gpulint.script.loading.loader_classes import users
from gpulint.script.loops import iterated

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

MAX_FILES = 15
_HOLDERS = (ast.Dict, ast.List, ast.Tuple, ast.DictComp, ast.ListComp)
MAX_DEPTH = 4
MAX_HANDED = 2  # from a file that has it on to another, and from there
_STEPS = re.compile(r"\.backward\(|no_grad|inference_mode|\.eval\(|\.step\(")
_DATA = re.compile(
    r"loader|data|(^|_)(dl|iter|train|val|valid|test)(_|$)|batches", re.IGNORECASE
)


def files_around(script: Script, loader: Loader) -> tuple[FileIndex, ...]:
    """This file, those that get the loader from it, those they hand it to, and the
    dataset's own.
    """
    found = dict.fromkeys([script.index])
    if script.index.project is not None:
        for user in _users(script.resolver, script.index, loader):
            found[user] = None
        if loader.maker is not None:
            found.update(dict.fromkeys(users(script.resolver, loader.maker)))
        found.update(dict.fromkeys(_of_heirs(script, loader)))
        given = list(found)
        for _ in range(MAX_HANDED):
            given = [to for user in given for to in script.receivers(user)]
            given = [to for to in dict.fromkeys(given) if to not in found]
            found.update(dict.fromkeys(given))
    owner = loader.dataset.owner
    if owner is not None:
        found[script.index.home(owner)] = None
    return tuple(found)[:MAX_FILES]


def _of_heirs(script: Script, loader: Loader) -> list[FileIndex]:
    """Files of the classes that derive from the one whose method builds a loader."""
    owner = script.index.owner(loader.call)
    if owner is None:
        return []
    heirs = script.resolver.outside.descendants(owner)
    return [script.index.home(heir) for heir in islice(heirs, MAX_FILES)]


def _users(resolver: Resolver, index: FileIndex, loader: Loader) -> Iterator[FileIndex]:
    """Files of the functions that call the one in which a loader is built, and those
    that import it from the top of a file.
    """
    todo: list[tuple[ast.AST, int]] = [(loader.call, 0)]
    seen: set[ast.AST] = set()
    for node, depth in todo:
        home = index.home(node)
        function = home.function(node)
        if function is None:
            yield from _importers(home, node)
        if function is None or function in seen or depth > MAX_DEPTH:
            continue
        seen.add(function)
        for call in resolver.calls.callers(function):
            yield index.home(call)
            yield from _given_at_once(resolver, call)
            todo.append((call, depth + 1))
        owner = home.parent(function)
        if isinstance(owner, ast.ClassDef):  # kept on the object, used elsewhere
            todo += [(made, depth + 1) for made in resolver.classes.constructors(owner)]
            yield from map(index.home, resolver.classes.constructors(owner))


def _given_at_once(resolver: Resolver, call: ast.Call) -> Iterator[FileIndex]:
    """The file of the function or class that is given a result: `fit(make(cfg))`.

    Also in a list or dict that is written there: `fit({"train": make(cfg)})`.
    """
    index = resolver.index.home(call)
    above = index.parent(call)
    while isinstance(above, (ast.keyword, *_HOLDERS)):
        above = index.parent(above)
    if isinstance(above, ast.Call) and above.func is not call:
        owner = resolver.classes.named(above.func)
        taking = [owner] if owner is not None else resolver.calls.callees(above)
        yield from map(index.home, taking)


def _importers(home: FileIndex, node: ast.AST) -> Iterator[FileIndex]:
    """Files that import what a statement at the top of a file assigns a value to."""
    if home.project is None:
        return
    for name in sorted(_assigned(home, node)):
        yield from home.project.importers(home, name, name) or ()


def _assigned(home: FileIndex, node: ast.AST) -> set[str]:
    """The names that the statement around a value assigns."""
    above = home.ancestors(node)
    its = next((a for a in above if isinstance(a, ast.Assign | ast.AnnAssign)), None)
    if its is None:
        return set()
    targets = its.targets if isinstance(its, ast.Assign) else [its.target]
    parts = (part for target in targets for part in walk(target))
    return {part.id for part in parts if isinstance(part, ast.Name)}


def handed_to(resolver: Resolver, index: FileIndex) -> Iterator[FileIndex]:
    """Files of the functions and classes that a file gives something like data."""
    for call in _given_data(index):
        owner = resolver.classes.named(call.func)
        for callee in resolver.calls.callees(call) or (
            [owner] if owner is not None else []
        ):
            if not index.holds(callee):
                yield index.home(callee)


def _given_data(index: FileIndex) -> tuple[ast.Call, ...]:
    """The calls of a file that give something like data."""

    def found() -> tuple[ast.Call, ...]:
        return tuple(
            call
            for call in index.all(ast.Call)
            if any(map(_sounds_like_data, call.args))
            or any(_sounds_like_data(k.value) for k in call.keywords)
        )

    project, tree = index.project, index.tree
    return project.remembered("given data", tree, found) if project else found()


def _sounds_like_data(node: ast.expr) -> bool:
    """`loader`, `self.data`, `make_loader(paths)`."""
    named = node.func if isinstance(node, ast.Call) else node
    return _DATA.search((dotted(named) or "").rpartition(".")[2]) is not None


def outside_loops(script: Script, loader: Loader) -> list[Loop]:
    """Loops of other files that iterate a loader, in tests apart."""
    found = []
    for index in loader.files:
        if index is script.index:
            continue
        other = script.of(index.tree)
        steps = index.source.has(_STEPS)
        for loop in () if other.is_test else other.loops:
            if not (steps or loop.train):
                continue
            for iterable, _ in loop.items:
                given = iterated(script.resolver, iterable)
                if any(loader.is_made_by(o.node) for o in given):
                    found.append(loop)
                    break
    return found


def is_shown(script: Script, loader: Loader) -> bool:
    """Whether a module only tries a loader out under its main guard."""
    above = script.index.ancestors(loader.call)
    guards = (a for a in above if isinstance(a, ast.If))
    if not any("__name__" in ast.dump(guard.test) for guard in guards):
        return False
    return bool(loader.loops) and not any(_steps(script, x) for x in loader.loops)


def _steps(script: Script, loop: Loop) -> bool:
    """Whether a loop trains or evaluates, by more than the name of what it iterates."""
    text = script.of(loop.node).source.text
    return loop.train or (loop.eval and _STEPS.search(text) is not None)
