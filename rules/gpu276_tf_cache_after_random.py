"""Random augmentation, or a shuffled order, is kept and repeated in every epoch.

## Why
`cache` keeps what comes before it. Random crops, flips and colours before it are drawn
once: every epoch trains on the same pictures, and the augmentation that the CPU paid
for in the first epoch does nothing after it. The same is true of `shuffle`: its order
is drawn once.

## Example
```python
import tensorflow as tf


def augment(image, label):
    return tf.image.random_flip_left_right(image), label


images = tf.data.Dataset.from_tensor_slices((x, y))
images = images.map(augment, num_parallel_calls=tf.data.AUTOTUNE).cache()
model.fit(images.batch(64).prefetch(tf.data.AUTOTUNE), epochs=10)
```

## Fix
None: behind `cache` the draws differ in each epoch, so the training does. Move `cache`
in front of the random part; what reads and decodes stays before it.

## When not
Functions that are not seen to draw. A `cache` that a parameter switches on and nobody
does. A dataset that is passed over once, as for a validation set whose random crop
shall stay, or a few elements that are repeated on purpose (`take(1).cache()`). An order
that another `shuffle` behind the `cache` draws anew; what a test draws.

## Source
TensorFlow guide, "Better performance with the tf.data API", Caching; documentation of
`tf.data.Dataset.cache`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gpulint.finding import Effect, Finding
from gpulint.index.build import last_name
from gpulint.index.walk import dotted
from gpulint.rule import Rule, TensorFlow
from gpulint.script import Script
from gpulint.script.frameworks.tf_mapped import Mapped
from gpulint.script.frameworks.tf_pipelines import is_looked_at, spot

ORDER = "one order"
_ONE_PASS = frozenset("evaluate predict look".split())
_EVALUATES = re.compile(r"(^|_)(val|valid|validation|test|eval|dev)", re.IGNORECASE)


class TfCacheAfterRandom(Rule):
    effect = Effect.NONE
    needs = TensorFlow("tensorflow .cache(")
    framework = "tensorflow"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each `cache` behind something random."""
        for call in script.pipelines.named("cache"):
            found = drawn_before(script, call)
            if found is None or _EVALUATES.search(_target(script, call)):
                continue
            uses = {use.kind for use in script.pipelines.final_uses(call)}
            if _is_off(script, call) or (uses and uses <= _ONE_PASS):
                continue
            place, what = found
            again = "shuffle" in map(last_name, script.pipelines.behind(call))
            if (what == ORDER and again) or script.of(place).is_test:
                continue
            yield self.finding(
                script,
                _place(call),
                f"`cache` keeps {what}: it is the same in every epoch",
                related=[(place, "drawn here")],
            )


def drawn_before(script: Script, call: ast.Call) -> tuple[ast.AST, str] | None:
    """The nearest random operation before a `cache`, and what it draws."""
    for operation in script.pipelines.before(call).operations:
        name = last_name(operation)
        if name == "cache" or is_looked_at(operation):
            return None
        if name == "map":
            given = script.evaluator.argument(operation, "map_func", 0).direct
            mapped = Mapped(script, given) if given is not None else None
            if mapped is not None and mapped.draws is not None:
                return mapped.draws, "random augmentation"
        if name == "shuffle":
            again = script.evaluator.argument(operation, "reshuffle_each_iteration", 2)
            if again.absent:
                return operation.args[0] if operation.args else operation, ORDER
    return None


def _is_off(script: Script, call: ast.Call) -> bool:
    """Whether a `cache` stands behind `if cache:`, and no caller asks for it."""
    above = [a for a in script.index.ancestors(call) if isinstance(a, ast.If)]
    values = (script.evaluator.values(a.test) for a in above)
    return any(its.all_in(False, None, 0) for its in values)


def _target(script: Script, call: ast.Call) -> str:
    """The name that the dataset is given."""
    statement = script.index.statement(call)
    return " ".join(
        dotted(t) or ""
        for t in (statement.targets if isinstance(statement, ast.Assign) else ())
    )


def _place(call: ast.Call) -> ast.expr:
    """A place on the line of `cache`, in a chain of many lines as well."""
    assert isinstance(call.func, ast.Attribute)
    before = call.func.value
    return (
        spot(before) if isinstance(before, ast.Call) and not call.args else spot(call)
    )
