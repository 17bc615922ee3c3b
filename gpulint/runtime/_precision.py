"""Choose the number formats that suit a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._compile import mark_constant
from ._gpu import Gpu, read_gpu
from ._hardware import introduce
from ._log import decide, note
from ._placement import as_device, choose_device, exists
from ._ranks import of_all_ranks
from ._settings import settings
from ._tuned import tell_tuner, tuned_entry

if TYPE_CHECKING:
    import torch

    from ._placement import DeviceLike

FORMATS = ("bf16", "fp16")
PREFERENCES = ("auto", *FORMATS)

_amp_dtypes: dict[tuple[DeviceLike, str], torch.dtype | None] = {}
_shared_formats: list[str] = list(FORMATS)  # those that all ranks may use
_differ: list[bool] = []  # not empty where ranks are asked or tuned for different ones


def amp_dtype(device: DeviceLike, prefer: str = "auto") -> torch.dtype | None:
    """Return the dtype for autocast on `device`, None where it would not pay.

    bfloat16 where the hardware has it (compute capability 8.0, MI100, RDNA 3, XPU),
    float16 on 7.x, otherwise None: older GPUs only emulate these, and on MPS and CPUs
    the gain is small or negative. `prefer` ("fp16" or "bf16") chooses where the
    hardware has both. `GPULINT_AMP`, and after it what `gpulint tune` has found, do the
    same where `prefer` is "auto"; its value
    "off", GPULINT_DEBUG and a switched-off runtime always give None.

    Cheap enough to be called at every step. Raises ValueError for another `prefer`.
    """
    key = (device, prefer)
    if key not in _amp_dtypes:
        _amp_dtypes[key] = _decide_amp(device, prefer)
    return _amp_dtypes[key]


def accumulator_dtype(device: DeviceLike) -> torch.dtype:
    """Return the dtype in which to sum losses on `device`.

    float64, in which Python's own floats sum; float32 on MPS and on other accelerators
    that have no float64, such as Intel's Arc.
    """
    import torch

    introduce()
    its = as_device(device)
    if its.type not in ("cpu", "cuda", "meta") and not _has_float64(its):
        decide("accumulator", f"float32 ({its.type.upper()} has no float64)")
        return torch.float32
    if not settings().off:
        note("accumulator", "float64 (as Python's own floats sum)")
    return torch.float64


def _has_float64(device: torch.device) -> bool:
    """Whether a number in float64 can be made and added to on a device."""
    import torch

    if device.type == "mps":
        return False
    try:
        torch.zeros((), dtype=torch.float64, device=device).add_(1)
    except (AssertionError, NotImplementedError, RuntimeError, TypeError):
        return False
    return True


mark_constant(amp_dtype)
mark_constant(accumulator_dtype)


def forget_precisions() -> None:
    """Begin anew, as in a fresh process."""
    _amp_dtypes.clear()
    _shared_formats[:] = FORMATS
    _differ.clear()


def agree_on_formats() -> None:
    """Let `amp_dtype` decide alike on all ranks, which must all call this."""
    wished = (settings().amp, tuned_entry().get("amp"))
    brought = of_all_ranks((_usable_formats(), wished))
    _shared_formats[:] = [f for f in FORMATS if all(f in its for its, _ in brought)]
    _differ[:] = [True] if any(wishes != wished for _, wishes in brought) else []
    _amp_dtypes.clear()


def _usable_formats() -> list[str]:
    if settings().debug or settings().amp == "off":
        return []
    gpu = read_gpu(choose_device())
    return [] if gpu is None else _native(gpu)


def _native(gpu: Gpu) -> list[str]:
    return [name for name in FORMATS if getattr(gpu, name)]


def _decide_amp(device: DeviceLike, prefer: str) -> torch.dtype | None:
    if prefer not in PREFERENCES:
        raise ValueError(f"prefer={prefer!r} is not one of {', '.join(PREFERENCES)}")
    introduce()
    if settings().off:
        return None
    target = as_device(device)
    name, reason = _choose_amp(target, prefer)
    tell_tuner("amp_dtype", choice=name, choices=_choices(target, prefer))
    decide("amp", f"{name} on {target} ({reason})")
    return _dtype(name)


def _choose_amp(device: torch.device, prefer: str) -> tuple[str, str]:
    """Return "bf16", "fp16" or "off", and why."""
    asked = settings().amp
    if settings().debug:
        return "off", "GPULINT_DEBUG"
    if asked == "off":
        return "off", "GPULINT_AMP"
    gpu = read_gpu(device) if exists(device) else None
    if gpu is None:
        return "off", "no GPU"
    its_own = _native(gpu)
    if not its_own:
        return "off", f"{gpu.name} gains nothing by it"
    native = [name for name in its_own if name in _shared_formats]
    if not native:
        return "off", "other ranks gain nothing by it"
    if prefer in native:
        return prefer, "as the script prefers"
    if prefer == "auto" and asked in native and not _differ:
        return asked, "GPULINT_AMP"
    tuned = tuned_entry().get("amp") if prefer == "auto" and not _differ else None
    if tuned == "off" or tuned in native:
        return str(tuned), f"tuned for {gpu.name}"
    has = f"{gpu.name} has {' and '.join(its_own)}"
    return native[0], has if native == its_own else f"{has}, other ranks less"


def _choices(device: torch.device, prefer: str) -> list[str]:
    """What `GPULINT_AMP` could ask for here; nothing where the script has chosen."""
    gpu = read_gpu(device) if prefer == "auto" and exists(device) else None
    native = _native(gpu) if gpu is not None and not settings().debug else []
    return ["off", *native] if native else []


def _dtype(name: str) -> torch.dtype | None:
    import torch

    return {"bf16": torch.bfloat16, "fp16": torch.float16, "off": None}[name]
