"""Batches whose values are moved one by one, and put back under their keys."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index import Target
from gpulint.index.walk import walk

if TYPE_CHECKING:
    from gpulint.script.copying.transfers import Transfer
    from gpulint.script.model import Script


def is_moved_by_keys(script: Script, transfer: Transfer) -> bool:
    """Whether a part of a batch is there since all of its parts were moved before.

    `for k in batch: batch[k] = batch[k].to(device)`, or a function that does so, and
    then `batch["image"].to(device)`.
    """
    holder = transfer.source
    while isinstance(holder, ast.Subscript):
        holder = holder.value
    if holder is transfer.source or not isinstance(holder, ast.Name):
        return False
    scope = script.index.scope(transfer.call)
    before = (
        node
        for node in walk(transfer.loop.node)
        if getattr(node, "lineno", transfer.call.lineno) < transfer.call.lineno
        and script.index.scope(node) is scope
    )
    return any(
        _puts_back(script, node, holder.id)
        or (isinstance(node, ast.Call) and _moves_all(script, node, holder.id))
        for node in before
    )


def _moves_all(script: Script, call: ast.Call, name: str) -> bool:
    """`move_to_device(batch, device)`, which puts back what it moves."""
    function = script.resolver.calls.callee(call)
    if function is None:
        return False
    its = script.of(function)
    return any(
        isinstance(value, ast.Name)
        and value.id == name
        and any(_puts_back(its, node, parameter.arg) for node in walk(function))
        for parameter in (*function.args.posonlyargs, *function.args.args)
        for value in script.resolver.calls.given(call, function, parameter.arg)[0]
    )


def _puts_back(script: Script, node: ast.AST, name: str) -> bool:
    """`batch[k] = v.to(device)` in a loop over all of `batch`, not over some keys."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return False
    target = node.targets[0]
    if not isinstance(target, ast.Subscript) or not isinstance(target.slice, ast.Name):
        return False
    if not isinstance(target.value, ast.Name) or target.value.id != name:
        return False
    over = [
        above.iter
        for above in script.index.ancestors(node)
        if isinstance(above, ast.For)
        and any(getattr(n, "id", "") == target.slice.id for n in walk(above.target))
    ]
    whole = any(getattr(n, "id", "") == name for root in over for n in walk(root))
    move = script.devices.move(node.value) if whole else None
    return move is not None and move.target is not Target.CPU
