"""What a search is asked for, and what it finds."""

from __future__ import annotations

from dataclasses import dataclass

from gpulint.tuning.candidate import Trial


@dataclass(frozen=True)
class Range:
    """Batch sizes to try: `MIN:MAX`, doubled, or `MIN:MAX:STEP`."""

    low: int
    high: int
    step: int | None = None

    def sizes(self) -> list[int]:
        if self.step is not None:
            return list(range(self.low, self.high + 1, self.step))
        found = [self.low]
        while found[-1] * 2 <= self.high:
            found.append(found[-1] * 2)
        return found if found[-1] == self.high else [*found, self.high]


@dataclass(frozen=True)
class Plan:
    """What the user asks for, and how many CPUs there are."""

    cpus: int
    batch: Range | None = None
    workers: tuple[int, ...] | None = None
    tries: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Found:
    """The outcome of a search."""

    baseline: Trial
    winner: Trial
    trials: tuple[Trial, ...]
    notes: tuple[str, ...]

    @property
    def kept(self) -> bool:
        """Whether the script's own values are the best ones."""
        return self.winner.candidate == self.baseline.candidate
