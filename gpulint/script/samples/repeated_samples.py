"""Iterable datasets of which every worker process yields all samples."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.walk import dotted, walk
from gpulint.script.loading.illegal_options import iterable_classes, number_of_workers
from gpulint.script.samples.reachable import reachable

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.model import Script

_SHARES = re.compile(
    r"worker|shard|rank|world|replica|islice|process_(index|id)|split_|partition|"
    r"getpid|queue|stride",
    re.IGNORECASE,
)
_DRAWS = re.compile(r"random|(^|\.|_)rng(\.|_|$)|generator|\.rand", re.IGNORECASE)
_ORDERS = frozenset("shuffle permutation randperm seed manual_seed".split())
_SOURCES = frozenset(
    "open range sorted list zip enumerate glob listdir walk scandir iglob reader "
    "DictReader loadtxt load read_csv arange iterrows itertuples items values keys "
    "tolist reversed tqdm splitlines readlines map iter_lines".split()
)


def repeats_samples(script: Script, loader: Loader) -> tuple[int, Function] | None:
    """The number of workers that each yield all samples, and the `__iter__`.

    None where it is not certain: samples that are drawn at random differ between
    workers, and what is iterated may share itself out, as streams of libraries do.
    """
    number = number_of_workers(loader)
    owners = iterable_classes(script, loader) if number and number > 1 else []
    if number is None or len(set(owners)) != 1 or _set_up(loader):
        return None
    entry = script.resolver.classes.methods(owners[0]).get("__iter__")
    if entry is None or any(map(_asks_who, script.resolver.classes.bases(owners[0]))):
        return None
    bodies = reachable(entry, script.evaluator)
    if any(map(_asks_who, bodies)) or any(map(_differs, bodies)):
        return None
    sources = list(_iterated(bodies))
    known = bool(sources) and all(_is_plain(script, s) for s in sources)
    return (number, entry) if known else None


def _set_up(loader: Loader) -> bool:
    """Whether a `worker_init_fn` may give each worker its part."""
    argument = loader.argument("worker_init_fn")
    if argument.absent:
        return False
    return not (argument.given and loader.values("worker_init_fn").all_in(None))


def _asks_who(node: ast.AST) -> bool:
    """Whether code names workers, ranks or shards."""
    return any(_SHARES.search(word) for word in _words(node))


def _words(node: ast.AST) -> Iterator[str]:
    for part in walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr
        elif isinstance(part, ast.arg):
            yield part.arg
        elif isinstance(part, (ast.FunctionDef, ast.ClassDef)):
            yield part.name


def _differs(function: Function) -> bool:
    """Whether each worker draws other samples, or goes on and on in an own order."""
    parts = list(walk(*function.body))
    names = [dotted(p.func) or "" for p in parts if isinstance(p, ast.Call)]
    orders = [n for n in names if n.rpartition(".")[2] in _ORDERS]
    if any(_DRAWS.search(n) for n in names if n not in orders):
        return True
    return bool(orders) and any(isinstance(p, ast.While) for p in parts)


def _iterated(bodies: tuple[Function, ...]) -> Iterator[ast.expr]:
    """What `__iter__` and its helpers take samples from."""
    for function in bodies:
        for node in walk(*function.body):
            if isinstance(node, (ast.For, ast.AsyncFor)):
                yield node.iter
            elif isinstance(node, ast.YieldFrom):
                yield node.value
            elif isinstance(node, ast.Return):
                yield from _handed_out(node)


def _handed_out(node: ast.Return) -> list[ast.expr]:
    """`x` of `return iter(x)`."""
    call = node.value
    if isinstance(call, ast.Call) and dotted(call.func) == "iter":
        return call.args[:1]
    return []


def _is_plain(script: Script, node: ast.expr, depth: int = 0) -> bool:
    """Whether each process that iterates something is given all of it."""
    if isinstance(node, (ast.List, ast.Tuple, ast.ListComp, ast.Dict, ast.Set)):
        return True
    if isinstance(node, ast.Call):
        return _gives_all(script, node)
    if not isinstance(node, (ast.Name, ast.Attribute)) or depth > 4:
        return False
    origins = [o.node for o in script.resolver.origins(node)]
    return all(
        made is not node
        and isinstance(made, ast.expr)
        and _is_plain(script, made, depth + 1)
        for made in origins
    )


def _gives_all(script: Script, call: ast.Call) -> bool:
    callee = script.resolver.calls.callee(call)
    if callee is not None:
        return any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in walk(callee))
    name = (dotted(call.func) or "").rpartition(".")[2]
    if not name and isinstance(call.func, ast.Attribute):
        name = call.func.attr
    return name in _SOURCES
