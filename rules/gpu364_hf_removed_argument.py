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
from gpulint.script.frameworks.removed_arguments import Removed, removed_uses
from gpulint.script.frameworks.trainer_calls import Maker, names_of, trainer_calls

FIVE = (5, 0)
LATER = (5, 23)  # the first of the fives that were compared to have it no more
BACKEND = "PyTorch's own mixed precision is the only one left"
ARGUMENTS = {
    "evaluation_strategy": Removed((4, 57), "eval_strategy", (4, 41)),
    "no_cuda": Removed(FIVE, "use_cpu", (4, 34)),
    "per_gpu_train_batch_size": Removed(FIVE, "per_device_train_batch_size"),
    "per_gpu_eval_batch_size": Removed(FIVE, "per_device_eval_batch_size"),
    "push_to_hub_token": Removed(FIVE, "hub_token", (4, 31)),
    "warmup_ratio": Removed(LATER, instead="`warmup_steps` below 1 is a share of them"),
    "group_by_length": Removed(
        LATER, instead='`train_sampling_strategy="group_by_length"` does the same'
    ),
    "logging_dir": Removed(
        LATER, instead="the environment variable `TENSORBOARD_LOGGING_DIR` says it"
    ),
    "overwrite_output_dir": Removed(FIVE, instead="the folder is always written to"),
    "fp16_backend": Removed(FIVE, instead=BACKEND),
    "half_precision_backend": Removed(FIVE, instead=BACKEND),
    "fp16_opt_level": Removed(FIVE, instead=BACKEND),
    "torchdynamo": Removed(FIVE, instead="`torch_compile_backend` does the same"),
    "adafactor": Removed(FIVE, instead='`optim="adafactor"` does the same'),
    "save_safetensors": Removed(FIVE, instead="safetensors is the only format left"),
    "use_mps_device": Removed(FIVE, instead="MPS is used where it is there"),
    "use_ipex": Removed((4, 57)),
    "jit_mode_eval": Removed(FIVE),
    "tpu_num_cores": Removed(FIVE),
    "tpu_metrics_debug": Removed(FIVE, instead='`debug="tpu_metrics_debug"`'),
    "past_index": Removed(FIVE),
    "use_legacy_prediction_loop": Removed(FIVE),
    "mp_parameters": Removed(FIVE),
    "ray_scope": Removed(FIVE),
    "include_tokens_per_second": Removed(FIVE),
    "include_inputs_for_metrics": Removed(
        FIVE, instead='`include_for_metrics=["inputs"]` does the same'
    ),
    "fsdp_min_num_params": Removed(FIVE, instead="`fsdp_config` has it"),
    "fsdp_transformer_layer_cls_to_wrap": Removed(FIVE, instead="`fsdp_config` has it"),
    "push_to_hub_model_id": Removed(FIVE, instead="`hub_model_id` has it"),
    "push_to_hub_organization": Removed(FIVE, instead="`hub_model_id` has it"),
    "dispatch_batches": Removed((4, 57), instead="`accelerator_config` has it"),
    "split_batches": Removed((4, 57), instead="`accelerator_config` has it"),
    "sharded_ddp": Removed((4, 36), instead="`fsdp` does the same"),
    "xpu_backend": Removed((4, 34), instead="`ddp_backend` has it"),
}
TRAINER = {"tokenizer": Removed(FIVE, "processing_class", (4, 46))}


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
