"""A small model recomputes its activations, as if memory were short.

## Why
With `gradient_checkpointing=True` a model keeps few activations and computes the others
again in the backward pass. That saves memory and costs a second forward pass, about a
third of a step's time. A model of some hundred million weights with a few short samples
in a batch has no need of it on a GPU of today: without it the same step takes less
time, or the memory holds as many samples more.

## Example
```python
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

model = AutoModelForSequenceClassification.from_pretrained("distilbert-base-uncased")
arguments = TrainingArguments("out", gradient_checkpointing=True, fp16=True)
trainer = Trainer(model, arguments, train_dataset=train)
trainer.train()
```

## Fix
None: whether the memory is needed depends on the GPU and the samples. Leave the
argument out, and look whether the step still fits.

## When not
The checkpoint's name does not say that the model is small (`base`, `small`, `mini`,
`tiny`, `distil…`), or it is not written. A batch has more than 16 samples, or is found
by `auto_find_batch_size`; texts may be longer than 512 tokens, or other things than
texts and pictures are classified. DeepSpeed or FSDP has the model in hand. A comment
gives a reason. The value is a default that a user may replace. Nothing is trained in
this file.

## Source
Transformers documentation, "GPU: gradient checkpointing"; Chen et al. 2016, "Training
Deep Nets with Sublinear Memory Cost". The argument is called `activation_checkpointing`
in newer releases of transformers 5, which still take the older name.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Effect, Finding, Severity
from gpulint.rule import Calls, Hardware, Rule
from gpulint.script import Script
from gpulint.script.frameworks.hf_models import (
    classifies,
    longest_text,
    small_checkpoint,
)
from gpulint.script.frameworks.hf_trainers import is_split_up, says_why, trained_with
from gpulint.script.frameworks.trainer_calls import Maker, TrainerCall, names_of

NAMES = ("gradient_checkpointing", "activation_checkpointing")
SIZE = "per_device_train_batch_size"
MOST = 16  # samples
LONGEST = 512  # tokens


class HfCheckpointing(Rule):
    effect = Effect.NONE
    severity = Severity.NOTE
    hardware = Hardware.GPU
    needs = Calls(*names_of(Maker.HF_ARGUMENTS))
    framework = "huggingface"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each call."""
        for made, trainers in trained_with(script):
            name = _switched_on(made)
            if name is None or is_split_up(made) or _may_be_large(made):
                continue
            checkpoint = small_checkpoint(script, trainers)
            if checkpoint is None or not classifies(script, trainers):
                continue
            if (longest_text(script) or 0) > LONGEST:
                continue
            yield self.finding(
                script,
                made.written(name) or made.call.func,
                f"each step computes the forward pass of `{checkpoint}` twice to save "
                f"memory: `{name}=True`",
            )


def _switched_on(made: TrainerCall) -> str | None:
    """The name under which recomputing is surely switched on, without a reason."""
    for name in NAMES:
        values = made.values(name)
        if values.all_in(True) and not any(v.default for v in values.known):
            at = made.written(name) or values.known[0].node
            return (
                None
                if says_why(made.script, at, r"memory|\boom\b|vram|\bfits?\b")
                else name
            )
    return None


def _may_be_large(made: TrainerCall) -> bool:
    """Whether a batch may have more samples than some."""
    if not made.all_absent("auto_find_batch_size", "per_gpu_train_batch_size"):
        return True
    values = made.values(SIZE)
    return not made.argument(SIZE).absent and not values.all_in(*range(1, MOST + 1))
