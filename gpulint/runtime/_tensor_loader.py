"""Load batches of what is in memory without taking their rows one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._arrays import in_usual_order
from ._hardware import introduce
from ._log import decide
from ._settings import settings

if TYPE_CHECKING:
    import torch
    from torch.utils.data import DataLoader


def TensorLoader(dataset: Any, *arguments: Any, **options: Any) -> DataLoader[Any]:
    """Return a DataLoader that gathers a batch by one indexing of each tensor.

    `dataset` is a `TensorDataset`, a `Subset` of one (as from `random_split`), or a
    tuple of tensors or NumPy arrays, rows first; all others are the arguments of
    `torch.utils.data.DataLoader`. Batches (lists of tensors), their order and the state
    of the random generators are those of a DataLoader of the `TensorDataset`. Rows that
    are changed in place later are seen; an array that takes another's place is not.

    It is the plain DataLoader where rows cannot be gathered (gradients, strides that a
    batch would not keep, sparse or derived classes, arrays of objects), with a
    `collate_fn` or without automatic batches, for any other dataset, with torch before
    2.1, which asks datasets for single rows, and when switched off. Raises what
    DataLoader raises.
    """
    from torch.utils.data import DataLoader, default_collate

    from ._rows import Rows, as_it_is

    introduce()
    rows = Rows(dataset) if isinstance(dataset, tuple) else dataset
    gathered = None if settings().off else _gathered(rows)
    if gathered is not None:
        loader = DataLoader(gathered, *arguments, **options)
        if loader.collate_fn is default_collate:
            decide("TensorLoader", "the rows of a batch are gathered at once")
            loader.collate_fn = as_it_is
            return loader
    decide("TensorLoader", "rows are taken one by one, as before")
    return DataLoader(rows, *arguments, **options)


def _gathered(dataset: Any) -> Any | None:
    """Return a dataset of the same rows that gathers them, None where it cannot."""
    from torch.utils.data import Subset, TensorDataset

    from ._rows import GatheredRows, Rows

    if not hasattr(Subset, "__getitems__"):  # torch before 2.1 asks for rows alone
        return None
    if type(dataset) is Subset:
        inner = _gathered(dataset.dataset)
        return None if inner is None else Subset(inner, dataset.indices)
    if type(dataset) not in (TensorDataset, Rows):
        return None
    tensors = [_as_tensor(part) for part in dataset.tensors]
    return None if any(t is None for t in tensors) else GatheredRows(tensors)


def _as_tensor(part: Any) -> torch.Tensor | None:
    """Return a tensor whose rows gathered are those stacked; None: it may not be so."""
    import numpy as np
    import torch

    if type(part) is np.ndarray and part.flags.writeable:
        try:
            part = torch.from_numpy(part)
        except (TypeError, ValueError):  # a type or an order that torch does not have
            return None
    if type(part) is not torch.Tensor or part.layout is not torch.strided:
        return None
    if part.dim() == 0 or part.is_quantized or part.requires_grad:
        return None
    if not part.is_contiguous():
        return None
    # For `is_contiguous()` a side of 1 may have any stride. Rows that are gathered keep
    # it, and convolutions then give channels last; stacked, they have the usual one.
    return part if in_usual_order(part) else None
