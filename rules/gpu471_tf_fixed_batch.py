"""TensorFlow trains with a small constant batch on every machine.

## Why
Each step has costs that do not depend on the batch: Python, kernel launches, the update
of the weights. With 32 samples or fewer they are often a large part of the step, and
most of the GPU's memory stays empty.

## Example
```python
import tensorflow as tf

BATCH_SIZE = 16

optimizer = tf.keras.optimizers.Adam(1e-3)
model.compile(loss="mse", optimizer=optimizer)
model.fit(x, y, batch_size=BATCH_SIZE, epochs=10)
```
becomes
```python
import tensorflow as tf
from gpulint import runtime

BATCH_SIZE = runtime.tf.batch_size(16)

learning_rate = runtime.scaled_lr(
    1e-3, batch_size=BATCH_SIZE, base_batch_size=16, rule="sqrt"
)
optimizer = tf.keras.optimizers.Adam(learning_rate)
model.compile(loss="mse", optimizer=optimizer)
model.fit(x, y, batch_size=BATCH_SIZE, epochs=10)
```

## Fix
`runtime.tf.batch_size` gives the script's own number unless `GPULINT_BATCH_SIZE` asks
for another; with `samples=` it follows the policy `local-cloud` where that is chosen.
`runtime.scaled_lr` changes the learning rate with it: by the square root of the ratio
for Adam and its kin, in proportion for SGD. Both or none.

No fix where the number has no name, is a default that a caller or user may replace, or
stands in another file, and where there is not one known optimizer with the learning
rate as a number.

## When not
One sample a batch; gradients that are accumulated; batches that are only evaluated; a
written number of steps (`steps_per_epoch=3306 // 32`, `take(1000)` of batches, a loop
that ends by `if step == 10_000: break`), which larger batches leave as it is. Where a
file loads a language model, whose few samples are thousands of tokens, or AutoKeras,
whose searches end by themselves, or has decision forests, which the CPU grows of all
samples, it is of low confidence.

## Source
Goyal et al. 2017, "Accurate, Large Minibatch SGD"; Malladi et al. 2022, "On the SDEs
and Scaling Rules for Adaptive Gradient Algorithms".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.rule import Rule, TensorFlow
from gpulint.script import Script
from gpulint.script.frameworks.tf_batches import larger_batch, small_batches
from gpulint.script.frameworks.tf_pipelines import spot
from gpulint.script.rewriting.edits import CannotFix

# What trains in a way of its own, or is trained by a search that ends by itself.
_OF_THEIR_OWN = frozenset(["tensorflow_decision_forests", "autokeras"])
# Language models of packages, whose few samples are thousands of tokens.
_LARGE = re.compile(r"from_preset\(|from_pretrained\(|keras_(?:hub|nlp)|(?i:bert)")


class TfFixedBatch(Rule):
    effect = Effect.HYPERPARAMS
    severity = Severity.NOTE
    needs = TensorFlow("tensorflow batch", "keras batch")
    framework = "tensorflow"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for a number, at the place where it is written."""
        for batch in small_batches(script):
            fix = withheld = None
            try:
                fix = larger_batch(script, batch)
            except CannotFix as error:
                withheld = str(error)
            here = script.index.holds(batch.value.node)
            place = batch.value.node if here else spot(batch.call)
            apart = here and not script.index.inside(place, batch.call)
            yield self.finding(
                script,
                place,
                f"a batch is {batch.size} samples: kernel launches, Python and the "
                f"optimizer are paid for anew every {batch.size} samples",
                related=[(batch.call.func, "the training takes it here")]
                if apart
                else (),
                fix=fix,
                withheld=withheld,
                confidence=Confidence.LOW
                if script.source.has(_LARGE) or _OF_THEIR_OWN & script.index.packages
                else None,
            )
