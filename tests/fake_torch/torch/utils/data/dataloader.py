"""A loader without workers, in the two classes that torch has for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class _BaseDataLoaderIter:
    def __init__(self, loader: DataLoader) -> None:
        self.loader, self.at = loader, 0

    def __iter__(self) -> _BaseDataLoaderIter:
        return self

    def __next__(self) -> list[Any]:
        size, data = self.loader.batch_size, self.loader.dataset
        if self.at >= len(data):
            raise StopIteration
        self.at += size
        return [data[i] for i in range(self.at - size, min(self.at, len(data)))]


class DataLoader:
    def __init__(
        self, dataset: Sequence[Any], batch_size: int = 1, **options: Any
    ) -> None:
        self.dataset = self.sampler = dataset
        self.batch_size = batch_size
        self.num_workers = options.get("num_workers", 0)

    def __len__(self) -> int:
        return (len(self.dataset) + self.batch_size - 1) // self.batch_size

    def __iter__(self) -> _BaseDataLoaderIter:
        return _BaseDataLoaderIter(self)
