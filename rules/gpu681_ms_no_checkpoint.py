"""A training keeps nothing of what it has learned until it ends.

## Why
`Model.train` saves weights only by a callback. Without one, an interruption, a full
disk of logs or a machine that is taken away costs all epochs so far.

## Example
```python
import mindspore as ms

model = ms.Model(network, loss_fn, optimizer)
model.train(90, dataset, callbacks=[ms.LossMonitor()])
```

## Fix
None: `ms.ModelCheckpoint` with `ms.CheckpointConfig(save_checkpoint_steps=…)` among the
callbacks saves every so many steps.

## When not
Anything in the file, or its folder, that saves: `ModelCheckpoint`, `save_checkpoint`,
a callback of the project's own. Callbacks that are not written in the call or a list
that it names. A training of a single epoch.

## Source
MindSpore documentation, `mindspore.train.ModelCheckpoint`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gpulint.finding import Effect, Finding, Severity
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.frameworks.ms_context import mentioned
from gpulint.script.frameworks.ms_training import trainings

SAVES = re.compile(r"checkpoint|ckpt|save_|\.save\(|\bexport\(", re.IGNORECASE)
POSITIONS = {"train": 2, "fit": 4}


class MsNoCheckpoint(Rule):
    effect = Effect.NONE
    severity = Severity.NOTE
    framework = "mindspore"
    needs = Words("mindspore Model( .train(", "mindspore Model( .fit(")

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each call that trains."""
        for _, call in trainings(script):
            if _keeps(script, call) or mentioned(script, SAVES):
                continue
            yield self.finding(
                script,
                call.func,
                "no callback saves a checkpoint: what is learned is lost with the run",
            )


def _keeps(script: Script, call: ast.Call) -> bool:
    """Whether a callback may save, or there is little to lose."""
    name = call.func.attr  # type: ignore[attr-defined]
    given = script.evaluator.argument(call, "callbacks", POSITIONS[name])
    epochs = script.evaluator.argument(call, "epoch", 0)
    if any(script.evaluator.values(n).all_in(1) for n in epochs.nodes):
        return True
    if given.absent:
        return False
    return not given.given or not all(_is_known(script, n) for n in given.nodes)


def _is_known(script: Script, node: ast.expr) -> bool:
    """Whether callbacks are written as MindSpore's own, alone or in a list."""
    for origin in script.resolver.origins(node):
        listed = origin.expression
        its = listed.elts if isinstance(listed, (ast.List, ast.Tuple)) else [listed]
        made = [
            o.call
            for item in its
            if item is not None
            for o in script.resolver.origins(item)
        ]
        if not made or any(
            m is None
            or not (script.index.qualified(m.func) or "").startswith("mindspore.")
            for m in made
        ):
            return False
    return True
