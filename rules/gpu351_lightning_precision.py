"""Lightning trains in float32 throughout, with tensor cores idle.

## Why
`Trainer` and `Fabric` compute in float32 unless `precision` says otherwise. In mixed
precision matrix products and convolutions run in bfloat16 or float16 on tensor cores,
and what is kept for the backward pass takes half the memory; weights, losses and sums
stay in float32.

## Example
```python
import lightning as L
from torch import nn


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 256, 3), nn.Conv2d(256, 256, 3))


trainer = L.Trainer(max_epochs=10)
trainer.fit(Classifier(), loader)
```
becomes
```python
import lightning as L
from torch import nn
from gpulint import runtime


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 256, 3), nn.Conv2d(256, 256, 3))


trainer = L.Trainer(max_epochs=10, precision=runtime.lightning_precision())
trainer.fit(Classifier(), loader)
```

## Fix
`runtime.lightning_precision()` says when the script runs: "bf16-mixed" where the GPU
has bfloat16, "16-mixed" on compute capability 7.x (Lightning scales the loss), else
32, Lightning's default, as before.

Withheld where the program calls what autocast refuses (`BCELoss`) or what needs float32
(Fourier transforms, linear algebra), where its modules do what half precision breaks
(`masked_fill(mask, -1e9)`, as in GPU301), where gradients are clipped or `backward` is
called past Lightning, which would not know of the scaler, where the model generates
text (its weights may be stored in float16, which a scaler refuses), where it has
recurrent layers (cuDNN runs them in float16 under "bf16-mixed" too, unscaled), and
where the project allows Lightning 1, which has other names, or imports
`pytorch_lightning` and does not say which release.

A settings class of hydra (`_target_: str = "lightning.Trainer"`) that says `precision:
int = 32` is a note without a fix: a file or command line may say otherwise.

## When not
`precision` or `plugins` is given or may be. The accelerator is not a GPU, or the
trainer is of a release before 2, which used the CPU unless told otherwise; the strategy
is one with a configuration of its own (DeepSpeed, FSDP), or `fast_dev_run` asks for a
single batch. Nothing is trained in this file, or the trainer only tests and predicts.
No large network is seen in the module that it trains, or in what this is given; in the
program, where the module is not known. The file sets formats itself or says in a
comment why not, is for TPUs, trains in float64, or acts in an environment. The project
uses MinkowskiEngine, whose kernels know float32 only, or a module whose `forward`
asserts that format. Graph networks, whose steps are gathers and scatters, are of low
confidence, as programs in which neither wide layers nor a large model by its name are
seen, or that write sizes of 64 features and fewer alone, those with an optimizer of
their own that asks for no gradients, and steps of a single sample, which wait for the
host.

## Source
Lightning documentation, "N-Bit Precision". The values are those that Lightning 2.6
takes; the CPU keeps 32.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.rule import Hardware, Rule, Words
from gpulint.script import Script
from gpulint.script.frameworks.fitted import fitted, takes_single_samples
from gpulint.script.frameworks.trainer_calls import (
    LIGHTNING_TWO,
    NAMES,
    Maker,
    may_be_first_lightning,
    may_have,
    trainer_calls,
)
from gpulint.script.frameworks.trainer_precision import (
    has_formats,
    is_meant,
    may_train_on_gpu,
    steps_without_gradients,
    why_not_mixed,
)
from gpulint.script.modelling.graphs import uses_graphs
from gpulint.script.modelling.networks import has_large, has_surely_large
from gpulint.script.modelling.written_sizes import is_seen_large, is_told_narrow
from gpulint.script.numerics.half import has_float32_kernels
from gpulint.script.reaching.old_torch import runs_only_before
from gpulint.script.rewriting.edits import Replace, Rewrite
from gpulint.script.rewriting.syntax import set_keywords

SINCE = (1, 6)  # the first torch with mixed precision of its own
FLOAT32 = (32, "32", "32-true")


class LightningPrecision(Rule):
    effect = Effect.NUMERICS
    hardware = Hardware.MIXED
    needs = Words("Trainer(", "Fabric(", "_target_ precision")
    framework = "lightning"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each call in a file that trains something large."""
        if runs_only_before(script, SINCE) or has_float32_kernels(script):
            return
        yield from self._settings(script)
        calls = list(trainer_calls(script, Maker.LIGHTNING_TRAINER, Maker.FABRIC))
        calls = [made for made in calls if may_train_on_gpu(made)]
        calls = [made for made in calls if made.all_absent("precision", "plugins")]
        calls = [made for made in calls if has_large(script, fitted(made))]
        if not calls or has_formats(script):
            return
        withheld = why_not_mixed(script)
        if not may_have(script, "lightning", LIGHTNING_TWO):
            withheld = withheld or "the project has Lightning 1"
        runtime, imports = script.names.runtime
        weak = uses_graphs(script) or is_told_narrow(script)
        weak = weak or not is_seen_large(script)
        weak = weak or steps_without_gradients(script) is not None
        for made in calls:
            sure = not weak and has_surely_large(script, fitted(made))
            sure = sure and not takes_single_samples(made)
            build = set_keywords(precision=f"{runtime}.lightning_precision()")
            why = withheld or may_be_first_lightning(made)
            title = "Let the machine choose the precision"
            fix = Rewrite(title, (Replace(made.call, build),), imports)
            yield self.finding(
                script,
                made.call.func,
                f"`{script.text(made.call.func)}` trains in float32 throughout: "
                "`precision` is not set",
                fix=None if why else fix,
                withheld=why,
                severity=Severity.NOTE if why else None,
                confidence=None if sure else Confidence.LOW,
            )

    def _settings(self, script: Script) -> Iterator[Finding]:
        """Settings classes that hydra makes a trainer of."""
        for owner in script.index.classes.values():
            said = _fields(owner)
            target, precision = said.get("_target_"), said.get("precision")
            if not isinstance(target, ast.Constant) or precision is None:
                continue
            if NAMES.get(str(target.value)) not in (
                Maker.LIGHTNING_TRAINER,
                Maker.FABRIC,
            ):
                continue
            if is_meant(script, precision):
                continue
            where = said.get("accelerator")
            if isinstance(where, ast.Constant) and where.value in ("cpu", "tpu"):
                continue
            if isinstance(precision, ast.Constant) and precision.value in FLOAT32:
                yield self.finding(
                    script,
                    precision,
                    "the trainer that is made of these settings computes in float32: "
                    f"`precision` is {script.text(precision)}",
                    withheld="a file or the command line may set it",
                    related=[(target, "what is made")],
                    severity=Severity.NOTE,
                )


def _fields(owner: ast.ClassDef) -> dict[str, ast.expr | None]:
    """The defaults of a class's annotated fields."""
    return {
        field.target.id: field.value
        for field in owner.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }
