"""Each step of a training starts from Python, with its batch copied for it.

## Why
With `dataset_sink_mode=True` batches go to a queue on the device, and a whole epoch, or
`sink_size` steps, is started at once. Without it Python takes each batch, copies it and
starts the step. Since 2.0 that is what MindSpore does where nothing is said.

## Example
```python
import mindspore as ms

model = ms.Model(network, loss_fn, optimizer)
model.train(10, dataset)
```

## Fix
None: callbacks then see the loss once for what has sunk instead of each step. Try
`dataset_sink_mode=runtime.ms.sink()`, which leaves it off on a CPU.

## When not
A value that is not known, `**kwargs`, and where nothing is said projects that may use a
release before 2.0, in which it was on. Scripts that set the CPU as their device. False
that is written is a note: somebody may want to see every step. Of low confidence in a
program with buckets of lengths: what is sunk has one shape.

## Source
MindSpore documentation, `mindspore.train.Model.train` (`dataset_sink_mode`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.index.known import joined
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.frameworks.ms_context import on_cpu, requires
from gpulint.script.frameworks.ms_training import trainings
from gpulint.script.neighbours import run_together

OFF_BY_DEFAULT = (2, 0)
# Samples by their lengths: not the positions that attention puts in buckets.
_SHAPES = re.compile(
    r"batch_?bucket|bucket(ed\b|_?(batch|boundar|limit|sampler|size))", re.IGNORECASE
)
POSITIONS = {"train": 3, "fit": 5}


class MsNoSink(Rule):
    effect = Effect.NONE
    framework = "mindspore"
    needs = Words("mindspore Model( .train(", "mindspore Model( .fit(")

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each call that trains."""
        if on_cpu(script):
            return
        for _, call in trainings(script):
            name = call.func.attr  # type: ignore[attr-defined]
            sink = script.evaluator.argument(call, "dataset_sink_mode", POSITIONS[name])
            values = joined(map(script.evaluator.values, sink.nodes), sink.given)
            off = values.all_in(False) and not any(v.default for v in values.known)
            if not off and not (sink.absent and requires(script, OFF_BY_DEFAULT)):
                continue
            said = "`dataset_sink_mode` is False" if off else "nothing sinks the data"
            shapes = any(i.source.has(_SHAPES) for i in run_together(script))
            yield self.finding(
                script,
                call.func,
                f"{said}: Python copies each batch and starts each step",
                severity=Severity.NOTE if off else None,
                confidence=Confidence.LOW if shapes else None,
            )
