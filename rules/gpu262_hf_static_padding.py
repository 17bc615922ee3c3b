"""Texts are padded to one length before the training, and the model computes on it.

## Why
With `padding="max_length"` each text gets the length of the longest that is allowed,
and with `padding=True` in a batched `map` that of the longest of a thousand. The model
computes on the padding as it does on words: with texts of 60 tokens that are padded to
512, nearly nine tenths of the time of the GPU and most of its memory. A collator pads
each batch to its own longest text.

## Example
```python
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers import Trainer, TrainingArguments

tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")


def tokenize(rows):
    return tokenizer(rows["text"], padding="max_length", truncation=True)


reviews = load_dataset("imdb").map(tokenize, batched=True)
arguments = TrainingArguments("out", fp16=True, dataloader_num_workers=4)
trainer = Trainer(
    model,
    arguments,
    train_dataset=reviews["train"],
)
trainer.train()
```
becomes
```python
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers import Trainer, TrainingArguments
from transformers import DataCollatorWithPadding

tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")


def tokenize(rows):
    return tokenizer(rows["text"], truncation=True)


reviews = load_dataset("imdb").map(tokenize, batched=True)
arguments = TrainingArguments("out", fp16=True, dataloader_num_workers=4)
trainer = Trainer(
    model,
    arguments,
    train_dataset=reviews["train"],
    data_collator=DataCollatorWithPadding(tokenizer),
)
trainer.train()
```

## Fix
Rows keep their own length; a Trainer that has neither a collator nor a tokenizer gets
`DataCollatorWithPadding`. (`pad_to_multiple_of=8` suits tensor cores where the longest
text that the model takes is a multiple of 8.) Attention leaves padding out, so a model
computes the same up to rounding; dropout draws other numbers, as it draws fewer of
them.

Withheld where the function makes more than the tokenizer gives (labels for each token
would need a collator that pads them), longer texts are not cut off, the model is not
one of transformers that gives one answer for each text, or is one that reads the
padding too (FNet, Reformer, models of sparse attention), the Trainer has another
collator or tokenizer or is a class of the project, `remove_unused_columns` is given,
and where something else may take the rows: a `DataLoader`, evaluation by hand, code
that names `input_ids`, TensorFlow.

## When not
Static shapes are wanted: `torch_compile`, TPUs, ONNX. Texts are cut into blocks of one
length, the length is at most 32, or at most 128 are padded together. `padding` is an
option that a user may set. Nothing is trained with a Trainer in this file. Where the
file names FlashAttention or ModernBERT, which may leave padding out, it is of low
confidence, and where a language model (`AutoModelForCausalLM`) learns from texts that
are cut to 128 tokens or fewer: most of them are longer.

## Source
Transformers documentation, "Padding and truncation" and `DataCollatorWithPadding`.
Measured with transformers 5.23: of 8 texts in rows of 128, 12 columns were left.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.frameworks.hf_trainers import HfTrainer, hf_trainers, says_why
from gpulint.script.rewriting.edits import CannotFix, Rewrite
from gpulint.script.samples.tokenized import (
    Tokenizing,
    find_tokenizing,
    padded_by_batch,
    values,
    wants_one_length,
)

# Models and attention that may leave the padding out themselves.
_UNPADS = re.compile(r"flash[-_]?att|modern-?bert", re.IGNORECASE)
# Models that go on with a text: most of the texts that they learn from are long.
_OF_TEXTS = re.compile(r"CausalLM|LMHeadModel|CausalLanguageModel|ForLanguageModeling")
LITTLE = 32  # tokens
CUT = 128  # tokens, to which texts of many sentences are cut
BATCH = 128  # rows: as many may be one batch of the training too
ROWS = 1000  # of a batch that `map` gives, if nothing else is said


class HfStaticPadding(Rule):
    effect = Effect.RANDOM
    needs = Words("okenizer padding Trainer .map( .train( transformers")
    framework = "huggingface"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each call of a tokenizer."""
        trainers = hf_trainers(script)
        if not trainers or wants_one_length(script):
            return
        for tokenizing in find_tokenizing(script):
            number = _length(script, tokenizing)
            length = _padded_to(script, tokenizing, number)
            padding = tokenizing.padding
            if length is None or padding is None:
                continue
            if says_why(script, padding, "pad|length|shape|static"):
                continue
            fix, withheld = _rewrite(script, tokenizing, trainers)
            weak = _may_gain_nothing(script, number)
            yield self.finding(
                script,
                padding,
                f"each text is padded to {length} ahead of time, and the model "
                "computes on the padding",
                fix=fix,
                withheld=withheld,
                related=[(call, "the texts") for call in tokenizing.maps[:1]],
                confidence=Confidence.LOW if weak else None,
            )


def _rewrite(
    script: Script, tokenizing: Tokenizing, trainers: list[HfTrainer]
) -> tuple[Rewrite | None, str | None]:
    try:
        return padded_by_batch(script, tokenizing, trainers), None
    except CannotFix as error:
        return None, str(error)


def _length(script: Script, tokenizing: Tokenizing) -> int | None:
    """The number of tokens that the tokenizer is given as the most."""
    lengths = values(script, tokenizing.call, "max_length")
    numbers = [v.constant for v in lengths.known if type(v.constant) is int]
    return numbers[0] if lengths.complete and len(set(numbers)) == 1 else None


def _may_gain_nothing(script: Script, number: int | None) -> bool:
    """Whether the padding may be left out, or most texts cut off and none padded."""
    cut = number is not None and number <= CUT and script.source.has(_OF_TEXTS)
    return cut or script.source.has(_UNPADS)


def _padded_to(
    script: Script, tokenizing: Tokenizing, number: int | None
) -> str | None:
    """How long all texts become, in words; None where each may keep its length."""
    call = tokenizing.call
    padding = values(script, call, "padding")
    if any(v.default for v in padding.known):
        return None
    if number is not None and number <= LITTLE:
        return None
    if padding.all_in("max_length"):
        return f"{number} tokens" if number else "the longest that the model takes"
    if not padding.all_in(True, "longest"):
        return None
    rows = [_rows(script, mapped) for mapped in tokenizing.maps]
    return f"the longest of {min(rows)}" if min(rows) > BATCH else None


def _rows(script: Script, mapped: ast.Call) -> int:
    """How many texts a call of `map` gives at a time; 0: one, or not known."""
    if not values(script, mapped, "batched").all_in(True):
        return 0
    size = script.evaluator.argument(mapped, "batch_size")
    if size.absent:
        return ROWS
    known = values(script, mapped, "batch_size")
    numbers = [v.constant for v in known.known if type(v.constant) is int]
    certain = known.complete and len(numbers) == len(known.known)
    return min(numbers, default=0) if certain else 0
