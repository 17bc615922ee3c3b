"""A training step of TensorFlow that runs operation by operation in Python.

## Why
Without `tf.function` each operation of the step is a call from Python: forward,
gradients and update are some hundred of them, and the GPU waits between them. A
function that `tf.function` compiles is one call.

## Example
```python
import tensorflow as tf

for x, y in dataset:
    with tf.GradientTape() as tape:
        loss = loss_function(y, model(x, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
```

## Fix
None: what the step does to Python's own values (lists, counters, prints) would happen
once, when it is traced. By hand, the body of the loop becomes a function of `x` and
`y` with `@tf.function` that returns the loss.

## When not
`tf.function` around the step, at any call on the way to it; `train_step` of a Keras
model, which `fit` compiles; tapes whose gradients update no weights; a tape in no loop,
or on the CPU (`tf.device`). Where what the tape runs is compiled itself, or a mode by
the name of `eager` or `debug` asks for it, the confidence is low; so it is where NumPy
computes in the step, which would raise once it is compiled, and in programs that play
in an environment, whose episodes have lengths of their own: each is traced anew. So
are steps of a package that others import: whoever calls them may compile them. And
those that move single numbers (`x = tf.Variable(0.0)`) down a slope, to show how.

## Source
TensorFlow guide, "Better performance with tf.function". Measured with TensorFlow 2.21
on 2 CPUs, 100 steps of a small network: 0.37 s, with `tf.function` 0.045 s.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.index.module_search import is_run
from gpulint.index.walk import walk
from gpulint.rule import Rule, TensorFlow
from gpulint.script import Script
from gpulint.script.branches import branches_of
from gpulint.script.environments import imports_environments
from gpulint.script.frameworks.tf_steps import (
    EagerStep,
    computes_by_numpy,
    eager_steps,
    moves_numbers,
    on_cpu,
    runs_compiled,
)
from gpulint.script.neighbours import run_together
from gpulint.script.reaching.offered import is_packaged

EAGER = re.compile(r"eager|debug", re.IGNORECASE)


class TfEagerStep(Rule):
    effect = Effect.NONE
    needs = TensorFlow("tensorflow GradientTape(")
    framework = "tensorflow"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each step, at its first tape."""
        for step in eager_steps(script):
            if on_cpu(script, step.tape):
                continue
            yield self.finding(
                script,
                step.tape,
                "the training step runs operation by operation: no `tf.function` "
                "compiles it",
                related=[(step.loop, "this loop runs it")],
                confidence=_confidence(script, step),
            )


def _confidence(script: Script, step: EagerStep) -> Confidence | None:
    """Low where the step is compiled inside, may not be, or is not meant to be."""
    wanted = any(
        isinstance(part, ast.Constant) and EAGER.search(str(part.value))
        for branch, holds in branches_of(script.index, step.tape)
        if holds and isinstance(branch, ast.If)
        for part in walk(branch.test)
    )
    wanted = wanted or runs_compiled(script, step) or computes_by_numpy(script, step)
    wanted = wanted or moves_numbers(script, step)
    wanted = wanted or any(map(imports_environments, run_together(script)))
    wanted = wanted or (is_packaged(script) and not is_run(script.index))
    return Confidence.LOW if wanted else None
