"""A network of Keras trains in float32 throughout, with tensor cores half idle.

## Why
With the policy `mixed_float16` convolutions and matrix products run in float16, on
tensor cores, and activations take half the memory; weights stay float32, and `compile`
scales the loss. GPUs since Volta train convolutional networks and transformers up to
three times as fast with it.

## Example
```python
import tensorflow as tf

model = tf.keras.Sequential([
    tf.keras.layers.Conv2D(64, 3, activation="relu"),
    tf.keras.layers.GlobalAveragePooling2D(),
    tf.keras.layers.Dense(10, activation="softmax"),
])
model.compile(loss="sparse_categorical_crossentropy", optimizer="adam")
model.fit(images, epochs=10)
```
becomes
```python
import tensorflow as tf

if tf.config.list_physical_devices("GPU"):
    tf.keras.mixed_precision.set_global_policy("mixed_float16")

model = tf.keras.Sequential([
    tf.keras.layers.Conv2D(64, 3, activation="relu"),
    tf.keras.layers.GlobalAveragePooling2D(),
    tf.keras.layers.Dense(10, activation="softmax", dtype="float32"),
])
model.compile(loss="sparse_categorical_crossentropy", optimizer="adam")
model.fit(images, epochs=10)
```

## Fix
The policy, where there is a GPU, and `dtype="float32"` for the layer that gives the
outputs: a softmax or a loss in float16 overflows. Both or none. Results differ in
rounding.

No fix where that layer is not seen (own classes, models of packages, several ways to
build it), where layers of the program's own make numbers in float32 or a saved model
(TensorFlow Hub) takes no others, where an older TensorFlow is allowed, for steps with a
`GradientTape`, which would have to scale the loss themselves, for a file that is only
imported, and where Keras may run on another backend than TensorFlow. Then it is a note.

## When not
Any file of the program names a precision, a policy, a TPU or `TFTrainingArguments`,
which have `fp16`. No convolution and no attention is seen: small dense networks gain
nothing. Loops that update no weights. The confidence is low where neither convolutions
of 128 features, other layers of 512 nor a large model by its name are seen, nor in the
list of layers that is trained; where no `tf.function` compiles the steps, which then
wait for Python; where the file writes numbers that float16 does not hold (`1e-24`), or
the program has a function for Gram matrices, whose sums may pass it; where all that
`fit` is given are random numbers, for a trial; where the project runs with a TensorFlow
before 2.4, whose policies were experimental, or with a Keras before 2.4, which has
none; where the program has layers of its own with weights or operations of
TensorFlow's, which may join what is float32 with what is not; where another package
makes the model; and where it is a class of the project whose code makes numbers, names
float32, or is not large by itself.

## Source
TensorFlow guide, "Mixed precision". Tried with Keras 3.15: `compile` puts a
`LossScaleOptimizer` around the optimizer.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.index.build import last_name
from gpulint.rule import Hardware, Rule, TensorFlow
from gpulint.script import Script
from gpulint.script.frameworks.tf_names import is_for_tf1, needs_first_keras
from gpulint.script.frameworks.tf_policy import (
    OUT_OF_RANGE,
    compares_styles,
    counts_on_float32,
    has_own_layers,
    is_decided,
    is_large,
    is_of_a_package,
    is_unfit,
    output_layers,
)
from gpulint.script.frameworks.tf_steps import eager_steps, fits
from gpulint.script.frameworks.tf_waits import step_loops, updates_weights
from gpulint.script.frameworks.trainer_calls import allows_before, may_have
from gpulint.script.modelling.written_sizes import is_seen_large, names_large
from gpulint.script.neighbours import run_together
from gpulint.script.rewriting.edits import CannotFix, InsertAfter, Replace, Rewrite
from gpulint.script.rewriting.syntax import set_keywords

SINCE = (2, 4)  # the first TensorFlow whose policies are no experiment
# How saved models come in, whose functions take the format that they were saved with.
_SAVED = re.compile(r"KerasLayer|tensorflow_hub|TFSMLayer|saved_model\.load\(")
_AT_RANDOM = ("numpy.random.", "tensorflow.random.")
TITLE = "Train in mixed precision where there is a GPU"


class KerasMixedPrecision(Rule):
    effect = Effect.NUMERICS
    hardware = Hardware.MIXED
    needs = TensorFlow("keras .fit(", "tensorflow GradientTape(", "tensorflow _step(")
    framework = "tensorflow"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for a file that trains."""
        if is_for_tf1(script):
            return
        place = _training(script)
        if place is None or is_decided(script) or not is_large(script):
            return
        fix = withheld = None
        try:
            fix = rewrite(script)
        except CannotFix as error:
            withheld = str(error)
        eager = any(step.loop is place for step in eager_steps(script))
        gains = is_seen_large(script) and not eager
        trained = fits(script)
        small = bool(trained) and all(_is_small(script, call) for call in trained)
        gains = gains and not small and may_have(script, "tensorflow", SINCE)
        gains = gains and not (trained and all(_is_tried(script, c) for c in trained))
        gains = gains and not script.source.has(OUT_OF_RANGE)
        gains = gains and not any(is_unfit(script, call) for call in trained)
        gains = gains and not (counts_on_float32(script) or has_own_layers(script))
        gains = gains and not compares_styles(script)
        gains = gains and not any(is_of_a_package(script, call) for call in trained)
        gains = gains and not needs_first_keras(script)
        yield self.finding(
            script,
            place,
            "the network trains in float32 throughout: no policy is set",
            fix=fix,
            withheld=withheld,
            severity=Severity.WARNING if fix else Severity.NOTE,
            confidence=None if gains else Confidence.LOW,
        )


def _is_tried(script: Script, call: ast.Call) -> bool:
    """`model.fit(np.random.random((64, 24)), y)`: a trial on numbers made up for it."""
    given = [k.value for k in call.keywords if k.arg == "x"] + call.args[:1]
    made = [o.call for node in given[:1] for o in script.resolver.origins(node)]
    return bool(made) and all(
        its is not None
        and (script.index.qualified(its.func) or "").startswith(_AT_RANDOM)
        for its in made
    )


def _training(script: Script) -> ast.AST | None:
    """The first `fit`, or loop of own steps."""
    trained = fits(script)
    for call in [*(c for c in trained if not _is_small(script, c)), *trained]:
        return call.func
    loops = step_loops(script) if updates_weights(script) else []
    return loops[0].node if loops else None


def _is_small(script: Script, fit: ast.Call) -> bool:
    """Whether a model is written as one list of layers, none of which is wide."""
    assert isinstance(fit.func, ast.Attribute)
    made = [origin.call for origin in script.resolver.origins(fit.func.value)]
    return bool(made) and all(
        call is not None
        and last_name(call) == "Sequential"
        and len(call.args) == 1
        and isinstance(call.args[0], ast.List)
        and bool(call.args[0].elts)
        and not names_large(script.text(call))
        for call in made
    )


def rewrite(script: Script) -> Rewrite:
    """The policy after the imports, and outputs in float32."""
    if "keras" in script.index.packages:
        raise CannotFix("Keras may run on another backend than TensorFlow")
    if counts_on_float32(script):
        raise CannotFix("layers of the program's own make numbers in float32")
    if has_own_layers(script):
        raise CannotFix("layers of the program's own may count on one type")
    if compares_styles(script):
        raise CannotFix("Gram matrices may pass what float16 holds")
    if any(f.source.has(_SAVED) for f in run_together(script)):
        raise CannotFix("a saved model takes float32 alone")
    if allows_before(script, "tensorflow", SINCE):
        raise CannotFix("the project allows a TensorFlow before 2.4")
    layers = output_layers(script)
    after = last_import(script)
    tf, imports = script.names.module("tensorflow", "tf")
    lines = (
        f'\nif {tf}.config.list_physical_devices("GPU"):\n'
        f'    {tf}.keras.mixed_precision.set_global_policy("mixed_float16")'
    )
    typed = set_keywords(dtype='"float32"')
    edits = [Replace(layer, typed) for layer in layers]
    return Rewrite(TITLE, (InsertAfter(after, lines), *edits), imports)


def last_import(script: Script) -> ast.stmt:
    """The last import at the top of the file, among what else sets it up."""
    last: ast.stmt | None = None
    for number, statement in enumerate(script.index.tree.body):
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            last = statement
        elif number and not _is_setup(statement):
            break
    if last is None:
        raise CannotFix("the file begins with no imports")
    return last


def _is_setup(statement: ast.stmt) -> bool:
    """A line such as `os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"` among imports."""
    if isinstance(statement, ast.Assign):
        return isinstance(statement.targets[0], ast.Subscript)
    value = statement.value if isinstance(statement, ast.Expr) else None
    names = ("filterwarnings", "seed", "set_seed", "set_random_seed")
    return isinstance(value, ast.Call) and last_name(value) in names
