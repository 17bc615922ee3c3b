"""Accelerate trains in float32 throughout unless its launcher says otherwise.

## Why
`Accelerator()` takes the precision from `accelerate launch`, and where the script is
started by Python itself there is none: tensor cores are idle, and what is kept for the
backward pass takes twice the memory.

## Example
```python
from accelerate import Accelerator
from transformers import AutoModelForSequenceClassification

accelerator = Accelerator()
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    accelerator.backward(model(**batch).loss)
    optimizer.step()
```
becomes
```python
from accelerate import Accelerator
from transformers import AutoModelForSequenceClassification
from gpulint import runtime

accelerator = Accelerator(mixed_precision=runtime.accelerate_precision())
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    accelerator.backward(model(**batch).loss)
    optimizer.step()
```

## Fix
`runtime.accelerate_precision()` gives "bf16" where the GPU has bfloat16, "fp16" on
compute capability 7.x (Accelerate scales the loss), and None elsewhere and under
`accelerate launch`, whose configuration then stands as before.

Withheld where the program calls what autocast refuses (`BCELoss`) or what needs
float32, where its own modules do what GPU301 asks for (`masked_fill(mask, -1e9)`), and
where gradients are clipped or `backward` is called past Accelerate, which would not
know of the scaler, or clipped by Accelerate before all are accumulated, which unscales
them twice. Where it has recurrent layers, which cuDNN runs in float16 under "bf16" too,
unscaled, and where the model generates text or is of the T5 family: its weights may be
stored in float16, which a scaler refuses to train.

## When not
`mixed_precision` is given or may be, also by `**kwargs` that cannot be read. DeepSpeed,
FSDP or Megatron has a configuration of its own, or handlers are given. The script
trains on the CPU, a TPU or in float64, sets formats itself, says in a comment why not,
or loads weights in another one.
Nothing is trained in this file, or no large network is seen. Of low confidence where a
command of the README or of a shell script gives `--mixed_precision`, or a configuration
of the launcher that lies in the project asks for it.

## Source
Accelerate documentation, `Accelerator(mixed_precision=…)`: the default is the value of
`ACCELERATE_MIXED_PRECISION`, which the launcher sets.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.rule import Calls, Hardware, Rule
from gpulint.script import Script
from gpulint.script.frameworks.trainer_calls import Maker, names_of, trainer_calls
from gpulint.script.frameworks.trainer_precision import (
    clips_again,
    has_formats,
    why_not_mixed,
)
from gpulint.script.modelling.models import trained_models
from gpulint.script.modelling.networks import has_large, is_surely_large
from gpulint.script.reaching.commands import launches_mixed, passes_option
from gpulint.script.rewriting.edits import Replace, Rewrite
from gpulint.script.rewriting.syntax import set_keywords

DECIDE = (
    *("mixed_precision", "fp16", "cpu", "deepspeed_plugin", "deepspeed_plugins"),
    *("fsdp_plugin", "megatron_lm_plugin", "torch_tp_plugin", "parallelism_config"),
    "kwargs_handlers",
)


class AcceleratePrecision(Rule):
    effect = Effect.NUMERICS
    severity = Severity.NOTE
    hardware = Hardware.MIXED
    needs = Calls(*names_of(Maker.ACCELERATOR))
    framework = "accelerate"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each call in a file that trains something large."""
        text = script.source.text
        calls = [
            made
            for made in trainer_calls(script, Maker.ACCELERATOR)
            if made.all_absent(*DECIDE) and not made.call.args
        ]
        if not calls or ".backward(" not in text or has_formats(script):
            return
        if not ("from_pretrained(" in text or has_large(script)):
            return
        known = "from_pretrained(" in text or not trained_models(script)
        sure = known or is_surely_large(script)
        runtime, imports = script.names.runtime
        build = set_keywords(mixed_precision=f"{runtime}.accelerate_precision()")
        withheld = why_not_mixed(script) or clips_again(script)
        told = launches_mixed(script)
        told = told or passes_option(script, calls[0].call, "--mixed_precision")
        for made in calls:
            title = "Let the machine choose the precision"
            fix = Rewrite(title, (Replace(made.call, build),), imports)
            yield self.finding(
                script,
                made.call.func,
                "training is in float32 throughout unless the launcher says otherwise: "
                "`mixed_precision` is not set",
                fix=None if withheld else fix,
                withheld=withheld,
                confidence=None if sure and not told else Confidence.LOW,
            )
