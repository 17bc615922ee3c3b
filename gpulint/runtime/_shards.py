"""Samplers that part a dataset among the ranks. Imports torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DistributedSampler


class Shards(DistributedSampler[Any]):
    """torch's own sampler, whose order is another in each pass without being told."""

    def __iter__(self) -> Iterator[Any]:
        indices = super().__iter__()
        self.epoch += 1
        return indices
