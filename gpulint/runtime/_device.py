"""Choose the device that a script trains on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._hardware import introduce
from ._log import decide
from ._placement import as_device, choose_device, exists, number_of
from ._ranks import local_rank
from ._settings import settings

if TYPE_CHECKING:
    import torch

    from ._placement import DeviceLike


def device(preferred: DeviceLike | None = None) -> torch.device:
    """Return the device to train on.

    `preferred` where this machine has it (a number counts accelerators), otherwise
    the first there is of CUDA or ROCm, XPU, MPS, CPU. A device named without a number
    becomes this rank's under torchrun, and is then made current, so that `.cuda()`
    and the loader's pinning thread use it as well.

    Off: `preferred` as it stands; without one, "cuda" where there is CUDA, or "cpu".
    """
    introduce()
    if settings().off:
        return _as_written(preferred)
    chosen = choose_device(preferred)
    if _takes_rank(preferred, chosen):
        _make_current(chosen)
    decide("device", f"{chosen}{_reason(preferred, chosen)}")
    return chosen


def _as_written(preferred: DeviceLike | None) -> torch.device:
    import torch

    if preferred is not None:
        return torch.device(preferred)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _takes_rank(preferred: DeviceLike | None, chosen: torch.device) -> bool:
    """Say whether the number of `chosen` is this rank's, and not the script's."""
    named = None if preferred is None else number_of(as_device(preferred))
    return number_of(chosen) not in (None, named)


def _make_current(chosen: torch.device) -> None:
    import torch

    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    else:
        torch.xpu.set_device(chosen)


def _reason(preferred: DeviceLike | None, chosen: torch.device) -> str:
    if preferred is not None and not exists(as_device(preferred)):
        return f" (this machine has no {as_device(preferred)})"
    if _takes_rank(preferred, chosen):
        return f" (LOCAL_RANK={local_rank()})"
    if preferred is not None:
        return " (as the script asks)"
    return " (no GPU was found)" if chosen.type == "cpu" else " (the first found)"
