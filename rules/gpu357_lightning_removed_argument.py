"""An argument of Lightning's Trainer that newer releases refuse.

## Why
Lightning 2.0 took out what chose the hardware one kind at a time (`gpus`, `tpu_cores`),
the second backend of mixed precision, and the tuner's arguments; 1.7 and 1.8 had done
the same to arguments of logging. The call raises TypeError before anything is trained.

## Example
```python
import lightning as L

trainer = L.Trainer(
    gpus=2,
    max_epochs=10,
    resume_from_checkpoint=path,
)
```
becomes
```python
import lightning as L

trainer = L.Trainer(
    accelerator="gpu", devices=2,
    max_epochs=10,
    resume_from_checkpoint=path,
)
```

## Fix
`gpus=N` becomes `accelerator="gpu", devices=N`, `gpus=0` `accelerator="cpu"`,
`tpu_cores=N` `accelerator="tpu", devices=N`. Several GPUs without a `strategy` are
processes that Lightning 2 starts as `ddp`, where 1.x took `ddp_spawn`.
`replace_sampler_ddp` becomes `use_distributed_sampler`, `checkpoint_callback`
`enable_checkpointing`, and `amp_backend="native"`, the only one left, goes. Other
arguments moved to a callback, to `Trainer.fit` or to the tuner, which the finding says.

Withheld where the number of GPUs is not written in the call (None and 0 mean the CPU),
where the new arguments may be given too, where the argument comes with `**`, and where
the project allows a release that does not know the new name. `replace_sampler_ddp` and
its successor are in no release together: there the project must say that it has 2.0.

## When not
The project allows no release that refuses the argument; where it allows one that takes
it, or says nothing, the finding is of low confidence: that one runs the program. The
argument comes, or may not come, from a parser, a settings file or `**kwargs` that
cannot be read. The call stands in a `try` or behind a test of the version.

## Source
The signatures of `Trainer` in pytorch-lightning 1.4 to 2.6, compared with each other.
Lightning documentation, "Upgrade from 1.x to 2.0".
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Effect, Finding
from gpulint.rule import Calls, Rule
from gpulint.script import Script
from gpulint.script.frameworks.removed_arguments import (
    Removed,
    Use,
    in_place_of,
    removed_uses,
)
from gpulint.script.frameworks.trainer_calls import Maker, names_of, trainer_calls
from gpulint.script.rewriting.edits import Replace, Rewrite
from gpulint.script.rewriting.syntax import without_keywords

TWO = (2, 0)
TUNER = "`lightning.pytorch.tuner.Tuner` does it"
BAR = "`enable_progress_bar` and the callback `TQDMProgressBar` do the same"
REMOVED = {
    "gpus": Removed(TWO, "devices", (1, 5)),
    "tpu_cores": Removed(TWO, "devices", (1, 5)),
    "ipus": Removed(TWO),
    "num_processes": Removed(TWO, instead="`devices` has the number"),
    "replace_sampler_ddp": Removed(TWO, "use_distributed_sampler", TWO),
    "resume_from_checkpoint": Removed(TWO, instead="`Trainer.fit` takes `ckpt_path`"),
    "auto_select_gpus": Removed(TWO, instead='`devices="auto"` or a number choose'),
    "auto_lr_find": Removed(TWO, instead=TUNER),
    "auto_scale_batch_size": Removed(TWO, instead=TUNER),
    "amp_backend": Removed(TWO, instead="only PyTorch's own mixed precision is left"),
    "amp_level": Removed(TWO, instead="only PyTorch's own mixed precision is left"),
    "move_metrics_to_cpu": Removed(TWO),
    "multiple_trainloader_mode": Removed(
        TWO, instead="`CombinedLoader` has it as `mode`"
    ),
    "track_grad_norm": Removed(
        TWO, instead="`on_before_optimizer_step` can log `grad_norm`"
    ),
    "weights_save_path": Removed((1, 8), instead="`ModelCheckpoint` has `dirpath`"),
    "checkpoint_callback": Removed((1, 7), "enable_checkpointing", (1, 5)),
    "process_position": Removed((1, 7), instead=BAR),
    "progress_bar_refresh_rate": Removed((1, 7), instead=BAR),
    "log_gpu_memory": Removed(
        (1, 7), instead="the callback `DeviceStatsMonitor` does it"
    ),
    "flush_logs_every_n_steps": Removed((1, 7), instead="loggers have a setting"),
    "weights_summary": Removed(
        (1, 7), instead="`enable_model_summary` and `ModelSummary` do the same"
    ),
    "prepare_data_per_node": Removed(
        (1, 7), instead="it is an attribute of the LightningDataModule"
    ),
    "stochastic_weight_avg": Removed(
        (1, 7), instead="the callback `StochasticWeightAveraging` does it"
    ),
    "terminate_on_nan": Removed((1, 7), instead="`detect_anomaly` does the same"),
    "reload_dataloaders_every_epoch": Removed(
        (1, 6), instead="`reload_dataloaders_every_n_epochs=1` does the same"
    ),
    "truncated_bptt_steps": Removed((1, 5), instead="training by hand can do it"),
    "distributed_backend": Removed((1, 5), instead="`strategy` has it"),
}
STRATEGIES = (
    *("auto", "ddp", "ddp_spawn", "ddp_notebook", "ddp_find_unused_parameters_true"),
    *("ddp_find_unused_parameters_false", "deepspeed", "deepspeed_stage_2"),
    *("deepspeed_stage_3", "fsdp"),
)
CHIPS = {"gpus": "gpu", "tpu_cores": "tpu"}


class LightningRemovedArgument(Rule):
    effect = Effect.EXACT
    needs = Calls(*names_of(Maker.LIGHTNING_TRAINER))
    framework = "lightning"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each argument."""
        for made in trainer_calls(script, Maker.LIGHTNING_TRAINER):
            for use in removed_uses(script, made, REMOVED):
                fix, withheld = _rewrite(use)
                yield self.finding(
                    script,
                    use.at,
                    use.message,
                    fix=fix,
                    withheld=withheld,
                    related=use.related,
                    severity=use.severity,
                    confidence=use.confidence,
                )


def _rewrite(use: Use) -> tuple[Rewrite | None, str | None]:
    """The same in the words of the newest release, or the guard that fails."""
    if use.name == "amp_backend" and _constant(use) == "native":
        if not use.made.argument("amp_level").absent:
            return None, "`amp_level` is given too, or may be"
        edit = Replace(use.made.call, without_keywords("amp_backend"))
        return Rewrite('Leave out `amp_backend="native"`', (edit,)), None
    withheld = use.why_not_renamed()
    if withheld is not None:
        return None, withheld
    if use.name in CHIPS:
        return _devices(use, CHIPS[use.name])
    if use.name == "checkpoint_callback" and not isinstance(_constant(use), bool):
        return None, "a callback goes into `callbacks`"
    return use.renamed(), None


def _devices(use: Use, chip: str) -> tuple[Rewrite | None, str | None]:
    """`accelerator` and `devices` for a number or a list of devices."""
    others = set(CHIPS) - {use.name}
    if not use.made.all_absent(*others) or not _is_known_strategy(use):
        return None, "what else the call says of devices and strategy may be gone too"
    new = {"accelerator": f'"{chip}"'}
    accelerator = use.made.argument("accelerator")
    if accelerator.given and use.made.values("accelerator").all_in(chip):
        new = {}
    elif not accelerator.absent:
        return None, "`accelerator` is given too, or may be"
    value = _constant(use)
    several = isinstance(use.written, (ast.List, ast.Tuple)) and use.written.elts
    if several or (type(value) is int and (value > 0 or value == -1)):
        new["devices"] = use.made.script.text(use.at)
    elif type(value) is int and value == 0 and chip == "gpu" and new:
        new["accelerator"] = '"cpu"'
    else:
        return None, f"the value of `{use.name}` is not a number written in the call"
    edit = Replace(use.made.call, in_place_of(use.name, **new))
    title = ", ".join(f"{name}={code}" for name, code in new.items())
    return Rewrite(f"Write `{title}`", (edit,)), None


def _is_known_strategy(use: Use) -> bool:
    """Whether the strategy is left to Lightning, or one that Lightning 2 still has."""
    strategy = use.made.argument("strategy")
    return strategy.absent or (
        strategy.given and use.made.values("strategy").all_in(*STRATEGIES)
    )


def _constant(use: Use) -> object:
    """The constant that is written in the call; None for anything else."""
    node = use.written
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = node.operand
        number = inner.value if isinstance(inner, ast.Constant) else None
        return -number if type(number) is int else None
    return node.value if isinstance(node, ast.Constant) else None
