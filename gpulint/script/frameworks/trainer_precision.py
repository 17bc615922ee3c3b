"""Whether a trainer may be told to use mixed precision, or what speaks against it."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.index.build import last_name
from gpulint.index.walk import walk
from gpulint.script.branches import branches_of
from gpulint.script.environments import imports_environments
from gpulint.script.frameworks.fitted import uses
from gpulint.script.frameworks.hf_trainers import own_models
from gpulint.script.frameworks.trainer_calls import Maker, TrainerCall
from gpulint.script.frameworks.trainers import uses_cpu
from gpulint.script.loading.batches_taken import is_imported
from gpulint.script.neighbours import run_together
from gpulint.script.numerics.half import RECURS, exact_mathematics, recurs
from gpulint.script.numerics.hazards import hazard_in_modules
from gpulint.script.numerics.protected import why_protected_program
from gpulint.script.reaching.started import trains_in_double
from gpulint.script.training.step_calls import is_step

if TYPE_CHECKING:
    from gpulint.index import FileIndex
    from gpulint.script.model import Script

# Weights that are loaded or made in another format than float32. Whole numbers, and the
# sums that GPU106 puts on the device, say nothing of it.
_HALF = re.compile(
    r"\b(?:torch_)?dtype\s*=(?!\s*(?:\w+\.)*(?:accumulator_dtype|long|u?int\d*|bool)\b)"
    r"|load_in_[48]bit|quantization_config|BitsAndBytes|bnb_"
    r"|\.half\(|\.bfloat16\(|prepare_model_for_kbit|FastLanguageModel"
)
# A comment that says why, and what has a precision of its own: Megatron, TPUs.
_REASON = re.compile(
    r"#[^\n]*\b(?:b?fp?16|mixed[ _-]precision)\b|megatron|torch_xla|\btpu\b"
    r"|notebook_launcher",
    re.IGNORECASE,
)
_MEANT = re.compile(
    r"#.*(?:float|fp|\b16\b|mixed|half|nan\b|overflow|stab|accura|exact)", re.IGNORECASE
)
# Weights of such models may be stored in float16, which a scaler refuses to train, and
# the T5 family overflows in it.
_GENERATES = re.compile(r"CausalLM|ConditionalGeneration|Seq2SeqLM|LMHead|\bM?T5")
_NEEDS_FLOAT32 = (
    "torch.nn.BCELoss",
    "torch.nn.functional.binary_cross_entropy",
)
_OPTIMIZERS = ("torch.optim.Optimizer", "torch.optim.optimizer.Optimizer")
_TRAINS = {Maker.LIGHTNING_TRAINER: ".fit(", Maker.FABRIC: ".backward("}
_EVALUATES = frozenset("test validate predict".split())
_ON_GPUS = ("gpu", "cuda", "auto")
_PLAIN = ("auto", "ddp", "ddp_spawn", "ddp_notebook", "ddp_find_unused_parameters_true")
# Of an Accelerator.
_ACCUMULATES = ("accumulate", "no_sync")
_CLIPS_UNSCALED = ("clip_grad_norm_", "clip_grad_value_")
_CLIPS = ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_value_")


def may_train_on_gpu(made: TrainerCall) -> bool:
    """Whether a trainer of Lightning's trains here, and takes a GPU where there is one.

    Not with a strategy that has a configuration of its own, nor for a single batch.
    """
    if _TRAINS[made.maker] not in made.script.source.text or _only_evaluates(made):
        return False
    if made.values("fast_dev_run").all_in(True, 1):
        return False
    if uses_cpu(made.script, made.call):
        return False
    for name, fine in (("accelerator", _ON_GPUS), ("strategy", _PLAIN)):
        argument = made.argument(name)
        if not argument.absent and not made.values(name).all_in(*fine):
            return False
    return True


def _only_evaluates(made: TrainerCall) -> bool:
    """Whether a trainer has a name that only tests, predicts, or is never read.

    Of a function, or of a program that no other file imports. A tuner tries steps out.
    """
    index = made.script.index
    found = uses(made)
    if found is None:
        return False
    if index.function(made.call) is None and is_imported(made.script):
        return False
    return all(_is_no_training(index, use) for use in found)


def _is_no_training(index: FileIndex, use: ast.AST) -> bool:
    """`trainer.test(…)`, `Tuner(trainer)`."""
    above = index.parent(use)
    if isinstance(above, ast.Call):
        return last_name(above) == "Tuner"
    return isinstance(above, ast.Attribute) and above.attr in _EVALUATES


def is_meant(script: Script, precision: ast.expr) -> bool:
    """Whether a comment on its line says why a precision is what it is."""
    return _MEANT.search(script.source.said(precision.lineno)) is not None


def has_formats(script: Script) -> bool:
    """Whether a file says of formats itself, or has no use for mixed precision."""
    if script.source.has(_REASON) or script.precision.amp is not None:
        return True
    return is_not_in_float32(script) or imports_environments(script.index)


def is_not_in_float32(script: Script) -> bool:
    """Whether a file loads weights in another format, or trains in float64."""
    halved = script.source.has(_HALF)
    return halved or trains_in_double(script) is not None


def steps_without_gradients(script: Script) -> str | None:
    """An optimizer of the program's own that asks for no gradients: `SoftUpdate`.

    The scaler of float16 has none to check before its step, and raises.
    """
    for index in run_together(script):
        for owner in index.classes.values():
            bases = {index.qualified(base) for base in owner.bases}
            if bases.isdisjoint(_OPTIMIZERS):
                continue
            if not any(getattr(n, "attr", "") == "grad" for n in walk(owner)):
                return owner.name
    return None


def why_not_mixed(script: Script) -> str | None:
    """What of a program's files does not bear mixed precision, or its scaler."""
    without = steps_without_gradients(script)
    if without is not None:
        return f"`{without}` steps without gradients, which a scaler refuses"
    protected = why_protected_program(script)
    if protected is not None:
        return protected
    if recurs(script):
        return RECURS
    if any(index.source.has(_GENERATES) for index in run_together(script)):
        return "the model's weights may be stored in float16"
    found = exact_mathematics(script, own_models(script))
    if found is not None:
        return f"`{found}` may need float32"
    for index in run_together(script):
        for name in (*_NEEDS_FLOAT32, *_CLIPS):
            if name in index.called_names:
                why = "under autocast" if name in _NEEDS_FLOAT32 else "scaled gradients"
                last = name.rpartition(".")[2]
                verb = "raises an error" if name in _NEEDS_FLOAT32 else "would clip"
                return f"`{last}` {verb} {why}"
    if any(_is_plain_backward(c) for c in script.index.all(ast.Call)):
        return "`backward()` is called past the trainer, without its scaler"
    return hazard_in_modules(script)


def clips_again(script: Script) -> str | None:
    """Why Accelerate's scaler may be asked to unscale gradients twice for one update.

    Its `clip_grad_norm_` unscales whenever it is called; what accumulates gradients
    must call it where the optimizer steps alone: behind `sync_gradients`.
    """
    files = run_together(script)
    at_once = not any(
        index.calls_by_name.get(name) for index in files for name in _ACCUMULATES
    )
    for index in files:
        for name in _CLIPS_UNSCALED:
            for call in index.calls_by_name.get(name, ()):
                if not _clips_at_update(index, call, at_once):
                    return f"`{name}` unscales gradients before all are accumulated"
    return None


def _clips_at_update(index: FileIndex, call: ast.Call, at_once: bool) -> bool:
    """Whether a clipping stands behind `sync_gradients`, or is met by each step."""
    around = branches_of(index, call)
    tests = (branch.test for branch, _ in around if isinstance(branch, ast.If))
    if any("sync_gradients" in ast.unparse(test) for test in tests):
        return True
    steps = [
        branches_of(index, step)
        for step in index.calls_by_name.get("step", ())
        if is_step(step) and index.scope(step) is index.scope(call)
    ]
    met = not steps or any(set(its) <= set(around) for its in steps)
    return at_once and met


def _is_plain_backward(call: ast.Call) -> bool:
    func = call.func
    return isinstance(func, ast.Attribute) and func.attr == "backward" and not call.args
