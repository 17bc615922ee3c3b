"""Long and short texts share a batch, and the short ones are padded to the longest.

## Why
A collator pads each batch to its longest text. Where texts are drawn regardless of
their length, nearly every batch has a long one, and the model computes on the padding
of the others. The Trainer can draw texts of similar length together: of some fifty
batches at a time it sorts the texts by length, so that the order stays random at large.

## Example
```python
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers import DataCollatorWithPadding, Trainer, TrainingArguments

tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")


def tokenize(rows):
    return tokenizer(rows["text"], truncation=True)


reviews = load_dataset("imdb", split="train").map(tokenize, batched=True)
arguments = TrainingArguments("out", fp16=True, dataloader_num_workers=4)
collator = DataCollatorWithPadding(tokenizer)
Trainer(model, arguments, collator, reviews).train()
```

## Fix
`group_by_length=True` where the project allows no transformers after 5.0, and
`train_sampling_strategy="group_by_length"` where it needs 5.23 or newer, which has no
`group_by_length` any more. Withheld where it allows both or does not say, as either
name is a TypeError where the other is known. The order of the samples changes, and
batches are more uniform than drawn ones; a run that is sensitive to that can do
without.

The Trainer reads the lengths once, before it begins: of a dataset with the column
`length` at once, else row by row.

## When not
`group_by_length` or `train_sampling_strategy` is given or may be. Rows have one length:
they are padded ahead of time (GPU262), cut into blocks, or at most 64 tokens long, or
a batch is one row. The
training set is not one of `datasets`: of another class the Trainer would read items
until it raises IndexError. The Trainer does not pad, or its class chooses the samples
itself. Texts are sorted already, packed or streamed (`sort`, `IterableDataset`,
curriculum). Static shapes are wanted (`torch_compile`, TPUs). Nothing is trained in
this file. Of low confidence is a call that raises in all allowed releases (GPU364).

## Source
Transformers documentation, `TrainingArguments`; the signatures of transformers 4.10 to
5.23, compared with each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpulint.finding import Effect, Finding, Severity
from gpulint.rule import Calls, Rule
from gpulint.script import Script
from gpulint.script.frameworks.hf_removed import unless_refused
from gpulint.script.frameworks.hf_samples import is_of_datasets, is_streamed
from gpulint.script.frameworks.hf_trainers import HfTrainer, trained_with
from gpulint.script.frameworks.trainer_calls import (
    UNSAID,
    Maker,
    TrainerCall,
    names_of,
    spreads,
    surely_has,
)
from gpulint.script.rewriting.edits import Replace, Rewrite
from gpulint.script.rewriting.syntax import set_keywords
from gpulint.script.samples.tokenized import (
    Tokenizing,
    find_tokenizing,
    pads_each_batch,
    values,
    wants_one_length,
)

NAMES = ("group_by_length", "train_sampling_strategy")
LAST_WITH_OLD = (5, 0)  # of the releases that were compared
FIRST_WITH_NEW = (5, 23)
SHORT = 64  # tokens
SORTED = re.compile(
    r"\.sort\(\s*(?:\w+\s*=\s*)?[\"'\[]|curriculum|packing|SequentialSampler"
)


class HfUngroupedLengths(Rule):
    effect = Effect.RANDOM
    severity = Severity.NOTE
    needs = Calls(*names_of(Maker.HF_ARGUMENTS))
    framework = "huggingface"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each call whose Trainer pads each batch."""
        text = script.source.text
        if "okenizer" not in text or wants_one_length(script):
            return
        if SORTED.search(text) or is_streamed(script):
            return
        tokenizings = find_tokenizing(script)
        if not tokenizings or not all(_differ(script, its) for its in tokenizings):
            return
        for made, trainers in trained_with(script):
            if not made.all_absent(*NAMES) or _is_of_one(made):
                continue
            if all(_is_padded(script, trainer) for trainer in trainers):
                yield self._finding(script, made, tokenizings[0])

    def _finding(
        self, script: Script, made: TrainerCall, tokenizing: Tokenizing
    ) -> Finding:
        argument, withheld = _argument(made)
        if [s for s in spreads(made.call) if s is not made.decided]:
            withheld = withheld or "other arguments come with `**`"
        edit = Replace(made.call, set_keywords(**argument))
        fix = Rewrite("Draw texts of similar length together", (edit,))
        return self.finding(
            script,
            made.call.func,
            "texts of any length share a batch and are padded to its longest: "
            "they are not grouped by length",
            fix=None if withheld else fix,
            withheld=withheld,
            related=[(tokenizing.call, "each text keeps its length here")],
            confidence=unless_refused(made),
        )


def _is_of_one(made: TrainerCall) -> bool:
    """Whether a batch is one text, which nothing pads."""
    sizes = made.values("per_device_train_batch_size")
    return bool(sizes.known) and sizes.all_in(1)


def _differ(script: Script, tokenizing: Tokenizing) -> bool:
    """Whether the rows of a dataset have lengths of their own."""
    if tokenizing.padding is not None:
        padding = values(script, tokenizing.call, "padding")
        if not padding.all_in(False, "do_not_pad"):
            return False
    lengths = values(script, tokenizing.call, "max_length")
    numbers = [v.constant for v in lengths.known if type(v.constant) is int]
    return lengths.complete and min(numbers, default=SHORT + 1) > SHORT


def _is_padded(script: Script, trainer: HfTrainer) -> bool:
    """Whether a Trainer draws the rows itself and pads each batch."""
    if trainer.owner is not None:
        own = script.resolver.classes.methods(trainer.owner)
        if {"get_train_dataloader", "_get_train_sampler"} & set(own):
            return False
    data = trainer.argument("train_dataset")
    if not data.given or not all(is_of_datasets(script, n) for n in data.nodes):
        return False
    return pads_each_batch(script, trainer)


def _argument(made: TrainerCall) -> tuple[dict[str, str], str | None]:
    """The argument that groups in the project's transformers, or why none is known."""
    old, new = NAMES
    script = made.script
    if surely_has(script, "transformers", FIRST_WITH_NEW):
        return {new: '"group_by_length"'}, None
    highest = script.releases("transformers").highest
    if highest is not None and highest <= LAST_WITH_OLD:
        return {old: "True"}, None
    said = script.releases("transformers").lowest is not None or highest is not None
    why = "the project allows releases with either" if said else UNSAID
    return {}, f"`{old}` is called `{new}` since transformers 5, and {why}"
