"""One process drives all GPUs with `DataParallel`.

## Why
In every step `DataParallel` copies all weights from the first GPU to the others, splits
the batch there, runs the model in threads that take turns at Python's lock, and gathers
outputs and gradients on the first GPU, whose memory is full first. The optimizer runs
on that GPU alone, and the others wait. `DistributedDataParallel` has a process for each
GPU with weights of its own, and sends only gradients, while the backward pass is still
running.

## Example
```python
import torch
from torch import nn

model = nn.DataParallel(nn.Linear(1024, 1024)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
```

## Fix
None: processes are started by a launcher, and every part of a script has to know of
them. With `torchrun --nproc-per-node=gpu train.py`:

    from gpulint import runtime
    from torch.nn.parallel import DistributedDataParallel

    ranks = runtime.distributed()
    model = model.to(runtime.device())
    if ranks.world_size > 1:
        model = DistributedDataParallel(model)
    sampler = ranks.sampler(train_set)
    loader = DataLoader(
        train_set,
        batch_size=64 // ranks.world_size,
        shuffle=sampler is None,
        sampler=sampler,
    )
    ...
    if ranks.is_main:
        torch.save(model.state_dict(), path)

The batch of the script is that of all GPUs together, of which each process takes its
share; batch norms see the samples of their own GPU in both. Keys in checkpoints begin
with `module.` in both.

## When not
One GPU is named (`device_ids=[0]`, `CUDA_VISIBLE_DEVICES`, the default of the option
that sets it, in the file or in a program that uses it, all settings written out, or
before it), for which `DataParallel` is a plain call. Programs that train nothing, or
only attack a model. A wrapper that only loads or saves weights, is asked for its
devices, whose `module` makes all passes, or that is kept in an attribute which nothing
reads, or of a module without weights, or one that is called a transform. Where the same
file has `DistributedDataParallel`, this may be the way for machines without a launcher,
and where all known commands for its programs say `CUDA_VISIBLE_DEVICES=0` or the like
it is a plain call: notes of low confidence. So is a wrapper that is made behind the
training, for a last pass, one of a class that is called a loss and has no layers, one
whose weights are all made without a gradient, which the other wrapper refuses, one for
as many GPUs as settings say, which all say 1, one in a program whose loaders all give
batches of one sample, which the first GPU gets, and one beside graphs of PyG, which
torch's own wrapper cannot split.

## Source
PyTorch documentation, `torch.nn.DataParallel`: "It is recommended to use
DistributedDataParallel, instead of this class, to do multi-GPU training, even if there
is only a single node"; CUDA semantics, "Use nn.parallel.DistributedDataParallel instead
of multiprocessing or nn.DataParallel".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.index.walk import dotted
from gpulint.rule import Hardware, Rule, Words
from gpulint.script import Script
from gpulint.script.copying.one_card import (
    counts_one_card,
    leaves_one_card,
    names_one_card,
)
from gpulint.script.modelling.frozen import (
    has_no_weights,
    is_loss_without_layers,
    trains_no_weights,
)
from gpulint.script.modelling.step_inputs import gives_single_rows
from gpulint.script.reaching.commands import name_one_card
from gpulint.script.training.wrappers import (
    WRAPPERS,
    follows_training,
    is_never_run,
    is_wrapped_before,
    only_evaluates,
    trains,
)

_GRAPHS = re.compile(r"torch_geometric\.(loader|data|datasets)\b")
TRANSFORM = re.compile(r"transforms?$", re.IGNORECASE)
BETTER = ("DistributedDataParallel", "DDP", "init_process_group")


class DataParallel(Rule):
    """Fires where the model is wrapped."""

    effect = Effect.NONE
    hardware = Hardware.CUDA
    needs = Words("DataParallel(")

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each wrapper of a program that trains."""
        calls = [c for name in WRAPPERS for c in script.index.calls.get(name, ())]
        if not calls or leaves_one_card(script) or not trains(script):
            return
        also = any(name in script.index.calls_by_name for name in BETTER)
        also = also or name_one_card(script)
        shared = not gives_single_rows(script) and not _gives_graphs(script)
        for call in calls:
            if names_one_card(script, call) or is_never_run(script, call):
                continue
            if is_wrapped_before(script, call) or only_evaluates(script, call):
                continue
            if call.args and is_light(script, call.args[0]):
                continue
            sure = shared and not also and not follows_training(script, call)
            if call.args and _is_not_trained(script, call.args[0]):
                sure = False
            if counts_one_card(script, call):
                sure = False
            yield self.finding(
                script,
                call.func,
                f"`{script.text(call.func)}` sends all weights to every GPU in each "
                "step and drives them from one process",
                severity=Severity.NOTE if also else None,
                confidence=None if sure else Confidence.LOW,
            )


def _gives_graphs(script: Script) -> bool:
    """Whether batches may be graphs of PyG, which torch's own wrapper cannot split."""
    names = script.index.imported
    return any(_GRAPHS.match(name) is not None for name in names)


def _is_not_trained(script: Script, module: ast.expr) -> bool:
    """Whether a module is a loss without layers, or no weight of it takes a gradient.

    `DistributedDataParallel` refuses such a module.
    """
    return is_loss_without_layers(script, module) or trains_no_weights(script, module)


def is_light(script: Script, module: ast.expr) -> bool:
    """Whether a module has no weights, or is called a transform: it has few or none."""
    holder = module.value if isinstance(module, ast.Subscript) else module
    named = TRANSFORM.search((dotted(holder) or "").rpartition(".")[2])
    return named is not None or has_no_weights(script, module)
