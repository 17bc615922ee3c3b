"""The Hugging Face Trainer makes its batches in one process while the GPU waits.

## Why
`TrainingArguments` has `dataloader_num_workers=0` unless it is given: before each step
the training process itself reads the samples of a batch, runs the dataset's transforms
or `__getitem__`, pads them and makes tensors. The GPU stands still meanwhile.

## Example
```python
from datasets import load_dataset
from transformers import AutoModelForImageClassification, Trainer, TrainingArguments


def prepare(examples):
    examples["pixel_values"] = [augment(image) for image in examples["image"]]
    return examples


train = load_dataset("beans", split="train").with_transform(prepare)
model = AutoModelForImageClassification.from_pretrained("google/vit-base-patch16-224")
arguments = TrainingArguments(
    "out",
    fp16=True,
    remove_unused_columns=False,
)
trainer = Trainer(model, arguments, train_dataset=train)
trainer.train()
```
becomes
```python
from datasets import load_dataset
from transformers import AutoModelForImageClassification, Trainer, TrainingArguments
from gpulint import runtime


def prepare(examples):
    examples["pixel_values"] = [augment(image) for image in examples["image"]]
    return examples


train = load_dataset("beans", split="train").with_transform(prepare)
model = AutoModelForImageClassification.from_pretrained("google/vit-base-patch16-224")
arguments = TrainingArguments(
    "out",
    fp16=True,
    remove_unused_columns=False,
    **runtime.hf_args(loading=True),
)
trainer = Trainer(model, arguments, train_dataset=train)
trainer.train()
```

## Fix
`runtime.hf_args(loading=True)` chooses the workers for the machine when the script
runs, lets them live on between epochs and prepare some batches ahead; without workers
it gives 0 and none of the options that need them. It starts none where processes are
not forked (Windows, macOS, Python 3.14): the collator, which may hold the model, would
be sent to each. An option that the installed release of transformers lacks is left out.
Workers draw their own random numbers, and those that live on leave the order of later
epochs to other draws.

Withheld where workers would change what is trained on, or could not start: a dataset
that changes itself or keeps a random generator, a callback or class of Trainer that
speaks of datasets, a lambda or local function as transform or collator, albumentations
that draws (GPU201 says why). Withheld also where one worker is asked for, options of
workers are given, or the number comes with `**` or is a default that a caller may
replace.

A note where samples are only read and padded, a warning where each takes work.

## When not
`dataloader_num_workers` is 2 or more, or may be: by a parser, a settings file or
`**kwargs` that cannot be read; or 1, for samples that are only read and padded.
Iterable and streamed datasets, which workers would give out several times; tensors in
memory; datasets that are not known, or give tensors on the GPU. The Trainer stays on
the CPU, MPS or a TPU. A comment gives a reason for the number. Nothing is trained in
this file. Of low confidence is a call that raises in all allowed releases (GPU364).

## Source
Transformers documentation, `TrainingArguments`; PyTorch documentation,
`torch.utils.data`, "Single- and Multi-process Data Loading". Measured with transformers
5.23: `dataloader_persistent_workers=True` or a `dataloader_prefetch_factor` raises
ValueError where there are no workers.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Effect, Finding, Severity
from gpulint.rule import Calls, Hardware, Rule
from gpulint.script import Script
from gpulint.script.frameworks.hf_removed import unless_refused
from gpulint.script.frameworks.hf_samples import Samples, samples_of
from gpulint.script.frameworks.hf_trainers import is_decided, let_decide, trained_with
from gpulint.script.frameworks.trainer_calls import (
    HF_TOPICS,
    Maker,
    TrainerCall,
    names_of,
)
from gpulint.script.loading.loader_options import has_reason
from gpulint.script.samples.albumentations_draws import REPEATS, repeats_draws

NUMBER, *OTHERS = HF_TOPICS["loading"]
FEW = (0, 1)


class HfSerialLoading(Rule):
    effect = Effect.RANDOM
    hardware = Hardware.GPU
    needs = Calls(*names_of(Maker.HF_ARGUMENTS))
    framework = "huggingface"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each call whose Trainer is given samples that take work."""
        for made, trainers in trained_with(script):
            if is_decided(made, "loading") or not _is_serial(made):
                continue
            samples = samples_of(script, trainers)
            if samples is None or (_is_one(made) and not samples.costly):
                continue
            withheld = samples.withheld or _why_not(made)
            title = "Let the runtime choose the workers"
            fix = None if withheld else let_decide(made, "loading", title, (NUMBER,))
            yield self.finding(
                script,
                made.call.func,
                _message(made, samples),
                fix=fix,
                withheld=withheld,
                related=[
                    (v.node, f"{v.constant} is written here")
                    for v in made.values(NUMBER).known
                    if not script.index.inside(v.node, made.call)
                ],
                evidence=[(samples.place, samples.reason)],
                severity=None if samples.costly else Severity.NOTE,
                confidence=unless_refused(made),
            )


def _is_serial(made: TrainerCall) -> bool:
    """Whether 0 or 1 workers are certain, and no comment says why."""
    if made.argument(NUMBER).absent:
        return True
    values = made.values(NUMBER)
    if not values.all_in(*FEW):
        return False
    return not any(has_reason(made.script, v.node) for v in values.known)


def _is_one(made: TrainerCall) -> bool:
    """Whether there is a worker, which reads and pads beside the training."""
    return made.values(NUMBER).any_in(1)


def _why_not(made: TrainerCall) -> str | None:
    """The guard of the fix that fails in the call itself."""
    if any(v.default for v in made.values(NUMBER).known):
        return "the number is a default that a caller or user may replace"
    if _is_one(made):
        return "one worker is asked for, which stays what it is without the runtime"
    for name in OTHERS:
        if not made.argument(name).absent:
            return f"`{name}` is given, or may be"
    if made.argument(NUMBER).given and made.written(NUMBER) is None:
        return "the number comes with `**`"
    return REPEATS if repeats_draws(made.script) else None


def _message(made: TrainerCall, samples: Samples) -> str:
    numbers = sorted({str(v.constant) for v in made.values(NUMBER).known})
    if numbers == ["1"]:
        what = f"`{NUMBER}` is 1, so one process loads alone"
    elif numbers:
        what = (
            f"`{NUMBER}` is {' or '.join(numbers)}, so the training process loads alone"
        )
    else:
        what = f"`{NUMBER}` is not set, so the training process loads alone"
    return f"{what}: {samples.reason}"
