"""A training loop of TensorFlow waits for the GPU in every step.

## Why
TensorFlow queues operations and goes on. `.numpy()`, `float(loss)`, and a loss or
metric that is printed need the value: Python waits until the GPU has done all that was
queued, and only then prepares the next step.

## Example
```python
import tensorflow as tf


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = loss_function(y, model(x, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


losses = []
for x, y in dataset:
    losses.append(train_step(x, y).numpy())
```

## Fix
None: who reads the value must be asked. By hand, update a `keras.metrics.Mean` in the
step and read its `result()` after the loop or every hundred steps.

## When not
Every n-th step, once an epoch, and values of the batch, which are on the host, as is
what `tf.Variable(0)` counts. Steps that are timed, or take all data at once, or act in
an environment, which needs the values.

## Source
TensorFlow guide, "Better performance with tf.function" and "Optimize TensorFlow GPU
performance with the TensorFlow Profiler" (gaps between steps).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.rule import Hardware, Rule, TensorFlow
from gpulint.script import Script
from gpulint.script.frameworks.tf_waits import step_loops, updates_weights, waits


class TfSyncPerStep(Rule):
    effect = Effect.NONE
    hardware = Hardware.GPU
    needs = TensorFlow("tensorflow for GradientTape", "tensorflow for _step")
    framework = "tensorflow"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each loop, at its first wait."""
        trains = updates_weights(script)
        seen: set[ast.AST] = set()  # a loop may call what another one stands in
        for loop in step_loops(script):
            found = waits(script, loop)
            if not found or found[0].place in seen:
                continue
            first, *others = found
            seen.add(first.place)
            yield self.finding(
                script,
                first.place,
                f"`{script.text(first.value)}` waits for the GPU in every step",
                severity=Severity.WARNING if others else Severity.NOTE,
                related=[(other.value, "waits as well") for other in others],
                confidence=None if trains else Confidence.LOW,
            )
