"""A checkpoint is written in every step of a training loop, or every few steps.

## Why
Writing a checkpoint takes as long as many steps: all weights are copied to the host,
packed and written to the disk, and with the state of Adam that is three times the
model. The GPU waits meanwhile. A crash costs the work since the last checkpoint; when
each takes a second, one in some minutes loses little.

## Example
```python
import torch


def train(model, loader, criterion, optimizer):
    for x, y in loader:
        loss = criterion(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.save(model.state_dict(), "last.pt")
```

## Fix
None: how much work may be lost is for a person to say. `if step % 1000 == 0:` before
the call, or once an epoch, is enough for most.

## When not
Every 50 steps or more, or a number that is not known; a test that differs from step to
step (the best loss so far); an option that is off; once an epoch, also where the end of
a pass is handled (`except StopIteration:`, GPU601). Networks that are known to have
fewer than 5 million weights. Episodes of reinforcement learning. A file that only hands
the weights on, and is removed behind that (`os.remove(path)`).

## Source
Gao et al., "An Empirical Study on Low GPU Utilization of Deep Learning Jobs", ICSE
2024: synchronous checkpoints; Mohan et al., "CheckFreq: Frequent, Fine-Grained DNN
Checkpointing", FAST 2021.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Effect, Finding, Severity
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.saving.checkpoints import Checkpoint


class CheckpointTooOften(Rule):
    effect = Effect.NONE
    severity = Severity.NOTE
    needs = Words("torch save(", "save_pretrained(")

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding a loop, other calls are related."""
        loops: dict[ast.AST, list[Checkpoint]] = {}
        for found in script.checkpoints:
            if found.too_often:
                loops.setdefault(found.loop.node, []).append(found)
        for loop, (first, *others) in loops.items():
            often = f"{first.every} steps" if first.every != 1 else "step"
            yield self.finding(
                script,
                first.call.func,
                f"a checkpoint is written every {often}: "
                f"`{script.text(first.call.func)}`",
                related=[(other.call.func, "here as well") for other in others],
                evidence=[(loop, "the training loop")],
            )
