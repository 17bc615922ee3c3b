"""A loader has more workers than a machine has cores for one GPU.

## Why
Each worker is a process with its own copy of the dataset's Python objects and its own
batches ahead: with 64 workers and the default prefetching 128 batches wait in shared
memory. Workers beyond the cores wait for each other and for the training process, and
each of them has to start in every epoch. `os.cpu_count()` is the number of the whole
machine: it knows nothing of other ranks, of a second loader, or of the limits of a
container, in which 4 of 128 CPUs may be usable.

## Example
```python
import os

from torch.utils.data import DataLoader

loader = DataLoader(
    train_set,
    batch_size=64,
    shuffle=True,
    num_workers=os.cpu_count(),
)
for x, y in loader:
    loss = criterion(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
```

## Fix
None: how many workers a dataset needs, a measurement says. `runtime.loader_kwargs()`
gives this rank's share of the CPUs that are usable, at most 8.

## When not
Up to 16 workers: servers for training have 14 to 16 cores for each GPU. Numbers that
are compared with what there is, `min(os.cpu_count(), 8)`, divided, or that settings
files give; a comment that gives a reason; a loader of which one batch is taken, once.
Of low confidence in programs that may drive all GPUs from one process (`DataParallel`),
which then has the cores of all; and where no loop over the batches trains or runs a
model: a program that prepares files has the CPUs for itself.

## Source
PyTorch source, `torch/utils/data/dataloader.py`, the warning "This DataLoader will
create … worker processes in total", given above the number of usable CPUs; Python
documentation, `os.cpu_count`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.rule import Loaders, Rule
from gpulint.script import Loader, Loop, Script
from gpulint.script.loading.batches_taken import shown_once
from gpulint.script.loading.loader_options import (
    fed_by_framework,
    has_reason,
    trains_on_cpu,
)
from gpulint.script.loading.unguarded import asks_for_cpus
from gpulint.script.neighbours import run_together
from gpulint.script.settings.setting_values import comes_from_settings
from gpulint.script.training.training_step import runs_model

_ALL_GPUS = re.compile(r"\bDataParallel\(")  # one process has the cores of all
MOST = 16  # cores for each GPU: 16 in a DGX A100, 14 in a DGX H100


class TooManyWorkers(Rule):
    """Fires on the loader whose number is a large constant, or that of all CPUs."""

    effect = Effect.NONE
    severity = Severity.NOTE
    needs = Loaders()

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding a loader."""
        if trains_on_cpu(script):
            return
        for loader in script.loaders:
            if fed_by_framework(script, loader) or loader.decided_by_runtime:
                continue
            if comes_from_settings(script, loader, "num_workers"):
                continue
            if shown_once(script, loader):
                continue
            found = _too_many(loader)
            if found is not None and not has_reason(script, found[0]):
                node, message = found
                yield self.finding(
                    script,
                    loader.call.func,
                    message,
                    related=[(node, "the number of workers")],
                    confidence=None if _is_sure(script, loader) else Confidence.LOW,
                )


def _is_sure(script: Script, loader: Loader) -> bool:
    """Whether a process for one GPU trains or evaluates with what it loads."""
    if _runs_no_model(script, loader):
        return False
    return not any(index.source.has(_ALL_GPUS) for index in run_together(script))


def _runs_no_model(script: Script, loader: Loader) -> bool:
    """Whether no loop over its batches trains or evaluates: it prepares files, say.

    Then its workers may have the CPUs for themselves.
    """
    return bool(loader.loops) and not any(
        _runs_a_model(script, x) for x in loader.loops
    )


def _runs_a_model(script: Script, loop: Loop) -> bool:
    if loop.train or not loop.eval:
        return loop.train
    its = script.of(loop.node)
    return any(runs_model(its, call) for call in loop.calls)


def _too_many(loader: Loader) -> tuple[ast.expr, str] | None:
    """Where the number is written, and what is wrong with it."""
    argument = loader.argument("num_workers")
    if not argument.given or not argument.nodes:
        return None
    if all(asks_for_cpus(loader, node) for node in argument.nodes):
        message = "the loader starts a worker for every CPU of the machine"
        return argument.nodes[0], message
    values = loader.values("num_workers")
    numbers = [v.constant for v in values.known if type(v.constant) is int]
    if not values.complete or len(numbers) != len(values.known) or not numbers:
        return None
    if min(numbers) <= MOST:
        return None
    by_default = " by default" if any(v.default for v in values.known) else ""
    message = f"the loader starts {min(numbers)} workers{by_default}"
    return values.known[0].node, f"{message}, more than there are cores for one GPU"
