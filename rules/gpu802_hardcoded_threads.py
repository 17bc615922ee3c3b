"""Each worker process of a loader starts several threads of its own.

## Why
PyTorch gives each worker one thread, as there are already as many processes as CPUs to
spare. With eight threads in each of eight workers 64 threads share the machine: they
take the CPUs from each other and from the process that feeds the GPU, and batches come
later, not sooner.

## Example
```python
import torch
from torch import nn
from torch.utils.data import DataLoader


def start(worker):
    torch.set_num_threads(8)


loader = DataLoader(pictures, batch_size=64, num_workers=8, worker_init_fn=start)
model = nn.Linear(64, 10).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
```

## Fix
None: without the line there is one thread in each worker; whether more workers or more
threads suit the samples, only a run on the machine shows.

## When not
`torch.set_num_threads(1)`, which is what workers have anyway; a number that is not
known; loaders without workers. Threads of the main process: reinforcement learning,
evaluation on the CPU and small models have good reasons for any number.

## Source
PyTorch source, `torch/utils/data/_utils/worker.py` (`torch.set_num_threads(1)`).
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Effect, Finding
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.loading.worker_threads import find_worker_threads
from gpulint.script.reaching.started import trains_on_gpu


class HardcodedThreads(Rule):
    """Fires on the call that sets the number."""

    effect = Effect.NONE
    needs = Words("set_num_threads oader")

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each call that workers run."""
        found = find_worker_threads(script)
        if not found or not trains_on_gpu(script):
            return
        for item in found:
            workers = item.loader.values("num_workers")
            if workers.all_in(0) or item.loader.argument("num_workers").absent:
                continue
            many = f"{item.threads}" if item.threads else "as many as there are CPUs"
            yield self.finding(
                script,
                item.call.func if script.index.holds(item.call) else item.loader.call,
                f"every worker process computes in threads of its own, {many}: they "
                "take the CPUs from each other and from the process that trains",
                related=[(item.loader.call, "its workers run this")],
            )
