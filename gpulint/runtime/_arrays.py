"""Turn arrays of any origin (NumPy, memory-mapped, HDF5, torch) into tensors."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

PIECE = 64 * 1024**2  # bytes read at once: the host never holds a large array twice


def require_array(array: Any) -> None:
    """Raise TypeError for what has no shape, no dtype or no indexing."""
    if not all(hasattr(array, name) for name in ("shape", "dtype", "__getitem__")):
        name = type(array).__name__
        raise TypeError(f"resident() takes an array or a tensor, not {name}")


def total_bytes(array: Any) -> int:
    """Return the size of the array's values in bytes."""
    return int(math.prod(array.shape) * array.dtype.itemsize)


def in_usual_order(array: Any) -> bool:
    """Return whether an array's values lie in memory as those of a new one would.

    Rows of another order keep it when they are read, and convolutions look at it, even
    at the strides of sides of 1. What has no strides, such as an HDF5 dataset, gives
    new arrays.
    """
    import torch

    usual = usual_strides(array.shape)[1:]
    if isinstance(array, torch.Tensor):
        if array.layout is not torch.strided:
            return False
        strides = array.stride()[1:]
    else:
        found = getattr(array, "strides", None)
        if found is None:
            return True
        strides = tuple(found)[1:]
        usual = tuple(array.dtype.itemsize * stride for stride in usual)
    if strides == usual:
        return True
    # A part such as `x[:, 2:30]`: the rows that are taken of it lie as usual.
    falls = all(outer > inner for outer, inner in itertools.pairwise((*strides, 0)))
    return falls and 1 not in array.shape[1:]


def usual_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in values, of a new array or tensor of a shape."""
    inner = [max(1, side) for side in reversed(shape[1:])]
    strides = itertools.accumulate([1, *inner], operator.mul) if shape else ()
    return tuple(strides)[::-1]


def tensor_dtype(array: Any) -> torch.dtype | None:
    """Return the dtype of the array's values as a tensor, None if torch has none."""
    import numpy as np
    import torch

    if isinstance(array.dtype, torch.dtype):
        return array.dtype
    try:
        native = np.dtype(array.dtype).newbyteorder("=")
        return torch.from_numpy(np.empty(0, dtype=native)).dtype
    except TypeError:
        return None


def stored_as(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype to keep the bits in: indexing knows no wide unsigned ones."""
    import torch

    signed = {
        torch.uint16: torch.int16,
        torch.uint32: torch.int32,
        torch.uint64: torch.int64,
    }
    return signed.get(dtype, dtype)


def host_tensor(picked: Any) -> torch.Tensor:
    """Return what was read from an array as a tensor on the host.

    Shares the memory where torch can. It cannot with another byte order or negative
    strides, and must not with memory that is only to be read.
    """
    import numpy as np
    import torch

    if isinstance(picked, torch.Tensor):
        return picked
    array = np.asarray(picked)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    return torch.from_numpy(array)


def load_into(out: torch.Tensor, array: Any) -> torch.Tensor:
    """Copy the whole array into a tensor of its shape, and return the tensor."""
    if not array.shape:
        return out.copy_(host_tensor(array[()]).view(out.dtype))
    rows = len(array)
    step = max(1, rows * PIECE // max(1, total_bytes(array)))
    for start in range(0, rows, step):
        piece = host_tensor(array[start : start + step])
        out[start : start + step].copy_(piece.view(out.dtype))
    return out


def pinned_empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor in pinned host memory; RuntimeError without an accelerator."""
    import torch

    return torch.empty(shape, dtype=dtype, pin_memory=True)


def pinned_rows(bank: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return the rows of a host tensor, gathered into pinned memory."""
    import torch

    out = pinned_empty((len(rows), *bank.shape[1:]), bank.dtype)
    return torch.index_select(bank, 0, rows, out=out)
