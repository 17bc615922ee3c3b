"""`fit` is given workers that Keras 3 no longer takes.

## Why
In Keras 3 `workers`, `use_multiprocessing` and `max_queue_size` belong to the dataset,
`keras.utils.PyDataset`. `fit` and `predict` fail with a TypeError, `evaluate` with a
ValueError, before the first step.

## Example
```python
from tensorflow import keras

model = keras.Sequential([keras.layers.Dense(10)])
model.compile(loss="mse", optimizer="adam")
model.fit(pictures, epochs=10, workers=4, use_multiprocessing=True)
```
becomes
```python
from tensorflow import keras

model = keras.Sequential([keras.layers.Dense(10)])
model.compile(loss="mse", optimizer="adam")
model.fit(pictures, epochs=10)
```

## Fix
The arguments are left out: with them the call fails. Workers for a `PyDataset` (as
`Sequence` is called now) are given where it is made, `Pictures(workers=4)`, which a
class of one's own passes on with `super().__init__(**kwargs)`; with one worker and no
processes `max_queue_size` does nothing there.

No fix where the project also allows Keras 2, in which they work.

## When not
The project allows no Keras 3 (TensorFlow 2.16 brought it), the file imports `tf_keras`,
or `TF_USE_LEGACY_KERAS` is set in the program. Where the project allows an older one as
well, or says nothing, the finding is of low confidence: that one runs the program.

## Source
Keras documentation, "Migrating Keras 2 code to multi-backend Keras 3" and
`keras.utils.PyDataset`; the calls were run with Keras 3.15.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.rule import Rule, TensorFlow
from gpulint.script import Script
from gpulint.script.frameworks.tf_names import (
    may_have_keras_2,
    may_have_keras_3,
    surely_has_keras_3,
)
from gpulint.script.rewriting.edits import Replace, Rewrite
from gpulint.script.rewriting.syntax import without_keywords

TITLE = "Leave out what `fit` no longer takes"
OPTIONS = ("workers", "use_multiprocessing", "max_queue_size")
METHODS = ("fit", "evaluate", "predict")


class TfRemovedFitWorkers(Rule):
    effect = Effect.EXACT
    needs = TensorFlow(*(f"{p} {o}" for p in ("keras", "tensorflow") for o in OPTIONS))
    framework = "tensorflow"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each call that fails."""
        if not may_have_keras_3(script):
            return
        old, new = may_have_keras_2(script), surely_has_keras_3(script)
        for name in METHODS:
            for call in script.index.calls_by_name.get(name, ()):
                given = [k for k in call.keywords if k.arg in OPTIONS]
                if not given:
                    continue
                names = [k.arg for k in given if k.arg is not None]
                listed = " and ".join(f"`{n}`" for n in names)
                edit = Replace(call, without_keywords(*names))
                yield self.finding(
                    script,
                    given[0].value,
                    f"`{name}` of Keras 3 takes no {listed}: the call fails",
                    confidence=None if new else Confidence.LOW,
                    fix=None if old else Rewrite(TITLE, (edit,)),
                    withheld="the project allows Keras 2 as well, where they work"
                    if old
                    else None,
                )
