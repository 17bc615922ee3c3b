"""The Hugging Face Trainer trains in float32 throughout, with tensor cores idle.

## Why
`TrainingArguments` has neither `bf16` nor `fp16` unless they are given. In mixed
precision matrix products run in bfloat16 or float16 on tensor cores, and what is kept
for the backward pass takes half the memory; weights, losses and sums stay in float32.

## Example
```python
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")
arguments = TrainingArguments("out", max_steps=9)
trainer = Trainer(model, arguments, train_dataset=train)
trainer.train()
```
becomes
```python
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments
from gpulint import runtime

model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")
arguments = TrainingArguments("out", max_steps=9, **runtime.hf_args(precision=True))
trainer = Trainer(model, arguments, train_dataset=train)
trainer.train()
```

## Fix
`runtime.hf_args(precision=True)` gives `bf16=True` where the GPU has bfloat16,
`fp16=True` on compute capability 7.x and nothing elsewhere: the literals would raise
ValueError on a machine without such a GPU. Under `accelerate launch` its configuration
stands.

Withheld where the model generates text: its weights may be stored in float16, which
`fp16` refuses to train, and the T5 family overflows in float16. Withheld also where the
program calls what autocast refuses (`BCELoss`), has modules of its own that do what
half precision breaks (`masked_fill(mask, -1e9)`, as in GPU301), or makes recurrent
layers: cuDNN runs these in float16 under `bf16` too, and no loss is scaled then.

## When not
`bf16` or `fp16` is given or may be: by a parser, a settings file or `**kwargs` that
cannot be read. DeepSpeed or FSDP has a configuration of its own. The script trains on
the CPU, MPS or a TPU, in float64, sets formats itself, says in a comment why not, or
loads weights in another one. Nothing is trained in this file. Of low confidence is a
call that raises in all allowed releases (GPU364), and one beside `from_pretrained`
where all allowed releases are of transformers 5, which loads a checkpoint in its own
format.

## Source
Transformers documentation, "GPU: mixed precision training". Measured with transformers
5.23: `bf16=True` raises ValueError without a GPU, as do both together.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Effect, Finding, Severity
from gpulint.rule import Calls, Hardware, Rule
from gpulint.script import Script
from gpulint.script.frameworks.hf_removed import unless_in_vain
from gpulint.script.frameworks.hf_trainers import is_decided, let_decide
from gpulint.script.frameworks.trainer_calls import Maker, names_of, trainer_calls
from gpulint.script.frameworks.trainer_precision import has_formats, why_not_mixed

DECIDE = (
    *("bf16", "fp16", "fp16_backend", "half_precision_backend", "fp16_opt_level"),
    *("deepspeed", "fsdp", "use_cpu", "no_cuda", "use_mps_device", "bf16_full_eval"),
    *("fp16_full_eval", "parallelism_config"),
)


class HfPrecision(Rule):
    effect = Effect.NUMERICS
    hardware = Hardware.MIXED
    needs = Calls(*names_of(Maker.HF_ARGUMENTS))
    framework = "huggingface"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each call in a file that trains."""
        text = script.source.text
        if ".train(" not in text or has_formats(script):
            return
        for made in trainer_calls(script, Maker.HF_ARGUMENTS):
            if not made.all_absent(*DECIDE) or is_decided(made, "precision"):
                continue
            withheld = why_not_mixed(script)
            title = "Let the machine choose the precision"
            fix = None if withheld else let_decide(made, "precision", title)
            yield self.finding(
                script,
                made.call.func,
                "the Trainer computes in float32 throughout: neither `bf16` nor "
                "`fp16` is set",
                fix=fix,
                withheld=withheld,
                severity=Severity.NOTE if withheld else None,
                confidence=unless_in_vain(made),
            )
