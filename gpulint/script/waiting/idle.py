"""Places where a training run sleeps, or waits for somebody to answer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gpulint.index.walk import FUNCTIONS, dotted, walk
from gpulint.script.environments import imports_environments
from gpulint.script.intervals import is_remainder
from gpulint.script.reaching.started import trains_on_gpu

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

SLEEP = "time.sleep"
_ASKS = (
    "breakpoint",
    "input",
    "pdb.set_trace",
    "ipdb.set_trace",
    "pudb.set_trace",
    "IPython.embed",
    "code.interact",
)
SHORT = 0.1  # seconds that are nothing but in every step
LONG = 30  # seconds after training: less may let a log or an upload come to its end
_MAIN_RANK = re.compile(r"rank|main_process|is_master|is_main", re.IGNORECASE)
_REASON = re.compile(r"cool|therm|temperature|rate.?limit|quota", re.IGNORECASE)
_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Kind = Literal["step", "epoch", "sometimes", "after"]


@dataclass(frozen=True)
class Idle:
    """A call at which a run stands still; `seconds` of None: until it is answered.

    `kind`: in every step or epoch, in some of them, or after training.
    """

    call: ast.Call
    kind: Kind
    seconds: float | None
    by: ast.AST


def idle_places(script: Script) -> list[Idle]:
    """All such calls of a file that trains on a GPU, in source order."""
    calls = [*script.index.calls.get(SLEEP, ()), *_questions(script)]
    if not calls or not script.training_loops or not trains_on_gpu(script):
        return []
    calls.sort(key=lambda call: (call.lineno, call.col_offset))
    found = (_in_loop(script, call) or _after(script, call) for call in calls)
    return [idle for idle in found if idle is not None]


def _questions(script: Script) -> Iterator[ast.Call]:
    """`breakpoint()`, `input("…")` and their kin, unless the name means another."""
    for name in _ASKS:
        for call in script.index.calls.get(name, ()):
            if "." in name or not script.definitions(call.func):
                yield call


def _seconds(script: Script, call: ast.Call) -> float | None:
    """How long a call sleeps, 0 where that is not known; None: it asks."""
    if script.index.qualified(call.func) != SLEEP:
        return None
    known = script.evaluator.values(call.args[0]) if len(call.args) == 1 else None
    numbers = [v.constant for v in known.known] if known and known.complete else []
    return max((float(n) for n in numbers if isinstance(n, (int, float))), default=0.0)


# In a loop that trains


def _in_loop(script: Script, call: ast.Call) -> Idle | None:
    """A call in the body of a loop that trains, or of one over epochs."""
    around = script.loops_around(call)
    if not around or not (around[0].train or around[0].kind == "epoch"):
        return None
    loop = around[0]
    seconds = _seconds(script, call)
    if seconds is not None and (not seconds or imports_environments(script.index)):
        return None
    if seconds is None and isinstance(loop.node, ast.While) and not loop.train:
        return None  # `while True:` around whole trainings, for as many as one wants
    guards = list(_guards(script, call, loop))
    often = not any(isinstance(g, ast.If) and _is_interval(g.test) for g in guards)
    if not all(_may_pass(guard, seconds) for guard in guards):
        return None
    if _has_reason(script, call):
        return None
    kind: Kind = "step" if loop.train else "epoch"
    kind = kind if often else "sometimes"
    if kind != "step" and seconds is not None and seconds < SHORT:
        return None
    return Idle(call, kind, seconds, loop.node)


def _guards(script: Script, call: ast.Call, loop: Loop) -> Iterator[ast.AST]:
    """What decides, inside a loop, whether a call runs."""
    kinds = (ast.If, ast.IfExp, ast.BoolOp, ast.ExceptHandler, ast.match_case)
    for above in script.index.ancestors(call):
        if above is loop.node:
            break
        if isinstance(above, (*kinds, *FUNCTIONS)):
            yield above


def _may_pass(guard: ast.AST, seconds: float | None) -> bool:
    """Whether a branch is taken in each run: every n-th step, on the main rank.

    Who asks a question in some steps only may well sit beside the run.
    """
    if not isinstance(guard, ast.If):
        return False
    if _is_interval(guard.test):
        return seconds is not None
    return _is_main_rank(guard.test)


def _is_main_rank(test: ast.expr) -> bool:
    """`rank == 0`, `accelerator.is_main_process`."""
    if isinstance(test, ast.Compare) and not isinstance(test.ops[0], ast.Eq):
        return False
    names = [dotted(n) or "" for n in walk(test)]
    negated = isinstance(test, (ast.UnaryOp, ast.BoolOp))
    return not negated and any(map(_MAIN_RANK.search, names))


def _is_interval(test: ast.expr) -> bool:
    """`step % n == 0`, perhaps on one rank only."""
    parts = test.values if isinstance(test, ast.BoolOp) else [test]
    counted = [any(map(is_remainder, walk(p))) for p in parts]
    ranks = map(_is_main_rank, parts)
    return any(counted) and all(map(any, zip(counted, ranks, strict=True)))


def _has_reason(script: Script, call: ast.Call) -> bool:
    """Whether a comment beside a call, or above it, says what the pause is for."""
    source = script.source_of(call)
    lines = [source.said(row) for row in (call.lineno - 1, call.lineno) if row > 0]
    return any(_REASON.search(line) for line in lines)


# After training


def _after(script: Script, call: ast.Call) -> Idle | None:
    """A statement of its own, or `while True:` around it, that follows training."""
    statement = script.index.statement(call)
    if not isinstance(statement, ast.Expr) or statement.value is not call:
        return None
    seconds = _seconds(script, call)
    above = script.index.parent(statement)
    forever = isinstance(above, ast.While) and _never_ends(above)
    if forever:
        assert isinstance(above, ast.While)
        statement, above, seconds = above, script.index.parent(above), None
    if seconds is not None and seconds < LONG:
        return None
    trained = _trained_before(script, statement, above)
    return None if trained is None else Idle(call, "after", seconds, trained)


def _never_ends(loop: ast.While) -> bool:
    endless = isinstance(loop.test, ast.Constant) and bool(loop.test.value)
    ways = (ast.Break, ast.Return, ast.Raise)
    return (
        endless
        and len(loop.body) == 1
        and not any(isinstance(n, ways) for n in walk(*loop.body))
    )


def _trained_before(
    script: Script, statement: ast.stmt, above: ast.AST | None
) -> ast.AST | None:
    """What trained before a statement, in the same block."""
    body: list[ast.stmt] = getattr(above, "body", [])
    guard = isinstance(above, ast.If) and "__name__" in map(dotted, walk(above.test))
    whole = isinstance(above, (ast.Module, *FUNCTIONS)) or guard
    if not whole or isinstance(above, ast.Lambda) or statement not in body:
        return None
    trainers = {loop.function for loop in script.training_loops} - {None}
    for before in reversed(body[: body.index(statement)]):
        nodes = set(walk(before)) if not isinstance(before, _DEFINES) else set()
        if any(loop.node in nodes for loop in script.training_loops):
            return before
        calls = (n for n in nodes if isinstance(n, ast.Call))
        if any(script.resolver.calls.callee(c) in trainers for c in calls):
            return before
    return None
