"""Training loops that are trials: a few steps, or what is taken back behind them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gpulint.index.build import last_name
from gpulint.index.walk import dotted, walk, walk_scope
from gpulint.script.training.step_calls import optimizers_of

if TYPE_CHECKING:
    from gpulint.index import Definition, FileIndex
    from gpulint.index.resolve import Resolver
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

FEW = 16  # steps
TRIED = 5  # steps of a training that only shows that it runs
MEASURED = 500  # and of one that only shows what it costs, or how a model is used
_SHOWS = re.compile(
    r"^(?!.*(train|fit))(.*_)?(examples?|demos?|usage|sanity|smoke)(_|$)"
)
_CLOCKS = ("time.time", "time.perf_counter", "time.monotonic", "time.perf_counter_ns")
_REACHES = (ast.Gt, ast.GtE, ast.Eq)


def is_trial(resolver: Resolver, loop: Loop) -> bool:
    """Whether a loop ends after a few steps, or the optimizer is put back behind it.

    So do searches for a learning rate, and estimates of gradients before training.
    """
    return _is_taken_back(resolver.index, loop) or _ends_soon(resolver, loop, loop)


def trains_little(script: Script, loop: Loop) -> bool:
    """Whether a training is over after a few steps, or shows what its steps cost.

    Those of all its passes: what counts them starts again in none.
    """
    called = (
        script.resolver.calls.callers(loop.function)
        if loop.function is not None
        else ()
    )
    if any(script.of(call).loops_around(call) for call in called):
        return False
    whole = loop
    while whole.parent is not None:
        whole = whole.parent
    if not loop.backward:
        return False
    if _ends_soon(script.resolver, loop, whole) or measures(script, loop):
        return True
    if not loop.batches and _makes_optimizer(script, loop):
        shown = _SHOWS.search(getattr(loop.function, "name", ""))
        return _is_short(script, loop, MEASURED if shown else FEW)
    return (loop.function is None or bool(called)) and _is_short(script, loop)


def _makes_optimizer(script: Script, loop: Loop) -> bool:
    """Whether its function makes the optimizer: a run of its own, whoever calls it."""
    function = loop.function
    return function is not None and any(
        script.index.inside(made, function) for made in optimizers_of(script.index)
    )


def measures(script: Script, loop: Loop) -> bool:
    """Whether each of some hundred steps waits for the device and reads the time twice.

    Other settings would no longer show what the training costs that is measured.
    """
    if not _is_short(script, loop, MEASURED):
        return False
    calls = [c for c in walk(*loop.node.body) if isinstance(c, ast.Call)]
    names = [script.index.qualified(call.func) or "" for call in calls]
    waits = sum(name.endswith("cuda.synchronize") for name in names)
    return waits > 1 and sum(name in _CLOCKS for name in names) > 1


def _is_short(script: Script, loop: Loop, most: int = TRIED) -> bool:
    """`for step in range(args.steps)`, of 2 steps where nothing else is asked for."""
    rounds = _rounds(getattr(loop.node, "iter", None))
    if loop.parent is not None or rounds is None:
        return False
    if any(script.loop_of(call) is not loop for call in loop.backward):
        return False  # an epoch, or its step is elsewhere
    values = script.evaluator.values(rounds)
    numbers = [value.constant for value in values.known]
    meant = values.complete or all(value.default for value in values.known)
    few = all(type(number) is int and 0 < number <= most for number in numbers)
    return meant and few and bool(numbers)


def _rounds(over: ast.expr | None) -> ast.expr | None:
    """What says the number of rounds: `range(n)`, `range(first, first + n)`."""
    if isinstance(over, ast.NamedExpr):
        over = over.value  # `(bar := trange(n))`
    if not isinstance(over, ast.Call):
        return None
    if dotted(over.func) != "range" and last_name(over) != "trange":
        return None
    if len(over.args) != 2:
        return over.args[0] if len(over.args) == 1 else None
    first, last = over.args
    if not isinstance(last, ast.BinOp) or not isinstance(last.op, ast.Add):
        return None
    return last.right if ast.dump(last.left) == ast.dump(first) else None


def _ends_soon(resolver: Resolver, loop: Loop, whole: Loop) -> bool:
    def is_few(limit: ast.expr) -> bool:
        given = [o.expression for o in resolver.origins(limit)]
        return bool(given) and all(
            isinstance(node, ast.Constant)
            and type(node.value) is int
            and 0 < node.value <= FEW
            for node in given
        )

    return stops_after(resolver, loop, is_few, whole)


def _is_taken_back(index: FileIndex, loop: Loop) -> bool:
    """`kept = optimizer.state_dict()` before, `optimizer.load_state_dict` behind."""
    function = index.function(loop.node)
    if function is None:
        return False
    end = loop.node.end_lineno or loop.node.lineno
    calls = [n for n in walk_scope(function) if isinstance(n, ast.Call)]
    saved = [c for c in calls if c.lineno < loop.node.lineno]
    restored = [c for c in calls if c.lineno > end]
    return not _with(loop.steps, "step").isdisjoint(
        _with(saved, "state_dict") & _with(restored, "load_state_dict")
    )


def _with(calls: Iterable[ast.Call], method: str) -> set[str]:
    """The names of which a method is called."""
    funcs = [c.func for c in calls]
    held = [f.value for f in funcs if isinstance(f, ast.Attribute) and f.attr == method]
    return {name for name in map(dotted, held) if name is not None}


# Loops that stop after some steps


def stops_after(
    resolver: Resolver,
    loop: Loop,
    is_few: Callable[[ast.expr], bool],
    whole: Loop | None = None,
) -> bool:
    """Whether each iteration counts and asks `if number >= limit: break`.

    `is_few`: what limits are meant; `whole`: the loop around, in all of whose passes
    the iterations are counted, if not in each.
    """
    whole = whole or loop
    return any(
        isinstance(branch, ast.If)
        and isinstance(branch.body[-1], (ast.Break, ast.Return))
        and _reaches(resolver, branch.test, loop, is_few, whole)
        for branch in loop.node.body
    )


def _reaches(
    resolver: Resolver,
    test: ast.expr,
    loop: Loop,
    is_few: Callable[[ast.expr], bool],
    whole: Loop,
) -> bool:
    """`number >= limit`, also beside `limit is not None`; not beside `args.debug`."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        found = [t for t in test.values if _reaches(resolver, t, loop, is_few, whole)]
        asked = {dotted(n) for t in found for n in walk(t)} - {None}
        others = [t for t in test.values if t not in found]
        return bool(found) and all(
            any(dotted(n) in asked for n in walk(other)) for other in others
        )
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], _REACHES):
        return False
    names = [n for n in walk(test.left) if isinstance(n, ast.Name)]
    counts = [_counts(resolver, name, loop, whole) for name in names]
    return bool(counts) and all(counts) and is_few(test.comparators[0])


def _counts(resolver: Resolver, name: ast.Name, loop: Loop, whole: Loop) -> bool:
    """Whether a name is the number of the iteration: not of those without progress."""
    definitions = resolver.definitions(name)
    return bool(definitions) and all(
        _is_count(resolver.index, definition, loop, whole) for definition in definitions
    )


def _is_count(
    index: FileIndex, definition: Definition, loop: Loop, whole: Loop
) -> bool:
    """`number += 1` in each iteration, `number = 0` before, or that of `enumerate`."""
    value = definition.value
    if definition.kind in ("augment", "assign"):
        statement = index.statement(definition.node)
        small = isinstance(value, ast.Constant) and value.value in (0, 1)
        if definition.kind == "augment":
            return small and statement in loop.node.body
        return small and not index.inside(statement, whole.node)
    return (
        definition.kind == "for"
        and whole is loop
        and definition.path[:1] == (0,)
        and value is getattr(loop.node, "iter", None)
        and isinstance(value, ast.Call)
        and index.qualified(value.func) == "enumerate"
    )
