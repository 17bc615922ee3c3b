"""A batch is moved to the device that Accelerate has moved it to already.

## Why
A loader that went through `accelerator.prepare` gives batches that are on the device.
Another `.to(device)` copies nothing, but builds each batch anew in Python, hides who
places the data, and is a real copy on the day that the device is another one.

## Example
```python
from accelerate import Accelerator

accelerator = Accelerator()
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    batch = {name: value.to(accelerator.device) for name, value in batch.items()}
    accelerator.backward(model(**batch).loss)
    optimizer.step()
```

Building it anew takes some microseconds, so that the finding is of low confidence.

## Fix
None: whether every part of the batch is a tensor, or has a `to` of its own, which is
what Accelerate moves, is for a person to see. Then the call can go.

## When not
The loader surely comes from `prepare` on all paths, and Accelerate places its batches:
not with `device_placement=False`, nor where that may be given. What is made anew from a
part of a batch, what is converted by the same call, attributes of a batch, which
Accelerate may not know, and moves to a certain GPU by its number, or to that of a model
which is not prepared, are left alone.

## Source
`send_to_device` and `DataLoaderShard.__iter__` of Accelerate 0.1 to 1.15; its own
examples: "We could avoid this line since we set the accelerator with
`device_placement=True`."
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.index import Move, Target
from gpulint.index.walk import dotted
from gpulint.rule import Hardware, Rule, StepLoops
from gpulint.script import Loop, Script
from gpulint.script.loading.prepared import fed_by, is_prepared

# What gives parts of a batch, or the same tensor in another form.
SAME = frozenset(
    "items values get float long half double int bool view reshape unsqueeze squeeze "
    "permute transpose contiguous detach clone flatten".split()
)
PLACES = ("cuda", "mps", "cpu")
MAX_DEPTH = 8


class AccelerateManualTransfer(Rule):
    """One finding for each loop, at its first such move."""

    effect = Effect.NONE
    severity = Severity.NOTE
    confidence = Confidence.LOW
    hardware = Hardware.GPU
    needs = StepLoops("ccelerator <move> prepare")
    framework = "accelerate"

    def check(self, script: Script) -> Iterator[Finding]:
        """Moves of what a prepared loader gives."""
        moves: dict[Loop, list[Move]] = {}
        for move, loop in script.batch_moves:
            if _is_whole(script, move.receiver, loop) and _is_same_place(script, move):
                moves.setdefault(loop, []).append(move)
        for loop, found in moves.items():
            prepared = fed_by(script, loop)
            if prepared:
                first, *others = [move.call for move in found]
                text = script.text(found[0].receiver).partition("\n")[0]
                yield self.finding(
                    script,
                    first,
                    f"`{text}` is on the device already: the loader is prepared by "
                    "Accelerate",
                    related=[
                        *((prepared_at, "prepared here") for prepared_at in prepared),
                        *((call, "moved again") for call in others),
                    ],
                )


def _is_whole(script: Script, node: ast.AST, loop: Loop, depth: int = 0) -> bool:
    """Whether a value is what the loader gave, or a part that Accelerate has moved."""
    if depth > MAX_DEPTH:
        return False
    if isinstance(node, ast.Name):
        found = script.definitions(node)
        return bool(found) and all(
            d.node in loop.targets
            or (
                d.kind in ("assign", "for")
                and d.value is not None
                and _is_whole(script, d.value, loop, depth + 1)
            )
            for d in found
        )
    if isinstance(node, ast.Subscript):
        return _is_whole(script, node.value, loop, depth + 1)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        kept = node.func.attr in SAME
        return kept and _is_whole(script, node.func.value, loop, depth + 1)
    return False


def _is_same_place(script: Script, move: Move) -> bool:
    """Whether a move goes where Accelerate has put the batch, and does nothing else."""
    if move.dtype or move.target in (Target.CPU, Target.UNKNOWN):
        return False
    if move.device is None or _is_its_device(script, move.device):
        return True
    origins = [o.node for o in script.resolver.origins(move.device)]
    return all(_is_its_device(script, node) for node in origins)


def _is_its_device(script: Script, node: ast.AST) -> bool:
    """The device of the accelerator, of a prepared model, or a GPU without a number."""
    if isinstance(node, ast.Attribute):
        holder = (dotted(node.value) or "").lower()
        known = "accelerator" in holder or is_prepared(script, node.value)
        return node.attr == "device" and known
    if isinstance(node, ast.Constant):
        return node.value in PLACES
    if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        made = script.index.qualified(node.func) == "torch.device"
        return made and script.evaluator.values(node.args[0]).all_in(*PLACES)
    return False
