"""Calls that stop the host or clear memory, in every step of a loop."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from gpulint.index import Target, Where
from gpulint.index.build import last_name
from gpulint.index.walk import dotted, walk
from gpulint.script.every_step import EveryStep, Part
from gpulint.script.waiting.drained import (
    DEVICES,
    any_runs_with,
    is_synchronize,
    queues,
)
from gpulint.script.waiting.stops import steps_engine
from gpulint.script.waiting.timed import is_clocked, measures_time

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

Kind = Literal["synchronize", "empty_cache", "collect"]

_READS = frozenset("item tolist cpu numpy".split())
_TIMERS = re.compile(
    r"(^|_)(timers?|tic|toc|stopwatch|elapsed_time|prof|profilers?|bench\w*)\d*$",
    re.IGNORECASE,
)
# The names of tensors that steps log, and of methods that keep what they are given.
_OF_LOSSES = re.compile(r"loss|norm|metric", re.IGNORECASE)
_KEEPS = frozenset("update add append log log_metric add_scalar min max".split())
_RATES = re.compile(r"(^|_)(lr|weight_decay|momentum)(_|$)")
_PEAKS = ("reset_peak_memory_stats", "reset_max_memory_allocated")
_HOLDS_ANYWAY = re.compile(r"cuda|gpu|device|is_available|hasattr|train|distributed")
_READS_MEMORY = re.compile(r"mem|usage", re.IGNORECASE)
# What works on the device beside torch, which does not know what to wait for.
_BESIDE_TORCH = frozenset("cupy numba pycuda warp tensorrt taichi".split())


class Forced(NamedTuple):
    """A call of `torch.cuda.synchronize` and its kin that no step needs.

    `at` is where the loop's file shows it: the call, or the one that leads there.
    """

    kind: Kind
    call: ast.Call
    at: ast.Call


def find_forced(script: Script, loop: Loop) -> list[Forced]:
    """What each step of a training or evaluation loop calls, in source order."""
    parts = list(EveryStep(script, loop).parts())
    found = list(_called(script, parts))
    timed = is_clocked(script, loop) or _needs_wait(script, parts)
    if timed and any(f.kind == "synchronize" for f in found):
        found = [f for f in found if f.kind != "synchronize"]
    if found and _measures_memory(parts):
        found = [f for f in found if f.kind == "synchronize"]
    return found


def _called(script: Script, parts: list[Part]) -> Iterator[Forced]:
    for number, part in enumerate(parts):
        call = part.node
        kind = _kind(script, call) if isinstance(call, ast.Call) else None
        if not isinstance(call, ast.Call) or kind is None or _is_guarded(script, part):
            continue
        if kind != "synchronize" or not _waits_anyway(script, parts, number):
            yield Forced(kind, call, part.call or call)


def _waits_anyway(script: Script, parts: list[Part], number: int) -> bool:
    """Whether reads beside a call wait as long: nothing is queued in between.

    A loop behind the call, over losses as it may be, takes at least one turn.
    """
    part = parts[number]
    behind = [other._replace(inner=False) for other in parts[number + 1 :]]
    for others in (parts[number - 1 :: -1] if number else [], behind):
        reads: list[Part] = []  # of a branch each, or of all steps
        for other in others:
            if _is_given_numbers(script, other):
                continue
            if _reads(script, other.node) or steps_engine(script, other.node):
                reads.append(other)
                if any_runs_with(script, reads, part):
                    return True
            elif queues(script, other.node) and not (
                reads and any_runs_with(script, reads, other)
            ):
                break
    return False


def _reads(script: Script, node: ast.AST) -> bool:
    """`loss.item()` and its kin, of what may be on the device.

    Or of a loss's scale: `scaler.get_scale()`, which `scaler.state_dict()` reads too.
    """
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if _logs_tensor(script, node):
        return True
    if node.func.attr in ("get_scale", "state_dict"):
        return "scaler" in (dotted(node.func.value) or "").lower()
    its = script.where(node.func.value)
    read = node.func.attr in _READS and not node.args
    return read and bool(its & ~(Where.HOST | Where.PLAIN))


def _logs_tensor(script: Script, call: ast.Call) -> bool:
    """`meters.update(grad_norm=grad_norm)`, a method that reads what is a tensor."""
    values = [*call.args, *(k.value for k in call.keywords)]
    named = [value for value in values if _OF_LOSSES.search(dotted(value) or "")]
    there = Where.DEVICE | Where.UNKNOWN
    return any(script.where(value) & there for value in named) and any(
        last_name(inner) == "item"
        for function in script.resolver.calls.callees(call)
        for inner in walk(function)
        if isinstance(inner, ast.Call)
    )


def _is_given_numbers(script: Script, part: Part) -> bool:
    """Whether a part is a call that gives numbers to what keeps them, or is in one."""
    call = part.call or part.node
    if not isinstance(call, ast.Call) or last_name(call) not in _KEEPS:
        return False
    values = [*call.args, *(k.value for k in call.keywords)]
    return bool(values) and all(_is_number(script, value) for value in values)


def _is_number(script: Script, value: ast.expr) -> bool:
    """A number by where it comes from, or an option of an optimizer by its name."""
    option = value.slice if isinstance(value, ast.Subscript) else None
    named = option.value if isinstance(option, ast.Constant) else dotted(value)
    if _RATES.search(str(named)):
        return True
    return script.where(value) == Where.PLAIN


def _kind(script: Script, call: ast.Call) -> Kind | None:
    name = script.index.qualified(call.func) or ""
    if name == "gc.collect":
        return None if call.args or call.keywords else "collect"  # a young generation
    if is_synchronize(script, call):
        return "synchronize"
    head, _, last = name.rpartition(".")
    return "empty_cache" if last == "empty_cache" and head in DEVICES else None


def _is_guarded(script: Script, part: Part) -> bool:
    """Whether a call stands behind a test of anything but the machine."""
    for branch, holds in part.branches:
        if isinstance(branch, (ast.If, ast.IfExp)) and script.index.inside(
            part.node, branch
        ):
            test = branch.test
            known = script.evaluator.values(test)
            if known.all_in(True) and holds:
                continue
            names = [n for n in map(dotted, walk(test)) if n is not None]
            if any(_READS_MEMORY.search(n) for n in names):
                return True
            if not any(_HOLDS_ANYWAY.search(n) for n in names):
                return True
    return False


def _needs_wait(script: Script, parts: list[Part]) -> bool:
    """Whether a step measures time, or has work that torch does not wait for itself."""
    calls = [p.node for p in parts if isinstance(p.node, ast.Call)]
    if measures_time(script, calls) or any(_is_timer(c) for c in calls):
        return True
    heads = {v.partition(".")[0] for v in script.index.imported}
    if heads & _BESIDE_TORCH:
        return True
    names = script.index.called_names
    if any(n.endswith(("cuda.Stream", "cuda.stream", "CUDAGraph")) for n in names):
        return True
    return any(_is_copied_later(script, c) for c in calls)


def _measures_memory(parts: list[Part]) -> bool:
    """Whether a round asks for the most memory that it takes, as benchmarks do."""
    calls = (p.node for p in parts if isinstance(p.node, ast.Call))
    return any(last_name(call) in _PEAKS for call in calls)


def _is_timer(call: ast.Call) -> bool:
    """`timer.toc()`, `start.elapsed_time(end)`, `with Timer("forward"):`."""
    return any(_TIMERS.search(n) for n in (dotted(call.func) or "").split("."))


def _is_copied_later(script: Script, call: ast.Call) -> bool:
    """`x.to("cpu", non_blocking=True)`, which is complete after a wait."""
    move = script.devices.move(call)
    if move is not None:
        return move.target is Target.CPU and move.non_blocking is not None
    given = {k.arg for k in call.keywords}
    copies = isinstance(call.func, ast.Attribute) and call.func.attr == "copy_"
    return copies and "non_blocking" in given
