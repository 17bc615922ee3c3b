"""The smaller last batch of a pass makes a model compile again, or raises.

## Why
`torch.compile` compiles for the shapes that come first. Where the samples do not fill
the last batch, it has another shape: the step waits while the model is compiled again,
and from then on all batches run the second version, for dynamic shapes, whose kernels
know less. With `mode="reduce-overhead"` CUDA graphs are recorded anew for that shape.
A last batch of one sample is an error: `BatchNorm1d` behind a linear layer refuses it.

## Example
```python
import torch
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms

device = torch.device("cuda")
train_set = datasets.CIFAR10("data", transform=transforms.ToTensor())
loader = DataLoader(train_set, batch_size=128, shuffle=True, num_workers=4)
model = torch.compile(models.resnet18(num_classes=10).to(device))
for epoch in range(90):
    for images, labels in loader:
        loss = criterion(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
```

## Fix
None: `drop_last=True` leaves the rest of the samples out, others in each epoch, and
changes the number of steps. It is right for most training loaders.

## When not
Models compiled with `dynamic=True`, or behind an option that is off by default.
Batches that a `collate_fn` makes or the loop crops, whose shapes may differ anyway;
loops that stop before the end or skip the last batch; datasets whose samples are known
to fill all batches, or that may have no end.

## Source
PyTorch documentation, "Dynamic Shapes" of `torch.compile`: recompilations, and
automatic dynamic shapes; torch 2.13 runs the second version from then on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Effect, Finding, Severity
from gpulint.rule import Rule, Words
from gpulint.script import Loader, Script
from gpulint.script.loading.loader_options import fed_by_framework
from gpulint.script.loading.ragged import (
    Ragged,
    ends_ragged,
    refuses_one_sample,
    takes_the_last,
)
from gpulint.script.loading.training_loaders import trains_on_gpu_with
from gpulint.script.modelling.compiled import Compiled, compiled_model


class RaggedLastBatch(Rule):
    effect = Effect.NONE
    severity = Severity.NOTE
    needs = Words("DataLoader .compile(", "DataLoader BatchNorm1d")

    def check(self, script: Script) -> Iterator[Finding]:
        """Training loaders that do not drop a smaller last batch."""
        for loader in script.loaders:
            sizes = ends_ragged(loader)
            if sizes is None or fed_by_framework(script, loader):
                continue
            norm = find_refusal(script, loader) if sizes.last == 1 else None
            if norm is not None and trains_on_gpu_with(loader):
                yield self._refused(script, loader, norm)
                continue
            compiled = find_compiled(script, loader)
            if compiled is not None and trains_on_gpu_with(loader):
                yield self.finding(
                    script,
                    loader.call.func,
                    message(script, sizes, compiled),
                    related=[(compiled.call, "compiled for the first shapes")],
                )

    def _refused(self, script: Script, loader: Loader, norm: ast.Call) -> Finding:
        return self.finding(
            script,
            loader.call.func,
            "the last batch is one sample: `BatchNorm1d` raises ValueError in training",
            severity=Severity.ERROR,
            related=[(norm.func, "takes no batch of one sample")],
        )


def find_refusal(script: Script, loader: Loader) -> ast.Call | None:
    """The normalisation that refuses the one sample of a loader's last batch."""
    loops = (x for x in loader.loops if x.train and takes_the_last(x))
    found = (refuses_one_sample(script, loop) for loop in loops)
    return next((norm for norm in found if norm is not None), None)


def find_compiled(script: Script, loader: Loader) -> Compiled | None:
    """The compiled model that is trained with all batches of a loader."""
    for loop in loader.loops:
        if loop.train and takes_the_last(loop):
            found = compiled_model(script, loop)
            if found is not None:
                return found
    return None


def message(script: Script, sizes: Ragged, compiled: Compiled) -> str:
    last = "may be smaller"
    if sizes.last is not None:
        last = f"has {sizes.last} samples instead of {sizes.size}"
    then = ", and runs with dynamic shapes from then on"
    if compiled.graphs:
        then = ", and records its CUDA graphs anew"
    elif compiled.static:
        then = ""
    model = script.text(compiled.model)
    return f"the last batch {last}: `{model}` is compiled once more for it{then}"
