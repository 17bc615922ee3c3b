"""Evaluation takes as few small samples at a time as training does.

## Why
Training keeps what each layer has made until the gradients are computed; evaluation
under `no_grad` keeps nothing, so that its batches may be several times as large. With
the small batch of training each pass over the data pays for more kernel launches and
more Python than it has to.

## Example
```python
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

device = torch.device("cuda")
to_tensor = transforms.ToTensor()
train_set = datasets.CIFAR10("data", transform=to_tensor)
test_set = datasets.CIFAR10("data", train=False, transform=to_tensor)
train_loader = DataLoader(train_set, batch_size=64, shuffle=True)  # as in the paper
test_loader = DataLoader(test_set, batch_size=64)
for images, labels in train_loader:
    loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
hits = 0
with torch.no_grad():
    for images, labels in test_loader:
        scores = model(images.to(device))
        hits += (scores.argmax(1) == labels.to(device)).sum()
```
becomes
```python
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms
from gpulint import runtime

device = torch.device("cuda")
to_tensor = transforms.ToTensor()
train_set = datasets.CIFAR10("data", transform=to_tensor)
test_set = datasets.CIFAR10("data", train=False, transform=to_tensor)
train_loader = DataLoader(train_set, batch_size=64, shuffle=True)  # as in the paper
test_loader = DataLoader(test_set, batch_size=runtime.batch_size(64, train=False))
for images, labels in train_loader:
    loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
hits = 0
with torch.no_grad():
    for images, labels in test_loader:
        scores = model(images.to(device))
        hits += (scores.argmax(1) == labels.to(device)).sum()
```

## Fix
`runtime.batch_size` gives the size that was tuned for evaluation on the GPU at hand,
and the script's own number where none was. Results may differ in rounding then.

No fix where the number is a default that a caller or user may replace, where no
`eval()` puts the model into evaluation mode, or where the loop does anything else with
a batch than adding up sums over its samples: means of batches would be other numbers.

## When not
The number is the one that GPU401 reports, and grows with it. Samples that are not known
to be small, one at a time, custom samplers or collate functions, a last batch that is
dropped. Several GPUs, graphs, reinforcement learning, data of a few batches. A comment
that gives a reason. Loops that build a graph (GPU403). An evaluation that runs once,
not in each epoch, is of low confidence.

## Source
PyTorch Performance Tuning Guide, Disable gradient calculation for validation or
inference; PyTorch documentation, Autograd mechanics, No-grad Mode.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.rule import Hardware, Loaders, Rule
from gpulint.script import Script
from gpulint.script.loading.evaluation_batches import (
    EvaluationBatch,
    evaluation_batches,
    larger_evaluation,
)
from gpulint.script.rewriting.edits import CannotFix


class EvalBatchAsTrain(Rule):
    effect = Effect.NUMERICS
    severity = Severity.NOTE
    hardware = Hardware.GPU
    needs = Loaders()

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each evaluation loader."""
        for batch in evaluation_batches(script):
            yield self._finding(script, batch)

    def _finding(self, script: Script, batch: EvaluationBatch) -> Finding:
        fix = withheld = None
        try:
            fix = larger_evaluation(script, batch)
        except CannotFix as error:
            withheld = str(error)
        return self.finding(
            script,
            batch.loader.call.func,
            f"evaluation takes {batch.size} {batch.samples.what} at a time, as "
            "training does, and keeps nothing for a backward pass",
            related=[(batch.training.call.func, "the training loader")],
            fix=fix,
            withheld=withheld,
            confidence=None if batch.loader.reused else Confidence.LOW,
        )
