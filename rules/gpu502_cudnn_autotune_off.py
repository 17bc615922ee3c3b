"""Convolutions of pictures of one size, with cuDNN's choice of algorithms untimed.

## Why
cuDNN has several algorithms for a convolution; which is fastest depends on its sizes
and on the GPU. By default PyTorch takes the one that a rule of thumb names. With
`torch.backends.cudnn.benchmark` it times them when it meets a size for the first time
and keeps the fastest: pictures of one size pay for that once and gain in every step.

## Example
```python
import torch
from torch import nn
from torch.utils.data import DataLoader

device = torch.device("cuda")
loader = DataLoader(dataset, batch_size=64, shuffle=True)
model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.Flatten(), nn.LazyLinear(10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
```
becomes
```python
import torch
from torch import nn
from torch.utils.data import DataLoader

torch.backends.cudnn.benchmark = True

device = torch.device("cuda")
loader = DataLoader(dataset, batch_size=64, shuffle=True)
model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.Flatten(), nn.LazyLinear(10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
```

## Fix
`torch.backends.cudnn.benchmark = True` after the imports of the script that is run, or
under its main guard where others may import it (what they run is not meant). It does
nothing without CUDA. The algorithm, and with it rounding, may differ from run to run;
the first step takes longer, and may take more memory while algorithms are tried.

Withheld in a file that is only imported, or whose main guard only tries it out, and
where the file speaks of reproducible results.

## When not
A file of the program sets it, to whatever value, or asks for deterministic algorithms.
Sizes that differ from batch to batch, or may: a collate function or a batch sampler of
the script's own, batches of one sample, training at several scales. A collate function
of its own is no hindrance where transforms crop the pictures to one size.

No model is trained that is seen to convolve pictures; convolutions of single pixels and
networks of words do not count, nor do models of less than 10 000 weights. The training
runs on the CPU, or in Lightning or the Hugging Face Trainer. Models known to have less
than 100 000 weights (2 000 000, most of them in linear layers, for pictures of at most
64 x 64), those of pictures of at most 28 x 28, and those that a GPU of 20 TFLOP/s
computes in less time than the host needs to launch them, are of low confidence, as are
files with environments of reinforcement learning, whose states are seldom pictures, and
programs with `DataParallel`: on several GPUs it runs each forward pass in new threads,
and since PyTorch 2.1 a thread keeps its timings for itself (pull request 103939), so
that all are made again in every step. Nothing is written there.

## Source
PyTorch Performance Tuning Guide, "Enable cuDNN auto-tuner"; PyTorch documentation,
`torch.backends.cudnn.benchmark` and "Reproducibility".
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.rule import Hardware, Rule, Words
from gpulint.script import Script
from gpulint.script.environments import imports_environments
from gpulint.script.modelling.autotuning import autotuning_is_set, pictures_are_alike
from gpulint.script.modelling.model_size import (
    is_modest,
    is_tiny,
    waits_for_launches,
)
from gpulint.script.modelling.networks import convolves_pictures
from gpulint.script.neighbours import run_together
from gpulint.script.reaching.started import (
    at_start,
    has_own_settings,
    trains_on_gpu,
    why_not_at_start,
)
from gpulint.script.reaching.switches import is_switched_off
from gpulint.script.training.optimized import optimizes_tensors
from gpulint.script.training.training_step import find_steps

TITLE = "Let cuDNN time its convolutions"
SETTING = "backends.cudnn.benchmark = True"


class CudnnAutotuneOff(Rule):
    """Reports the first training loop over pictures of one size."""

    effect = Effect.NUMERICS
    severity = Severity.NOTE
    hardware = Hardware.CUDA
    needs = Words("backward( torch oader")
    torch = (0, 1)

    def check(self, script: Script) -> Iterator[Finding]:
        """At most one finding for a file."""
        loops = [x for x in script.training_loops if pictures_are_alike(script, x)]
        loops = [x for x in loops if not is_switched_off(script, x.node)]
        if not loops or not trains_on_gpu(script) or has_own_settings(script):
            return
        steps = find_steps(script)
        if optimizes_tensors(script) or all(is_tiny(script, x) for x in steps):
            return
        if autotuning_is_set(script) or not convolves_pictures(script):
            return
        withheld = _guard(script)
        spread = _spreads_threads(script)
        small = imports_environments(script.index) or all(
            is_modest(script, x) or waits_for_launches(script, x) for x in steps
        )
        yield self.finding(
            script,
            loops[0].node,
            "inputs of one size are convolved in each step, by algorithms that were "
            "never timed: `cudnn.benchmark` is off",
            fix=None if withheld else at_start(script, TITLE, SETTING),
            withheld=withheld,
            confidence=Confidence.LOW if small or spread else None,
        )


def _spreads_threads(script: Script) -> bool:
    """Whether a program has `DataParallel`, which runs each pass in new threads.

    Each thread has timings of its own, so that all are made again in every step.
    """
    files = run_together(script)
    return any(index.calls_by_name.get("DataParallel") for index in files)


def _guard(script: Script) -> str | None:
    """Why the line must not simply be added."""
    if _spreads_threads(script):
        return "the threads of `DataParallel` would time them anew in each step"
    if "reproduc" in script.source.text.lower():
        return "the file speaks of reproducible results"
    return why_not_at_start(script)
