"""Threads that each worker process of a loader starts for itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Function
from gpulint.index.walk import walk
from gpulint.script.loading.loaders import POSITIONS

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.model import Script

SETTER = "torch.set_num_threads"
_ALL = frozenset("os.cpu_count multiprocessing.cpu_count psutil.cpu_count".split())


class WorkerThreads(NamedTuple):
    """A call in what each worker runs; `threads` of None: one for each CPU."""

    call: ast.Call
    threads: int | None
    loader: Loader


def find_worker_threads(script: Script) -> list[WorkerThreads]:
    """The calls by which the workers of a loader take several threads each."""
    found = {}
    for loader in script.loaders:
        for function in _run_by_workers(script, loader):
            for call in walk(function):
                if isinstance(call, ast.Call) and _sets(script, call):
                    threads = _threads(script, call)
                    if threads is None or threads > 1:
                        found[call] = WorkerThreads(call, threads, loader)
    return [item for item in found.values() if item.threads != 0]


def _run_by_workers(script: Script, loader: Loader) -> Iterator[Function]:
    """`worker_init_fn`, and what the dataset does for each sample."""
    given = script.evaluator.argument(
        loader.call, "worker_init_fn", POSITIONS.get("worker_init_fn")
    )
    for node in given.nodes:
        for origin in script.resolver.origins(node):
            made = origin.node
            if isinstance(made, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield made
    owner = loader.dataset.owner
    if owner is not None:
        method = script.resolver.classes.methods(owner).get("__getitem__")
        if method is not None:
            yield method


def _sets(script: Script, call: ast.Call) -> bool:
    index = script.index.home(call)
    return len(call.args) == 1 and index.qualified(call.func) == SETTER


def _threads(script: Script, call: ast.Call) -> int | None:
    """How many threads a call asks for, None for all CPUs, 0 where it is not known."""
    given = call.args[0]
    if isinstance(given, ast.Call):
        name = script.index.home(call).qualified(given.func) or ""
        return None if name in _ALL else 0
    values = script.evaluator.values(given)
    numbers = [v.constant for v in values.known if type(v.constant) is int]
    sure = values.complete and len(numbers) == len(values.known)
    return min(numbers, default=0) if sure else 0
