"""What a step waits for right behind the copies of its batch."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpulint.index import Target, Where
from gpulint.index.walk import dotted
from gpulint.script.copying.first_waits import (
    SETS,
    begins_with_wait,
    copies_from_host,
)
from gpulint.script.copying.transfers import Transfer, hindrance
from gpulint.script.every_step import EveryStep, Part
from gpulint.script.waiting.drained import (
    is_of_samples,
    is_pass,
    is_single,
    runs_with,
)
from gpulint.script.waiting.reading import READS, waiting_in
from gpulint.script.waiting.stops import normalizes, picks_by_values, runs_engine
from gpulint.script.waiting.timed import starts_measure

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

_KEEPS = ("append", "extend")  # a list, also one of losses: `eval_loss.append(loss)`


def is_next_to_wait(script: Script, transfers: Iterable[Transfer]) -> bool:
    """Whether the host may wait for the stream behind the copies, before a model runs.

    By a copy of something else from ordinary memory, such as a tensor made of a list in
    each step: it takes its turn behind the batch's, queued or not. That may be an index
    of NumPy's, a part of the batch that another function moves, or what the model's
    `forward` begins with. Or by a read, as in `if torch.isnan(images).any():`. It may
    well wait where no model is seen to run behind any of the copies. And it should wait
    before it reads a clock: a copy that is queued would count as the model's time.
    """
    found = list(transfers)
    calls = {transfer.call for transfer in found}
    loop = found[0].loop
    parts = list(EveryStep(script, loop).parts())
    by_key = {name for transfer in found for name in [_moved_by_keys(transfer)] if name}
    numbers = [n for n, part in enumerate(parts) if part.node in calls]
    if not numbers:
        return False
    last = parts[numbers[-1]]
    works = False  # the device may be at work on more than the copies
    for part in parts[numbers[-1] + 1 :]:
        call = part.node if isinstance(part.node, ast.Call) else None
        if call is not None and not works and starts_measure(script, call, loop):
            return runs_with(script, part, last)  # else they count as the model's time
        if call is not None and loop.train and runs_engine(script, call):
            return runs_with(script, part, last)
        if normalizes(script, part.node):
            if runs_with(script, part, last):
                return True
            continue
        if call is not None and is_pass(script, call):
            return runs_with(script, part, last) and begins_with_wait(script, call)
        waits = call is not None and copies_from_host(script, call)
        waits = waits or _sends_more(script, part, loop)
        waits = waits or (call is not None and _moves_fresh(script, call, loop))
        waits = waits or picks_by_values(script, part.node)
        waits = waits or (not works and _reads(script, part, loop))
        waits = waits or (not works and _asks_for_part(part, by_key))
        if waits and runs_with(script, part, last):
            return True
        if not works and is_of_samples(script, part) and _fetches(script, part.node):
            return True
        works = works or (call is not None and not is_single(script, call))
    return not any(_runs_model(script, part.node) for part in parts[numbers[0] :])


def _moved_by_keys(transfer: Transfer) -> str | None:
    """`data` of `data[key] = data[key].cuda()`, a move of all its parts in turn."""
    source = transfer.source
    if not isinstance(source, ast.Subscript) or not isinstance(source.slice, ast.Name):
        return None
    return source.value.id if isinstance(source.value, ast.Name) else None


def _asks_for_part(part: Part, names: set[str]) -> bool:
    """`data["seconds"].sum().item()`, of what has been moved by its keys."""
    node = part.node
    func = node.func if isinstance(node, ast.Call) else None
    if part.inner or not names or not isinstance(func, ast.Attribute):
        return False
    root: ast.expr = func.value
    while isinstance(root, ast.Call) and isinstance(root.func, ast.Attribute):
        root = root.func.value
    asked = func.attr in READS and isinstance(root, ast.Subscript)
    return asked and isinstance(root.value, ast.Name) and root.value.id in names  # type: ignore[attr-defined]


def _runs_model(script: Script, node: ast.AST) -> bool:
    """Whether a call runs a model, or a method of one that is not known."""
    if not isinstance(node, ast.Call):
        return False
    func = node.func
    if is_pass(script, node) or not isinstance(func, ast.Attribute):
        return is_pass(script, node)
    own = script.resolver.calls.callee(node) is not None
    known = own or func.attr in SETS or func.attr in _KEEPS
    return not known and bool(node.args) and script.modules.is_module(func.value)


def _sends_more(script: Script, part: Part, loop: Loop) -> bool:
    """Whether another file's function moves a part of the batch, and nothing says so.

    `texts.detach().to(self.device)`, of what the loop hands on as it comes.
    """
    call, its = part.node, script.of(part.node)
    move = its.devices.move(call) if isinstance(call, ast.Call) else None
    if move is None or move.non_blocking is not None or move.target is Target.CPU:
        return False
    root: ast.expr = move.receiver
    while isinstance(root, ast.Call) and isinstance(root.func, ast.Attribute):
        root = root.func.value
    if part.call is None or part.helper is None or not isinstance(root, ast.Name):
        return False
    if any(d.kind != "parameter" for d in its.definitions(root)):
        return False
    given, clear = script.resolver.calls.given(part.call, part.helper, root.id)
    return (
        clear
        and len(given) == 1
        and script.batches.loop_of(given[0]) is loop
        and script.where(given[0]) == Where.HOST
        and all(t.call is not call or hindrance(its, t) for t in its.transfers)
    )


def _moves_fresh(script: Script, call: ast.Call, loop: Loop) -> bool:
    """`codes.cuda()`, of what a method has made in the step, of no library's module.

    `codes, lengths = self.converter.encode(texts)`: memory that no loader has pinned.
    """
    move = script.devices.move(call)
    if move is None or move.non_blocking is not None or move.target is Target.CPU:
        return False
    its = script.of(call)
    if its.where(move.receiver) != Where.UNKNOWN:
        return False
    made = [origin.node for origin in its.resolver.origins(move.receiver)]
    return bool(made) and all(
        isinstance(maker, ast.Call)
        and _is_of_step(its, maker, call, loop)
        and isinstance(maker.func, ast.Attribute)
        and (dotted(maker.func) or "").partition(".")[0] not in its.index.imports
        and not its.modules.is_module(maker.func)
        and not any(its.where(value) & Where.DEVICE for value in maker.args)
        for maker in made
    )


def _is_of_step(script: Script, maker: ast.Call, call: ast.Call, loop: Loop) -> bool:
    """Whether a step runs one call before another: both stand in its loop or helper."""
    around = script.index.function(call)
    same = around is not None and script.index.function(maker) is around
    return same or script.index.inside(maker, loop.node)


def _reads(script: Script, part: Part, loop: Loop) -> bool:
    """Whether a part surely waits for a value."""
    waits = waiting_in(script, part, loop)
    return any(not _may_be_left_out(script, node) for node, _ in waits)


def _fetches(script: Script, node: ast.AST) -> bool:
    """`images[i].cpu()`, which an evaluation that only saves pictures waits for."""
    func = node.func if isinstance(node, ast.Call) else None
    fetches = isinstance(func, ast.Attribute) and func.attr in READS
    return fetches and script.where(func.value) == Where.DEVICE  # type: ignore[union-attr]


def _may_be_left_out(script: Script, node: ast.AST) -> bool:
    """Whether another part of an `and` or `or` decides if an expression is asked."""
    for above in script.of(node).index.ancestors(node):
        if isinstance(above, ast.BoolOp) and node is not above.values[0]:
            return True
        if isinstance(above, ast.stmt):
            break
        node = above
    return False
