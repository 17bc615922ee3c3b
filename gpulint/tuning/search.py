"""Decide what to try next, told what came of what was tried; runs nothing itself.

One thing at a time, cheap first: workers, precision, batch size, workers again where
the batch has changed, batches ahead, compiling, and a memory format. Of values that are
equally fast within 5 % the one that changes least is kept. In the end what was found
and the script as written are run again in turns, and what was found must still be
faster: other programs on the machine slow single runs down.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpulint.tuning.candidate import Candidate, Facts, Outcome, Trial
from gpulint.tuning.plan import Found, Plan, Range

GAIN = 1.05  # what is not 5 % faster is not worth a change
CONFIRMED = 1.02  # the median of three runs each must still be 2 % faster
TURNS = 3  # at batches and workers
ROUNDS = 2  # more runs of each in the end
MOST_GROWTH = 8  # times the script's own batch size, unless asked for more
LEAST_BATCHES = 10  # in a pass: fewer steps an epoch change the training too much
MULTIPLE = 8  # what batch sizes between powers of two are multiples of
MOST_WORKERS = 16  # unless asked for more
AHEAD = 4  # batches a worker makes ahead; DataLoader's own is 2

Measure = Callable[[Candidate], Trial]


@dataclass
class Search:
    """One search; `trials` grows while it runs."""

    measure: Measure
    plan: Plan
    trials: list[Trial] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    too_large: dict[str, int] = field(default_factory=dict)  # for the memory

    def run(self) -> Found:
        """Try until nothing is left that could be faster.

        Where the script as written does not run, other than for lack of memory, or
        asks for nothing that could be tuned, that is all that is tried.
        """
        baseline = self._try(Candidate())
        best = baseline
        if baseline.outcome is Outcome.MEMORY:
            best = self._smaller(baseline)
        if not best.ok or not best.facts.tunable:
            return Found(baseline, best, tuple(self.trials), tuple(self.notes))
        best = self._workers(best)
        best = self._precision(best)
        best = self._batches(best)
        best = self._ahead(best)
        best = self._compile(best)
        best = self._confirm(baseline, best)
        self._channels_last(best)
        if len(self.trials) == 1 and not self.plan.tries:
            self._note("nothing was tried: see --batch, --workers and --try")
        return Found(baseline, best, tuple(self.trials), tuple(self.notes))

    def _try(self, candidate: Candidate) -> Trial:
        trial = self.measure(candidate)
        self.trials.append(trial)
        return trial

    def _smaller(self, baseline: Trial) -> Trial:
        """Halve the batch until it fits."""
        name = _first(baseline.facts)
        size = baseline.facts.sizes.get(name, 0) if name is not None else 0
        found = baseline
        while name is not None and size > 1 and found.outcome is Outcome.MEMORY:
            self.too_large[name] = size
            size //= 2
            found = self._try(baseline.candidate.with_size(name, size))
        return found

    def _workers(self, best: Trial) -> Trial:
        now = best.facts.workers
        if now is None:
            if self.plan.workers is not None:
                self._note("workers: the script does not leave them to loader_kwargs()")
            return best
        counts = self.plan.workers or _worker_counts(self.plan.cpus)
        tried = [
            self._try(replace(best.candidate, workers=count))
            for count in counts
            if count != now
        ]
        # The fewest that are fast enough: each takes memory and a core.
        by_count = sorted((t for t in [*tried, best] if t.ok), key=_count)
        return _first_fast(by_count)

    def _more_workers(self, best: Trial) -> Trial:
        """Larger batches are asked for faster."""
        now = _workers(best)
        if now is None:
            return best
        counts = self.plan.workers or _worker_counts(self.plan.cpus)
        for count in sorted(counts):
            if count > now:
                more = self._try(replace(best.candidate, workers=count))
                if not _faster(more, best):
                    break
                best = more
        return best

    def _ahead(self, best: Trial) -> Trial:
        if not _workers(best) or best.facts.prefetch_fixed:
            return best
        return self._either(best, prefetch=AHEAD)

    def _precision(self, best: Trial) -> Trial:
        if "precision" not in self.plan.tries:
            return best
        if not best.facts.amp_choices:
            self._note("precision: amp_dtype() is not called, or has no choice here")
        for choice in best.facts.amp_choices:
            if choice != (best.candidate.amp or best.facts.amp):
                best = self._either(best, amp=choice)
        return best

    def _compile(self, best: Trial) -> Trial:
        if "compile" not in self.plan.tries:
            return best
        if not best.facts.compilable:
            self._note("compile: maybe_compile() is not called, or compiles nothing")
            return best
        return self._either(best, compile=False)

    def _channels_last(self, best: Trial) -> None:
        """Only say what it brings: the script itself must be changed for it."""
        if "channels_last" not in self.plan.tries:
            return
        other = self._try(replace(best.candidate, channels_last=True))
        if not other.ok:
            self._note(f"channels_last: {other.detail}")
            return
        self._note(
            f"channels_last: {other.rate / best.rate:.2f} times as fast; not stored, "
            "the script decides it (`gpulint fix --select GPU503 --allow numerics`)"
        )

    def _either(self, best: Trial, **change: Any) -> Trial:
        other = self._try(replace(best.candidate, **change))
        return other if _faster(other, best) else best

    def _batches(self, best: Trial) -> Trial:
        """Batches and workers in turns: each may be what the other waits for."""
        for again in range(TURNS):
            before = best.candidate
            for name in best.facts.train_sizes:
                best = self._batch(best, name, above=bool(again))
            if best.candidate.sizes == before.sizes:
                break
            before = best.candidate
            best = self._more_workers(best)
            if best.candidate == before:
                break
        return best

    def _batch(self, best: Trial, name: str, *, above: bool) -> Trial:
        """Enlarge until it no longer pays or fits; take the smallest that is fast.

        Only sizes `above` the one in use, or all that are asked for.
        """
        own = best.facts.sizes[name]
        tried = {own: best}
        sizes = [s for s in self._sizes(best.facts, own, name) if not above or s > own]
        if self._enlarge(name, sizes, tried, best) and not self._stepwise:
            self._approach(name, tried, best)
        by_size = [tried[size] for size in sorted(tried) if tried[size].ok]
        if name == _first(best.facts):
            by_size = [t for t in by_size if self._allowed(t)] or by_size
        return _first_fast(by_size)

    def _enlarge(
        self, name: str, sizes: list[int], tried: dict[int, Trial], best: Trial
    ) -> bool:
        """Try sizes in order; says whether the memory was what ended it."""
        for size in sizes:
            if size in tried:
                continue
            if size >= self.too_large.get(name, size + 1):
                return True
            trial = self._size(name, size, tried, best)
            if trial.outcome is Outcome.MEMORY:
                return True
            if trial.ok and _levels_off(tried, size):  # by chance?
                again = self._size(name, size, tried, best)
                tried[size] = max(trial, again, key=lambda each: each.rate)
            if not trial.ok or _levels_off(tried, size):
                return False
        return False

    def _approach(self, name: str, tried: dict[int, Trial], best: Trial) -> None:
        """Come near the largest size that fits, to an eighth."""
        while True:
            bad = self.too_large[name]
            good = max((s for s in tried if tried[s].ok and s < bad), default=0)
            middle = (good + bad) // 2 // MULTIPLE * MULTIPLE
            if bad - good <= max(MULTIPLE, good // 8) or middle <= good:
                return
            trial = self._size(name, middle, tried, best)
            if not trial.ok and trial.outcome is not Outcome.MEMORY:
                return

    def _size(
        self, name: str, size: int, tried: dict[int, Trial], best: Trial
    ) -> Trial:
        trial = tried[size] = self._try(best.candidate.with_size(name, size))
        if trial.outcome is Outcome.MEMORY:
            self.too_large[name] = size
        return trial

    def _allowed(self, trial: Trial) -> bool:
        """Whether the size of its batch is one that was asked for."""
        name, asked = _first(trial.facts), self.plan.batch
        if name is None or asked is None:
            return True
        return asked.low <= trial.facts.sizes[name] <= asked.high

    def _sizes(self, facts: Facts, own: int, name: str) -> list[int]:
        asked = self.plan.batch
        if asked is not None and name == _first(facts):
            # Batches larger than the data are no larger.
            most = facts.samples or asked.high
            return [size for size in asked.sizes() if size <= max(most, asked.low)]
        most = facts.defaults[name] * MOST_GROWTH
        if facts.samples is not None:
            most = min(most, facts.samples // LEAST_BATCHES)
        return Range(own, most).sizes() if most >= 2 * own else []

    @property
    def _stepwise(self) -> bool:
        return self.plan.batch is not None and self.plan.batch.step is not None

    def _confirm(self, baseline: Trial, best: Trial) -> Trial:
        """Run both again in turns; chance alone makes the fastest of many look fast."""
        if best.candidate == baseline.candidate or not baseline.ok:
            return best
        if not self._allowed(baseline):  # nothing to return to
            return best
        rates: dict[bool, list[float]] = {True: [best.rate], False: [baseline.rate]}
        peaks = [best.peak_bytes]
        for _ in range(ROUNDS):
            for wins, trial in ((False, baseline), (True, best)):
                again = self._try(trial.candidate)
                if wins and not again.ok:
                    self._note(f"{best.candidate}: {again.detail}, the second time")
                    return baseline
                if again.ok:
                    rates[wins].append(again.rate)
                    peaks += [again.peak_bytes] if wins else []
        medians = {wins: statistics.median(its) for wins, its in rates.items()}
        if medians[True] < CONFIRMED * medians[False]:
            self._note(f"{best.candidate}: not faster when it was run again")
            return replace(baseline, rate=medians[False])
        peak = max(filter(None, peaks), default=None)
        return replace(best, rate=medians[True], peak_bytes=peak)

    def _note(self, text: str) -> None:
        self.notes.append(text)


def _first(facts: Facts) -> str | None:
    """The size that `--batch` is about."""
    names = list(facts.train_sizes)
    return "train" if "train" in names else next(iter(names), None)


def _worker_counts(cpus: int) -> tuple[int, ...]:
    """0, the powers of two, and one less than all CPUs."""
    most = min(cpus, MOST_WORKERS)
    return tuple(sorted({0, *_powers(most), max(most - 1, 1)}))


def _powers(most: int) -> Iterator[int]:
    power = 1
    while power <= most:
        yield power
        power *= 2


def _workers(trial: Trial) -> int | None:
    if trial.facts.workers is None:
        return None
    its = trial.candidate.workers
    return trial.facts.workers if its is None else its


def _count(trial: Trial) -> int:
    return _workers(trial) or 0


def _first_fast(trials: Sequence[Trial]) -> Trial:
    """The first that the fastest one does not beat by 5 %."""
    fastest = max(trial.rate for trial in trials)
    return next(t for t in trials if fastest < t.rate * GAIN)


def _faster(trial: Trial, than: Trial) -> bool:
    return trial.ok and trial.rate >= than.rate * GAIN


def _levels_off(tried: dict[int, Trial], size: int) -> bool:
    """Whether twice as many samples bring less than 5 %."""
    smaller = [s for s in tried if s * 2 <= size and tried[s].ok]
    if not smaller:
        return False
    return not _faster(tried[size], tried[max(smaller)])
