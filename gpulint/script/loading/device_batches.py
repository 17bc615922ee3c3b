"""Whether a loader's batches may be on the device already, where nobody pins them."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.index import Origin, Target, Where
from gpulint.index.walk import FUNCTIONS, dotted, walk
from gpulint.script.copying.default_device import makes_on_gpu
from gpulint.script.samples.generated import made_on_device

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.model import Script

ON_DEVICE = "the runtime would pin batches, which may be on the device already"
SUBJECTS = "the runtime would pin TorchIO's subjects, which cannot be copied for that"
MAX_PARTS = 4  # slices of one another
_MODEL = re.compile(r"(^|[_.])(model|net|network|encoder|module)$")


def why_not_pinned(script: Script, loader: Loader) -> str | None:
    """Why pinning its batches would raise: where they are, or of which class."""
    if yields_device(script, loader):
        return ON_DEVICE
    return SUBJECTS if _holds_subjects(script, loader) else None


def _holds_subjects(script: Script, loader: Loader) -> bool:
    """Whether samples may be dicts of TorchIO, whose constructor wants single images.

    The thread that pins copies each dict, and catches no ValueError.
    """
    nodes = loader.argument("dataset").nodes
    made = [o.node for node in nodes for o in script.resolver.origins(node)]
    homes = {script.index, *map(script.index.home, made)}
    return any("torchio" in home.packages for home in homes)


def yields_device(script: Script, loader: Loader) -> bool:
    """Whether its batches may be on the device already: pinning them would raise."""
    dataset = loader.dataset
    if dataset.device is not None or dataset.placed is not None:
        return True
    if made_on_device(script, loader):
        return True
    if makes_on_gpu(script):
        return True
    for name in ("dataset", "collate_fn"):
        for node in loader.argument(name).nodes:
            if any(_sends(script, o) for o in script.resolver.origins(node)):
                return True
    return False


def _sends(script: Script, origin: Origin) -> bool:
    """Whether a dataset or collate function puts tensors on the device."""
    node = origin.node
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        calls = [n for n in walk(node) if isinstance(n, ast.Call)]
        moves = any(script.devices.move(c) is not None for c in calls)
        return moves or any(_asks_a_model(script, c) for c in calls)
    if isinstance(node, ast.Call):
        values = [*node.args, *(k.value for k in node.keywords)]
        if any(k.arg == "device" for k in node.keywords):
            return True
        owner = script.resolver.classes.named(node.func)
        if owner is not None:
            methods = script.resolver.classes.methods(owner)
            if "__call__" in methods:
                call = Origin(methods["__call__"], "function")
                return _sends(script, call)
        return any(
            Where.DEVICE in script.where(v)
            or _is_read_there(script, v, MAX_PARTS)
            or _is_filled_there(script, v)
            or (isinstance(v, ast.Starred) and _spreads_there(script, v.value))
            for v in values
        )
    return False


def _spreads_there(script: Script, value: ast.expr) -> bool:
    """`TensorDataset(*parts)`, whose parts come of what is, or is put, on the device.

    `parts = tuple(t[chosen] for t in tensors)`, `parts = map(to_device, rows)`.
    """
    made = [o.node for o in script.resolver.origins(value)]
    names = [n for n in walk(*made) if isinstance(n, ast.Name)]
    return any(
        Where.DEVICE in script.where(name)
        or any(
            isinstance(o.node, FUNCTIONS) and _sends(script, o)
            for o in script.resolver.origins(name)
        )
        for name in names
    )


def _is_filled_there(script: Script, value: ast.expr) -> bool:
    """Whether a dict is one of moved tensors, by `rows[key] = tensor.to(device)`."""
    for origin in script.resolver.origins(value):
        its = script.of(origin.node)
        function = its.index.function(origin.node)
        below = walk(function) if function is not None else ()
        sets = [n for n in below if isinstance(n, ast.Assign)]
        for held, given in ((n.targets[0], n.value) for n in sets):
            if not isinstance(held, ast.Subscript) or not isinstance(given, ast.Call):
                continue
            move = its.devices.move(given)
            if move is None or move.target is Target.CPU:
                continue
            if any(o.node is origin.node for o in its.resolver.origins(held.value)):
                return True
    return False


def _is_read_there(script: Script, value: ast.expr, depth: int) -> bool:
    """Whether an object that was told a device gives a tensor, or what it is part of.

    `Reader(path, device="cuda").read("u")[:1000]`, and not one that is for the CPU. So
    does `torch.load`.
    """
    for origin in script.resolver.origins(value):
        node = origin.node
        if isinstance(node, ast.Subscript):
            if depth and _is_read_there(script, node.value, depth - 1):
                return True
        elif isinstance(node, ast.Call) and _gives_there(script.of(node), node):
            return True
    return False


def _gives_there(its: Script, call: ast.Call) -> bool:
    """Whether a call reads to a device, or a method moves what it has read there."""
    if its.index.qualified(call.func) == "torch.load":
        return _is_told_device(its, call)
    if not isinstance(call.func, ast.Attribute):
        called = (origin.node for origin in its.resolver.origins(call.func))
        below = walk(*(node for node in called if isinstance(node, ast.Lambda)))
        moves = (its.devices.move(n) for n in below if isinstance(n, ast.Call))
        return any(move is not None and move.target is not Target.CPU for move in moves)
    move = its.devices.move(call)
    if move is not None and move.target is not Target.CPU:
        return True  # `x.to(self.device)`, in a method that reads
    made = (origin.call for origin in its.resolver.origins(call.func.value))
    return any(maker is not None and _is_told_device(its, maker) for maker in made)


def _is_told_device(its: Script, call: ast.Call) -> bool:
    """`Reader(path, device="cuda")`, `torch.load(path, map_location=device)`."""
    told = [k.value for k in call.keywords if k.arg in ("device", "map_location")]
    if its.index.qualified(call.func) == "torch.load":
        told += call.args[1:2]
    return any(
        its.devices.target(value) is not Target.CPU
        and not (isinstance(value, ast.Constant) and value.value is None)
        for value in told
    )


def _asks_a_model(script: Script, call: ast.Call) -> bool:
    """`collate(batch, model)`, `model.prepare(batch)`: on its device, perhaps.

    `text_encoder(tokens)` as well, unless that is a function of the project.
    """
    func = call.func
    asked = func.value if isinstance(func, ast.Attribute) else None
    values = [asked, *call.args, *(k.value for k in call.keywords)]
    callee = script.resolver.calls.callee(call)
    if callee is None or callee.name in ("forward", "__call__"):
        values.append(func)
    names = (dotted(value) or "" for value in values if value is not None)
    return any(_MODEL.search(name) for name in names)
