"""A model trains in float32 throughout.

## Why
GPUs and Ascend compute in half precision several times as fast as in float32, and
activations take half the memory. `Model` has mixed precision built in, with the scaling
of the loss that it needs, and leaves it off unless it is asked for.

## Example
```python
import mindspore as ms

model = ms.Model(network, loss_fn, optimizer)
model.train(10, dataset)
```
becomes
```python
import mindspore as ms
from gpulint import runtime

model = ms.Model(network, loss_fn, optimizer, amp_level=runtime.ms.amp_level())
model.train(10, dataset)
```

## Fix
`runtime.ms.amp_level` gives O2 on a GPU or Ascend, with BatchNorm in float32, and O0 on
a CPU, where `Model` refuses O2.

No fix where the network computes its own loss, which would be in half precision as
well, and for steps that are written by hand: `mindspore.amp.auto_mixed_precision` and a
loss scaler have to be put around them.

## When not
Anything in the file, or in its folder, that speaks of mixed precision, half types or
loss scaling. A model without an optimizer: its network is a training step of its own.
`**kwargs`. Scripts that set the CPU as their device. Where neither layers of 128
features nor a large model by its name are seen, the confidence is low.

## Source
MindSpore documentation, `mindspore.train.Model` (`amp_level`, default O0) and
`mindspore.amp`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.index import Argument
from gpulint.rule import Hardware, Rule, Words
from gpulint.script import Script
from gpulint.script.frameworks.ms_context import on_cpu
from gpulint.script.frameworks.ms_training import step_functions, trainings, uses_half
from gpulint.script.modelling.written_sizes import is_seen_large
from gpulint.script.numerics.protected import why_protected_program
from gpulint.script.rewriting.edits import Replace, Rewrite
from gpulint.script.rewriting.syntax import set_keywords

TITLE = "Let the runtime choose the precision"
LOSS_INSIDE = "the network computes the loss, which would be in half precision too"


class MsAmp(Rule):
    effect = Effect.NUMERICS
    framework = "mindspore"
    hardware = Hardware.MIXED
    needs = Words("mindspore Model(", "mindspore grad for")

    def check(self, script: Script) -> Iterator[Finding]:
        """Models that train, and steps that are written by hand."""
        if "mindspore" not in script.frameworks or on_cpu(script):
            return
        models = {training.model: None for training in trainings(script)}
        steps = list(step_functions(script))
        if not (models or steps) or uses_half(script):
            return
        large = is_seen_large(script)
        runtime, imports = script.names.runtime
        for model in models:
            if not _trains_in_float32(script, model):
                continue
            edit = set_keywords(amp_level=f"{runtime}.ms.amp_level()")
            loss = script.evaluator.argument(model, "loss_fn", 1)
            withheld = None if _is_something(script, loss) else LOSS_INSIDE
            withheld = why_protected_program(script) or withheld
            yield self.finding(
                script,
                model.func,
                "the model trains in float32: its `amp_level` is O0",
                fix=None
                if withheld
                else Rewrite(TITLE, (Replace(model, edit),), imports),
                withheld=withheld,
                confidence=None if large else Confidence.LOW,
            )
        for step in steps:
            yield self.finding(
                script,
                step,
                f"`{step.name}` trains in float32, without mixed precision",
                withheld="mixed precision of a step by hand needs a loss scaler too",
                confidence=Confidence.MEDIUM if large else Confidence.LOW,
            )


def _trains_in_float32(script: Script, model: ast.Call) -> bool:
    """Whether a model of this file has an optimizer and no word on its precision."""
    optimizer = script.evaluator.argument(model, "optimizer", 2)
    level = script.evaluator.argument(model, "amp_level", 6)
    wanted = level.absent and _is_something(script, optimizer)
    return wanted and script.index.holds(model)


def _is_something(script: Script, argument: Argument) -> bool:
    """Whether an argument is given, and is not None."""
    values = [script.evaluator.values(node) for node in argument.nodes]
    return argument.given and not any(v.any_in(None) for v in values)
