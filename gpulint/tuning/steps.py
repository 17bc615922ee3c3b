"""Take the times of a few training steps, so that short and long passes compare.

A rate is samples a second of a whole pass over the training data, from the call of
`iter(loader)` to the end of the last step. Where a pass is short, whole passes behind
the first are timed. Where it is long, steps are timed once everything is warm and what
was loaded ahead is used up, and the time that the first batch took to come, which is
mostly the start of the workers, is spread over the pass. Evaluation between passes
counts for nothing. Without a DataLoader the median time between two steps counts.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

WARM_UP = (
    3  # steps in which memory is allocated, kernels are chosen and optimizers start
)
LEAST_STEPS = 5  # fewer say nothing


@dataclass
class Pass:
    """One iteration over a loader."""

    began: float
    length: int | None  # batches
    samples: int | None
    batch: int | None  # samples in a full batch
    ahead: int  # batches that workers make ahead
    persistent: bool
    first: float | None = None  # when the first batch had come
    ended: float | None = None  # when the latest step was done
    batches: int = 0
    steps: int = 0

    @property
    def whole(self) -> bool:
        return self.length is not None and self.batches >= self.length


@dataclass
class Window:
    """Steps of one pass, without those that another loop came between."""

    since: float
    loops: int
    after: int  # batches
    seconds: float = 0.0
    steps: int = 0
    batches: int = 0


@dataclass
class Recorder:
    """Is told of loaders, batches and steps, and says when it has seen enough."""

    steps: int
    least_seconds: float
    clock: Callable[[], float]
    synchronize: Callable[[], None] = lambda: None
    seen: int = 0
    loops: int = 0
    latest: Pass | None = None  # that gave a batch
    passes: list[Pass] = field(default_factory=list)  # with training steps
    window: Window | None = None  # in the first of them
    bare: list[float] = field(default_factory=list)  # ends of steps without a loader

    def begin(self, loader: Any) -> Pass:
        """A loop over a loader begins."""
        self.loops += 1
        return _read(loader, self.clock())

    def deliver(self, loop: Pass) -> None:
        """A loader has given a batch."""
        if loop.first is None:
            loop.first = self.clock()
        loop.batches += 1
        self.latest = loop

    def step(self) -> bool:
        """An optimizer has done a step; says whether enough is measured."""
        self.seen += 1
        loop = self.latest
        if loop is None:
            return self._step_without_loader()
        if not self.passes or self.passes[-1] is not loop:
            self.passes.append(loop)
        if loop.whole:
            self.synchronize()
        loop.steps += 1
        loop.ended = self.clock()
        if len(self.passes) == 1:
            return self._step_in_first(loop)
        later = self._later()
        return self._enough(sum(p.steps for p in later), _seconds(later))

    def rate(self, batch: int) -> float | None:
        """Samples a second, None where too little was seen.

        `batch` is the size that the script asked for, where no loader says it.
        """
        later = self._later()
        if later:
            return sum(_samples(p, batch) for p in later) / max(_seconds(later), 1e-9)
        if self.window is not None and self.window.steps >= LEAST_STEPS:
            return _extrapolate(self.passes[0], self.window, batch)
        between = [b - a for a, b in zip(self.bare, self.bare[1:], strict=False)]
        if len(between) >= LEAST_STEPS:
            return batch / max(statistics.median(between), 1e-9)
        return None

    def _later(self) -> list[Pass]:
        """The passes behind the first one that are over."""
        return [p for p in self.passes[1:] if p.whole or p is not self.passes[-1]]

    def _step_in_first(self, loop: Pass) -> bool:
        window = self.window
        if window is None:
            if loop.steps >= WARM_UP and loop.batches >= WARM_UP + loop.ahead:
                self.synchronize()
                self.window = Window(self.clock(), self.loops, loop.batches)
            return False
        if window.steps + 1 >= self.steps:
            self.synchronize()
        now = self.clock()
        if self.loops == window.loops:
            window.seconds += now - window.since
            window.steps += 1
            window.batches += loop.batches - window.after
        window.since, window.loops, window.after = now, self.loops, loop.batches
        if loop.whole and now - loop.began >= self.least_seconds:
            return window.steps >= self.steps  # another pass would take as long
        return self._enough(window.steps, window.seconds)

    def _step_without_loader(self) -> bool:
        if self.seen < WARM_UP:
            return False
        self.synchronize()
        self.bare.append(self.clock())
        return self._enough(len(self.bare) - 1, self.bare[-1] - self.bare[0])

    def _enough(self, steps: int, seconds: float) -> bool:
        return steps >= self.steps and seconds >= self.least_seconds


def _read(loader: Any, now: float) -> Pass:
    """What a loader says of itself; any of it may fail in classes of users."""
    workers = getattr(loader, "num_workers", 0)
    batch = getattr(loader, "batch_size", None)
    samples = _length(getattr(loader, "sampler", None))
    if batch is None:  # what a sampler of batches takes, and how often, is its own
        batch = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
        samples = None
    length = _length(loader)
    if type(batch) is not int:
        samples = batch = None
    elif length is not None:
        samples = length * batch if samples is None else min(samples, length * batch)
    ahead = workers * (getattr(loader, "prefetch_factor", None) or 2)
    keeps = bool(getattr(loader, "persistent_workers", False))
    return Pass(now, length, samples, batch, ahead, keeps)


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except Exception:  # a loader of a stream has no length; users' classes raise more
        return None


def _samples(loop: Pass, batch: int) -> float:
    if loop.samples is not None and loop.whole:
        return loop.samples
    return loop.batches * (loop.batch or batch)


def _seconds(passes: list[Pass]) -> float:
    return sum(p.ended - p.began for p in passes if p.ended is not None)


def _extrapolate(loop: Pass, window: Window, batch: int) -> float:
    """The rate of the whole pass that a window was seen of."""
    a_batch = max(window.seconds / max(window.batches, 1), 1e-9)
    full = min(loop.batch or batch, loop.samples or loop.batch or batch)
    if loop.length is None or loop.persistent or loop.first is None:
        return full / a_batch
    waited = max(loop.first - loop.began - a_batch, 0.0)
    samples = loop.samples or loop.length * full
    return samples / (waited + loop.length * a_batch)
