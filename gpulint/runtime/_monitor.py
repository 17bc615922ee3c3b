"""Say after each epoch how long it took, how many samples passed, what it used."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ._log import report, speaks
from ._sampler import Sampler
from ._settings import settings

T = TypeVar("T")
GIB = 1024**3
NOT_AVAILABLE = "n/a"


@dataclass(frozen=True)
class EpochFigures:
    """What was measured in one epoch; None is what could not be.

    `seconds` is the whole epoch, evaluation included; `samples` passed in the
    `train_seconds` of its loops over batches. `memory_peak` is what PyTorch had taken
    from the GPU at most since the script began, of `memory_total` (bytes).
    `utilisation` is the part of the time, in percent, in which the GPU ran a kernel,
    however small; it says nothing about how much of the GPU was busy.
    """

    seconds: float
    samples: int | None
    train_seconds: float
    memory_peak: int | None
    memory_total: int | None
    utilisation: float | None

    @property
    def samples_per_second(self) -> float | None:
        """Return the rate of training, None where samples could not be counted."""
        if not self.samples or self.train_seconds <= 0:
            return None
        return self.samples / self.train_seconds

    def __str__(self) -> str:
        rate = self.samples_per_second
        parts = [
            f"{self.seconds:.1f} s",
            *([] if rate is None else [f"{rate:.0f} samples/s"]),
            f"memory {_memory(self.memory_peak, self.memory_total)}",
            f"GPU in use {_percent(self.utilisation)} of the time",
        ]
        return ", ".join(parts)


class Monitor:
    """Measures epochs without waiting for the GPU.

    >>> monitor = Monitor()
    >>> for epoch in monitor.epochs(range(90)):
    ...     for images, labels in monitor.batches(loader):

    Items come through as they are, and no random number is drawn. After each epoch
    rank 0 logs its figures, which `history` keeps. A thread asks NVML for the
    utilisation every `interval` seconds; MIG slices, other makers' GPUs and machines
    without the package nvidia-ml-py have none. Off: the loops as they were.
    """

    def __init__(self, interval: float = 1.0) -> None:
        self.interval = interval
        self.history: list[EpochFigures] = []
        self._samples: int | None = 0
        self._train_seconds = 0.0

    def epochs(self, iterable: Iterable[T]) -> Iterable[T]:
        """Return the same items, each of which is an epoch."""
        return iterable if settings().off else self._measured(iterable)

    def batches(self, iterable: Iterable[T]) -> Iterable[T]:
        """Return the same batches, counted: the first size of their first tensor."""
        return iterable if settings().off else _Counted(self, iterable)

    def _measured(self, iterable: Iterable[T]) -> Iterator[T]:
        sampler = Sampler(self.interval)
        try:
            for number, item in enumerate(iterable, 1):
                self._samples, self._train_seconds = 0, 0.0
                device = _busiest_gpu()
                if device is not None and speaks():
                    sampler.start(device)
                begin = time.perf_counter()
                try:
                    yield item
                finally:  # also where the script leaves the loop
                    seconds = time.perf_counter() - begin
                    self._end(number, seconds, sampler.mean())
        finally:
            sampler.stop()

    def _end(self, number: int, seconds: float, utilisation: float | None) -> None:
        peak, total = _memory_figures()
        figures = EpochFigures(
            seconds, self._samples, self._train_seconds, peak, total, utilisation
        )
        self.history.append(figures)
        report("monitor", f"epoch {number}: {figures}")

    def _count(self, batch: object) -> None:
        rows = _rows(batch)
        known = self._samples is not None and rows is not None
        self._samples = (self._samples or 0) + (rows or 0) if known else None


class _Counted(Generic[T]):
    """Batches on their way; an iterator of its own keeps none of them alive."""

    def __init__(self, monitor: Monitor, iterable: Iterable[T]) -> None:
        self._monitor, self._iterable = monitor, iterable

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[T]:
        return _Counting(self._monitor, iter(self._iterable))


class _Counting(Generic[T]):
    def __init__(self, monitor: Monitor, batches: Iterator[T]) -> None:
        self._monitor, self._batches = monitor, batches
        self._since = time.perf_counter()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        try:
            batch = next(self._batches)
        finally:
            now = time.perf_counter()
            self._monitor._train_seconds += now - self._since
            self._since = now
        self._monitor._count(batch)
        return batch


def _rows(batch: object) -> int | None:
    """Return how many samples a batch has, by its first tensor; None: not known."""
    for _ in range(4):  # dicts of lists of tensors
        shape = getattr(batch, "shape", None)
        if shape is not None:
            return int(shape[0]) if len(shape) else None
        if isinstance(batch, Mapping):
            batch = next(iter(batch.values()), None)
        elif isinstance(batch, (list, tuple)) and batch:
            batch = batch[0]
        else:
            return None
    return None


def _torch_with_cuda() -> Any | None:
    """Return torch where it is in use and has started CUDA; starts nothing itself."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_initialized() else None


def _busiest_gpu() -> int | None:
    """Return the GPU in which this process has most, None before it has anything."""
    torch = _torch_with_cuda()
    if torch is None:
        return None
    used = [torch.cuda.memory_reserved(i) for i in range(torch.cuda.device_count())]
    return used.index(max(used)) if any(used) else None


def _memory_figures() -> tuple[int | None, int | None]:
    """Return PyTorch's peak on the busiest GPU and that GPU's memory, in bytes."""
    torch, device = _torch_with_cuda(), _busiest_gpu()
    if torch is None or device is None:
        return None, None
    total = torch.cuda.get_device_properties(device).total_memory
    return torch.cuda.max_memory_reserved(device), total


def _memory(peak: int | None, total: int | None) -> str:
    if peak is None or total is None:
        return NOT_AVAILABLE
    return f"{peak / GIB:.1f} of {total / GIB:.1f} GiB at most"


def _percent(utilisation: float | None) -> str:
    return NOT_AVAILABLE if utilisation is None else f"{utilisation:.0f} %"
