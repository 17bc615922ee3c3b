"""The host waits for a value in every step, only to give it to `self.log`.

## Why
`.item()`, `float()` and `.cpu()` wait until the GPU has computed the value, and nothing
more is queued meanwhile: in `training_step` the backward pass starts late in every
step. `self.log` takes the tensor itself, keeps a detached copy on the device and reads
it when it is written, every 50 steps by default.

## Example
```python
import lightning as L
from torch.nn.functional import cross_entropy


class Classifier(L.LightningModule):
    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = cross_entropy(self.net(x), y)
        self.log("train_loss", loss.item())
        return loss
```
becomes
```python
import lightning as L
from torch.nn.functional import cross_entropy


class Classifier(L.LightningModule):
    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = cross_entropy(self.net(x), y)
        self.log("train_loss", loss)
        return loss
```

## Fix
The call that waits goes, where the value is used for `self.log` and `self.log_dict`
alone. The same number is logged of a tensor in single or half precision. Of float64 the
log keeps more digits than of a number, and so the effect is `numerics` where the format
is not seen, and where the project may have a Lightning before 2.1, which adds up values
in half precision as they are.

Withheld where the value is computed with before it is logged, for whole numbers, of
which Lightning warns, with `enable_graph=True`, and where tensors of one element may
have dimensions or the project allows a release before 1.5, which logged otherwise.

With `prog_bar=True` the progress bar reads the value in every step too, though after
the backward pass is queued: a note.

## When not
Values that are not computed from the batch on the device, or that are used for more
than the log. Hooks at the end of an epoch. Logging behind `if step % n`. Trainers on
the CPU alone. Modules with a `log` of their own. Steps that fetch their outputs as well
(`logits.cpu()`, also in a function that is given them), or give them to metrics of
torchmetrics that look at values, are of low confidence.

## Source
Lightning documentation, "Logging"; `LightningModule.log` and `_ResultMetric.update` of
pytorch-lightning 1.5, 1.9, 2.0, 2.1 and Lightning 2.6.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.index.walk import walk
from gpulint.rule import Hardware, Rule, Words
from gpulint.script import Script
from gpulint.script.frameworks.lightning_logs import Log, step_logs
from gpulint.script.frameworks.lightning_reads import (
    Read,
    find_reads,
    is_fetched_beside,
    is_single,
)
from gpulint.script.frameworks.trainer_calls import allows_before, may_be_older
from gpulint.script.frameworks.trainers import never_on_gpu
from gpulint.script.neighbours import run_together
from gpulint.script.rewriting.edits import ReplaceCode, Rewrite

DOUBLE = re.compile(r"float64|\bdouble\b|64-true")
FIRST, SINGLE = (1, 5), (2, 1)


class LightningLogSync(Rule):
    """Fires on what waits."""

    effect = Effect.EXACT
    framework = "lightning"
    hardware = Hardware.GPU
    needs = Words(*(f"log {read}( <log>" for read in (".item", "float", ".cpu")))

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each value that is read."""
        found: dict[ast.expr, tuple[Log, Read]] = {}
        for log in step_logs(script):
            for read in find_reads(log):
                if script.lightning_steps.is_computed(read.value):
                    found.setdefault(read.node, (log, read))
        for log, read in found.values():
            if not never_on_gpu(script, log.owner):
                beside = is_fetched_beside(script, read, found.keys())
                yield self._finding(script, log, read, beside)

    def _finding(self, script: Script, log: Log, read: Read, beside: bool) -> Finding:
        withheld = _why_not(script, log, read)
        code = script.text(read.value)
        plain = isinstance(
            read.value, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
        )
        code = code if plain else f"({code})"
        fix = Rewrite("Log the tensor", (ReplaceCode(read.node, code),))
        shown = " ".join(script.text(read.node).split())
        return self.finding(
            script,
            read.node,
            f"the host waits for `{shown}` in every step, only to log it",
            fix=None if withheld else fix,
            withheld=withheld,
            severity=Severity.NOTE if log.is_sure("prog_bar", True) else None,
            confidence=Confidence.LOW if beside else None,
            effect=Effect.EXACT
            if _logs_the_same(script, read.value)
            else Effect.NUMERICS,
        )


def _why_not(script: Script, log: Log, read: Read) -> str | None:
    """The guard of the fix that fails."""
    if "#" in script.text(read.node):
        return "a comment stands in it"
    if not read.whole:
        return "the number is computed with before it is logged"
    if script.scalars.whole(read.value):
        return "it is a whole number, of which Lightning warns"
    if not script.index.inside(read.node, log.call) and _changes(script, read):
        return "the tensor may change before it is logged"
    if not log.argument("enable_graph").absent:
        return "`enable_graph` may keep the graph of the tensor"
    if allows_before(script, "lightning", FIRST):
        return "the project allows Lightning 1.4, which logs tensors otherwise"
    old = may_be_older(script, (2, 0))
    if old and not script.scalars.without_dimensions(read.value):
        return f"the tensor may have dimensions, and {old}"
    return None


def _changes(script: Script, read: Read) -> bool:
    """Whether a tensor that is read, and logged later, may be changed in place."""
    function = script.index.function(read.node) or script.index.tree
    names = {n.id for n in walk(read.value) if isinstance(n, ast.Name)}
    found = (node for name in names for node in script.mutations(name, function))
    return any(not isinstance(node, ast.Name) for node in found)


def _logs_the_same(script: Script, value: ast.expr) -> bool:
    """Whether the same number is logged of a tensor as of what was read of it."""
    if any(DOUBLE.search(i.source.text) for i in run_together(script)):
        return False
    return may_be_older(script, SINGLE) is None and is_single(script, value)
