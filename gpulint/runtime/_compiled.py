"""Compile a model where the machine can, and leave it as it is elsewhere."""

from __future__ import annotations

import itertools
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ._gpu import read_gpu
from ._hardware import introduce
from ._log import decide
from ._settings import settings
from ._tuned import tell_tuner, tuned_entry

if TYPE_CHECKING:
    import torch

Model = TypeVar("Model", bound="torch.nn.Module")

KINDS = ("cuda", "xpu")  # as torch names them; ROCm is "cuda"
LOWEST_CAPABILITY = (7, 0)  # what Triton makes kernels for
C_COMPILERS = ("cc", "gcc", "clang")


def maybe_compile(model: Model, **options: Any) -> Model:
    """Compile `model` in place, `model.compile(**options)`, and return it.

    Its class and the names in its state dict stay the same; a deep copy of it is not
    compiled. It is compiled when it first runs, which takes from seconds to minutes; to
    learn whether it can be, a function of one line is compiled here and now.

    Returns the model untouched where that fails, on CPUs, MPS and GPUs of capability
    below 7.0, under GPULINT_DEBUG and GPULINT_COMPILE=off, where `gpulint tune` has
    found that it does not pay, and where it is compiled already or has a method
    `compile` of its own. Off: the model. What this machine lacks raises nothing.
    Hooks that parts of the model are given later are not seen.
    """
    introduce()
    if settings().off:
        return model
    reason = _why_not(model)
    unwanted = _why_unwanted() if reason is None else None
    tell_tuner("maybe_compile", possible=reason is None)
    reason = reason or unwanted
    if reason is None:
        model.compile(**options)
        decide("compile", f"{type(model).__name__}, when it first runs")
    else:
        decide("compile", f"off for {type(model).__name__} ({reason})")
    return model


def _why_not(model: torch.nn.Module) -> str | None:
    """Return why a model is not to be compiled here, None where it is."""
    if settings().debug:
        return "GPULINT_DEBUG"
    return _why_not_it(model) or _why_not_on(_device(model))


def _why_unwanted() -> str | None:
    """Return why a model that could be compiled is not, None where it is."""
    if not settings().compile:
        return "GPULINT_COMPILE"
    return "tuned" if tuned_entry().get("compile") is False else None


def _why_not_it(model: object) -> str | None:
    import torch

    if not isinstance(model, torch.nn.Module):
        return "no module"
    if isinstance(model, torch.jit.ScriptModule):
        return "a script of TorchScript"
    if type(model).compile is not torch.nn.Module.compile:
        return "it has a method `compile` of its own"
    compiled = getattr(model, "_compiled_call_impl", None) is not None
    return "compiled already" if compiled or hasattr(model, "_orig_mod") else None


def _device(model: torch.nn.Module) -> torch.device | None:
    tensors = itertools.chain(model.parameters(), model.buffers())
    return next((tensor.device for tensor in tensors), None)


def _why_not_on(device: torch.device | None) -> str | None:
    if device is None or device.type not in KINDS:
        return f"on {'no device' if device is None else device}"
    gpu = read_gpu(device)
    if gpu is None:
        return "no GPU"
    low = gpu.capability is not None and gpu.capability < LOWEST_CAPABILITY
    if gpu.kind == "cuda" and low:
        return f"{gpu.name} is older than what Triton knows"
    if find_spec("triton") is None:
        return "no Triton"
    return _why_it_fails(device)


def _why_it_fails(device: torch.device) -> str | None:
    """Compile and run a function of one line; return the kind of its error."""
    import torch

    try:
        with torch.no_grad():
            torch.compile(_double)(torch.ones(8, device=device))
    # Whatever the compilers of this machine raise, the model still runs without them.
    except Exception as error:
        return f"torch.compile fails: {type(error).__name__}{_missing()}"
    return None


def _missing() -> str:
    """Return what is often the cause: Triton's launchers are written in C."""
    import shutil
    import sysconfig

    if not any(map(shutil.which, C_COMPILERS)):
        return ", no C compiler"
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return "" if headers.exists() else ", no Python.h"


def _double(x: torch.Tensor) -> torch.Tensor:
    return x + x
