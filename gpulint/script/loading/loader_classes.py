"""Classes that derive from DataLoader: where their loaders get their options."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.index import FileIndex, Function, Resolver
from gpulint.index.build import last_name
from gpulint.index.walk import dotted, walk

LOADER = "torch.utils.data.DataLoader"
SUFFIX = "DataLoader"
_OPTIONS = frozenset("num_workers pin_memory persistent_workers".split())
# A class with one of these passes over its samples in a way of its own.
_OWN_WAYS = _OPTIONS | {"__iter__", "__next__", "_get_iterator", "__new__"}
_NEUTRAL = frozenset("Generic ABC object Protocol".split())


def constructions(resolver: Resolver) -> Iterator[ast.Call]:
    """A file's calls of classes that hand all arguments on to DataLoader."""
    calls = resolver.index.calls_by_name
    for name in [n for n in calls if n.endswith(SUFFIX)]:
        for call in calls[name]:
            owner = resolver.classes.named(call.func)
            if owner is not None and _is_plain(resolver, owner):
                inits = _inits(resolver, owner)
                if all(map(_hands_on, inits)):
                    yield call


def calls_of_base(resolver: Resolver) -> Iterator[tuple[ast.Call, ast.ClassDef]]:
    """A file's `super().__init__(…)` that give a DataLoader its options."""
    for owner in resolver.index.all(ast.ClassDef):
        bases = [resolver.index.qualified(b) for b in owner.bases]
        if LOADER not in bases or not _is_plain(resolver, owner):
            continue
        for init in _inits(resolver, owner)[:1]:
            call = _call_of_base(init)
            if call is not None and not _takes_more(init, call):
                yield call, owner


def builds(resolver: Resolver, call: ast.Call, owner: ast.ClassDef) -> bool:
    """Whether a call makes an object of a class, by its name or a text that names it.

    `init(config, module)` looks a class up in a module that it is given.
    """
    made = resolver.classes.named(call.func)
    if made is not None:
        return owner in resolver.classes.bases(made)
    given = [*call.args, *(k.value for k in call.keywords)]
    if isinstance(call.func, ast.Call) and last_name(call.func) == "getattr":
        given = call.func.args[:1]
    modules = [m for g in given for m in _modules(resolver, g)]
    if not modules:
        return False
    its = [owner, *resolver.outside.subclasses(owner)]
    return any(resolver.index.home(c) in modules for c in its)


def users(resolver: Resolver, owner: ast.ClassDef) -> Iterator[FileIndex]:
    """Files that import a class, one derived from it, or the module of either."""
    for its in [owner, *resolver.outside.subclasses(owner)]:
        home = resolver.index.home(its)
        yield home
        if home.project is not None:
            yield from home.project.importers(home, its.name, "") or ()


def _modules(resolver: Resolver, node: ast.expr) -> Iterator[FileIndex]:
    """The modules of this project that a name stands for."""
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return
    for definition in resolver.definitions(node):
        target = resolver.imported(definition)
        if target is not None and not target[1]:
            yield target[0]


def _is_plain(resolver: Resolver, owner: ast.ClassDef) -> bool:
    """Whether a class is a DataLoader that iterates as DataLoader does."""
    family = resolver.classes.bases(owner)
    names = {
        resolver.index.qualified(base) or ""
        for current in family
        for base in current.bases
        if resolver.classes.named(base) is None and not isinstance(base, ast.Subscript)
    }
    others = {n for n in names if n.rpartition(".")[2] not in _NEUTRAL}
    return others == {LOADER} and not any(_has_own_ways(c) for c in family)


def _has_own_ways(owner: ast.ClassDef) -> bool:
    """Whether a class overrides how samples are fetched, or sets options later."""
    for item in owner.body:
        if not isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if item.name in _OWN_WAYS:
            return True
        call = _call_of_base(item) if item.name == "__init__" else None
        for node in walk(*item.body):
            if isinstance(node, ast.Attribute) and node.attr in _OPTIONS:
                later = call is None or node.lineno >= call.lineno
                if isinstance(node.ctx, ast.Store) and later:
                    return True
    return False


def _inits(resolver: Resolver, owner: ast.ClassDef) -> list[Function]:
    """The `__init__` of a class and of its bases in this project, its own first."""
    return [
        item
        for current in resolver.classes.bases(owner)
        for item in current.body
        if isinstance(item, ast.FunctionDef) and item.name == "__init__"
    ]


def _call_of_base(init: Function) -> ast.Call | None:
    """The one `super().__init__(…)` of a method."""
    found = [
        node
        for node in walk(*init.body)
        if isinstance(node, ast.Call)
        and last_name(node) == "__init__"
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Call)
        and last_name(node.func.value) == "super"
    ]
    return found[0] if len(found) == 1 else None


def _hands_on(init: Function) -> bool:
    """`def __init__(self, *args, **kwargs): super().__init__(*args, **kwargs)`."""
    args, call = init.args, _call_of_base(init)
    named = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    if call is None or len(named) != 1 or args.vararg is None or args.kwarg is None:
        return False
    given = [a.value for a in call.args if isinstance(a, ast.Starred)]
    given += [k.value for k in call.keywords if k.arg is None]
    if len(given) != 2 or len(call.args) + len(call.keywords) != 2:
        return False
    wanted = [args.vararg.arg, args.kwarg.arg]
    read = [n for n in walk(*init.body) if isinstance(n, ast.Name) and n.id in wanted]
    return [dotted(g) for g in given] == wanted and len(read) == 2


def _takes_more(init: Function, call: ast.Call) -> bool:
    """Whether a method hands on `*args` or `**kwargs` of its own."""
    open_ended = [a.arg for a in (init.args.vararg, init.args.kwarg) if a is not None]
    read = (n.id for n in walk(*init.body) if isinstance(n, ast.Name))
    starred = any(isinstance(a, ast.Starred) for a in call.args)
    return starred or any(name in open_ended for name in read)
