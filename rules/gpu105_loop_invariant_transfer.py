"""A tensor or model that does not change in a loop is moved in every iteration.

## Why
`weights.to(device)` on a host tensor copies it each time, and the host waits for the
copy, although the same values lie on the device since the first iteration.
`model.to(device)` in a loop copies once and then walks all parameters for nothing.

## Example
```python
import torch
import torch.nn.functional as F

def train(model, loader, optimizer, device):
    class_weights = torch.tensor([0.2, 0.8])
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = F.cross_entropy(model(x), y, class_weights.to(device))
        loss.backward()
        optimizer.step()
```
```python
import torch
import torch.nn.functional as F

def train(model, loader, optimizer, device):
    class_weights = torch.tensor([0.2, 0.8])
    class_weights = class_weights.to(device)
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = F.cross_entropy(model(x), y, class_weights)
        loss.backward()
        optimizer.step()
```

## Fix
The move goes before the outermost loop in which its value and device stay the same.
The name is bound to the device tensor where the host's is not read again, else a new
name is. Only where nothing can change the moved tensor in place: in the loop each
iteration had a fresh copy.

## When not
A tensor that takes part in the gradient, changes in the loop, is made in it or comes
from the batch; a model that is made in the loop or moved back to the host; moves behind
`if step % n`, and to the device of a tensor that is on the host. Of low confidence: a
model that is moved once an epoch, which looks at each weight and copies none. Without a
fix: attributes, moves in a function that the loop calls, a device that is known only in
the loop, tensors that are made of an array, a list or a tensor that stays
(`torch.from_numpy(TABLE).to(device)`, `torch.tensor(self.mask, device=device)`,
`self.bands[None].to(x)`).

## Source
PyTorch performance tuning guide, "Avoid unnecessary CPU-GPU synchronization";
`torch.Tensor.to` and `torch.nn.Module.to`.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.rule import Hardware, Rule, Words
from gpulint.script import Script
from gpulint.script.copying.hoists import find_hoists
from gpulint.script.copying.module_moves import Hoist


class LoopInvariantTransfer(Rule):
    """Fires on a move whose receiver has the same value in every iteration."""

    effect = Effect.EXACT
    severity = Severity.ERROR
    hardware = Hardware.GPU
    needs = Words("<move>")

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each value and loop; other places are related."""
        for hoist in find_hoists(script):
            yield self._finding(script, hoist)

    def _finding(self, script: Script, hoist: Hoist) -> Finding:
        first = hoist.moves[0]
        name = script.text(first.receiver)
        what = "is moved" if hoist.module else "is copied to the device"
        again = "epoch" if hoist.epoch else "step"
        return self.finding(
            script,
            first.call,
            f"`{name}` {what} in every {again}, and does not change",
            fix=hoist.rewrite,
            withheld=hoist.withheld,
            related=[(move.call, "moved here as well") for move in hoist.moves[1:]],
            evidence=[(hoist.runner, f"runs in every {again}")],
            confidence=Confidence.LOW if hoist.epoch else None,
        )
