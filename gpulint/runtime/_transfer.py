"""Copy nested batches to a device."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, TypeVar

from ._hardware import introduce
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
    moved: Batch = _moved(batch, target, ahead)
    return moved


def _moved(value: Any, device: torch.device, ahead: bool) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=ahead and value.device.type == "cpu")
    if callable(getattr(value, "to", None)) and not isinstance(value, type):
        return value.to(device)
    if isinstance(value, Mapping):
        return _moved_mapping(value, device, ahead)
    if isinstance(value, list):
        return _moved_list(value, device, ahead)
    if isinstance(value, tuple):
        return _moved_tuple(value, device, ahead)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _moved_dataclass(value, device, ahead)
    return value


def _moved_mapping(value: Mapping[Any, Any], device: torch.device, ahead: bool) -> Any:
    items = {key: _moved(item, device, ahead) for key, item in value.items()}
    if type(value) is dict or not isinstance(value, MutableMapping):
        return items
    moved = copy.copy(value)  # a subclass keeps what else it carries
    moved.update(items)
    return moved


def _moved_list(value: list[Any], device: torch.device, ahead: bool) -> Any:
    items = [_moved(item, device, ahead) for item in value]
    if type(value) is list:
        return items
    moved = copy.copy(value)
    moved[:] = items
    return moved


def _moved_tuple(value: tuple[Any, ...], device: torch.device, ahead: bool) -> Any:
    items = [_moved(item, device, ahead) for item in value]
    if hasattr(value, "_fields"):
        return type(value)(*items)
    return type(value)(items)


def _moved_dataclass(value: Any, device: torch.device, ahead: bool) -> Any:
    moved = copy.copy(value)
    for field in dataclasses.fields(value):
        if hasattr(value, field.name):
            item = _moved(getattr(value, field.name), device, ahead)
            object.__setattr__(moved, field.name, item)  # frozen ones too
    return moved
