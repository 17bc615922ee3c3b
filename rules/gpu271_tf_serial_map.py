"""A dataset of TensorFlow maps its elements one after another.

## Why
`map` without `num_parallel_calls` makes one element at a time where its function draws
random numbers or goes back to Python: one CPU reads, decodes and resizes while the
others, and often the GPU, wait. With `tf.data.AUTOTUNE` elements are made on as many
CPUs as help, and still come in the same order.

## Example
```python
import tensorflow as tf


def read(path):
    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    return tf.image.resize(image, (224, 224))


images = tf.data.Dataset.from_tensor_slices(paths)
images = images.map(read)
model.fit(images.batch(64).prefetch(tf.data.AUTOTUNE), epochs=10)
```
becomes
```python
import tensorflow as tf


def read(path):
    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    return tf.image.resize(image, (224, 224))


images = tf.data.Dataset.from_tensor_slices(paths)
images = images.map(read, num_parallel_calls=tf.data.AUTOTUNE)
model.fit(images.batch(64).prefetch(tf.data.AUTOTUNE), epochs=10)
```

## Fix
`num_parallel_calls=tf.data.AUTOTUNE`, or `tf.data.experimental.AUTOTUNE` where the
project allows a TensorFlow before 2.4. The elements and their order are the same where
the function draws no random numbers and does not go back to Python. Where it does, or
calls what is not known, the effect is `random`: elements that are made at the same time
take the numbers of a seed in another order from run to run. So it is where the script
gives up the order itself (`deterministic`). A function that changes what the next
element finds (`assign_add`, `global`) is left alone.

A function without random numbers, Python or state is a note: TensorFlow's default
optimizations (`map_parallelization`) make it parallel where nothing switches them off.
Where the project allows a TensorFlow from 2.6 on, that is of low confidence, as is a
function that calls what is not known, but nothing of the kind as far as is seen.

## When not
A function that only chooses among the parts of an element, gives them another shape, or
takes rows of arrays in Python, which does one at a time.
A dataset of which the first few elements are looked at. The number is given, or may be
by `**kwargs`, or a comment says why not (threads). Methods called `map` of other things
than datasets.
A `map` before `cache` makes each element once, and is of low confidence; so is one in a
script that trains and evaluates nothing, of a dataset of which nothing is taken, and of
one whose few elements the program writes out.

## Source
TensorFlow guide, "Better performance with the tf.data API", Parallelizing data
transformation; `tf.data.experimental.OptimizationOptions.map_parallelization`. Measured
with TensorFlow 2.21 on two CPUs: without the option a function of matrix products used
1.9 CPUs, and 1.1 as soon as it drew a random number; a seeded `tf.random.uniform` gives
other numbers to other elements.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.index.build import last_name
from gpulint.rule import Rule, TensorFlow
from gpulint.script import Script
from gpulint.script.frameworks.tf_mapped import Mapped, gives_up_order
from gpulint.script.frameworks.tf_names import autotune, lacks_autotune, maps_at_once
from gpulint.script.frameworks.tf_pipelines import is_looked_at, is_written_out, spot
from gpulint.script.frameworks.tf_steps import trains
from gpulint.script.loading.loader_options import has_reason
from gpulint.script.rewriting.edits import Replace, Rewrite
from gpulint.script.rewriting.syntax import set_keywords

TITLE = "Make elements on several CPUs"
SERIAL = "`map` makes one element at a time: `num_parallel_calls` is not set"
STATELESS = (
    "`num_parallel_calls` is not set: `map` makes elements at the same time only where "
    "TensorFlow's default optimizations see to it"
)


def _is_left(script: Script, call: ast.Call) -> bool:
    """Whether a script makes a dataset of which it takes nothing, or has a look."""
    if any(map(is_looked_at, script.pipelines.behind(call))):
        return True
    if script.index.function(call) is not None:
        return False
    return all(use.kind == "look" for use in script.pipelines.final_uses(call))


class TfSerialMap(Rule):
    effect = Effect.EXACT
    needs = TensorFlow("tensorflow .map(", "keras .map(")
    framework = "tensorflow"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each `map` that makes one element at a time."""
        for call in script.pipelines.named("map"):
            number = script.evaluator.argument(call, "num_parallel_calls", 1)
            if not number.absent or has_reason(script, call):
                continue
            if any(map(is_looked_at, script.pipelines.taken(call))):
                continue
            function = script.evaluator.argument(call, "map_func", 0)
            if function.direct is None:
                continue
            mapped = Mapped(script, function.direct)
            if not mapped.picks:
                yield self._finding(script, call, mapped)

    def _finding(self, script: Script, call: ast.Call, mapped: Mapped) -> Finding:
        code, imports = autotune(script)
        edit = Replace(call, set_keywords(num_parallel_calls=code))
        changes = "the function changes what the next element finds"
        withheld = changes if mapped.keeps else lacks_autotune(script)
        exact = mapped.exact and not gives_up_order(script, call)
        parallel = not (mapped.draws or mapped.python) and maps_at_once(script)
        behind = map(last_name, script.pipelines.behind(call))
        unsure = parallel or "cache" in behind or not trains(script)
        unsure = unsure or _is_left(script, call)
        unsure = unsure or is_written_out(script.pipelines.before(call))
        reasons = (
            (mapped.draws, "it draws random numbers here"),
            (mapped.python, "it goes back to Python here"),
            (mapped.unknown, "what this does is not known"),
        )
        return self.finding(
            script,
            spot(call),
            STATELESS if mapped.exact or parallel else SERIAL,
            fix=None if withheld else Rewrite(TITLE, (edit,), imports),
            withheld=withheld,
            evidence=[(node, note) for node, note in reasons if node is not None],
            effect=Effect.EXACT if exact else Effect.RANDOM,
            severity=Severity.NOTE if mapped.exact else None,
            confidence=Confidence.LOW if unsure else None,
        )
