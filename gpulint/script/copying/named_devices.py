"""How the device of a training step can be named at a place in the file."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index import Target, Where
from gpulint.index.walk import dotted
from gpulint.script.rewriting.device_code import may_be_missing
from gpulint.script.rewriting.edits import CannotFix
from gpulint.script.set_before import is_set_at
from gpulint.script.training.training_step import block_of, is_before

if TYPE_CHECKING:
    from gpulint.script.model import Script


def device_of_step(script: Script, first: ast.stmt) -> tuple[ast.stmt, ast.expr | None]:
    """The device of a step, and before which statement its dtype can be asked for.

    That is the outermost loop of the function at which the device is set, else the
    step's `first` statement. None for the device: CUDA throughout, never named.
    """
    around = script.loops_around(first)
    places: list[ast.stmt] = [*(x.node for x in reversed(around)), first]
    for place in places:
        found = named_devices(script, place)
        if found:
            return place, found[0]
    if script.moves and all(m.target is Target.CUDA for m in script.moves):
        return places[0], None
    raise CannotFix("no device is named where the step runs")


def same_device(script: Script, device: ast.expr, anchor: ast.stmt) -> str:
    """Code for the same device after a statement. CannotFix if it has no name there."""
    block = block_of(script, anchor)
    at = next(iter(block[block.index(anchor) + 1 :]), anchor)
    wanted = {o.node for o in script.resolver.origins(device)}
    text = script.text(device)
    found = named_devices(script, at)
    found.sort(key=lambda n: script.text(n) != text)
    for node in found:
        if {o.node for o in script.resolver.origins(node)} & wanted:
            return script.text(node)
    raise CannotFix(f"`{text}` is not known where the optimizer is made")


def named_devices(script: Script, at: ast.stmt) -> list[ast.expr]:
    """Expressions that are a device and set at a place, those of moves first."""
    index = script.index
    moves = [*(m for m, _ in script.batch_moves), *script.moves]
    there = (m for m in moves if not may_be_missing(script, m))
    moved = [m.device for m in there if m.device is not None]
    names: list[ast.Name | ast.Attribute] = [
        *index.all(ast.Name),
        *index.all(ast.Attribute),
    ]
    named = [
        n
        for n in names
        if isinstance(n.ctx, ast.Load) and (dotted(n) or "").lower().endswith("device")
    ]
    return [
        node
        for node in [*moved, *named]
        if dotted(node) is not None
        and _is_visible(script, node, at)
        and _is_set(script, node, at)
        and script.devices.target(node) in (Target.ANY, Target.CUDA)
    ]


def _is_set(script: Script, node: ast.expr, at: ast.stmt) -> bool:
    """Whether a name surely has its value at a place: the script reads it too."""
    if is_set_at(script, node, at):
        return True
    here = script.index.scope(at)
    if script.index.scope(node) is not here or isinstance(node, ast.Attribute):
        return False
    if is_before(script, script.index.statement(node), at):
        return True
    definitions = script.resolver.definitions(node)
    return bool(definitions) and all(
        script.index.scope(d.node) is not here for d in definitions
    )


def _is_visible(script: Script, node: ast.expr, at: ast.stmt) -> bool:
    """Whether a name means the same at both places."""
    scope, here = script.index.scope(node), script.index.scope(at)
    if isinstance(node, ast.Attribute):
        owner = script.index.owner(at)
        own = script.resolver.self_name(scope)
        same = owner is not None and owner is script.index.owner(node)
        mine = own == script.resolver.self_name(here)
        return own is not None and dotted(node.value) == own and same and mine
    if scope is here:
        return True
    definitions = script.resolver.definitions(node)
    if not definitions or any(
        script.index.scope(d.node) is not script.index.tree for d in definitions
    ):
        return False
    local = script.resolver.flow(here).definitions
    return isinstance(here, ast.Module) or getattr(node, "id", "") not in local


def is_of_host(script: Script, device: ast.expr | None) -> bool:
    """`batch.device` of a batch that nothing has moved: the copy goes nowhere."""
    if device is None:
        return False
    named = [origin.node for origin in script.resolver.origins(device)]
    return bool(named) and all(
        isinstance(node, ast.Attribute)
        and node.attr == "device"
        and script.where(node.value) == Where.HOST
        for node in named
    )
