"""Training waits until a checkpoint is written to the disk.

## Why
`torch.save` returns when the file is written: the weights and the optimizer's state are
copied to the host, packed and handed to the file system, and the GPU has nothing to do.
For a gigabyte that takes seconds, on a network drive far longer. Only the copy to the
host has to be waited for; and a run that is killed in the middle of `torch.save` leaves
half a file in the place of the last good one.

## Example
```python
import torch


def train(model, loader, criterion, optimizer, epochs):
    for epoch in range(epochs):
        for x, y in loader:
            loss = criterion(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.save(model.state_dict(), f"epoch_{epoch}.pt")
```
becomes
```python
import torch
from gpulint import runtime


def train(model, loader, criterion, optimizer, epochs):
    for epoch in range(epochs):
        for x, y in loader:
            loss = criterion(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        runtime.async_save(model.state_dict(), f"epoch_{epoch}.pt")
```

## Fix
`runtime.async_save` pickles the object and copies its tensors to host memory, and then
writes in the background: a new file beside the old one, which it replaces when it is
whole. The end of the script waits for it, also by SIGTERM. `runtime.flush()` is put
before each `torch.load`, and other `torch.save`, that may be of the same file. An error
of writing is raised by a later save, or at the end.

No fix where something else may look for the file: the path, or its folder, is given to
a function that is not known (a copy, an upload, a size, a listing), another program is
started, other processes wait for the save at a barrier. Nor where an error of the save
is handled, the script may leave by `os._exit`, the file is open already, `torch.save`
has options, or the path cannot be followed. `save_pretrained` writes several files; its
time is reported, by hand `model.state_dict()` can be saved in between.

## When not
After the training, or its only epoch, or in a handler of `KeyboardInterrupt`; one epoch
in ten or fewer, one step in a thousand or fewer, the first or last of them alone; an
option that is off. Networks that are known to have fewer than 5 million weights, which
are 20 MB; where only the best epochs are saved, which grow rare (also behind `if
progress.success:`), networks that are not known to have as many. Every step or every
few steps (GPU602). Evaluation. Frameworks that save by themselves. Of low confidence: a
number of epochs that is not known, and a program in which no large model is seen, nor a
layer of 128 features or more.

## Source
Gao et al., "An Empirical Study on Low GPU Utilization of Deep Learning Jobs", ICSE
2024: synchronous checkpoints are 16 % of the cases; PyTorch, "Asynchronous Saving with
Distributed Checkpoint"; Mohan et al., "CheckFreq", FAST 2021.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.rewriting.edits import CannotFix, Rewrite
from gpulint.script.saving.async_saves import async_save, joined
from gpulint.script.saving.checkpoints import Checkpoint, is_pretrained, seems_large

DONE = "gpulint.runtime.async_save"


class BlockingCheckpoint(Rule):
    effect = Effect.EXACT
    needs = Words("torch save(", "save_pretrained(")

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding a loop and outcome, other calls are related."""
        groups: dict[tuple[ast.AST, str | None], list[Save]] = {}
        for found in script.checkpoints:
            done = script.index.qualified(found.call.func) == DONE
            if not (done or found.too_often or found.seldom):
                save = _save(script, found)
                groups.setdefault((found.loop.node, save.withheld), []).append(save)
        for (loop, withheld), (first, *others) in groups.items():
            rewrites = [x.fix for x in (first, *others) if x.fix is not None]
            step = any(x.found.rhythm == "step" for x in (first, *others))
            sure = any(_is_regular(x.found) for x in (first, *others))
            sure = sure and seems_large(script.of(loop))
            yield self.finding(
                script,
                first.found.call.func,
                f"training waits until a checkpoint is written, {_often(first.found)}: "
                f"`{script.text(first.found.call.func)}`",
                fix=joined(script, rewrites) if rewrites else None,
                withheld=withheld,
                severity=Severity.WARNING if step else Severity.NOTE,
                confidence=None if sure else Confidence.LOW,
                related=[(x.found.call.func, "here as well") for x in others],
                evidence=[(loop, "runs in this loop")],
            )


def _is_regular(found: Checkpoint) -> bool:
    """Whether its rounds are known; those of the best result grow rare."""
    return not found.sometimes and found.every is not None


class Save(NamedTuple):
    """A call with its fix, or what is against it."""

    found: Checkpoint
    fix: Rewrite | None
    withheld: str | None


def _save(script: Script, found: Checkpoint) -> Save:
    if is_pretrained(script, found.call):
        return Save(found, None, "`save_pretrained` writes its files itself")
    try:
        return Save(found, async_save(script, found), None)
    except CannotFix as error:
        return Save(found, None, str(error))


def _often(found: Checkpoint) -> str:
    if found.sometimes or found.every is None:
        return f"after some {found.rhythm}s"
    many = f"{found.every} {found.rhythm}s" if found.every > 1 else found.rhythm
    return f"after every {many}"
