"""A GPU is named by a number that the machine may not have, or all ranks share one.

## Why
`"cuda:1"` is the second GPU of the machine on which it was written. Where there is one
GPU alone the script raises "invalid device ordinal"; where somebody else trains on the
second, both runs wait for each other while the first is idle. In a script for several
processes each has to choose its own GPU: where all of them use the first, NCCL refuses
("Duplicate GPU detected"), or they share one GPU and its memory.

## Example
```python
import torch
from torch import nn

device = torch.device("cuda:1")
model = nn.Linear(64, 10).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
```

## Fix
None: on a machine without CUDA another device would run what was written for CUDA. By
hand, `runtime.device("cuda:1")` takes the second GPU where there is one and else the
best device of the machine; `"cuda"` with `CUDA_VISIBLE_DEVICES=1` before the command
leaves the choice to who starts the script. In a script for several processes,
`runtime.device()` is the GPU of this process, and makes it the current one.

## When not
`"cuda"`, `"cuda:0"` and `.cuda()` in a script for one process: they cost nothing on a
machine that has a GPU. Several numbers in one file, or a number beside a plain
`.cuda()`: parts of a model are placed on purpose. A default of an option, a parameter
or a settings class, a value in a dict, and a branch: somebody chooses. A program that
asks for `torch.cuda.device_count()`, sets `CUDA_VISIBLE_DEVICES` or gives `device_ids`.
Ranks: a program that speaks of a local rank, `set_device` or SLURM anywhere.

## Source
PyTorch documentation, "CUDA semantics" ("use `CUDA_VISIBLE_DEVICES`") and
`torch.nn.parallel.DistributedDataParallel` ("ensure that each process exclusively works
on a single GPU"); NVIDIA NCCL, error "Duplicate GPU detected".
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Effect, Finding
from gpulint.rule import Hardware, Rule, Words
from gpulint.script import Script
from gpulint.script.copying.named_cards import named_card, unplaced_ranks

SPELLINGS = ("cuda:{}", ".cuda({}", "set_device({}", ".to({}")
NAMED = [f"{s.format('')} {s.format(n)}" for s in SPELLINGS for n in range(1, 8)]


class HardcodedDevice(Rule):
    effect = Effect.NONE
    hardware = Hardware.GPU
    needs = Words("DistributedDataParallel cuda", *NAMED)

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding a file, other places are related."""
        card = named_card(script)
        if card is not None:
            first, *others = card.nodes
            yield self.finding(
                script,
                first,
                f"`{script.text(first)}` needs a machine with {card.number + 1} GPUs: "
                "with fewer the script raises",
                related=[(node, "named here as well") for node in others],
            )
        ranks = unplaced_ranks(script)
        if ranks is not None:
            wrapper, moves = ranks
            yield self.finding(
                script,
                wrapper,
                "every process trains on the first GPU: none of them chooses its own",
                related=[(move, "moves to the first GPU") for move in moves[:3]],
            )
