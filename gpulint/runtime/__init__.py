"""What rewritten training scripts import: decisions that depend on the machine.

Every helper does what the script did before where the machine offers nothing better,
never fails for lack of a GPU, and logs its decision once on rank 0 (logger "gpulint",
or standard error where no logging is set up). Arguments come first, then these
environment variables, then what `gpulint tune` has found for this script and hardware
(`gpulint.tuned.json`), then the policy:

GPULINT_RUNTIME=off    the script's original behaviour everywhere
GPULINT_DEBUG=1        no workers, mixed precision or compiling; the CPU augments
GPULINT_TUNED=off      what `gpulint tune` has found is not used
GPULINT_NUM_WORKERS=4  workers of each loader
GPULINT_PREFETCH_FACTOR=4  batches that each worker prepares ahead
GPULINT_BATCH_SIZE=64  samples in a batch; GPULINT_BATCH_SIZE_EVAL in evaluation
GPULINT_AMP=bf16       mixed precision's dtype: off, fp16 or bf16
GPULINT_COMPILE=off    no model is compiled
GPULINT_ENV=cloud      what `environment()` says: local or cloud
GPULINT_POLICY=local-cloud  settings by that; see `configure`. Default: measured
GPULINT_STAGE_DIR=/disk  where `stage_local` copies data to

They are read once. Importing this package imports the standard library alone and
starts no GPU; torch is imported when a helper needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._async_save import async_save, flush
    from ._augmentation import augmentation
    from ._batch_size import batch_size, scaled_lr, warmup
    from ._compiled import maybe_compile
    from ._configure import configure
    from ._device import device
    from ._distributed import Distributed, distributed
    from ._environment import Environment, environment
    from ._explain import explain
    from ._frameworks import accelerate_precision, hf_args, lightning_precision
    from ._hardware import Hardware, hardware
    from ._limits import available_cpus
    from ._loader import loader_kwargs
    from ._microbatches import microbatches
    from ._monitor import Monitor
    from ._ms import ms
    from ._precision import accumulator_dtype, amp_dtype
    from ._prefetch import prefetch
    from ._probe import find_batch_size
    from ._resident import ResidentArray, resident
    from ._split import split_augmentation
    from ._staging import stage_local
    from ._tensor_loader import TensorLoader
    from ._tf import tf
    from ._transfer import to_device

# Which module has which helpers: each is imported when it is first asked for.
_HELPERS = {
    "_async_save": "async_save flush",
    "_augmentation": "augmentation",
    "_batch_size": "batch_size scaled_lr warmup",
    "_compiled": "maybe_compile",
    "_configure": "configure",
    "_device": "device",
    "_distributed": "Distributed distributed",
    "_environment": "Environment environment",
    "_explain": "explain",
    "_frameworks": "accelerate_precision hf_args lightning_precision",
    "_hardware": "Hardware hardware",
    "_limits": "available_cpus",
    "_loader": "loader_kwargs",
    "_microbatches": "microbatches",
    "_ms": "ms",
    "_monitor": "Monitor",
    "_precision": "accumulator_dtype amp_dtype",
    "_prefetch": "prefetch",
    "_probe": "find_batch_size",
    "_resident": "ResidentArray resident",
    "_split": "split_augmentation",
    "_staging": "stage_local",
    "_tensor_loader": "TensorLoader",
    "_tf": "tf",
    "_transfer": "to_device",
}

__all__ = [
    "Distributed",
    "Environment",
    "Hardware",
    "Monitor",
    "ResidentArray",
    "TensorLoader",
    "accelerate_precision",
    "accumulator_dtype",
    "amp_dtype",
    "async_save",
    "augmentation",
    "available_cpus",
    "batch_size",
    "configure",
    "device",
    "distributed",
    "environment",
    "explain",
    "find_batch_size",
    "flush",
    "hardware",
    "hf_args",
    "lightning_precision",
    "loader_kwargs",
    "maybe_compile",
    "microbatches",
    "ms",
    "prefetch",
    "resident",
    "scaled_lr",
    "split_augmentation",
    "stage_local",
    "tf",
    "to_device",
    "warmup",
]


def __getattr__(name: str) -> Any:
    for module, helpers in _HELPERS.items():
        if name in helpers.split():
            helper = getattr(importlib.import_module(f".{module}", __name__), name)
            globals()[name] = helper
            return helper
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _reset() -> None:
    """Forget settings and decisions, as in a fresh process; for tests."""
    from ._async_save import forget_saves
    from ._batch_size import forget_batch_sizes
    from ._distributed import forget_ranks
    from ._hardware import forget_introduction
    from ._log import forget_decisions
    from ._policy import forget_policy
    from ._precision import forget_precisions
    from ._prefetch import forget_streams
    from ._settings import forget_settings

    forget_settings()
    forget_decisions()
    forget_introduction()
    forget_precisions()
    forget_batch_sizes()
    forget_policy()
    forget_ranks()
    forget_saves()
    forget_streams()
