"""Code that names the device of a script: to test it, and to hand it on."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpulint.index import Target, Where
from gpulint.script.loops import Loop
from gpulint.script.set_before import is_set_at

if TYPE_CHECKING:
    from gpulint.script.model import Script


def device_condition(
    script: Script, device: ast.expr | None
) -> tuple[str, tuple[str, ...]]:
    """Code that is true on CUDA: `device.type == "cuda"`, and imports it needs."""
    torch, imports = script.names.torch
    if device is None:
        return f"{torch}.cuda.is_available()", imports
    if script.devices.target(device) is Target.CUDA:
        return "True", ()
    if may_be_none(script, device):
        return f"{torch}.cuda.is_available()", imports
    text = script.text(device)
    if is_torch_device(script, device):
        return f'{text}.type == "cuda"', ()
    return f'{torch}.device({text}).type == "cuda"', imports


def may_be_none(script: Script, device: ast.expr) -> bool:
    """Whether a device is None on some path, and the script never asks."""
    if not isinstance(device, ast.Name) or not any(
        isinstance(o.node, ast.Constant) and o.node.value is None
        for o in script.resolver.origins(device)
    ):
        return False
    scope = script.index.scope(device)
    asks = (ast.Compare, ast.UnaryOp, ast.BoolOp, ast.If, ast.IfExp)
    return not any(
        n.id == device.id
        and isinstance(script.index.parent(n), asks)
        and script.index.scope(n) is scope
        for n in script.index.all(ast.Name)
    )


def device_at(script: Script, at: ast.AST, loops: Iterable[Loop]) -> ast.expr | None:
    """The device to which loops move their batches, if it can be named at `at`.

    None when there is no move, several devices, or the name means nothing there.
    """
    devices = {
        script.text(move.device): move.device
        for move in script.moves_in(loops)
        if move.device is not None
    }
    if len(devices) != 1:
        return None
    device = next(iter(devices.values()))
    if not script.index.holds(device) and not isinstance(device, ast.Constant):
        return None
    return device if is_set_at(script, device, at) else None


def is_torch_device(script: Script, node: ast.expr) -> bool:
    """Whether an expression is proven to be a `torch.device` on every path."""
    origins = script.resolver.origins(node)
    return bool(origins) and all(
        o.expression is not None and _makes_device(script, o.expression)
        for o in origins
    )


def _makes_device(script: Script, node: ast.expr) -> bool:
    """`torch.device(…)`, `runtime.device()`, or the `device` of a tensor."""
    if isinstance(node, ast.Call):
        name = script.index.qualified(node.func) or ""
        return name == "torch.device" or name.endswith("runtime.device")
    if isinstance(node, ast.Attribute) and node.attr == "device":
        return bool(script.where(node.value) & (Where.HOST | Where.DEVICE))
    return False
