"""Say what came of the runs, and what the fastest one means for the training."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from gpulint.runtime._hardware import in_units
from gpulint.tuning.candidate import Facts, Trial
from gpulint.tuning.plan import Found


def describe(trial: Trial) -> str:
    """What came of a run, in one line."""
    if not trial.ok:
        return f"{trial.candidate}: {trial.outcome.value} ({trial.detail})"
    text = f"{trial.candidate}: {_number(trial.rate)} samples/s"
    if trial.peak_bytes is not None:
        text += f", {in_units(trial.peak_bytes)}"
    return text


def summary(found: Found) -> list[str]:
    """The table of all runs, what is best, and what it means for the training."""
    rows = [("run", "samples/s", "memory", "")]
    rows += [_row(trial) for trial in found.trials]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        f"{run:<{widths[0]}}  {rate:>{widths[1]}}  {held:>{widths[2]}}  {what}".rstrip()
        for run, rate, held, what in rows
    ]
    lines += ["", *found.notes, _verdict(found)]
    lines += _consequences(found)
    return lines


def _row(trial: Trial) -> tuple[str, str, str, str]:
    held = "" if trial.peak_bytes is None else in_units(trial.peak_bytes)
    if trial.ok:
        return str(trial.candidate), _number(trial.rate), held, ""
    why = f"{trial.outcome.value}: {trial.detail}"
    return str(trial.candidate), "–", held, why


def _verdict(found: Found) -> str:
    rate = _number(found.winner.rate)
    if found.kept:
        return f"Best: the script as written, {rate} samples/s."
    if not found.baseline.ok:
        return f"Best: {found.winner.candidate}, {rate} samples/s."
    return (
        f"Best: {found.winner.candidate}, {rate} samples/s "
        f"(as written: {_number(_baseline_rate(found))})."
    )


def _baseline_rate(found: Found) -> float:
    """The median of the runs as written."""
    its = found.baseline.candidate
    return statistics.median(
        t.rate for t in found.trials if t.ok and t.candidate == its
    )


def _consequences(found: Found) -> Iterator[str]:
    """What a changed batch size does to the training beside its speed."""
    before, after = found.baseline.facts, found.winner.facts
    for name, size in found.winner.candidate.sizes:
        own = before.sizes.get(name, size)
        if size == own:
            continue
        times = size / own
        yield f"The batch size changes from {own} to {size} ({times:g} times)."
        if before.batches and after.batches:
            steps = f"{before.batches} to {after.batches}"
            yield f"Steps of a pass: {steps}; schedules that count steps end later."
        if after.optimizer and after.lr is not None:
            yield _learning_rate(before, after, times)


def _learning_rate(before: Facts, after: Facts, times: float) -> str:
    was = f"{before.lr:g}" if before.lr is not None else "?"
    if after.lr_rule is not None:
        return (
            f"Learning rate of {after.optimizer}: {was} to {after.lr:g}, "
            f"runtime.scaled_lr follows the batch ({after.lr_rule})."
        )
    root, all_of_it = times**0.5, times
    usual = (
        f"{all_of_it:g} times (linear)"
        if after.optimizer == "SGD"
        else (f"{root:.3g} times (square root)")
    )
    return (
        f"Learning rate of {after.optimizer}: stays {was}; usual is {usual} for such a "
        "batch, see runtime.scaled_lr."
    )


def _number(rate: float) -> str:
    return f"{rate:,.0f}".replace(",", " ") if rate >= 100 else f"{rate:.3g}"
