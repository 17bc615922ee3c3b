"""A Trainer with few and short samples in a batch.

## Why
Each step has costs that do not depend on the batch: Python, kernel launches, the update
of the weights. `TrainingArguments` takes 8 samples unless it is told otherwise. With
texts of 64 tokens that are 512 tokens a step, and with a model of the size of
`bert-base-uncased` those costs are a large part of it, while most of the GPU's memory
stays empty.

## Example
```python
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers import Trainer, TrainingArguments

tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")


def tokenize(rows):
    return tokenizer(rows["sentence"], truncation=True, max_length=64)


train = load_dataset("sst2", split="train").map(tokenize, batched=True)
arguments = TrainingArguments(
    "out",
    learning_rate=2e-5,
    fp16=True,
)
trainer = Trainer(model, arguments, train_dataset=train, processing_class=tokenizer)
trainer.train()
```
becomes
```python
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers import Trainer, TrainingArguments
from gpulint import runtime

tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")


def tokenize(rows):
    return tokenizer(rows["sentence"], truncation=True, max_length=64)


train = load_dataset("sst2", split="train").map(tokenize, batched=True)
train_batch_size = runtime.batch_size(8)
scaled_lr = runtime.scaled_lr(
    2e-5, batch_size=train_batch_size, base_batch_size=8, rule="sqrt"
)
arguments = TrainingArguments(
    "out",
    learning_rate=scaled_lr,
    fp16=True,
    per_device_train_batch_size=train_batch_size,
)
trainer = Trainer(model, arguments, train_dataset=train, processing_class=tokenizer)
trainer.train()
```

## Fix
`runtime.batch_size` gives the size that was tuned for the GPU at hand, and the script's
own number where none was. `runtime.scaled_lr` changes the learning rate with it, by the
square root of the ratio, as suits the Trainer's AdamW. Both or none are written, and as
long as nothing is tuned the script computes what it did before, bit for bit. A person
may also take a larger number with `auto_find_batch_size=True`, which halves it where
memory runs out.

Withheld where the number or the learning rate is not a literal of the call, something
counts steps (`max_steps`, `warmup_steps`, `eval_steps`, `save_steps`), the optimizer is
another or is handed over, the Trainer is a class of the project, other arguments come
with `**`, or the call stands where no lines can be put before it.

## When not
More than 16 samples, or more than 2048 tokens, a batch; fewer than 4, which say that
memory is short, as do accumulated gradients, recomputed activations, DeepSpeed, FSDP,
quantized weights and adapters. `auto_find_batch_size` is on. The number is a default
that a user may replace, found by a search, or a comment gives a reason. The model is
not one of transformers that classifies texts or pictures, its checkpoint does not say
that it is small, or nothing says how long a text can be. Nothing is trained in this
file.

## Source
Malladi et al. 2022, "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms";
Transformers documentation, `TrainingArguments`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import takewhile

from gpulint.finding import Effect, Finding, Severity
from gpulint.index.walk import COMPREHENSIONS
from gpulint.rule import Calls, Hardware, Rule
from gpulint.script import Script
from gpulint.script.frameworks.hf_models import samples_in_words, small_checkpoint
from gpulint.script.frameworks.hf_trainers import (
    HfTrainer,
    is_split_up,
    says_why,
    trained_with,
)
from gpulint.script.frameworks.trainer_calls import (
    Maker,
    TrainerCall,
    names_of,
    spreads,
)
from gpulint.script.frameworks.trainer_precision import is_not_in_float32
from gpulint.script.rewriting.edits import CannotFix, InsertBefore, Replace, Rewrite
from gpulint.script.rewriting.syntax import set_keywords

SIZE = "per_device_train_batch_size"
RATE = "learning_rate"
DEFAULT_SIZE, DEFAULT_RATE = 8, "5e-5"
LEAST, MOST = 4, 16  # samples
TOKENS = 2048
SHORT_OF_MEMORY = (
    *("gradient_checkpointing", "activation_checkpointing", "auto_find_batch_size"),
    *("per_gpu_train_batch_size", "torch_empty_cache_steps", "optim_target_modules"),
)
STEPS = (
    *("max_steps", "warmup_steps", "eval_steps", "save_steps"),
    "lr_scheduler_kwargs",
)
ADAM = ("adamw_torch", "adamw_torch_fused", "adamw_hf")
SIMPLE = (ast.Assign, ast.AnnAssign, ast.Expr, ast.Return)


class HfFixedBatch(Rule):
    effect = Effect.HYPERPARAMS
    severity = Severity.NOTE
    hardware = Hardware.GPU
    needs = Calls(*names_of(Maker.HF_ARGUMENTS))
    framework = "huggingface"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each call."""
        if "peft" in script.index.packages or is_not_in_float32(script):
            return
        if "hyperparameter_search" in script.index.calls_by_name:
            return
        for made, trainers in trained_with(script):
            size = _size(made)
            if size is None or _is_short_of_memory(made):
                continue
            samples = samples_in_words(script, trainers)
            if samples is None or small_checkpoint(script, trainers) is None:
                continue
            what, tokens = samples
            if size * tokens > TOKENS:
                continue
            fix, withheld = _rewrite(made, trainers, size)
            yield self.finding(
                script,
                made.written(SIZE) or made.call.func,
                f"a batch is {size} {what}: kernel launches, Python and the optimizer "
                f"are paid for anew every {size} samples",
                fix=fix,
                withheld=withheld,
            )


def _size(made: TrainerCall) -> int | None:
    """The number of samples of a batch, if it is known and small."""
    argument = made.argument(SIZE)
    if argument.absent:
        return DEFAULT_SIZE
    values = made.values(SIZE)
    if not values.complete or len(values.known) != 1 or values.known[0].default:
        return None
    size, node = values.known[0].constant, values.known[0].node
    if type(size) is not int or not LEAST <= size <= MOST:
        return None
    at = made.written(SIZE) or node
    why = r"batch|memory|\boom\b|\bgpu\b|vram|\bfits?\b"
    reasons = (says_why(made.script, n, why) for n in (at, node))
    return None if any(reasons) else size


def _is_short_of_memory(made: TrainerCall) -> bool:
    """Whether something says that a larger batch may not fit, or that it is sought."""
    steps = made.argument("gradient_accumulation_steps")
    if not steps.absent and not made.values("gradient_accumulation_steps").all_in(1):
        return True
    return not made.all_absent(*SHORT_OF_MEMORY) or is_split_up(made)


def _rewrite(
    made: TrainerCall, trainers: list[HfTrainer], size: int
) -> tuple[Rewrite | None, str | None]:
    try:
        return _larger(made, trainers, size), None
    except CannotFix as error:
        return None, str(error)


def _larger(made: TrainerCall, trainers: list[HfTrainer], size: int) -> Rewrite:
    """Both variables before the statement; CannotFix: the guard that fails."""
    script = made.script
    _check(made, trainers)
    rate = DEFAULT_RATE
    if not made.argument(RATE).absent:
        rate = script.text(_literal(made, RATE))
    if not made.argument(SIZE).absent:
        _literal(made, SIZE)
    statement = script.index.statement(made.call)
    between = takewhile(lambda n: n is not statement, script.index.ancestors(made.call))
    later = any(isinstance(n, (ast.Lambda, *COMPREHENSIONS)) for n in between)
    if later or not isinstance(statement, SIMPLE):
        raise CannotFix("no line can be put before the call")
    runtime, imports = script.names.runtime
    chosen = script.names.free("train_batch_size", "tuned_batch_size")
    scaled = script.names.free("scaled_lr", "tuned_lr")
    code = (
        f"{chosen} = {runtime}.batch_size({size})\n"
        f"{scaled} = {runtime}.scaled_lr(\n"
        f'    {rate}, batch_size={chosen}, base_batch_size={size}, rule="sqrt"\n'
        ")"
    )
    keywords = {RATE: scaled, SIZE: chosen}
    edits = (
        InsertBefore(statement, code),
        Replace(made.call, set_keywords(**keywords)),
    )
    title = "Let the runtime choose the batch size, and the learning rate with it"
    return Rewrite(title, edits, imports)


def _check(made: TrainerCall, trainers: list[HfTrainer]) -> None:
    """Raise CannotFix where the rate may not follow the batch, or steps are counted."""
    for name in STEPS:
        if not made.argument(name).absent:
            raise CannotFix(f"`{name}` counts steps")
    if not made.argument("optim").absent and not made.values("optim").all_in(*ADAM):
        raise CannotFix("the optimizer may be another than AdamW")
    if [s for s in spreads(made.call) if s is not made.decided]:
        raise CannotFix("other arguments come with `**`")
    for trainer in trainers:
        if trainer.owner is not None:
            raise CannotFix("the Trainer is one of the project's own")
        names = ("optimizers", "optimizer_cls_and_kwargs", "callbacks")
        if not all(trainer.argument(name).absent for name in names):
            raise CannotFix("the Trainer is given an optimizer or callbacks, or may be")


def _literal(made: TrainerCall, name: str) -> ast.expr:
    """A number that stands in the call itself; CannotFix for any other."""
    written = made.written(name)
    if isinstance(written, ast.Constant) and type(written.value) in (int, float):
        return written
    raise CannotFix(f"`{name}` is not a number in the call itself")
