"""Values go from the device to the host and back in every step.

## Why
`.cpu().numpy()` makes the host wait until the device has done all queued work; what
NumPy computes then runs on one core of the host while the device has nothing to do; and
the result is copied to the device again, which takes as long as the first copy. The
same operations on tensors stay in the queue of the device, without a wait.

## Example
```python
import numpy as np
import torch


def train(model, loader, criterion, optimizer, device):
    for x, y in loader:
        logits = model(x.to(device))
        weights = np.exp(-np.abs(logits.detach().cpu().numpy()))
        weights = torch.from_numpy(weights).to(device)
        loss = (weights * criterion(logits, y.to(device))).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
```

## Fix
None: which functions of torch do what NumPy does here is for the author to say. Most
have the same name; the finding names the places where the values leave and come back.

## When not
What passes through functions that are not torch's, NumPy's or Python's own, such as
those of SciPy, OpenCV or the program: they may exist for the host only. What comes back
behind `if step % n == 0`, in the branch of a training loop that evaluates, once an
epoch, or as a size. Actions into an environment.

## Source
PyTorch performance tuning guide, "Avoid unnecessary CPU-GPU synchronization" and
"Create tensors directly on the target device".
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Effect, Finding
from gpulint.rule import Hardware, Rule, StepLoops
from gpulint.script import Loop, Script
from gpulint.script.copying.round_trips import RoundTrip, find_round_trips


class HostRoundtrip(Rule):
    """Fires on the copy that brings values back to the device."""

    effect = Effect.NONE
    hardware = Hardware.GPU
    needs = StepLoops(
        *(
            f"{fetch} {back} torch"
            for fetch in (".cpu(", ".numpy(", ".item(", ".tolist(", "cpu")
            for back in ("<move>", "device=", "torch.cuda")
        )
    )

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each fetch that comes back; the first copy back."""
        if not script.uses_gpu:
            return
        seen: set[ast.AST] = set()
        for loop in script.step_loops:
            for trip in find_round_trips(script, loop):
                if trip.fetch not in seen and trip.back not in seen:
                    seen |= {trip.fetch, trip.back}
                    yield self._finding(script, loop, trip)

    def _finding(self, script: Script, loop: Loop, trip: RoundTrip) -> Finding:
        step = "training" if loop.train else "evaluation"
        fetch = " ".join(script.text(trip.fetch).split())
        return self.finding(
            script,
            trip.at,
            f"what `{fetch}` takes from the device is copied back in every {step} step",
            related=[(trip.fetch, "leaves the device here")],
            evidence=[(loop.node, f"runs in every {step} step")],
        )
