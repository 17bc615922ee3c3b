"""Import torch, and let it and `gpulint.runtime` say what they make of the machine."""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from gpulint.doctor.probes import Facts, shorten


def probe_torch(options: Facts) -> Iterator[str | Facts]:
    """Yield what torch was built for and sees, and what the runtime chooses.

    With `script`, as if that script asked: what was tuned for it counts.
    """
    yield "importing torch"
    import torch

    yield {"version": str(torch.__version__), **_build(torch)}
    yield "asking torch for its devices"
    yield _settings(torch)
    yield {"accelerator": _accelerator(torch), "device_count": _count(torch)}
    yield "asking gpulint.runtime"
    if options.get("script"):
        _stand_in_for(options["script"])
    yield {"runtime": _choices()}
    yield "computing on the device"
    yield {"compute": _compute(torch)}
    yield {"devices": _devices(torch)}


def _build(torch: Any) -> Facts:
    return {
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
        "cudnn": _try(torch.backends.cudnn.version),
    }


def _settings(torch: Any) -> Facts:
    """The states before any script has changed them."""
    cuda = torch.backends.cuda
    attention = {
        "flash": "flash_sdp_enabled",
        "memory-efficient": "mem_efficient_sdp_enabled",
        "cudnn": "cudnn_sdp_enabled",
        "math": "math_sdp_enabled",
    }
    return {
        "arch_list": _try(lambda: list(torch.cuda.get_arch_list())),
        "matmul_precision": _try(torch.get_float32_matmul_precision),
        "cudnn_tf32": _try(lambda: bool(torch.backends.cudnn.allow_tf32)),
        "attention": [
            name
            for name, call in attention.items()
            if _try(lambda call=call: getattr(cuda, call)())  # type: ignore[misc]
        ],
        "threads": _try(torch.get_num_threads),
    }


def _accelerator(torch: Any) -> str | None:
    """The kind of device that torch has: cuda, xpu, mps, npu, …; None: the CPU."""
    accelerator = getattr(torch, "accelerator", None)  # torch 2.6
    if accelerator is not None:
        if not _try(accelerator.is_available):
            return None
        return str(accelerator.current_accelerator().type)
    if _try(torch.cuda.is_available):
        return "cuda"
    return "mps" if _try(torch.backends.mps.is_available) else None


def _count(torch: Any) -> int:
    return int(_try(torch.cuda.device_count) or 0)


def _stand_in_for(script: str) -> None:
    """The runtime looks beside the main module for tuned values, and into it."""
    main = types.ModuleType("__main__")
    main.__file__ = script
    sys.modules["__main__"] = main


def _choices() -> Facts:
    """What the helpers return here, and the lines that they log."""
    from gpulint import runtime

    try:
        machine = runtime.hardware()
        device = runtime.device()
        chosen = {
            "hardware": dataclasses.asdict(machine),
            "device": str(device),
            "loader": runtime.loader_kwargs(device),
            "eval_loader": runtime.loader_kwargs(device, train=False),
            "amp": _name(runtime.amp_dtype(device)),
            "decisions": _lines(runtime.explain()),
        }
    except ValueError as error:  # a GPULINT_ variable that is not understood
        return {"error": shorten(str(error))}
    return chosen


def _lines(explained: str) -> list[str]:
    return [line.strip() for line in explained.splitlines()[1:]]


def _name(dtype: object) -> str | None:
    return None if dtype is None else str(dtype).removeprefix("torch.")


def _compute(torch: Any) -> Facts:
    """Run one kernel: what a broken driver or a build for other GPUs cannot."""
    from gpulint.runtime._placement import choose_device

    device = choose_device()
    try:
        ones = torch.ones(8, 8, device=device)
        right = (ones @ ones).sum().item() == 512
    except Exception as error:
        said = shorten(f"{type(error).__name__}: {error}")
        return {"device": str(device), "error": said}
    return {"device": str(device), "error": None if right else "a wrong result"}


def _devices(torch: Any) -> list[Facts]:
    """The CUDA devices as torch sees them; this opens a context."""
    found = []
    for index in range(_count(torch)):
        its = _try(lambda index=index: torch.cuda.get_device_properties(index))  # type: ignore[misc]
        if its is not None:
            capability = [int(its.major), int(its.minor)]
            total = int(its.total_memory)
            its = {"name": its.name, "capability": capability, "memory_total": total}
            found.append({"index": index, **its})
    return found


def _try(call: Callable[[], Any]) -> Any:
    """What a call returns; None where this build or driver has no answer."""
    try:
        return call()
    except Exception:
        return None
