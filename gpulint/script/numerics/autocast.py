"""Puts a training step under autocast, where everything in it is known to bear it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.script.copying.named_devices import device_of_step, same_device
from gpulint.script.numerics.autocast_region import autocast_regions
from gpulint.script.numerics.half import exact_mathematics
from gpulint.script.numerics.protected import why_protected
from gpulint.script.numerics.scaled_update import ScaledUpdate
from gpulint.script.numerics.scaler_checkpoints import ScalerCheckpoints
from gpulint.script.reaching.started import is_started
from gpulint.script.rewriting.beside import Beside
from gpulint.script.rewriting.device_code import is_torch_device
from gpulint.script.rewriting.edits import (
    CannotFix,
    Edit,
    InsertAfter,
    InsertBefore,
    NotBorne,
    ReplaceCode,
    Rewrite,
    Wrap,
)
from gpulint.script.training.training_step import Step

if TYPE_CHECKING:
    from gpulint.script import Script

WIDTH = 88
_HOOKS = re.compile(
    r"register_((module_)?(full_)?backward_(pre_)?|post_accumulate_grad_|multi_grad_)?"
    r"hook$"
)
_SHARDED = re.compile(
    r"^(DataParallel|FSDP|FullyShardedDataParallel|fully_shard|parallelize_module|"
    r"init_device_mesh|DeviceMesh|DTensor|DistributedOptimizer)$"
)


def file_guard(script: Script) -> str | None:
    """What in this file keeps AMP from being inserted anywhere."""
    return _not_borne(script) or _structure_guard(script)


def _not_borne(script: Script) -> str | None:
    """What of a file half precision breaks."""
    for name in script.index.called_names:
        if name in ("torch.nn.BCELoss", "torch.nn.functional.binary_cross_entropy"):
            return f"`{name.rpartition('.')[2]}` raises under autocast"
    exact = exact_mathematics(script)
    return f"`{exact}` does not take half precision" if exact is not None else None


def _structure_guard(script: Script) -> str | None:
    """What of a file asks for another form of mixed precision."""
    index = script.index
    for owner in index.classes.values():
        if "torch.autograd.Function" in script.resolver.classes.base_names(owner):
            return f"`{owner.name}` is a custom autograd.Function"
    for attribute in index.all(ast.Attribute):
        reason = _attribute_guard(script, attribute)
        if reason is not None:
            return reason
    for name_node in index.all(ast.Name):
        if _SHARDED.match(name_node.id):
            return f"`{name_node.id}` needs a form of its own"
    return None


def _attribute_guard(script: Script, node: ast.Attribute) -> str | None:
    text = script.text(node)
    if _SHARDED.match(node.attr):
        return f"`{text}` needs a form of its own"
    if _HOOKS.match(node.attr):
        return f"`{text}` sees gradients that are scaled"
    if node.attr in ("detect_anomaly", "set_detect_anomaly"):
        return f"`{text}` stops where the scaler skips a step"
    if node.attr == "grad" and not (script.index.qualified(node) or "").startswith(
        "torch."
    ):
        return f"`{text}` is read or changed"
    return None


def with_autocast(script: Script, step: Step) -> Rewrite:
    """The step under autocast with a gradient scaler; CannotFix names the guard."""
    if (reason := _not_borne(script)) is not None:
        raise NotBorne(reason)
    if (reason := why_protected(script, step) or file_guard(script)) is not None:
        raise CannotFix(reason)
    return _Inserter(script, step).rewrite()


class _Inserter:
    """One rewrite of one step."""

    def __init__(self, script: Script, step: Step) -> None:
        self.script = script
        self.step = step
        self.update = ScaledUpdate(script, step)
        found = autocast_regions(script, step, self.update.passes)
        self.regions, self.widened = found
        self.place, self.device = device_of_step(script, self.regions[0][0])
        around = [loop.node for loop in script.loops_around(step.backward)]
        if self.place not in (*around, *self.update.block) and len(self.regions) > 1:
            raise CannotFix("no device is named where all models run")
        self.scaler = script.names.free("scaler", "grad_scaler")
        self.dtype = script.names.free("amp_dtype", "autocast_dtype")

    def rewrite(self) -> Rewrite:
        """All edits, in the order in which they stand at the same place."""
        script, update = self.script, self.update
        placed = Beside(script, self.scaler, self._constructor)
        optimizers = sorted((u.optimizer for u in update.updates), key=self._made_at)
        scaler = placed.reach(optimizers[0])
        kept = ScalerCheckpoints(script, optimizers, self.scaler)
        stored = list(kept.edits(placed.reach))
        if placed.passed and not is_started(script):
            raise CannotFix("functions of an imported file get no new parameter")
        edits: list[Edit] = [*placed.edits, *stored, *self._wrapped()]
        edits += [ReplaceCode(use, f"{use.id}.float()") for use in self.widened]
        for made in update.passes:
            loss = script.text(made.loss)
            edits.append(ReplaceCode(made.loss, f"{scaler}.scale({loss})"))
        for part in update.updates:
            optimizer = script.text(part.optimizer)
            if part.unscale_at is not None:
                unscale = f"{scaler}.unscale_({optimizer})"
                edits.append(InsertBefore(part.unscale_at, unscale))
            edits.append(ReplaceCode(part.call, f"{scaler}.step({optimizer})"))
        edits.append(InsertAfter(update.end, f"{scaler}.update()"))
        imports = (*script.names.torch[1], *script.names.runtime[1])
        lowest = (2, 5) if "mps" in script.source.text else (2, 3)
        return Rewrite("Train in mixed precision", tuple(edits), imports, torch=lowest)

    def _made_at(self, optimizer: ast.expr) -> int:
        """A number that is smaller for an optimizer that is made later."""
        origins = self.script.resolver.origins(optimizer)
        return min(-getattr(o.node, "lineno", 0) for o in origins)

    def _constructor(self, anchor: ast.stmt) -> str:
        """The scaler as it is made after a statement."""
        torch, runtime = self.script.names.torch[0], self.script.names.runtime[0]
        name = '"cuda"'
        if self.device is not None:
            name = same_device(self.script, self.device, anchor)
        enabled = f"enabled={runtime}.amp_dtype({name}) is {torch}.float16"
        values = [self._type(name), enabled]
        before = len("self. = ") + len(self.scaler)
        return _call(f"{torch}.amp.GradScaler", values, anchor.col_offset, before)

    def _wrapped(self) -> Iterator[Edit]:
        """Ask for the dtype once, and open autocast around the region."""
        torch, runtime = self.script.names.torch[0], self.script.names.runtime[0]
        name = '"cuda"' if self.device is None else self.script.text(self.device)
        yield InsertBefore(self.place, f"{self.dtype} = {runtime}.amp_dtype({name})")
        values = [
            self._type(name),
            f"dtype={self.dtype}",
            f"enabled={self.dtype} is not None",
        ]
        for region in self.regions:
            indent = region[0].col_offset
            header = _call(f"with {torch}.autocast", values, indent, before=1)
            yield Wrap(region, f"{header}:")

    def _type(self, name: str) -> str:
        """Code for the device's type, given code for the device."""
        if self.device is None:
            return name
        if is_torch_device(self.script, self.device):
            return f"{name}.type"
        return f"{self.script.names.torch[0]}.device({name}).type"


def _call(callee: str, values: list[str], indent: int, before: int) -> str:
    """A call on one line, if it fits with `before` characters in front of it."""
    inside = ", ".join(values)
    if indent + before + len(f"{callee}({inside})") <= WIDTH:
        return f"{callee}({inside})"
    if indent + 4 + len(inside) <= WIDTH:
        return f"{callee}(\n    {inside}\n)"
    return f"{callee}(\n    " + ",\n    ".join(values) + ",\n)"
