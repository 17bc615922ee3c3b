"""An argument tells the Hugging Face Trainer to be slower than it is by itself.

## Why
`dataloader_pin_memory=False` takes away what the Trainer does by itself: batches in
page-locked memory, which are copied to the GPU without a detour. `optim="adamw_torch"`
was the fast AdamW once; now it is the one that updates the weights in a dozen kernels a
step instead of one, and `"adamw_hf"` updates each tensor for itself, in Python.
`skip_memory_metrics=False` reads memory counters and collects garbage around each
training and evaluation, with a thread that does nothing else.

## Example
```python
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")
train = load_dataset("imdb", split="train").map(tokenize)
arguments = TrainingArguments(
    "out",
    dataloader_pin_memory=False,
    optim="adamw_torch",
)
Trainer(model, arguments, train_dataset=train).train()
```
becomes
```python
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")
train = load_dataset("imdb", split="train").map(tokenize)
arguments = TrainingArguments(
    "out",
    optim="adamw_torch_fused",
)
Trainer(model, arguments, train_dataset=train).train()
```

## Fix
`dataloader_pin_memory=False` is left out, which changes no value. Withheld, and a note,
where the dataset or the collator is not known, or data are moved elsewhere in the file:
tensors on the GPU cannot be pinned.

`optim="adamw_torch_fused"`, which has been the default of transformers since 4.57 where
PyTorch is 2.8 or newer: the same optimizer in one kernel, with results that differ in
rounding. Needs torch 2.8. Withheld where the project allows a transformers before 4.31,
where a run resumes from a checkpoint, in float16 or where that may come with GPU361
(`scaler.step` raises with a state that was kept without `fused`), or DeepSpeed or FSDP
has the optimizer in hand.

None for `"adamw_hf"`, which corrects its averages in another order and which
transformers 5 does not know, nor for `skip_memory_metrics`, whose figures may be read.

## When not
The value comes from a parser, a settings file or `**kwargs`, is a default that a caller
may replace, or has a comment that gives a reason. The dataset, its transform or the
collator moves tensors to a device. The Trainer stays on the CPU, MPS or a TPU, where
pinned memory and fused kernels gain nothing. The newest PyTorch that the project allows
is older than 2.8 (`optim`). Nothing is trained in this file.

## Source
Transformers documentation, `TrainingArguments`; the defaults of `TrainingArguments` in
transformers 4.31 to 5.23, compared with each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpulint.finding import Effect, Finding, Severity
from gpulint.index import Value
from gpulint.rule import Calls, Hardware, Rule
from gpulint.script import Script
from gpulint.script.frameworks.hf_samples import are_made_on_gpu, may_be_on_gpu
from gpulint.script.frameworks.hf_trainers import (
    HfTrainer,
    is_split_up,
    says_why,
    trained_with,
)
from gpulint.script.frameworks.trainer_calls import (
    Maker,
    TrainerCall,
    allows_before,
    names_of,
)
from gpulint.script.rewriting.edits import Replace, Rewrite
from gpulint.script.rewriting.syntax import set_keywords, without_keywords

PIN = "dataloader_pin_memory"
METRICS = "skip_memory_metrics"
FUSED_BY_DEFAULT = (2, 8)  # torch
HAS_FUSED = (4, 31)  # transformers
_RESUMES = re.compile(r"\bresume_from_checkpoint\b|\bget_last_checkpoint\b")


class HfExplicitSlow(Rule):
    effect = Effect.EXACT
    hardware = Hardware.CUDA
    needs = Calls(*names_of(Maker.HF_ARGUMENTS))
    framework = "huggingface"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each argument."""
        for made, trainers in trained_with(script):
            value = _written(made, PIN, "pin|memory")
            pins_not = value is not None and value.constant is False
            if pins_not and not are_made_on_gpu(script, trainers):
                yield self._pin(script, made, trainers)
            value = _written(made, METRICS, "metric|memory")
            if value is not None and value.constant is False:
                yield self._metrics(script, made)
            value = _written(made, "optim", "adam|optim|fused")
            if value is not None and value.constant == "adamw_torch":
                yield from self._optimizer(script, made)
            elif value is not None and value.constant == "adamw_hf":
                yield self._old_optimizer(script, made)

    def _pin(
        self, script: Script, made: TrainerCall, trainers: list[HfTrainer]
    ) -> Finding:
        withheld = may_be_on_gpu(script, trainers)
        edit = Replace(made.call, without_keywords(PIN))
        fix = Rewrite(f"Leave out `{PIN}=False`", (edit,))
        return self.finding(
            script,
            made.written(PIN) or made.call.func,
            "batches are copied to the GPU out of pageable memory: "
            f"`{PIN}=False`, while the Trainer pins them by itself",
            fix=None if withheld else fix,
            withheld=withheld,
            severity=Severity.NOTE if withheld else None,
        )

    def _metrics(self, script: Script, made: TrainerCall) -> Finding:
        return self.finding(
            script,
            made.written(METRICS) or made.call.func,
            "memory is measured around each training and evaluation: "
            f"`{METRICS}=False`",
            effect=Effect.NONE,
            severity=Severity.NOTE,
        )

    def _optimizer(self, script: Script, made: TrainerCall) -> Iterator[Finding]:
        newest = script.newest_torch
        if newest is not None and newest < FUSED_BY_DEFAULT:
            return
        withheld = None
        if allows_before(script, "transformers", HAS_FUSED):
            withheld = "the project allows releases of transformers without it"
        if is_split_up(made):
            withheld = "DeepSpeed or FSDP has the optimizer in hand"
        scales = not made.all_absent("fp16") or made.all_absent("bf16")
        if script.source.has(_RESUMES) and scales:
            withheld = "a checkpoint of the optimizer as it is would stop the scaler"
        edit = Replace(made.call, set_keywords(optim='"adamw_torch_fused"'))
        title = 'Take `"adamw_torch_fused"`'
        fix = Rewrite(title, (edit,), torch=FUSED_BY_DEFAULT)
        yield self.finding(
            script,
            made.written("optim") or made.call.func,
            '`optim="adamw_torch"` updates the weights in several kernels a step',
            fix=None if withheld else fix,
            withheld=withheld,
            effect=Effect.NUMERICS,
            severity=Severity.NOTE,
        )

    def _old_optimizer(self, script: Script, made: TrainerCall) -> Finding:
        return self.finding(
            script,
            made.written("optim") or made.call.func,
            '`optim="adamw_hf"` updates the weights tensor by tensor, and '
            "transformers 5 has it no more",
            effect=Effect.NONE,
        )


def _written(made: TrainerCall, name: str, about: str) -> Value | None:
    """The one value that an argument surely has by its call, with no comment on it."""
    if made.written(name) is None:
        return None
    values = made.values(name)
    if not values.complete or len(values.known) != 1 or values.known[0].default:
        return None
    at = made.written(name)
    if at is not None and says_why(made.script, at, about):
        return None
    return values.known[0]
