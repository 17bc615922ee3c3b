"""Translate NumPy's indices into torch's where both mean the same."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class NotTranslatable(Exception):
    """The index means something else to torch, or is an error to NumPy."""


def torch_index(
    index: Any, shape: tuple[int, ...], device: torch.device
) -> tuple[Any, ...]:
    """Return the index as torch takes it on `device`.

    Understands integers, slices, `...`, None, integer arrays, one-dimensional masks
    and tuples of those, as long as arrays stand together and apart from integers. All
    else raises NotTranslatable. Numbers that come from the host and are out of range
    raise IndexError: CUDA would only notice later, and lose its context by it.
    """
    parts = [_part(p) for p in (index if isinstance(index, tuple) else (index,))]
    axes = _axes(parts, len(shape))
    arrays = [place for place, part in enumerate(parts) if _is_array(part)]
    if arrays:
        together = arrays[-1] - arrays[0] + 1 == len(arrays)
        others = [part for part in parts if not _is_array(part)]
        if not together or any(not isinstance(part, slice) for part in others):
            raise NotTranslatable
    return tuple(
        part if axis is None else _checked(part, axis, shape[axis], device)
        for part, axis in zip(parts, axes, strict=True)
    )


def host_index(index: Any) -> Any:
    """Return the index with tensors as NumPy arrays, for an array on the host."""
    import torch

    if isinstance(index, tuple):
        return tuple(map(host_index, index))
    if not isinstance(index, torch.Tensor):
        return index
    array = index.detach().cpu().numpy()
    return array if array.ndim else array[()]


def index_on(index: Any, device: torch.device) -> Any:
    """Return the index with its tensors on `device`, for a tensor there."""
    import torch

    if isinstance(index, tuple):
        return tuple(index_on(part, device) for part in index)
    return index.to(device) if isinstance(index, torch.Tensor) else index


def _part(part: Any) -> Any:
    """Return one part of an index as int, slice, None, `...`, ndarray or tensor."""
    import numpy as np
    import torch

    if part is None or part is Ellipsis:
        return part
    if isinstance(part, bool | np.bool_):
        raise NotTranslatable
    if isinstance(part, slice):
        return _plain_slice(part)
    if isinstance(part, torch.Tensor):
        if part.dtype == torch.uint8:  # NumPy reads numbers, torch a mask
            raise NotTranslatable
        return part.detach() if part.device.type != "cpu" else _host_array(part.numpy())
    if isinstance(part, list | range | np.ndarray):
        return _host_array(part)
    try:
        return operator.index(part)
    except TypeError:
        raise NotTranslatable from None


def _plain_slice(part: slice) -> slice:
    try:
        bounds = [
            None if bound is None else operator.index(bound)
            for bound in (part.start, part.stop, part.step)
        ]
    except TypeError:
        raise NotTranslatable from None
    if bounds[2] is not None and bounds[2] < 1:
        raise NotTranslatable
    return slice(*bounds)


def _host_array(part: Any) -> Any:
    import numpy as np

    try:
        array = np.asarray(part)
    except ValueError:  # a ragged list
        raise NotTranslatable from None
    if not array.size and isinstance(part, list | range):
        array = array.astype(np.int64)
    if array.dtype.kind not in "iub" or (array.dtype.kind == "b" and array.ndim != 1):
        raise NotTranslatable
    return array if array.ndim else int(array)


def _axes(parts: list[Any], ndim: int) -> list[int | None]:
    """Return which axis each part indexes; None for `None` and `...`."""
    takers = sum(part is not None and part is not Ellipsis for part in parts)
    ellipses = sum(part is Ellipsis for part in parts)
    if takers > ndim or ellipses > 1:
        raise NotTranslatable
    axes: list[int | None] = []
    following = 0
    for part in parts:
        if part is Ellipsis:
            following += ndim - takers
        if part is None or part is Ellipsis:
            axes.append(None)
        else:
            axes.append(following)
            following += 1
    return axes


def _is_array(part: Any) -> bool:
    return hasattr(part, "dtype")


def _checked(part: Any, axis: int, size: int, device: torch.device) -> Any:
    import torch

    if isinstance(part, int):
        _check_range(part, part, axis, size)
        return part
    if isinstance(part, slice):
        return part
    if isinstance(part, torch.Tensor):
        return _device_tensor(part, size, device)
    rows = torch.from_numpy(_wrapped(part, axis, size))
    return rows.to(device, non_blocking=True)  # waiting would drain the GPU's queue


def _device_tensor(part: torch.Tensor, size: int, device: torch.device) -> torch.Tensor:
    import torch

    if part.dtype == torch.bool:
        if part.shape != (size,):
            raise NotTranslatable
        return part.to(device)
    if part.is_floating_point() or part.is_complex():
        raise NotTranslatable
    return part.to(device, torch.int64)


def _wrapped(part: Any, axis: int, size: int) -> Any:
    """Return an array of valid row numbers from 0 on."""
    import numpy as np

    if part.dtype.kind == "b":
        if len(part) != size:
            raise NotTranslatable
        return np.flatnonzero(part)
    if part.size:
        _check_range(int(part.min()), int(part.max()), axis, size)
    rows = part.astype(np.int64)  # a copy of our own
    rows[rows < 0] += size
    return rows


def _check_range(lowest: int, highest: int, axis: int, size: int) -> None:
    if lowest < -size or highest >= size:
        wrong = lowest if lowest < -size else highest
        text = f"index {wrong} is out of bounds for axis {axis} with size {size}"
        raise IndexError(text)
