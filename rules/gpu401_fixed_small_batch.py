"""A small constant batch for small samples.

## Why
Each step has costs that do not depend on the batch: Python, kernel launches, the update
of the weights. With small pictures or table rows and a batch below 128 they are a large
part of the step, and most of the GPU's memory stays empty. With pictures of some
224 x 224 the same is true below 32.

## Example
```python
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

BATCH_SIZE = 32

device = torch.device("cuda")
train_set = datasets.CIFAR10("data", transform=transforms.ToTensor())
loader = DataLoader(train_set, batch_size=BATCH_SIZE, shuffle=True)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for image, label in loader:
    loss = nn.functional.cross_entropy(model(image.to(device)), label.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
```
becomes
```python
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms
from gpulint import runtime

BATCH_SIZE = runtime.batch_size(32)

device = torch.device("cuda")
train_set = datasets.CIFAR10("data", transform=transforms.ToTensor())
loader = DataLoader(train_set, batch_size=BATCH_SIZE, shuffle=True)
scaled_lr = runtime.scaled_lr(
    1e-3, batch_size=BATCH_SIZE, base_batch_size=32, rule="sqrt"
)
optimizer = torch.optim.Adam(model.parameters(), lr=scaled_lr)
for image, label in loader:
    loss = nn.functional.cross_entropy(model(image.to(device)), label.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
```

## Fix
`runtime.batch_size` gives the size that was tuned for the GPU at hand, and the script's
own number where none was. `runtime.scaled_lr` changes the learning rate with it: by the
square root of the ratio for Adam and its kin, in proportion for SGD. Both or none are
written, and as long as nothing is tuned the script computes what it did before, bit for
bit. `OneCycleLR` has its highest rate scaled as well.

No fix where the number is a default that a caller or user may replace, or stands in
several places or another file; where the loop may end before its loader, or something
depends on the number of steps; where the number is written as a size elsewhere too;
where there is not one known optimizer, weights have rates of their own, the rate is
computed from the batch size, set by hand, by `CyclicLR` or another package, or by a
scheduler that counts steps other than by a loader's length; where the loss is a sum
over the batch; and where the GPU is chosen later by `CUDA_VISIBLE_DEVICES`.

## When not
Samples that are not known to be small: pictures of unknown size, text, anything of
which a network makes something as large as it got; fifty fields for a network of
Fourier transforms, which lie on grids. One sample a batch. Gradients that
are accumulated. Samplers and losses that compare the samples of a batch with each other
(contrastive learning, triplets), few-shot, continual, federated and private learning,
reinforcement learning, graphs. Trainings of so many steps, whatever is in each: a
number of epochs that is computed from the size or number of the batches, a loop until
steps are counted. Steps with batches of several loaders. Several GPUs that share the
work. Data of a few batches. A comment that gives a reason. Settings files are GPU903.
Nothing trains with the batches on a GPU as far as is seen.

## Source
PyTorch Performance Tuning Guide; Goyal et al. 2017, "Accurate, Large Minibatch SGD";
Malladi et al. 2022, "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms".
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Effect, Finding, Severity
from gpulint.rule import Loaders, Rule
from gpulint.script import Script
from gpulint.script.loading.loader_options import trains_on_cpu
from gpulint.script.rewriting.edits import CannotFix
from gpulint.script.training.larger_batch import larger_batch
from gpulint.script.training.small_batches import SmallBatch, small_batches


class FixedSmallBatch(Rule):
    effect = Effect.HYPERPARAMS
    severity = Severity.NOTE
    needs = Loaders()

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for a number, at the place where it is written."""
        if trains_on_cpu(script):
            return
        for batch in small_batches(script):
            yield self._finding(script, batch)

    def _finding(self, script: Script, batch: SmallBatch) -> Finding:
        fix = withheld = None
        try:
            fix = larger_batch(script, batch)
        except CannotFix as error:
            withheld = str(error)
        return self.finding(
            script,
            batch.place,
            f"a batch is {batch.size} {batch.samples.what}: kernel launches, Python "
            f"and the optimizer are paid for anew every {batch.size} samples",
            related=batch.related,
            fix=fix,
            withheld=withheld,
        )
