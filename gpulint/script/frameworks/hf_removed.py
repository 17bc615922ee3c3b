"""What releases of transformers refuse that are given to its Trainer's arguments."""

from __future__ import annotations

import ast
import re

from gpulint.finding import Confidence
from gpulint.script.frameworks.removed_arguments import Removed, removed_uses
from gpulint.script.frameworks.trainer_calls import TrainerCall, surely_has

FIVE = (5, 0)
LATER = (5, 23)  # the first of the fives that were compared to have it no more
_WITHOUT_OLD_ADAM = (4, 57)  # a release whose `OptimizerNames` has no "adamw_hf"
_LOADS_MODEL = re.compile(
    r"(?<!Tokenizer)(?<!TokenizerFast)(?<!Processor)(?<!Config)(?<!Extractor)"
    r"\.from_pretrained\("
)
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


def unless_refused(made: TrainerCall) -> Confidence | None:
    """Low for what a call would cost that raises in all releases of a project."""
    uses = removed_uses(made.script, made, ARGUMENTS)
    refused = any(u.confidence is None for u in uses)
    return Confidence.LOW if refused or _asks_for_old_adam(made) else None


def unless_in_vain(made: TrainerCall) -> Confidence | None:
    """The same, or for a precision where models may come in half a format already.

    transformers 5 loads a checkpoint in its own, which may be bfloat16.
    """
    script, package = made.script, made.maker.package
    loads = _LOADS_MODEL.search(script.source.text) is not None
    if loads and surely_has(script, package, FIVE):
        return Confidence.LOW
    return unless_refused(made)


def _asks_for_old_adam(made: TrainerCall) -> bool:
    """`optim="adamw_hf"`, where the project allows no release that still knows it."""
    script, package = made.script, made.maker.package
    asked = script.evaluator.argument(made.call, "optim").direct
    old = isinstance(asked, ast.Constant) and asked.value == "adamw_hf"
    return old and surely_has(script, package, _WITHOUT_OLD_ADAM)
