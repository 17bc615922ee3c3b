"""Says whether two runs of a script are as equal as an effect promises."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from .situation import Outcome

LEAST_SPREAD = 0.02
# Two samples of draws differ by chance alone in one of 100 000 comparisons.
KOLMOGOROV = 2.5


class Different(AssertionError):
    """A rewritten script does what its effect rules out."""


def assert_runs(before: Outcome, after: Outcome) -> None:
    """Where the original runs, the rewritten script runs."""
    if after.error and not before.error:
        raise Different(f"the rewritten script fails:\n{after.error}")


def assert_identical(before: Outcome, after: Outcome) -> None:
    """The same output, weights, optimizer and random numbers, bit for bit."""
    assert_runs(before, after)
    assert_same_output(before, after)
    same(before.weights, after.weights, "weights")
    same(before.optimizers, after.optimizers, "state of the optimizer")
    same(before.random, after.random, "random generators")


def assert_same_output(before: Outcome, after: Outcome) -> None:
    """The same lines; the last has the losses, in all digits."""
    assert_runs(before, after)
    for old, new in zip(before.output, after.output, strict=False):
        if old != new:
            raise Different(f"output differs:\n  before: {old}\n  after:  {new}")
    if len(before.output) != len(after.output):
        raise Different(f"{len(before.output)} lines before, {len(after.output)} after")


def same(before: Mapping[str, str], after: Mapping[str, str], what: str) -> None:
    names = [n for n in {**before, **after} if before.get(n) != after.get(n)]
    if names:
        raise Different(f"{what} differ: {', '.join(names[:5])}")


def assert_close(
    seeds: Sequence[Outcome], after: Outcome, *, redrawn: bool = False
) -> None:
    """Finite losses, the last within the spread of the original's seeds.

    `seeds` are runs of the original; the spread is at least 2 % of their mean. With
    `redrawn` the rewritten script draws other numbers: it is a seed of its own, and one
    in three new seeds lies outside the range of five. Then it may be as far outside as
    the range is wide.
    """
    assert_runs(seeds[0], after)
    failed = next((run.error for run in seeds if run.error), "")
    if failed:
        raise RuntimeError(f"the original fails with another seed:\n{failed}")
    if len(after.losses) != len(seeds[0].losses):
        raise Different(f"{len(seeds[0].losses)} losses, {len(after.losses)} after")
    if not all(map(math.isfinite, after.losses)):
        raise Different(f"losses are not finite: {after.losses}")
    if not after.losses:
        return
    finals = [run.losses[-1] for run in seeds]
    mean = statistics.fmean(finals)
    spread = max(finals) - min(finals)
    room = max(LEAST_SPREAD * abs(mean), spread if redrawn else 0.0)
    low, high = min(finals) - room, max(finals) + room
    if not low <= after.losses[-1] <= high:
        raise Different(
            f"final loss {after.losses[-1]:.6f} is outside {low:.6f} to {high:.6f},"
            f" the spread of {len(finals)} seeds"
        )


def assert_same_draws(before: Outcome, after: Outcome) -> None:
    """Each place of the script draws as often, and from the same distribution.

    Values that come again and again, as when each worker draws the same, differ.
    """
    old, new = by_place(before), by_place(after)
    if {k: len(v) for k, v in old.items()} != {k: len(v) for k, v in new.items()}:
        raise Different("the script draws more or less often")
    for place, values in old.items():
        repeated = len(set(new[place])) / len(set(values))
        if repeated < 0.9:
            raise Different(f"draws of {place} repeat: {repeated:.0%} are different")
        count = len(values)
        limit = KOLMOGOROV * math.sqrt(2 / count)
        distance = largest_distance(values, new[place])
        if distance > limit:
            raise Different(
                f"draws of {place} are distributed otherwise: distance"
                f" {distance:.2f}, at most {limit:.2f} by chance"
            )


def by_place(outcome: Outcome) -> dict[str, list[float]]:
    places = defaultdict(list)
    for function, source, value in outcome.draws:
        places[f"{function}: {source}"].append(value)
    return dict(places)


def largest_distance(first: Sequence[float], second: Sequence[float]) -> float:
    """The largest difference of two empirical distribution functions."""
    return max(
        abs(
            sum(v <= at for v in first) / len(first)
            - sum(v <= at for v in second) / len(second)
        )
        for at in {*first, *second}
    )
