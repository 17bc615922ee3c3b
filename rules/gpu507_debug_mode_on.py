"""One of torch's debugging aids stays on while a model is trained.

## Why
Anomaly detection keeps a stack trace for each operation of the forward pass and looks
for NaN in each gradient of the backward pass. A profiler records every operation and
keeps the records until it ends. `CUDA_LAUNCH_BLOCKING=1` makes the host wait for each
kernel, so that nothing is prepared while the GPU computes. Deterministic algorithms are
often slower ones. Each is meant for finding a fault, and costs in every step.

## Example
```python
import torch
from torch import nn

torch.autograd.set_detect_anomaly(True)

model = nn.Linear(64, 10).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
```

## Fix
None: who is looking for a fault needs it.

## When not
It stands behind an option or a condition, in a function for debugging, profiling or
seeding, or is switched off again. A profiler in a file or folder that is there for its
record (profile, benchmark, NVTX). A profiler that has a schedule, or that records
something else than all steps of a loop. A program that calls nothing by whose name it
may train, or only makes an object of the project of which it calls nothing that may
(`TrainOptions().parse()`, `Trainer(…).generate()`).

Deterministic algorithms in a program that fixes a seed or speaks of reproducible runs
are of low confidence: it wants them. With `cudnn.benchmark` on beside them it does not
get them: that picks among the deterministic convolutions by their time, which differs
from run to run. cuDNN's switch is silent where the models that are trained neither
convolve nor hold recurrent layers. In a file to whose training loops nothing is seen to
come, all are of low confidence.

Values in settings files are GPU905.

## Source
PyTorch Performance Tuning Guide, "Disable debugging APIs"; PyTorch documentation,
"Reproducibility".
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.modelling.debug_modes import debug_modes


class DebugModeOn(Rule):
    effect = Effect.NONE
    needs = Words(
        "detect_anomaly",
        "torch profile with",
        "torch nvtx",
        "deterministic cudnn",
        "deterministic _algorithms",
        "deterministic set_deterministic",
        "CUDA_LAUNCH_BLOCKING",
        "Trainer profiler",
    )

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each place that switches a mode on."""
        modes = debug_modes(script)
        loops = script.training_loops if modes else ()
        idle = bool(loops) and all(script.is_doubtful(loop.node) for loop in loops)
        for mode in modes:
            text = script.text(mode.node)
            yield self.finding(
                script,
                mode.node,
                f"`{text}` is on while the model trains: {mode.cost}",
                confidence=Confidence.LOW if mode.meant or idle else None,
            )
