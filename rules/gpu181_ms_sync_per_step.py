"""The training loop waits for the device in every step to read a loss.

## Why
`loss.asnumpy()` copies a value to the host, and everything that the device was given
before must be done by then. The host starts the next step only after it: the device
stands still while Python, the pipeline and the launches take their time.

## Example
```python
import mindspore.dataset as ds
from mindspore import nn

dataset = ds.ImageFolderDataset("photos").batch(32)
train_step = nn.TrainOneStepCell(network, optimizer)
total = 0.0
for image, label in dataset.create_tuple_iterator():
    loss = train_step(image, label)
    total += loss.asnumpy()
```

## Fix
None: add losses up as they are (`total = total + loss`) and read the sum once, after
the loop or in every hundredth step.

## When not
Values that are read once in several steps or an epoch, behind a condition or after the
loop. Loops that evaluate. What is not seen to come from the training step.

## Source
MindSpore documentation, `mindspore.Tensor.asnumpy` ("a synchronous operation").
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Effect, Finding, Severity
from gpulint.rule import Hardware, Rule, Words
from gpulint.script import Script
from gpulint.script.frameworks.ms_training import waits


class MsSyncPerStep(Rule):
    effect = Effect.NONE
    framework = "mindspore"
    hardware = Hardware.GPU
    needs = Words(
        "mindspore for asnumpy", "mindspore for float(", "mindspore for .item("
    )

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each loop, with the other places as related ones."""
        if "mindspore" not in script.frameworks:
            return
        for loop in script.ms_pipelines.train_loops:
            found = waits(script, loop)
            if not found:
                continue
            first, *others = found
            yield self.finding(
                script,
                first.func,
                f"`{script.text(first)}` waits for the device in every step",
                related=[(o.func, "waits as well") for o in others],
                severity=None if others else Severity.NOTE,
            )
