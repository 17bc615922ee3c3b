"""A dataset of TensorFlow reads the files that it interleaves one after another.

## Why
`interleave` takes elements from several files in turn, but without `num_parallel_calls`
it opens and reads them in one thread: the time that a disk or a bucket takes to answer
is waited for again and again.

## Example
```python
import tensorflow as tf

files = tf.data.Dataset.list_files("train/*.tfrecord", shuffle=False)
read = tf.data.TFRecordDataset
records = files.interleave(read, cycle_length=8)
model.fit(records.map(parse, tf.data.AUTOTUNE).batch(64), epochs=10)
```
becomes
```python
import tensorflow as tf

files = tf.data.Dataset.list_files("train/*.tfrecord", shuffle=False)
read = tf.data.TFRecordDataset
records = files.interleave(read, cycle_length=8, num_parallel_calls=tf.data.AUTOTUNE)
model.fit(records.map(parse, tf.data.AUTOTUNE).batch(64), epochs=10)
```

## Fix
`num_parallel_calls=tf.data.AUTOTUNE`. With a `cycle_length` of the script's own the
elements come in the same order. Without one TensorFlow chooses it, for parallel reading
another one: the order of the elements changes, and the effect is `random`.

## When not
The number is given, or may be by `**kwargs`. Of low confidence in a script that trains
and evaluates nothing, or names its files of records one by one (`"train.tfrecord"`).

## Source
TensorFlow guide, "Better performance with the tf.data API", Parallelizing data
extraction; `tf.data.Dataset.interleave`. Measured with TensorFlow 2.21: the same order
with `cycle_length=4`, another without it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.rule import Rule, TensorFlow
from gpulint.script import Script
from gpulint.script.frameworks.tf_mapped import Mapped, gives_up_order
from gpulint.script.frameworks.tf_names import autotune, lacks_autotune
from gpulint.script.frameworks.tf_pipelines import spot
from gpulint.script.frameworks.tf_steps import trains
from gpulint.script.rewriting.edits import Replace, Rewrite
from gpulint.script.rewriting.syntax import set_keywords

_RECORDS = re.compile(r"\w\.tf_?records?$")
TITLE = "Read several files at a time"


class TfSerialInterleave(Rule):
    effect = Effect.EXACT
    needs = TensorFlow("tensorflow .interleave(")
    framework = "tensorflow"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each `interleave` that reads in one thread."""
        for call in script.pipelines.named("interleave"):
            if not script.evaluator.argument(call, "num_parallel_calls", 3).absent:
                continue
            withheld = lacks_autotune(script)
            code, imports = autotune(script)
            edit = Replace(call, set_keywords(num_parallel_calls=code))
            yield self.finding(
                script,
                spot(call),
                "`interleave` reads in one thread: `num_parallel_calls` is not set",
                fix=None if withheld else Rewrite(TITLE, (edit,), imports),
                withheld=withheld,
                effect=Effect.EXACT if _keeps_order(script, call) else Effect.RANDOM,
                confidence=None if _gains(script) else Confidence.LOW,
            )


def _gains(script: Script) -> bool:
    return trains(script) and not _names_single_files(script)


def _names_single_files(script: Script) -> bool:
    """Whether a file names its records one by one: `"train.tfrecord"`, no pattern."""
    texts = [
        node.value
        for node in script.index.all(ast.Constant)
        if isinstance(node.value, str) and "\n" not in node.value
    ]
    named = any(_RECORDS.search(text) for text in texts)
    return named and not any("*" in text for text in texts)


def _keeps_order(script: Script, call: ast.Call) -> bool:
    given = script.evaluator.argument(call, "map_func", 0).direct
    cycle = script.evaluator.argument(call, "cycle_length", 1)
    if given is None or not cycle.given or gives_up_order(script, call):
        return False
    return Mapped(script, given).exact
