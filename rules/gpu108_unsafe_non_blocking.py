"""A copy with `non_blocking=True` is read too early, or memory is pinned for nothing.

## Why
`x.to("cpu", non_blocking=True)` returns before the values have arrived: torch makes the
host tensor in pinned memory and lets the device write to it later. What reads it before
the device is done sees whatever was there, mostly in the last rows and now and then
only. On the device one operation waits for the other; the host waits for nothing unless
it is told to. On Apple's MPS a copy from the host is not safe either: the source may be
freed, and used again, while it is under way.

`x.pin_memory().to(device)` copies twice: the host copies `x` to pinned memory first and
then waits for the copy to the device all the same.

## Example
```python
import torch


@torch.no_grad()
def predict(model, loader):
    model.eval()
    outputs = []
    for images, _ in loader:
        logits = model(images.cuda(non_blocking=True))
        outputs.append(logits.to("cpu", non_blocking=True))
    return torch.cat(outputs).numpy()
```
becomes
```python
import torch


@torch.no_grad()
def predict(model, loader):
    model.eval()
    outputs = []
    for images, _ in loader:
        logits = model(images.cuda(non_blocking=True))
        outputs.append(logits.to("cpu"))
    return torch.cat(outputs).numpy()
```

## Fix
The argument is dropped: then the copy is complete when `to` returns. Where the device
may be MPS or CUDA it becomes a test for CUDA. `.pin_memory()` is dropped. All values
are those that the script meant to have.

## When not
Copies that something waits for before the read: `synchronize()`, an event, a blocking
copy or `.item()` after it (the device works in order). Results that go to functions
which are not known, are kept in attributes or returned, and those of a function that
calls `record_stream`, whose caller waits for the stream. `x.pin_memory().to(device,
non_blocking=True)`, where the host can go on. Before torch 1.8 a copy to the host goes
to ordinary memory and is complete: of low confidence in a project that allows none
newer. So is a device that may be MPS in a file that imports what works on CUDA alone
(DeepSpeed, vLLM, Megatron, apex).

## Source
"A guide on good usage of `non_blocking` and `pin_memory()` in PyTorch", with "Other
copy directions"; `torch.Tensor.to`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.index import Move, Target
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.copying.host_copies import (
    EarlyRead,
    find_early_reads,
    find_pinned_for_nothing,
    find_unsafe_on_mps,
    works_on_cuda,
)
from gpulint.script.rewriting.device_code import device_condition
from gpulint.script.rewriting.edits import Edit, Replace, ReplaceCode, Rewrite
from gpulint.script.rewriting.syntax import without_call, without_last

NAME = "non_blocking"
PINS_SINCE = (1, 8)  # `to("cpu", non_blocking=True)` makes a tensor in pinned memory


class UnsafeNonBlocking(Rule):
    """Fires on the argument, or on the `pin_memory` that gains nothing."""

    effect = Effect.EXACT
    severity = Severity.ERROR
    torch = (1, 0)
    needs = Words("non_blocking cpu", "non_blocking mps", ".pin_memory() <move>")

    def check(self, script: Script) -> Iterator[Finding]:
        """A finding for each early read, and for all other copies of a function."""
        for early in find_early_reads(script):
            yield self._early(script, early)
        for moves in find_unsafe_on_mps(script):
            yield self._on_mps(script, moves)
        for moves in find_pinned_for_nothing(script):
            yield self._pinned(script, moves)

    def _early(self, script: Script, early: EarlyRead) -> Finding:
        move = early.move
        return self.finding(
            script,
            _argument(move),
            f"`{script.text(move.receiver)}` is copied to the host with `{NAME}` and "
            "read before the copy is complete",
            fix=Rewrite(f"Drop `{NAME}`", (_dropped(move),)),
            related=[(early.read, "read here, nothing waits for the copy before")],
            confidence=Confidence.LOW if _waits_anyway(script) else None,
        )

    def _on_mps(self, script: Script, moves: list[Move]) -> Finding:
        first, *others = moves
        sure = first.target is Target.MPS
        edits = [_for_cuda(script, m) for m in moves]
        title = f"Drop `{NAME}`" if sure else f"Give `{NAME}` on CUDA only"
        imports = () if sure else device_condition(script, first.device)[1]
        named = all(isinstance(m.device, (ast.Name, ast.Attribute)) for m in moves)
        may = "" if sure else "may be "
        return self.finding(
            script,
            _argument(first),
            f"`{script.text(first.receiver)}` is copied with `{NAME}` to a device that "
            f"{may or 'is '}MPS, where the source may change under way",
            fix=Rewrite(title, tuple(edits), imports) if sure or named else None,
            withheld=None if sure or named else "the device has no name",
            related=[(_argument(m), "another copy") for m in others],
            severity=Severity.ERROR if sure else Severity.WARNING,
            confidence=None if sure or not works_on_cuda(script) else Confidence.LOW,
        )

    def _pinned(self, script: Script, moves: list[Move]) -> Finding:
        pinned = [m.receiver for m in moves]
        edits = tuple(Replace(p, without_call) for p in pinned)
        return self.finding(
            script,
            pinned[0],
            f"`{script.text(pinned[0])}` makes a copy in pinned memory in every step, "
            "and the host waits for the next copy all the same",
            fix=Rewrite("Drop `.pin_memory()`", edits),
            related=[(p, "here as well") for p in pinned[1:]],
            severity=Severity.NOTE,
        )


def _waits_anyway(script: Script) -> bool:
    """Whether the project's torch copies to ordinary memory, as before 1.8."""
    return script.newest_torch is not None and script.newest_torch < PINS_SINCE


def _argument(move: Move) -> ast.expr:
    assert move.non_blocking is not None
    return move.non_blocking


def _dropped(move: Move) -> Edit:
    """Without the argument; `False` where others follow or it has no name."""
    keywords = [k.arg for k in move.call.keywords]
    if keywords[-1:] == [NAME] and (move.call.args or len(keywords) > 1):
        return Replace(move.call, without_last)
    return ReplaceCode(_argument(move), "False")


def _for_cuda(script: Script, move: Move) -> Edit:
    if move.target is Target.MPS:
        return _dropped(move)
    return ReplaceCode(_argument(move), device_condition(script, move.device)[0])
