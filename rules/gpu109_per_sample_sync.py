"""A Python loop inside each step waits for the device in every round.

## Why
`.item()`, `.cpu()` or a test of a device tensor stops the host until the device has
done all that is queued. In a loop over the samples, boxes or words of a batch that
happens once for each of them: a batch of 64 waits 64 times, for some ten microseconds
each and more, and in between the device computes next to nothing.

## Example
```python
import torch


@torch.no_grad()
def evaluate(model, val_loader, device):
    model.eval()
    ranks = []
    for queries, targets in val_loader:
        queries, targets = queries.to(device), targets.to(device)
        order = model(queries).argsort(dim=1, descending=True)
        for row, target in zip(order, targets):
            ranks.append((row == target).nonzero().item())
    return ranks
```

## Fix
None: whole tensors instead of the loop (`(order == targets[:, None]).nonzero()[:, 1]`),
or one copy to the host before it (`.tolist()`, `.cpu()`), are the author's to write.

## When not
What GPU106 leaves out as well: waits behind `if step % n == 0` or an option that is off
by default, on values that are on the host already, for the actions of an environment,
in code that measures time around `synchronize()`, on the way to a file, and outputs
that an evaluation collects on the host. Training loops inside another loop are steps of
their own. A number that a module needs to go on, but for those that its rounds read one
after another of a tensor that is there before them (`for i in range(n): size =
sizes[i].item()`): one `sizes.tolist()` gives all. Pictures on their way to a file, by a
name too. What ends a `while` loop: `if shift < tolerance: break`. Of low confidence is
a read of an evaluation beside a call that may wait as long, as that of an object that
is not known, which gets the outputs.

## Source
The synchronising calls: `torch.cuda.set_sync_debug_mode` and the PyTorch performance
tuning guide, "Avoid unnecessary CPU-GPU synchronization".
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.rule import Hardware, Rule, StepLoops
from gpulint.script import Script
from gpulint.script.waiting.waits import find_waits, named


class PerSampleSync(Rule):
    """One finding for each loop whose steps hold such a loop."""

    effect = Effect.NONE
    hardware = Hardware.GPU
    needs = StepLoops(
        *(
            f"{moves} {runs} torch"
            for runs in ("backward(", "no_grad", "inference_mode", ".eval(", "loader")
            for moves in ("<move>", "cuda")
        ),
        "backward( torch",  # what is moved in another file
        "oader torch",
    )

    def check(self, script: Script) -> Iterator[Finding]:
        """A finding at the first wait in a loop inside each step."""
        if not script.steps_on_gpu:
            return
        seen: set[ast.AST] = set()
        for loop in script.step_loops:
            found = [w for w in find_waits(script, loop) if w.node not in seen]
            seen.update(w.node for w in found)
            waits = [w for w in found if w.inner]
            if not waits:
                continue
            step = "training" if loop.train else "evaluation"
            related = {w.at: "waits as well" for w in waits if w.at is not waits[0].at}
            outside = (w for w in waits if not script.index.holds(w.node))
            sure = loop.train or any(w.clear for w in waits)
            related.update((w.node, "waits here") for w in outside)
            yield self.finding(
                script,
                waits[0].at,
                f"a loop inside every {step} step waits for the device in each round: "
                f"{named(script, waits)}",
                related=related.items(),
                severity=Severity.WARNING if loop.train else Severity.NOTE,
                confidence=None if sure else Confidence.LOW,
            )
