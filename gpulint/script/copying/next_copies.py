"""What a step waits for right behind the copies of its batch."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpulint.index import Target, Where
from gpulint.index.walk import walk
from gpulint.script.copying.creations import creation
from gpulint.script.every_step import EveryStep, Part
from gpulint.script.waiting.drained import is_pass, is_single, runs_with
from gpulint.script.waiting.reading import waiting_in

if TYPE_CHECKING:
    from gpulint.script.copying.transfers import Transfer
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script


def is_next_to_wait(script: Script, transfers: Iterable[Transfer]) -> bool:
    """Whether the host waits for the stream behind the copies, before a model runs.

    By a copy of something else from ordinary memory, such as a tensor made of a list in
    each step: it takes its turn behind the batch's, queued or not. Or by a read, as in
    `if torch.isnan(images).any():`.
    """
    found = list(transfers)
    calls = {transfer.call for transfer in found}
    loop = found[0].loop
    parts = list(EveryStep(script, loop).parts())
    numbers = [n for n, part in enumerate(parts) if part.node in calls]
    if not numbers:
        return False
    last = parts[numbers[-1]]
    works = False  # the device may be at work on more than the copies
    for part in parts[numbers[-1] + 1 :]:
        call = part.node if isinstance(part.node, ast.Call) else None
        if call is not None and is_pass(script, call):
            return False
        waits = call is not None and _copies(script, call)
        waits = waits or (not works and _reads(script, part, loop))
        if waits and runs_with(script, part, last):
            return True
        works = works or (call is not None and not is_single(script, call))
    return False


def _reads(script: Script, part: Part, loop: Loop) -> bool:
    """Whether a part surely waits for a value."""
    waits = waiting_in(script, part, loop)
    return any(not _may_be_left_out(script, node) for node, _ in waits)


def _may_be_left_out(script: Script, node: ast.AST) -> bool:
    """Whether another part of an `and` or `or` decides if an expression is asked."""
    for above in script.of(node).index.ancestors(node):
        if isinstance(above, ast.BoolOp) and node is not above.values[0]:
            return True
        if isinstance(above, ast.stmt):
            break
        node = above
    return False


def _copies(script: Script, call: ast.Call) -> bool:
    """Whether a call copies what surely lies in ordinary memory, and waits.

    Nothing of the batch, which may be queued as well, and nothing that the device could
    have made itself.
    """
    move = script.devices.move(call)
    if move is None or move.target is Target.CPU or move.non_blocking is not None:
        return False
    its = script.of(call)
    if its.where(move.receiver) != Where.HOST or creation(its, move.receiver):
        return False
    names = (n for n in walk(move.receiver) if isinstance(n, ast.Name))
    return all(its.batches.loop_of(name) is None for name in names)
