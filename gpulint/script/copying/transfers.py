"""Copies of a batch from host to device that the host waits for, in step loops."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpulint.index import NOT_CUDA, Move, Target
from gpulint.index.walk import dotted, walk
from gpulint.script.copying.changed_sources import (
    changed_later,
    may_be_changed_unseen,
)
from gpulint.script.copying.columns import on_host
from gpulint.script.copying.moved_dicts import is_moved_by_keys
from gpulint.script.copying.own_moves import foreign, has_own_to
from gpulint.script.loading.pageable import made_by_hand, never_pinned
from gpulint.script.loading.pinning import written_off
from gpulint.script.loops import Loop
from gpulint.script.modelling.graphs import iterates_graphs
from gpulint.script.training.training_step import runs_model

if TYPE_CHECKING:
    from gpulint.script.model import Script

_RANK = re.compile(r"^(local_|global_)?rank$|^gpu(_id|_index|_idx)?$|^local_rank\w*$")
_SETTINGS = re.compile(
    r"^(self|cls)$|arg|opt|cfg|conf|hparams|params|setting|flags|accelerator|fabric|env|"
    r"trainer|engine|context|ctx|state",
    re.IGNORECASE,
)


@dataclass(frozen=True, eq=False)
class Transfer:
    """A call that copies `source` to the device of `loop`'s steps and waits.

    `call` takes `non_blocking`; `device` is None where no expression names it.
    """

    call: ast.Call
    source: ast.expr
    device: ast.expr | None
    target: Target
    loop: Loop


def find_transfers(script: Script) -> tuple[Transfer, ...]:
    """All of them, in source order."""
    if sent_by_framework(script):
        return ()
    found = [t for t in _candidates(script) if _waits(script, t)]
    graphs = {x for x in {t.loop for t in found} if iterates_graphs(script, x)}
    moved = {x for x in {t.loop for t in found} if comes_moved(script, x)}
    found = [t for t in found if t.loop not in graphs | moved]
    found = [t for t in found if not has_own_to(script, t)]
    return tuple(sorted(found, key=lambda t: (t.call.lineno, t.call.col_offset)))


def comes_moved(script: Script, loop: Loop) -> bool:
    """Whether what a loop iterates may put the batches on the device itself.

    An object whose `__iter__` moves something, or a loader of timm with its prefetcher.
    """
    for iterated, _ in loop.items:
        for owner in script.resolver.classes.of(iterated):
            method = script.resolver.classes.methods(owner).get("__iter__")
            its = script.of(owner)
            calls = (
                [n for n in walk(method) if isinstance(n, ast.Call)] if method else []
            )
            moves = filter(None, map(its.devices.move, calls))
            if any(move.target is not Target.CPU for move in moves):
                return True
        if any(_prefetches(script, o.call) for o in script.resolver.origins(iterated)):
            return True
    return False


def _prefetches(script: Script, made: ast.Call | None) -> bool:
    name = script.index.qualified(made.func) or "" if made is not None else ""
    if (
        made is None
        or not name.startswith("timm.")
        or not name.endswith("create_loader")
    ):
        return False
    given = script.evaluator.argument(made, "use_prefetcher", None)
    return given.direct is None or not script.evaluator.values(given.direct).all_in(
        False
    )


def follows_the_model(script: Script, transfer: Transfer) -> bool:
    """Whether a part of a batch is moved behind a model that was given all of it.

    `out = model(batch)`, `y = batch.y.to(device)`: the model, or what is around it, has
    moved the batch, and one of PyTorch Geometric in place.
    """
    part = _part_of_batch(transfer.source)
    if part is None:
        return False
    loop = transfer.loop
    place, whole = transfer.call, part
    if not script.index.inside(place, loop.node):
        function = script.index.function(place)
        calls = script.index.calls_below(loop.node)
        leading = (c for c in calls if function in script.resolver.calls.callees(c))
        place, whole = next(leading, place), ""  # by whatever name
    return any(
        isinstance(given, ast.Name)
        and whole in ("", given.id)
        and script.batches.loop_of(given) is loop
        for call in loop.calls
        if _place(call) < _place(place)
        if runs_model(script, call)
        for given in call.args
    )


def _part_of_batch(source: ast.expr) -> str | None:
    """`batch` of `batch.y` and `batch[0].y.float()`; None: no attribute of anything."""
    attributes = 0
    while not isinstance(source, ast.Name):
        if isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute):
            source = source.func.value
        elif isinstance(source, (ast.Attribute, ast.Subscript)):
            attributes += isinstance(source, ast.Attribute)
            source = source.value
        else:
            return None
    return source.id if attributes else None


def _place(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def sent_by_framework(script: Script) -> bool:
    """Whether a framework moves the batches of this file's loops."""
    names = script.index.called_names
    if script.frameworks & {"lightning", "fastai", "xla"}:
        return True
    if "accelerate" in script.frameworks:
        return any(n.endswith(".prepare") for n in names)
    trainers = ("transformers.Trainer", "transformers.Seq2SeqTrainer")
    return any(n in trainers for n in names)


def _candidates(script: Script) -> Iterator[Transfer]:
    for move, loop in script.batch_moves:
        if move.non_blocking is None:
            target = _target(move)
            yield Transfer(move.call, move.receiver, move.device, target, loop)
    for call in script.index.all(ast.Call):
        if isinstance(call.func, ast.Attribute) and len(call.args) == 1:
            if any(k.arg == "non_blocking" for k in call.keywords):
                continue
            found = _other(script, call, call.func)
            if found is not None:
                yield found


def _target(move: Move) -> Target:
    """Ranks are numbers of CUDA devices."""
    last = (dotted(move.device) or "").rpartition(".")[2]
    return Target.CUDA if _RANK.match(last) else move.target


def _other(script: Script, call: ast.Call, func: ast.Attribute) -> Transfer | None:
    """`x.type(torch.cuda.FloatTensor)` and `buffer.copy_(x)`."""
    if func.attr == "copy_":
        source = call.args[0]
        loop = script.batches.loop_of(source)
        if loop is not None and script.where(func.value).device:
            return Transfer(call, source, None, Target.ANY, loop)
    if func.attr == "type":
        kinds = _types(script, call.args[0])
        loop = script.batches.loop_of(func.value)
        if loop is not None and any("torch.cuda." in k for k in kinds):
            sure = all("torch.cuda." in k for k in kinds)
            target = Target.CUDA if sure else Target.ANY
            return Transfer(call, func.value, None, target, loop)
    return None


def _types(script: Script, node: ast.expr) -> set[str]:
    """Names of the tensor types that an argument of `.type` can be."""
    names = set()
    for origin in script.resolver.origins(node):
        constant = getattr(origin.node, "value", None)
        name = script.index.qualified(origin.node) or ""
        names.add(constant if isinstance(constant, str) else name)
    known = script.evaluator.values(node).known  # the default of an option among them
    return names | {v.constant for v in known if isinstance(v.constant, str)}


def _waits(script: Script, transfer: Transfer) -> bool:
    loop = transfer.loop
    if not (loop.train or loop.eval) or transfer.target in NOT_CUDA:
        return False
    if _device_of_unknown(script, transfer.device):
        return False
    if not on_host(script, transfer.source) or script.runners.is_rare(
        transfer.call, loop.node
    ):
        return False
    if loop.loaders and all(written_off(script, x) for x in loop.loaders):
        return False
    if is_moved_by_keys(script, transfer):
        return False
    return not made_by_hand(script, transfer.source, loop)


def _device_of_unknown(script: Script, device: ast.expr | None) -> bool:
    """`x.device` of a tensor that may be on the host."""
    if not isinstance(device, ast.Attribute) or device.attr != "device":
        return False
    holder = (dotted(device.value) or "").rpartition(".")[2]
    if _SETTINGS.search(holder) or script.modules.is_module(device.value):
        return False
    return not script.where(device.value).device


def hindrance(script: Script, transfer: Transfer) -> str | None:
    """Why the host must go on waiting for a copy; None if it need not."""
    changed = changed_later(script, transfer)
    if changed is not None:
        line = getattr(changed, "lineno", 0)
        return f"the source is changed after the copy has started (line {line})"
    if may_be_changed_unseen(script, transfer):
        return "what others do with the batch behind the copy is not seen"
    pageable = never_pinned(script, transfer.source, transfer.loop)
    return pageable or foreign(script, transfer)
