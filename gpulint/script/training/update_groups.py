"""Which backward calls of a training step lead to which optimizer steps."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpulint.index.walk import LOOPS, walk_scope
from gpulint.script.rewriting.edits import CannotFix
from gpulint.script.training.training_step import Step, block_of

if TYPE_CHECKING:
    from gpulint.script.model import Script

_APART = "the optimizer's step does not follow the backward call"

Event = tuple[list[ast.stmt], ast.Call]


@dataclass(frozen=True, eq=False)
class Group:
    """Backward calls, and the optimizer steps that follow them in the same block."""

    block: list[ast.stmt]
    backward: tuple[ast.Call, ...]
    steps: tuple[ast.Call, ...]


@dataclass(frozen=True, eq=False)
class Groups:
    """All groups of an iteration, in the order of `block`, which holds them.

    `last` is the statement of `block` after which every optimizer has stepped.
    """

    block: list[ast.stmt]
    groups: tuple[Group, ...]
    last: ast.stmt


def groups_of(script: Script, step: Step) -> Groups:
    """The groups of a step with several backward calls or optimizers."""
    calls = [*step.loop.backward, *step.loop.steps]
    block = _common_block(script, calls)
    events: list[Event] = []
    for statement in block:
        events += _events(script, block, statement, calls)
    groups = _grouped(step, events)
    if not any(group.block is block for group in groups):
        raise CannotFix("there are iterations without an optimizer step")
    holds = [s for s in block if any(script.index.inside(c, s) for c in calls)]
    _check_way(script, block[block.index(holds[0]) : block.index(holds[-1]) + 1])
    return Groups(block, groups, holds[-1])


def _common_block(script: Script, calls: list[ast.Call]) -> list[ast.stmt]:
    """The innermost block that holds all calls, without a loop in between."""
    current: ast.AST | None = script.index.statement(calls[0])
    while isinstance(current, ast.stmt) and not isinstance(
        current, (*LOOPS, ast.FunctionDef)
    ):
        block = block_of(script, current)
        if all(any(script.index.inside(c, s) for s in block) for c in calls):
            return block
        current = script.index.parent(current)
    raise CannotFix("the backward calls and the optimizers' steps are apart")


def _events(
    script: Script, block: list[ast.stmt], statement: ast.stmt, calls: list[ast.Call]
) -> list[Event]:
    """The calls in a statement, or in the body of an `if`, in order."""
    held = [c for c in calls if script.index.inside(c, statement)]
    held.sort(key=lambda c: (c.end_lineno or 0, c.end_col_offset or 0))
    places = [script.index.statement(c) for c in held]
    if any(script.index.parent(c) is not s for c, s in zip(held, places, strict=True)):
        raise CannotFix("the optimizer steps inside another expression")
    if all(place is statement for place in places):
        return [(block, call) for call in held]
    if isinstance(statement, ast.If) and all(p in statement.body for p in places):
        return [(statement.body, call) for call in held]
    raise CannotFix("the backward calls and the optimizers' steps are apart")


def _grouped(step: Step, events: list[Event]) -> tuple[Group, ...]:
    found: list[tuple[list[ast.stmt], list[ast.Call], list[ast.Call]]] = []
    for block, call in events:
        last = found[-1] if found else None
        if call in step.loop.backward:
            if last is None or last[2]:
                found.append((block, [call], []))
            elif last[0] is block:
                last[1].append(call)
            else:
                raise CannotFix(
                    "the optimizer's step does not follow the backward call"
                )
        elif last is None or last[0] is not block:
            raise CannotFix(_APART)
        else:
            last[2].append(call)
    if not found or not all(steps for _, _, steps in found):
        raise CannotFix(_APART)
    return tuple(Group(b, tuple(given), tuple(steps)) for b, given, steps in found)


def _check_way(script: Script, statements: list[ast.stmt]) -> None:
    """Every optimizer that has stepped comes to the scaler's one update."""
    for node in walk_scope(*statements):
        if isinstance(node, (ast.Return, ast.Yield, ast.Continue, ast.Break)):
            around = script.index.ancestors(node)
            inner = next((a for a in around if isinstance(a, LOOPS)), None)
            if isinstance(node, (ast.Return, ast.Yield)) or not any(
                inner is not None and script.index.inside(inner, s) for s in statements
            ):
                raise CannotFix("an iteration may end between two optimizers")
