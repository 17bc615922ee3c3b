"""The script calls what TensorFlow 2.16 or Keras 3 no longer has.

## Why
A run that stops at a name that is gone trains nothing. Some of the old names are also
those of slow ways, such as `fit_generator`; `decay` is worse, for it is ignored with a
warning, and the learning rate no longer falls.

## Example
```python
from tensorflow import keras

model = keras.Sequential([keras.layers.Dense(10)])
model.compile(loss="mse", optimizer=keras.optimizers.Adam(lr=1e-3))
model.fit_generator(batches, 100, epochs=10)
```
becomes
```python
from tensorflow import keras

model = keras.Sequential([keras.layers.Dense(10)])
model.compile(loss="mse", optimizer=keras.optimizers.Adam(learning_rate=1e-3))
model.fit(batches, steps_per_epoch=100, epochs=10)
```

## Fix
`fit`, `evaluate` and `predict` for the methods of generators, with the arguments that
stood at other positions by name; `learning_rate` for `lr`; `set_global_policy` for
`experimental.set_policy`. For `multi_gpu_model`, legacy optimizers, graph rewriting and
`decay` a person has to choose.

No fix where the project also allows a release that does not have the new name.

## When not
The project allows no Keras 3; where it allows an older one as well, or says nothing,
the finding is of low confidence: that one runs the program. The file imports `tf_keras`
or asks for the legacy Keras, or it is a script for TensorFlow 1 (sessions,
placeholders) or has estimators, which left TensorFlow with the release that brought
Keras 3. What stands beside an import of
the standalone Keras that Keras 3 does not have either is of low confidence.

## Source
Keras documentation, "Migrating Keras 2 code to multi-backend Keras 3"; each name was
tried with TensorFlow 2.21 and Keras 3.15.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.rule import Rule, TensorFlow
from gpulint.script import Script
from gpulint.script.frameworks.tf_names import (
    may_have_keras_3,
    name_of,
    surely_has_keras_3,
)
from gpulint.script.frameworks.tf_pipelines import spot
from gpulint.script.rewriting.edits import Build, Replace, ReplaceCode, Rewrite
from gpulint.script.rewriting.syntax import CallText

# Positions of the arguments of methods that are gone, and what takes their place.
GENERATORS = {
    "fit_generator": (
        "fit",
        *(
            "x steps_per_epoch epochs verbose callbacks validation_data "
            "validation_steps validation_freq class_weight"
        ).split(),
    ),
    "evaluate_generator": ("evaluate", "x", "steps", "callbacks"),
    "predict_generator": ("predict", "x", "steps", "callbacks"),
}
KERAS_1 = frozenset(
    "samples_per_epoch nb_epoch nb_val_samples val_samples nb_worker".split()
)
GONE = (
    "keras.mixed_precision.experimental.",
    "keras.utils.multi_gpu_model",
    "keras.optimizers.legacy.",
    "keras.optimizers.experimental.",
    "keras.wrappers.scikit_learn.",
    "tensorflow.train.experimental.enable_mixed_precision_graph_rewrite",
)
# What a program of Keras 2 imports, and Keras 3 fails at before anything is called.
_KERAS_2 = re.compile(
    r"from keras\.preprocessing\.image import[^\n]*ImageDataGenerator"
)
NEW_NAMES = {
    "keras.mixed_precision.experimental.set_policy": "set_global_policy",
    "keras.mixed_precision.experimental.Policy": "Policy",
}


class TfRemovedApi(Rule):
    effect = Effect.EXACT
    severity = Severity.ERROR
    needs = TensorFlow(
        "keras _generator(",
        "keras lr",
        "keras decay",
        *(f"{name.split('.')[0]} {name.strip('.').split('.')[-1]}" for name in GONE),
    )
    framework = "tensorflow"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each call."""
        if not may_have_keras_3(script):
            return
        for call in script.index.all(ast.Call):
            name = name_of(script, call.func)
            last = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if last in GENERATORS:
                yield self._generator(script, call, last)
            elif name.startswith("keras.optimizers.") and name.count(".") == 2:
                yield from self._optimizer(script, call)
            elif name.startswith(GONE):
                yield self._gone(script, call, name)

    def _generator(self, script: Script, call: ast.Call, old: str) -> Finding:
        new, *order = GENERATORS[old]
        withheld = None
        if any(k.arg in KERAS_1 for k in call.keywords):
            withheld = "the arguments are those of Keras 1"
        elif len(call.args) > len(order) or any(
            isinstance(a, ast.Starred) for a in call.args
        ):
            withheld = "the positions of its arguments are not known"
        elif _allows_before(script, (2, 1), (2, 4)):
            withheld = f"the project allows releases whose `{new}` takes no generator"
        fix = Rewrite(f"Call `{new}`", (Replace(call, _renamed(old, new, order)),))
        return self.finding(
            script,
            spot(call),
            f"Keras 3 has no `{old}`: the call fails",
            fix=None if withheld else fix,
            withheld=withheld,
            confidence=_confidence(script),
        )

    def _optimizer(self, script: Script, call: ast.Call) -> Iterator[Finding]:
        given = {k.arg: k for k in call.keywords}
        rate, decay = given.get("lr"), given.get("decay")
        if rate is not None:
            old = _allows_before(script, (2, 0), (2, 3))
            withheld = (
                "the project allows releases that know only `lr`" if old else None
            )
            if "learning_rate" in given:
                withheld = "`learning_rate` is given too"
            edit = Replace(call, _with_rate)
            yield self.finding(
                script,
                rate.value,
                "optimizers of Keras 3 take no `lr`: the call fails",
                fix=None if withheld else Rewrite("Name it `learning_rate`", (edit,)),
                withheld=withheld,
                confidence=_confidence(script),
            )
        if decay is not None and not script.evaluator.values(decay.value).any_in(
            0, 0.0, None
        ):
            yield self.finding(
                script,
                decay.value,
                "optimizers of Keras 3 ignore `decay`: the learning rate does not fall",
                severity=Severity.WARNING,
                withheld="`keras.optimizers.schedules.InverseTimeDecay` does the same",
                confidence=_confidence(script),
            )

    def _gone(self, script: Script, call: ast.Call, name: str) -> Finding:
        fix = withheld = None
        above = call.func.value if isinstance(call.func, ast.Attribute) else None
        new = NEW_NAMES.get(name)
        if new and isinstance(above, ast.Attribute) and _one_positional(call):
            edit = ReplaceCode(call.func, f"{script.text(above.value)}.{new}")
            fix = Rewrite(f"Call `{new}`", (edit,))
        if fix and _allows_before(script, (2, 4), (2, 4)):
            withheld = f"the project allows releases without `{new}`"
        return self.finding(
            script,
            call.func,
            f"`{name.removeprefix('keras.')}` is gone: the call fails",
            fix=None if withheld else fix,
            withheld=withheld,
            confidence=_confidence(script),
        )


def _confidence(script: Script) -> Confidence | None:
    """Low where an older Keras may run the program, as it did."""
    new = surely_has_keras_3(script) and not script.source.has(_KERAS_2)
    return None if new else Confidence.LOW


def _allows_before(
    script: Script, tensorflow: tuple[int, int], keras: tuple[int, int]
) -> bool:
    """Whether the project says that it allows an older release."""
    bounds = (("tensorflow", tensorflow), ("keras", keras))
    lowest = ((script.releases(package).lowest, least) for package, least in bounds)
    return any(its is not None and its < least for its, least in lowest)


def _one_positional(call: ast.Call) -> bool:
    plain = len(call.args) == 1 and not isinstance(call.args[0], ast.Starred)
    return plain and not call.keywords


def _renamed(old: str, new: str, order: list[str]) -> Build:
    """The same call by another name, all arguments but the first by theirs."""

    def build(text: str) -> str:
        call = CallText.of(text)
        arguments = []
        for number, argument in enumerate(call.arguments):
            name = order[number] if not argument.head and number else None
            name = "x" if argument.name == "generator" else name
            if name is not None:
                argument = argument._replace(head=f"{name}=", name=name)
            arguments.append(argument)
        callee = call.callee.removesuffix(old) + new
        return call._replace(callee=callee).code(arguments)

    return build


def _with_rate(text: str) -> str:
    call = CallText.of(text)
    named = [
        a._replace(head="learning_rate=", name="learning_rate") if a.name == "lr" else a
        for a in call.arguments
    ]
    return call.code(named)
