"""TensorFlow is given a fixed number of CPU threads.

## Why
TensorFlow takes as many threads as there are CPUs. A number in the script fits one
machine: on a larger one tf.data, which shares the threads, makes batches more slowly
than it could and the GPU waits; in a smaller container threads take the CPUs from each
other. 0 is what TensorFlow has anyway.

## Example
```python
import tensorflow as tf

tf.config.threading.set_inter_op_parallelism_threads(4)
tf.config.threading.set_intra_op_parallelism_threads(8)
model.fit(images, epochs=10)
```
becomes
```python
import tensorflow as tf
from gpulint import runtime

runtime.tf.configure(was={"interop_threads": 4})
runtime.tf.configure(was={"threads": 8})
model.fit(images, epochs=10)
```

## Fix
`runtime.tf.configure` leaves the number to TensorFlow, unless the policy `local-cloud`
or an argument asks for another; with the runtime off it is the script's own. Sums on
the CPU may round differently with another number of threads.

## When not
A number that is not a constant; 1, with which a script asks for results that do not
depend on the threads.

## Source
TensorFlow documentation, `tf.config.threading.set_intra_op_parallelism_threads` ("A
value of 0 means the system picks an appropriate number").
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Effect, Finding
from gpulint.rule import Rule, TensorFlow
from gpulint.script import Script
from gpulint.script.rewriting.edits import ReplaceCode, Rewrite

NAMES = {
    "set_inter_op_parallelism_threads": "interop_threads",
    "set_intra_op_parallelism_threads": "threads",
}
TITLE = "Leave the number of threads to the machine"


class TfHardcodedThreads(Rule):
    effect = Effect.NUMERICS
    needs = TensorFlow(*(f"tensorflow {name}" for name in NAMES))
    framework = "tensorflow"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each call with a number of threads."""
        for method, setting in NAMES.items():
            for call in script.index.calls_by_name.get(method, ()):
                given = script.evaluator.argument(call, "num_threads", 0)
                number = script.evaluator.constant(given.nodes[0]) if given.nodes else 0
                if not isinstance(number, int) or number < 2:
                    continue
                runtime, imports = script.names.runtime
                written = script.text(given.nodes[0])
                code = f'{runtime}.tf.configure(was={{"{setting}": {written}}})'
                statement = script.index.statement(call)
                alone = isinstance(statement, ast.Expr) and statement.value is call
                here = script.index.inside(given.nodes[0], call)
                fix = Rewrite(TITLE, (ReplaceCode(call, code),), imports)
                yield self.finding(
                    script,
                    given.nodes[0] if here else call.func,
                    f"TensorFlow gets {number} threads on every machine",
                    fix=fix if alone and here else None,
                )
