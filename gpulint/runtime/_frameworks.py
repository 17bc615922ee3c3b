"""Choose what trainers of Lightning, Hugging Face and Accelerate take as arguments."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from ._gpu import read_gpu
from ._hardware import introduce
from ._loader import loader_kwargs
from ._log import decide
from ._main_guard import start_method
from ._placement import choose_device
from ._precision import amp_dtype
from ._settings import settings

# Where `accelerate launch` puts the format that it was configured for.
LAUNCHED = "ACCELERATE_MIXED_PRECISION"


def lightning_precision(was: str | int = 32) -> str | int:
    """Return `precision` for Lightning's `Trainer` and `Fabric`.

    "bf16-mixed" where the GPU has bfloat16, "16-mixed" on compute capability 7.x, as
    `amp_dtype` decides; "bf16" and 16 where the Lightning that the script has imported
    is of release 1, which knows no others. `was` where it finds no gain, as on a CPU,
    and when off: 32, the default of both releases.
    """
    found = _format()
    if found is None:
        return was
    names: dict[str, str | int] = (
        {"bf16": "bf16", "fp16": 16}
        if _is_lightning_1()
        else {"bf16": "bf16-mixed", "fp16": "16-mixed"}
    )
    return names[found]


def _is_lightning_1() -> bool:
    """Whether Lightning 1 is imported; `lightning` 2022 came with one."""
    modules = (sys.modules.get(n) for n in ("pytorch_lightning", "lightning"))
    versions = [str(getattr(m, "__version__", "")) for m in modules if m is not None]
    return any(v.startswith(("0.", "1.", "2022.")) for v in versions)


def accelerate_precision(was: str | None = None) -> str | None:
    """Return `mixed_precision` for `accelerate.Accelerator`.

    "bf16" or "fp16", as `amp_dtype` decides. `was` where it finds no gain, when off,
    and under `accelerate launch`, whose configuration then stands: None, the default
    of Accelerate, means what the launcher says, and else no mixed precision.
    """
    return was if _is_launched() else _format() or was


def hf_args(
    explicit: Mapping[str, Any] | None = None,
    *,
    precision: bool = False,
    tf32: bool = False,
    loading: bool = False,
) -> dict[str, Any]:
    """Return keyword arguments for `transformers.TrainingArguments`.

    Only what this machine accepts, as `TrainingArguments` raises ValueError for `bf16`
    and `tf32` without a GPU that has them. `precision`: `bf16` or `fp16`, never both,
    and nothing under `accelerate launch`, which has a setting of its own. `tf32`:
    `tf32`, from compute capability 8.0 on. `loading`: worker processes that live on
    between epochs, and how many batches each prepares, as `loader_kwargs` decides; none
    where workers are not forked, as a collator may hold the model, on its device.
    What the release of transformers that the script has imported lacks is left out.

    `explicit` are arguments as the script writes them: they win, and come back with the
    others. Off: `explicit`, untouched.
    """
    given = dict(explicit or {})
    introduce()
    if settings().off:
        return given
    found: dict[str, Any] = {}
    if precision and not _is_launched() and not {"bf16", "fp16"} & set(given):
        name = _format()
        found |= {name: True} if name else {}
    if tf32:
        found |= _tf32()
    if loading:
        found |= _loading(given)
    return _accepted(found) | given


def _accepted(found: dict[str, Any]) -> dict[str, Any]:
    """The arguments without those that the imported transformers does not know."""
    module = sys.modules.get("transformers.training_args")
    owner = getattr(module, "TrainingArguments", None)
    fields = getattr(owner, "__dataclass_fields__", found)
    missing = [name for name in found if name not in fields]
    if missing:
        decide("transformers", f"too old for {', '.join(missing)}: left out")
    return {name: value for name, value in found.items() if name in fields}


def _is_launched() -> bool:
    """Whether `accelerate launch` has set a format, be it none."""
    launched = os.environ.get(LAUNCHED)
    if launched is not None and not settings().off:
        decide("amp", f"{launched}, as `accelerate launch` says")
    return launched is not None


def _format() -> str | None:
    """The format of mixed precision on this machine: "bf16", "fp16" or None."""
    dtype = amp_dtype(choose_device())
    return {"torch.bfloat16": "bf16", "torch.float16": "fp16"}.get(str(dtype))


def _tf32() -> dict[str, Any]:
    gpu = None if settings().debug else read_gpu(choose_device())
    has = gpu is not None and gpu.kind == "cuda" and gpu.tf32
    decide("tf32", "on" if has else "left as it is, there is no GPU that has it")
    return {"tf32": True} if has else {}


def _loading(given: Mapping[str, Any]) -> dict[str, Any]:
    """Workers for the Trainer's loaders; none of what needs workers without them."""
    key = "dataloader_num_workers"
    method = start_method()
    if key not in given and method != "fork":
        decide("workers", f"none: {method} would send them the collator, and its model")
        return {}
    own = {"num_workers": given[key]} if key in given else {}
    options = loader_kwargs(persistent=True, **own)
    if not options["num_workers"]:
        return {key: 0}
    named = ("num_workers", "persistent_workers", "prefetch_factor")
    return {f"dataloader_{k}": options[k] for k in named if k in options}
