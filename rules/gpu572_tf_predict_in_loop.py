"""`predict` of a Keras model is called for each batch in a loop.

## Why
`predict` is made for all data in one call: each call sets up a dataset, callbacks and
a progress bar, and copies its results to the host, which takes several times as long as
the network for one batch, and its memory grows with the number of calls.

## Example
```python
from tensorflow import keras

model = keras.models.load_model("model.keras")
for x, y in dataset:
    scores = model.predict(x)
```

## Fix
None: `model(x, training=False)` gives the same numbers as a tensor, which code that
takes arrays may not expect; one `model.predict(dataset)` gives all of them at once.

## When not
The model is trained in the same loop, or the loop goes over models, epochs or whole
datasets (`predict(test_dataset)`). Models that are not seen to be of Keras: those of
scikit-learn have a `predict` as well. A place in `with tf.device("/CPU:0")`. A loop of
16 turns or fewer, be they the parts of a list, is of low confidence, as one over parts
of several batches, which keeps the memory small (it clears the session, or its `range`
has another step than `batch_size`), and a program that needs a Keras before 2.4, which
keeps the function that it runs and makes no dataset.

## Source
Keras documentation, `Model.predict` ("not intended for use inside of loops") and the
Keras FAQ, "What's the difference between Model methods predict() and __call__()?".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.index.build import last_name
from gpulint.index.walk import LOOPS, dotted, walk
from gpulint.rule import Rule, TensorFlow
from gpulint.script import Script
from gpulint.script.bounds import most_turns
from gpulint.script.frameworks.tf_names import needs_first_keras
from gpulint.script.frameworks.tf_steps import is_keras_model, on_cpu

FEW_TURNS = 16
_TRAINS = frozenset("fit train_on_batch load_weights compile".split())
_WHOLE = re.compile(r"data_?set$|loader$|generator$|(^|_)(ds|gen)$", re.IGNORECASE)


class TfPredictInLoop(Rule):
    effect = Effect.NONE
    needs = TensorFlow("keras .predict( for")
    framework = "tensorflow"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each call in a loop of its own function."""
        for call in script.index.calls_by_name.get("predict", ()):
            loop = _loop(script, call)
            if loop is None or not isinstance(call.func, ast.Attribute):
                continue
            model = call.func.value
            if _takes_all(call) or _changes(model, loop):
                continue
            if not is_keras_model(script, model) or on_cpu(script, call):
                continue
            weak = _is_short(script, loop) or _goes_by_parts(script, call, loop)
            weak = weak or needs_first_keras(script)
            yield self.finding(
                script,
                call.func,
                "`predict` sets itself up anew in each turn of the loop",
                related=[(loop, "this loop")],
                confidence=Confidence.LOW if weak else None,
            )


def _loop(script: Script, call: ast.Call) -> ast.For | ast.While | None:
    """The innermost loop around a call, if its turns are not epochs."""
    function = script.index.function(call)
    for above in script.index.ancestors(call):
        if above is function:
            return None
        if isinstance(above, LOOPS) and not isinstance(above, ast.AsyncFor):
            inside = any(script.index.inside(call, s) for s in above.body)
            target = above.target if isinstance(above, ast.For) else above.test
            names = " ".join(dotted(n) or "" for n in walk(target)).lower()
            return above if inside and "epoch" not in names else None
    return None


def _takes_all(call: ast.Call) -> bool:
    """`for dataset in datasets: model.predict(dataset)`, a pass over all of one."""
    name = dotted(call.args[0]) if call.args else None
    return bool(_WHOLE.search(name or ""))


def _is_short(script: Script, loop: ast.For | ast.While) -> bool:
    """`for step in range(10):`, whose turns set up less than a prediction may take.

    Also over a few datasets, and `for images, labels in dataset.take(1):`.
    """
    if not isinstance(loop, ast.For):
        return False
    taken = loop.iter
    if isinstance(taken, ast.Call) and last_name(taken) == "take" and taken.args:
        number = script.evaluator.constant(taken.args[0])
        return isinstance(number, int) and number <= FEW_TURNS
    return most_turns(script, taken) <= FEW_TURNS


def _goes_by_parts(script: Script, call: ast.Call, loop: ast.For | ast.While) -> bool:
    """Whether each turn predicts several batches, or clears what the last one left."""
    called = (last_name(n) for n in walk(*loop.body) if isinstance(n, ast.Call))
    if "clear_session" in called:
        return True
    rows = next((k.value for k in call.keywords if k.arg == "batch_size"), None)
    taken = loop.iter if isinstance(loop, ast.For) else None
    if rows is None or not isinstance(taken, ast.Call) or len(taken.args) != 3:
        return False
    step = taken.args[2]
    most, least = script.evaluator.constant(rows), script.evaluator.constant(step)
    if isinstance(most, int) and isinstance(least, int):
        return least > most
    return last_name(taken) == "range" and dotted(rows) != dotted(step)


def _changes(model: ast.expr, loop: ast.For | ast.While) -> bool:
    """Whether the loop trains or changes the model, or goes over several."""
    for node in walk(*loop.body):
        if isinstance(node, ast.Call) and last_name(node) in _TRAINS:
            return True
    name = (dotted(model) or "").partition(".")[0]
    bound = [loop.target] if isinstance(loop, ast.For) else []
    stored = (
        n.id
        for n in walk(*bound, *loop.body)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    )
    return not name or name in stored
