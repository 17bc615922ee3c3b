"""MindSpore trains with a batch of a few samples, whatever the GPU.

## Why
Each step has costs that do not depend on the batch: Python, kernel launches, the update
of the weights. With two to seven samples they are a large part of the step, and a GPU
of 16 GB has room for eight or more of what fits twice into a CPU's patience.

## Example
```python
import mindspore as ms
import mindspore.dataset as ds
from mindspore import nn

BATCH_SIZE = 2

dataset = ds.GeneratorDataset(Videos(), ["frames", "label"]).batch(BATCH_SIZE)
optimizer = nn.Adam(
    network.trainable_params(),
    learning_rate=1e-3,
)
model = ms.Model(network, nn.CTCLoss(), optimizer)
model.train(10, dataset)
```
becomes
```python
import mindspore as ms
import mindspore.dataset as ds
from mindspore import nn
from gpulint import runtime

BATCH_SIZE = runtime.ms.batch_size(2)

dataset = ds.GeneratorDataset(Videos(), ["frames", "label"]).batch(BATCH_SIZE)
scaled_lr = runtime.ms.scaled_lr(1e-3, batch_size=BATCH_SIZE, base_batch_size=2)
optimizer = nn.Adam(
    network.trainable_params(),
    learning_rate=scaled_lr,
)
model = ms.Model(network, nn.CTCLoss(), optimizer)
model.train(10, dataset)
```

## Fix
`runtime.ms.batch_size` gives 4 samples for 8 GB of GPU memory, 6 for 12 GB and 8 for
16 GB and more, never fewer than were written, and the written number on a CPU.
`runtime.ms.scaled_lr` changes the learning rate with it, by the square root of the
ratio, and lets it rise slowly in the first steps: a larger batch is unstable without.
Both are written or none; where the batch stays, so does the rate, bit for bit.

No fix where the number is a default that a caller or user may replace, stands in
another file, is written as a size elsewhere too, or is computed before the device is
set; where there is not one optimizer in
the file; and where its learning rate is neither a number in its call nor a list that
MindSpore makes by the length of the data.

## When not
One sample a batch. Data that nothing is seen to train on, or that names call those of
an evaluation. Gradients that are accumulated, and losses that compare the samples of a
batch with each other. Settings files are GPU903.

## Source
The tables of a guide to training a video network with CTC on 8, 12 and 16 GB; Malladi
et al. 2022, "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms"; MindSpore
documentation, `mindspore.nn.WarmUpLR`.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Effect, Finding, Severity
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.frameworks.ms_batches import SmallBatch, larger_batch, small_batches
from gpulint.script.rewriting.edits import CannotFix


class MsFixedBatch(Rule):
    effect = Effect.HYPERPARAMS
    severity = Severity.NOTE
    framework = "mindspore"
    needs = Words("mindspore .batch(")

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for a number, at the place where it is written."""
        for batch in small_batches(script):
            yield self._finding(script, batch)

    def _finding(self, script: Script, batch: SmallBatch) -> Finding:
        fix = withheld = None
        try:
            fix = larger_batch(script, batch)
        except CannotFix as error:
            withheld = str(error)
        call, value = batch.stage.call, batch.value
        here = script.index.holds(value.node)
        return self.finding(
            script,
            value.node if here else call.func,
            f"a batch is {batch.size} samples: kernel launches, Python and the "
            f"optimizer are paid for anew every {batch.size} samples",
            related=[]
            if script.index.inside(value.node, call)
            else [
                (call, "data are batched here")
                if here
                else (value.node, f"{batch.size} is written here")
            ],
            fix=fix,
            withheld=withheld,
        )
