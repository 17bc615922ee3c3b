"""A dataset of TensorFlow that makes a batch only when the last one is used up.

## Why
`prefetch` as the last operation lets the CPU make the next batches while the GPU works
on one. Newer releases of TensorFlow put a missing one there themselves, so this is a
note, without a figure for what it saves, and of low confidence unless the project
allows no TensorFlow from 2.11 on.

## Example
```python
import tensorflow as tf

images = tf.data.Dataset.from_tensor_slices((x, y))
images = images.shuffle(1000).batch(64)
model.fit(images, epochs=10)
```
becomes
```python
import tensorflow as tf

images = tf.data.Dataset.from_tensor_slices((x, y))
images = images.shuffle(1000).batch(64).prefetch(tf.data.AUTOTUNE)
model.fit(images, epochs=10)
```

## Fix
`.prefetch(tf.data.AUTOTUNE)` behind the last operation: the batches are the same.

## When not
A `prefetch` behind the batches, whatever comes after it. A dataset whose batches are
only looked at or printed, or that nothing is seen to take. Datasets that a strategy
distributes: it fetches ahead itself. Not all of the operations are seen.

## Source
TensorFlow guide, "Better performance with the tf.data API", Prefetching;
`tf.data.experimental.OptimizationOptions.inject_prefetch`. Measured with TensorFlow
2.21, whose own prefetching is on by default: no difference.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.rule import Rule, TensorFlow
from gpulint.script import Script
from gpulint.script.frameworks.tf_names import (
    autotune,
    lacks_autotune,
    may_optimize_itself,
)
from gpulint.script.frameworks.tf_pipelines import gives_batches, is_looked_at, spot
from gpulint.script.rewriting.edits import Replace, Rewrite

TITLE = "Make batches ahead"
_FEEDS = frozenset("fit evaluate predict for iter".split())


class TfNoPrefetch(Rule):
    effect = Effect.EXACT
    severity = Severity.NOTE
    needs = TensorFlow("tensorflow batch(")
    framework = "tensorflow"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each dataset that steps take batches of."""
        unsure = may_optimize_itself(script)
        withheld = lacks_autotune(script)
        for call in script.pipelines.operations:
            if self._is_end(script, call):
                code, imports = autotune(script)

                def ahead(text: str, code: str = code) -> str:
                    return f"{text}.prefetch({code})"

                yield self.finding(
                    script,
                    spot(call),
                    "no batch is made ahead: `prefetch` is not the last operation",
                    fix=None
                    if withheld
                    else Rewrite(TITLE, (Replace(call, ahead),), imports),
                    withheld=withheld,
                    confidence=Confidence.LOW if unsure else None,
                )

    @staticmethod
    def _is_end(script: Script, call: ast.Call) -> bool:
        """Whether batches leave the pipeline here, with no `prefetch` behind them."""
        assert isinstance(call.func, ast.Attribute)
        whole = script.pipelines.upstream(call)
        if not whole.known or not gives_batches(whole, script):
            return False
        if {"prefetch", "apply", "unbatch"} & set(whole.names):
            return False
        if is_looked_at(call) or script.pipelines.taken(call):
            return False
        uses = {use.kind for use in script.pipelines.uses(call)}
        return bool(uses & _FEEDS) and "experimental_distribute_dataset" not in uses
