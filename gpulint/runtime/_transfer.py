"""Copy nested batches to a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ._hardware import introduce
from ._nested import rebuilt
from ._placement import ASYNC_KINDS, as_device
from ._settings import settings

if TYPE_CHECKING:
    import torch

    from ._placement import DeviceLike

Batch = TypeVar("Batch")


def to_device(batch: Batch, device: DeviceLike) -> Batch:
    """Return the batch with its tensors on `device`.

    Goes through mappings, lists, tuples, named tuples and dataclasses, which are built
    anew and keep their types; an object with its own `.to` moves itself; all else
    stays as it is. A tensor that is on the device already stays the same object.

    The host does not wait for copies from it to CUDA and XPU; it does for all others,
    where the numbers could be read too early. Off: it waits for every copy.
    """
    introduce()
    target = as_device(device)
    ahead = target.type in ASYNC_KINDS and not settings().off

    def moved(part: Any) -> Any:
        return _moved(part, target, ahead)

    result: Batch = rebuilt(batch, moved)
    return result


def _moved(part: Any, device: torch.device, ahead: bool) -> Any:
    import torch

    if isinstance(part, torch.Tensor):
        return part.to(device, non_blocking=ahead and part.device.type == "cpu")
    if callable(getattr(part, "to", None)) and not isinstance(part, type):
        return part.to(device)
    return NotImplemented
