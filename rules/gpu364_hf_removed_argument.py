"""An argument of the Hugging Face Trainer that newer releases refuse.

## Why
transformers 5 took out what had been deprecated for years: `evaluation_strategy`,
`no_cuda`, `warmup_ratio`, `per_gpu_train_batch_size`, the `tokenizer` of `Trainer` and
two dozen others. The call raises TypeError before anything is trained, on a machine
that may have been waited for.

## Example
```python
from transformers import Trainer, TrainingArguments

arguments = TrainingArguments(
    "out",
    evaluation_strategy="epoch",
    no_cuda=False,
)
trainer = Trainer(model, arguments, train_dataset=train, tokenizer=tokenizer)
```
becomes
```python
from transformers import Trainer, TrainingArguments

arguments = TrainingArguments(
    "out",
    eval_strategy="epoch",
    use_cpu=False,
)
trainer = Trainer(model, arguments, train_dataset=train, processing_class=tokenizer)
```

## Fix
The new name of the same argument: `eval_strategy` (transformers 4.41), `use_cpu`
(4.34), `per_device_train_batch_size` and `per_device_eval_batch_size`,
`processing_class` (4.46), `hub_token`. Where the arguments are those of another meaning
or shape, the finding says what took their place.

Withheld where the project allows a release that does not know the new name, where the
new name may be given too, and where the argument comes with `**`.

## When not
The project allows no release that refuses the argument; where it allows one that takes
it, or says nothing, the finding is of low confidence: that one runs the program. The
argument comes, or may not come, from a parser, a settings file or `**kwargs` that
cannot be read. The call stands in a `try` or behind a test of the version.

## Source
The signatures of `TrainingArguments` and `Trainer` in transformers 4.10 to 5.23,
compared with each other.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Effect, Finding
from gpulint.rule import Calls, Rule
from gpulint.script import Script
from gpulint.script.frameworks.hf_removed import ARGUMENTS, TRAINER
from gpulint.script.frameworks.removed_arguments import removed_uses
from gpulint.script.frameworks.trainer_calls import Maker, names_of, trainer_calls


class HfRemovedArgument(Rule):
    effect = Effect.EXACT
    needs = Calls(*names_of(Maker.HF_ARGUMENTS, Maker.HF_TRAINER))
    framework = "huggingface"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each argument."""
        for made in trainer_calls(script, Maker.HF_ARGUMENTS, Maker.HF_TRAINER):
            table = TRAINER if made.maker is Maker.HF_TRAINER else ARGUMENTS
            for use in removed_uses(script, made, table):
                withheld = use.why_not_renamed()
                yield self.finding(
                    script,
                    use.at,
                    use.message,
                    fix=None if withheld else use.renamed(),
                    withheld=withheld,
                    related=use.related,
                    severity=use.severity,
                    confidence=use.confidence,
                )
