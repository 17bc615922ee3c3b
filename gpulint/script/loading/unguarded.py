"""Loaders whose workers would start the script itself again."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.index.walk import dotted, walk
from gpulint.script.loading.worker_state import main_guard
from gpulint.source import NOTEBOOK

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

MAX_DEPTH = 4
_STARTS = frozenset("set_start_method get_context set_forkserver_preload".split())
_NOTEBOOK = re.compile(r"^# ?(%%|In ?\[|COMMAND -)|get_ipython\(", re.MULTILINE)


def unguarded_pass(script: Script, loader: Loader) -> Loop | None:
    """The loop over a loader that runs when a worker imports the script."""
    notebook = script.source.path.suffix == NOTEBOOK
    if notebook or script.source.has(_NOTEBOOK) or _chooses_start(script):
        return None
    if _chooses_context(loader) or not _on_import(script, loader.call):
        return None
    return next((x for x in loader.here if _on_import(script, x.node)), None)


def has_workers(loader: Loader) -> bool:
    """Whether a loader has workers, unless a user says otherwise."""
    nodes = loader.argument("num_workers").nodes
    numbers = [v.constant for v in loader.values("num_workers").known]
    if any(type(n) is int and n > 0 for n in numbers):
        return all(type(n) is int and n > 0 for n in numbers)
    return any(asks_for_cpus(loader, node) for node in nodes)


def asks_for_cpus(loader: Loader, node: ast.expr) -> bool:
    """Whether a number is what the machine has: `os.cpu_count()`."""
    origins = loader.evaluator.resolver.origins(node)
    return bool(origins) and all(
        o.call is not None
        and (dotted(o.call.func) or "").rpartition(".")[2] == "cpu_count"
        for o in origins
    )


def _chooses_start(script: Script) -> bool:
    """Whether the script decides itself how processes start."""
    return not _STARTS.isdisjoint(script.index.calls_by_name)


def _chooses_context(loader: Loader) -> bool:
    """Whether a loader may say itself how its processes start."""
    name = "multiprocessing_context"
    if loader.decided_by_runtime:
        calls = (node for node in walk(loader.call) if isinstance(node, ast.Call))
        return any(k.arg == name for call in calls for k in call.keywords)
    return not loader.argument(name).absent


def _on_import(script: Script, node: ast.AST, depth: int = 0) -> bool:
    """Whether a node runs when the file is imported, under whatever name."""
    if main_guard(script, node) is not None:
        return False
    function = script.index.function(node)
    if function is None:
        return not any(isinstance(a, ast.Lambda) for a in script.index.ancestors(node))
    if depth >= MAX_DEPTH:
        return False
    callers = script.resolver.calls.callers(function)
    return any(
        script.index.holds(call) and _on_import(script, call, depth + 1)
        for call in callers
    )
