"""Pictures come from Keras's `ImageDataGenerator`, which reads them in Python.

## Why
The generator loads, resizes and augments each picture with PIL and SciPy in Python, one
after another: threads would wait for each other, and the GPU waits for all of them. It
is deprecated; `image_dataset_from_directory` and layers such as `RandomFlip` do the
same in TensorFlow, on all CPUs.

## Example
```python
from tensorflow.keras.preprocessing.image import ImageDataGenerator

generator = ImageDataGenerator(rescale=1 / 255, horizontal_flip=True)
batches = generator.flow_from_directory("train", target_size=(224, 224), batch_size=64)
model.fit(batches, epochs=10)
```

## Fix
None: the augmentations of the two differ in their details, and so do the labels'
forms. `keras.utils.image_dataset_from_directory` takes the same folders.

## When not
A generator of which no batches are taken, or only one, to show it; a program that gives
Keras 2 `workers` to read with. Of low confidence where the program needs a Keras before
2.4, beside which the other functions and layers are not there.

## Source
Keras documentation, `keras.preprocessing.image.ImageDataGenerator` ("deprecated") and
`keras.utils.image_dataset_from_directory`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.rule import Rule, TensorFlow
from gpulint.script import Script
from gpulint.script.frameworks.tf_names import name_of, needs_first_keras
from gpulint.script.frameworks.tf_steps import TRAININGS
from gpulint.script.neighbours import programs

NAME = "ImageDataGenerator"
FLOWS = ("flow_from_directory", "flow_from_dataframe", "flow")


class TfImageGenerator(Rule):
    effect = Effect.NONE
    needs = TensorFlow(f"keras {NAME}")
    framework = "tensorflow"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each generator that gives batches."""
        trained = (script.index.calls_by_name.get(name, ()) for name in TRAININGS)
        if any(_has_workers(script, call) for calls in trained for call in calls):
            return
        flows: dict[ast.AST, list[ast.Call]] = {}
        for flow in (f for n in FLOWS for f in script.index.calls_by_name.get(n, ())):
            if isinstance(flow.func, ast.Attribute) and not _is_shown(script, flow):
                for origin in script.resolver.origins(flow.func.value):
                    flows.setdefault(origin.node, []).append(flow)
        for call in script.index.calls_by_name.get(NAME, ()):
            name = name_of(script, call.func)
            if not name.startswith("keras.") or not flows.get(call):
                continue
            old = needs_first_keras(script)
            yield self.finding(
                script,
                call.func,
                "pictures are read and augmented in Python, one after another",
                related=[(f.func, "batches are taken here") for f in flows[call]],
                confidence=Confidence.LOW if old else None,
            )


def _is_shown(script: Script, flow: ast.Call) -> bool:
    """`pictures = batches[0][0]`, and no other use of what a flow gives.

    A name at the top of a file may be another file's as well.
    """
    above = script.index.parent(flow)
    targets = above.targets if isinstance(above, ast.Assign) else []
    uses = [
        use
        for target in targets
        if isinstance(target, ast.Name)
        for use in script.index.reads.get(target.id, ())
        if any(d.value is flow for d in script.definitions(use))
    ]
    own = all(isinstance(target, ast.Name) for target in targets)
    if not own or not all(_looks(script, use) for use in uses):
        return False
    if not any(isinstance(script.index.parent(u), ast.Subscript) for u in uses):
        return False
    return script.index.function(flow) is not None or not programs(script)[1:]


def _looks(script: Script, use: ast.AST) -> bool:
    """Whether a place takes one batch by its number, or asks for a property."""
    above = script.index.parent(use)
    if isinstance(above, ast.Subscript):
        return use is above.value and isinstance(above.slice, ast.Constant)
    if not isinstance(above, ast.Attribute):
        return False
    return getattr(script.index.parent(above), "func", None) is not above


def _has_workers(script: Script, call: ast.Call) -> bool:
    """Whether a training reads with several threads or processes, or may."""
    given = [k.value for k in call.keywords if k.arg == "workers"]
    return bool(given) and not script.evaluator.values(given[0]).any_in(0, 1)
