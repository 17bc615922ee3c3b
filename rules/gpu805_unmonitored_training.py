"""A script trains on the GPU for epochs and measures neither time nor memory.

## Why
Whether a change makes training faster, and whether a larger batch would fit, cannot be
told from losses. Seconds an epoch and the peak of the memory show it at once, and cost
nothing: reading them makes nobody wait for the GPU.

## Example
```python
import torch
from torch import nn

device = torch.device("cuda")
model = nn.Linear(64, 10).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(90):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
```
becomes
```python
import torch
from torch import nn
from gpulint import runtime

device = torch.device("cuda")
model = nn.Linear(64, 10).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
monitor = runtime.Monitor()
for epoch in monitor.epochs(range(90)):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
```

## Fix
`runtime.Monitor` says after each epoch, on standard error, how long it took, how much
memory PyTorch has taken at most, and in how much of the time the GPU ran a kernel. The
numbers of the epochs come through as they are and no random number is drawn. With
`for x, y in monitor.batches(loader)` it tells samples a second as well.

What it calls in use is not what it calls busy: one small kernel at a time is in use all
the time. Slices of a GPU (MIG) and machines without the package nvidia-ml-py have no
such figure.

## When not
The program, or a file that it imports, has anything of time or memory in it: `time`,
`datetime`, a progress bar, logging, a tracker such as TensorBoard or wandb, a profiler,
`memory_allocated`. Frameworks, which measure themselves. Loops that do not count epochs
with `range`, and files that are only imported. What is not measured costs nothing by
itself: of low confidence.

## Source
`nvmlDeviceGetUtilizationRates` in the NVML reference; `torch.cuda.max_memory_reserved`
in the PyTorch documentation.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.rule import Rule, StepLoops
from gpulint.script import Script
from gpulint.script.waiting.epoch_figures import measure, unmeasured_epochs


class UnmonitoredTraining(Rule):
    effect = Effect.EXACT
    severity = Severity.NOTE
    needs = StepLoops("range( for <move> ep")

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding a file: its first loop over epochs, others are related."""
        loops = unmeasured_epochs(script)
        if not loops:
            return
        first, *others = loops
        fix, withheld = measure(script, first)
        yield self.finding(
            script,
            first.node,
            "nothing tells how long an epoch takes or how much memory it needs",
            fix=fix,
            withheld=withheld,
            related=[(other.node, "nor here") for other in others],
            confidence=Confidence.LOW,
        )
