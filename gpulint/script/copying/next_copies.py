"""Copies that a step makes right behind those of its batch, and waits for as well."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpulint.index import Target, Where
from gpulint.index.walk import walk
from gpulint.script.copying.creations import creation
from gpulint.script.every_step import EveryStep
from gpulint.script.waiting.drained import is_pass, runs_with

if TYPE_CHECKING:
    from gpulint.script.copying.transfers import Transfer
    from gpulint.script.model import Script


def is_next_to_wait(script: Script, transfers: Iterable[Transfer]) -> bool:
    """Whether the host waits for the stream behind the copies, before a model runs.

    By a copy of something else from ordinary memory, such as a tensor made of a list in
    each step: it takes its turn behind the batch's, queued or not.
    """
    found = list(transfers)
    calls = {transfer.call for transfer in found}
    parts = list(EveryStep(script, found[0].loop).parts())
    numbers = [n for n, part in enumerate(parts) if part.node in calls]
    if not numbers:
        return False
    last = parts[numbers[-1]]
    for part in parts[numbers[-1] + 1 :]:
        if isinstance(part.node, ast.Call):
            if is_pass(script, part.node):
                return False
            if _copies(script, part.node) and runs_with(script, part, last):
                return True
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
