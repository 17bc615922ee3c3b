"""A value is averaged over all ranks in every training step, to be logged.

## Why
With `sync_dist=True` a value that is logged at each step goes through an all-reduce at
each step: a collective of its own, for which every rank waits for the slowest, beside
the gradients that are reduced anyway. In training the value of one rank shows the same
curve with more noise.

## Example
```python
import lightning as L
from torch.nn.functional import cross_entropy


class Classifier(L.LightningModule):
    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = cross_entropy(self.net(x), y)
        self.log("train_loss", loss, sync_dist=True)
        return loss
```

## Fix
None: who reads the value, a person must know. `on_step=False, on_epoch=True` averages
over the ranks once an epoch; without `sync_dist` the first rank's value is logged.

## When not
`on_step=False`, or what only validation, test and prediction run: there the ranks must
agree, or each keeps another checkpoint. A value that a callback or scheduler of the
program monitors. Objects of torchmetrics, which reduce themselves. Trainers with one
device. `rank_zero_only=True`. Logging behind `if step % n`. Modules with a `log` of
their own.

`sync_dist` means this in all releases from 1.1 to 2.6.

## Source
Lightning documentation, `LightningModule.log`: "if True, reduces the metric across
devices. Use with care as this may lead to a significant communication overhead."
`_ResultMetric.update` of Lightning 2.6, which reduces each value that is logged at the
step.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Effect, Finding
from gpulint.index.settings_file import Dialect
from gpulint.index.walk import dotted
from gpulint.rule import Hardware, Rule, Words
from gpulint.script import Script
from gpulint.script.frameworks.lightning import TRAINING_HOOKS
from gpulint.script.frameworks.lightning_logs import Log, step_logs
from gpulint.script.frameworks.trainers import on_one_device
from gpulint.script.neighbours import run_together

MAX_NAMES = 3  # in a message


class LightningSyncDist(Rule):
    """Fires on the first `self.log` or `self.log_dict` of a method."""

    effect = Effect.NONE
    framework = "lightning"
    hardware = Hardware.GPU
    needs = Words("sync_dist <log>")

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding a method, at the first of its calls."""
        found: dict[ast.AST, list[Log]] = {}
        for log in step_logs(script):
            if not _reduces(log) or _is_metric(log) or _is_monitored(log):
                continue
            if not on_one_device(script, log.owner):
                found.setdefault(script.index.scope(log.call), []).append(log)
        for logs in found.values():
            yield self.finding(
                script,
                logs[0].call.func,
                _what(logs),
                related=[(log.call.func, "and here") for log in logs[1:]],
            )


def _what(logs: list[Log]) -> str:
    """What the calls of a method do, with the names of the first of their values."""
    named = [f"`{name}`" for log in logs for name in log.names]
    if len(logs) == 1:
        first = named[0] if named else "what is logged here"
        return f"{first} is averaged over all ranks in every training step"
    shown = ", ".join([*named[:MAX_NAMES], *["…"][: len(named) > MAX_NAMES]])
    return (
        f"what {len(logs)} calls log is averaged over all ranks in every training step"
        + (f": {shown}" if shown else "")
    )


def _reduces(log: Log) -> bool:
    """Whether training surely reduces the value at each step."""
    if not log.hooks & TRAINING_HOOKS or not log.is_sure("sync_dist", True):
        return False
    if not log.argument("rank_zero_only").absent:
        return False
    return log.argument("on_step").absent or log.is_sure("on_step", True, None)


def _is_metric(log: Log) -> bool:
    """Whether an object is logged, `self.accuracy`: it has a way of its own."""
    values = log.value.values if isinstance(log.value, ast.Dict) else [log.value]
    return any((dotted(v) or "").startswith("self.") for v in values if v is not None)


def _is_monitored(log: Log) -> bool:
    """Whether a callback of the program may go by the value."""
    project = log.script.index.project
    texts = [index.source.text for index in run_together(log.script)]
    if project is not None and project.files:
        texts += project.texts("monitor")
        settings = project.having_keys(["monitor"])
        found = [project.settings(path, Dialect.OMEGACONF) for path in settings]
        texts += [index.source.text for index in found if index is not None]
    lines = [line for text in texts for line in text.splitlines() if "monitor" in line]
    if not log.names:
        return bool(lines)  # the name is made at run time
    return any(name in line for line in lines for name in log.names)
