"""Tensors whose rows a DataLoader takes one by one or all at once. Imports torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch.utils.data import TensorDataset

T = TypeVar("T")


class Rows(TensorDataset):
    """As many rows as the first tensor or array has; arrays are indexed as they are."""

    def __init__(self, data: Iterable[Any]) -> None:
        self.tensors = tuple(data)

    def __len__(self) -> int:
        return len(self.tensors[0])


class GatheredRows(Rows):
    """Tensors that give all rows of a batch at once, ready for the script."""

    def __getitems__(self, indices: Sequence[int]) -> list[torch.Tensor]:
        index = torch.tensor(indices)
        return [tensor[index.to(tensor.device)] for tensor in self.tensors]


def as_it_is(batch: T) -> T:
    """Return a batch that needs no collating."""
    return batch
