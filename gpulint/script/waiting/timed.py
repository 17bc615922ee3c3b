"""Loops that measure time: what waits in them is what they are for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.walk import dotted, walk, walk_scope
from gpulint.script.reaching.doubtful import may_never_run

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

_CLOCKS = re.compile(r"^time\.(time|perf_counter|monotonic|process_time)(_ns)?$")


def is_timed(script: Script, loop: Loop) -> bool:
    """Whether a loop measures time, by a function such as `time_synchronized()` too."""
    names = [(dotted(c.func) or "").rpartition(".")[2] for c in loop.calls]
    own = any(name.startswith("time_sync") for name in names)
    return own or measures_time(script, list(loop.calls))


def measures_time(script: Script, calls: list[ast.Call]) -> bool:
    """Whether a loop measures time around `synchronize()`, or a helper does both.

    By a clock, or by events of the device. A helper's call behind a switch that is off
    by default counts for nothing.
    """
    if _reads_clock(script, calls):
        return True
    helpers = dict.fromkeys(map(script.resolver.calls.callee, calls))
    entered = (method for call in calls for method in _entered(script, call))
    return any(
        _measures(script.of(helper), helper)
        for helper in (*helpers, *entered)
        if helper is not None
    )


def _entered(script: Script, call: ast.Call) -> Iterator[Function]:
    """What runs at both ends of `with Timer("forward"):`, a class of the program's."""
    if not isinstance(script.index.parent(call), ast.withitem):
        return
    owner = script.resolver.classes.named(call.func)
    methods = script.resolver.classes.methods(owner) if owner is not None else {}
    yield from (methods[n] for n in ("__enter__", "__exit__") if n in methods)


def ends_measure(script: Script, loop: Loop, wait: ast.AST) -> bool:
    """Whether a step takes its own time around a wait: `start = time.time()` before it.

    Both times are read in each round, and the wait is what makes the measure one of the
    device's work.
    """
    inner = wait
    for above in script.index.ancestors(wait):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(above, name, None)
            if not isinstance(block, list) or inner not in block:
                continue
            if _is_measured(script, block, block.index(inner)):
                return True
        if above is loop.node:
            break
        inner = above
    return False


def _is_measured(script: Script, block: list[ast.stmt], at: int) -> bool:
    """Whether a clock is read before a statement of a block, and again behind it."""
    taken = {
        target.id
        for statement in block[:at]
        if isinstance(statement, ast.Assign) and is_clock(script, statement.value)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    behind = [node for statement in block[at:] for node in walk(statement)]
    return any(is_clock(script, node) for node in behind) and any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Sub)
        and isinstance(node.right, ast.Name)
        and node.right.id in taken
        for node in behind
    )


def starts_measure(script: Script, call: ast.Call, loop: Loop) -> bool:
    """`start = time.time()` in a loop that takes `time.time() - start` further down."""
    above = script.index.parent(call)
    target = above.targets[0] if isinstance(above, ast.Assign) else None
    if not is_clock(script, call) or not isinstance(target, ast.Name):
        return False
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Sub)
        and isinstance(node.right, ast.Name)
        and node.right.id == target.id
        and node.lineno > call.lineno
        for node in walk(loop.node)
    )


def is_clocked(script: Script, loop: Loop) -> bool:
    """Whether rounds over no batches are timed together, as a benchmark does.

    `time.time()` stands right behind the loop, which may be there to warm up.
    """
    if loop.batches:
        return False
    home = script.index.parent(loop.node)
    for name in ("body", "orelse", "finalbody"):
        block = getattr(home, name, None)
        if isinstance(block, list) and loop.node in block:
            behind = block[block.index(loop.node) + 1 :][:1]
            return any(is_clock(script, node) for node in walk(*behind))
    return False


def is_clock(script: Script, node: ast.AST) -> bool:
    """`time.time()` and its kin."""
    name = script.index.qualified(node.func) if isinstance(node, ast.Call) else None
    return _CLOCKS.match(name or "") is not None


def _measures(script: Script, helper: Function) -> bool:
    calls = [node for node in walk_scope(helper) if isinstance(node, ast.Call)]
    return _reads_clock(script, calls) and _reads_clock(
        script, [call for call in calls if not may_never_run(script, call)]
    )


def _reads_clock(script: Script, calls: Iterable[ast.Call]) -> bool:
    """A clock beside `synchronize()`, or events, which must be over to be asked.

    Whatever the host waits for before `start.elapsed_time(end)` is needed there.
    """
    calls = list(calls)
    names = [script.index.qualified(c.func) or dotted(c.func) or "" for c in calls]
    if any(map(_asks_event, calls)):
        return True
    waits = any(n.rpartition(".")[2] == "synchronize" for n in names)
    return waits and any(map(_CLOCKS.match, names))


def _asks_event(call: ast.Call) -> bool:
    """`start.elapsed_time(end)`; a timer of the program's own is asked for nothing."""
    asks = isinstance(call.func, ast.Attribute) and call.func.attr == "elapsed_time"
    return asks and len(call.args) == 1
