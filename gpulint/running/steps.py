"""Take the time of every training step, and how much of it was spent on data.

A step reaches from the end of the step before it to its own end: loading, transfer,
computing, and whatever else the script does in between. Steps with another loop between
them (an evaluation, the start of a new pass) are marked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Loop:
    """One iteration over a loader."""

    batch: int | None  # samples in a full batch
    samples: int | None  # in the whole pass
    given: int = 0  # samples so far

    def take(self) -> int | None:
        """The samples of the next batch, of which the last may be smaller."""
        if self.batch is None:
            return None
        left = self.batch if self.samples is None else self.samples - self.given
        size = min(self.batch, left)
        self.given += size
        return size


@dataclass
class Step:
    """One step of an optimizer, or several without a batch between."""

    seconds: float
    wait: float  # of these, in the loaders' `__next__`
    samples: int | None  # None: no loader says it
    between: bool  # another loop came between


@dataclass
class Recorder:
    """Is told of loops, batches and steps; holds the steps behind the warm-up."""

    warmup: int
    steps: int
    clock: Callable[[], float]
    synchronize: Callable[[], None] = lambda: None
    least_seconds: float = 0.0  # of the steps behind the warm-up, however many
    seen: int = 0
    taken: list[Step] = field(default_factory=list)
    latest: Loop | None = None  # that gave a batch
    _since: float = 0.0
    _wait: float = 0.0
    _began: bool = False  # a loop, since the last step
    _fresh: dict[Loop, int | None] = field(default_factory=dict)  # samples

    def begin(self, loader: Any) -> Loop:
        """A loop over a loader begins."""
        self._began = True
        return read_loop(loader)

    def deliver(self, loop: Loop, waited: float) -> None:
        """A loader has given a batch, for which `waited` seconds passed."""
        self._wait += waited
        self.latest = loop
        size, before = loop.take(), self._fresh.get(loop, 0)
        known = size is not None and before is not None
        self._fresh[loop] = (before or 0) + (size or 0) if known else None

    def step(self) -> bool:
        """An optimizer has done a step; says whether there are enough."""
        self.seen += 1
        last = self.seen >= self.warmup + self.steps and self._long_enough()
        if last or self.seen == self.warmup:
            self.synchronize()
        now = self.clock()
        if self.seen > self.warmup:
            samples = self._samples()
            self.taken.append(Step(now - self._since, self._wait, samples, self._began))
        self._since, self._wait, self._began = now, 0.0, False
        self._fresh.clear()
        return last

    def _long_enough(self) -> bool:
        if not self.least_seconds:
            return True
        taken = sum(step.seconds for step in self.taken)
        return taken + self.clock() - self._since >= self.least_seconds

    def _samples(self) -> int | None:
        """The samples that this step has trained with.

        A second optimizer's step has no batch of its own. What an evaluation before
        it has read was not trained with: the batches of the loop that is going on.
        """
        if self.latest is None:
            return None
        return self._fresh.get(self.latest, 0)


def read_loop(loader: Any) -> Loop:
    """What a loader says of itself; any of it may fail in classes of users."""
    its = loader
    batch = getattr(its, "batch_size", None)
    if type(batch) is not int:
        its = getattr(loader, "batch_sampler", None)
        batch = getattr(its, "batch_size", None)
    if type(batch) is not int:
        return Loop(None, None)
    length, samples = _length(loader), _length(getattr(its, "sampler", None))
    if length is None or samples is None:
        return Loop(batch, None)
    return Loop(batch, min(samples, length * batch))


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except Exception:  # a loader of a stream has no length; users' classes raise more
        return None
