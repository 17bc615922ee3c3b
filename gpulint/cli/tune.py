"""`gpulint tune`: find the batch size and workers that this machine is fastest with."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from gpulint.cli import complain

if TYPE_CHECKING:
    from gpulint.tuning.candidate import Candidate, Facts, Trial
    from gpulint.tuning.runs import Limits
    from gpulint.tuning.search import Found, Plan, Range

TRIES = ("precision", "compile", "channels_last")
SWITCHES = ("GPULINT_RUNTIME", "GPULINT_DEBUG")
NO_CALLS = (
    "{script} asks gpulint.runtime for nothing that could be tuned; "
    "`gpulint fix --allow hyperparams,random {script}` writes such calls "
    "(batch_size, loader_kwargs)"
)


class Size(click.ParamType[Any]):
    """`MIN:MAX` or `MIN:MAX:STEP`."""

    name = "size"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Range:
        from gpulint.tuning.search import Range

        parts = str(value).split(":")
        if len(parts) not in (2, 3) or not all(part.isdecimal() for part in parts):
            self.fail(f"{value!r} is not MIN:MAX or MIN:MAX:STEP", param, ctx)
        numbers = [int(part) for part in parts]
        if 0 in numbers or numbers[0] > numbers[1]:
            self.fail(f"{value!r}: 1 <= MIN <= MAX and 1 <= STEP", param, ctx)
        return Range(*numbers)


class Names(click.ParamType[Any]):
    """Words of a list, commas between."""

    name = "names"

    def __init__(self, known: tuple[str, ...] = ()) -> None:
        self.known = known

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        words = [word.strip() for word in str(value).split(",")]
        for word in words:
            if self.known and word not in self.known:
                known = ", ".join(self.known)
                self.fail(f"{word!r} is not one of {known}", param, ctx)
            if not self.known and not word.isdecimal():
                self.fail(f"{word!r} is not a number of 0 or more", param, ctx)
        return tuple(words)


@click.command
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, metavar="[-- ARGS...]")
@click.option(
    "--batch",
    type=Size(),
    metavar="MIN:MAX[:STEP]",
    help="Batch sizes to try, doubled without STEP.  [default: the script's own and up "
    "to 8 times as many, at least 10 batches a pass]",
)
@click.option(
    "--workers",
    type=Names(),
    metavar="N,...",
    help="Numbers of workers to try.  [default: 0, 1, 2, 4, ... up to the CPUs]",
)
@click.option(
    "--memory",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.9,
    metavar="FRACTION",
    show_default=True,
    help="How much of the memory, of the GPU and of the host, a run may take.",
)
@click.option(
    "--try",
    "tries",
    type=Names(TRIES),
    default=None,
    metavar="NAMES",
    help="Try as well: precision, compile, channels_last; commas between.",
)
@click.option(
    "--steps",
    type=click.IntRange(5),
    default=20,
    show_default=True,
    help="Optimizer steps to measure in a run, or more, so that they take 2 seconds.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=300,
    metavar="SECONDS",
    show_default=True,
    help="The longest that one run may take.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to keep what is found.  [default: gpulint.tuned.json beside SCRIPT]",
)
@click.option("-v", "--verbose", is_flag=True, help="Show what the script prints.")
def tune(
    script: str,
    arguments: tuple[str, ...],
    batch: Range | None,
    workers: tuple[str, ...] | None,
    memory: float,
    tries: tuple[str, ...] | None,
    steps: int,
    timeout: float,
    output: Path | None,
    verbose: bool,
) -> None:
    """Find the fastest batch size and workers for SCRIPT on this machine.

    Runs the script, which `gpulint fix` has rewritten, for a few steps at a time with
    different values and keeps the fastest in gpulint.tuned.json, where the script finds
    them when it runs the next time. Running out of memory ends one run, not the search.
    Each run does what the script does in its first steps, writing its files included.
    """
    from gpulint.runtime import available_cpus
    from gpulint.tuning.runs import Limits
    from gpulint.tuning.search import Plan
    from gpulint.tuning.store import NAME

    _check(script)
    file = output or Path(script).resolve().parent / NAME
    _check_file(file, Path(script))
    numbers = tuple(sorted({int(word) for word in workers})) if workers else None
    plan = Plan(available_cpus(), batch, numbers, frozenset(tries or ()))
    limits = Limits(memory, _ram_limit(), steps, timeout)
    found = _search(script, arguments, plan, limits, verbose)
    if found is not None:
        _store(file, script, found)


def _search(
    script: str, arguments: tuple[str, ...], plan: Plan, limits: Limits, verbose: bool
) -> Found:
    """Try, showing the progress; ClickException where nothing can be tuned."""
    from gpulint.tuning.runs import Runs
    from gpulint.tuning.search import Search

    with _terminated(), _progress() as progress:

        def measure(candidate: Candidate) -> Trial:
            progress.begin(str(candidate))
            trial = runs(candidate)
            progress.end(describe(trial))
            return trial

        show = _show_output if verbose else _ignore
        runs = Runs(script, arguments, limits, progress.steps, show)
        found = Search(measure, plan).run()
    if not found.winner.ok:
        first = found.winner if found.winner is not found.baseline else found.baseline
        hint = _hint(first, arguments)
        raise click.ClickException(f"{script}: {first.detail}{hint}")
    if not found.winner.facts.tunable:
        raise click.ClickException(NO_CALLS.format(script=script))
    return found


def _store(file: Path, script: str, found: Found) -> None:
    from gpulint.tuning.store import StoreError, write

    for line in summary(found):
        click.echo(line)
    try:
        write(file, Path(script), found)
    except (OSError, StoreError) as error:
        raise click.ClickException(f"{file}: {error}") from None
    click.echo(f"Stored in {_relative(file)}.")


def describe(trial: Trial) -> str:
    """What came of a run, in one line."""
    from gpulint.runtime._hardware import in_units

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
    from gpulint.runtime._hardware import in_units

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
    import statistics

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


class Progress(Protocol):
    """Shows what is being tried."""

    def begin(self, what: str) -> None:
        """A run starts."""

    def steps(self, count: int) -> None:
        """It has done so many steps."""

    def end(self, line: str) -> None:
        """It has ended."""


class Lines:
    """A line for each run, where standard error is no terminal."""

    def begin(self, what: str) -> None:
        """Nothing: the line comes with the result."""

    def steps(self, count: int) -> None:
        """Nothing."""

    def end(self, line: str) -> None:
        click.echo(f"gpulint: {line}", err=True)


class Live:
    """The same lines, and below them one that moves."""

    def __init__(self, status: Any, console: Any) -> None:
        self.status, self.console, self.what = status, console, ""

    def begin(self, what: str) -> None:
        self.what = what
        self.status.update(what)

    def steps(self, count: int) -> None:
        self.status.update(f"{self.what}: {count} steps")

    def end(self, line: str) -> None:
        self.console.print(line)


@contextlib.contextmanager
def _progress() -> Iterator[Progress]:
    if not sys.stderr.isatty():
        yield Lines()
        return
    from gpulint.report.full import console

    screen = console(sys.stderr)
    with screen.status("…") as status:
        yield Live(status, screen)


@contextlib.contextmanager
def _terminated() -> Iterator[None]:
    """`kill` and a closed terminal end the children too, as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    kept = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            kept[number] = signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _check(script: str) -> None:
    if os.name != "posix":
        raise click.ClickException("tune ends processes as POSIX systems do; use WSL")
    if Path(script).suffix == ".ipynb":
        raise click.ClickException(f"{script} is a notebook; tune runs scripts")
    from gpulint.runtime._settings import forget_settings, settings

    forget_settings()
    try:
        asked = settings()
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    for name, value in zip(SWITCHES, (asked.off, asked.debug), strict=True):
        if value:
            shown = f"{name}={os.environ[name]}"
            raise click.ClickException(f"{shown}: nothing is tuned under it")


def _check_file(file: Path, script: Path) -> None:
    """Before hours are spent: can it be written, and will it be found?"""
    from gpulint.tuning.store import NAME, StoreError, check_folder, read

    try:
        check_folder(file)
        read(file)
    except StoreError as error:
        raise click.ClickException(str(error)) from None
    if file.name != NAME or file.resolve().parent not in script.resolve().parents:
        complain(
            f"{file} is not found when the script runs: that looks for {NAME} beside "
            "the script and above it",
            "warning",
        )


def _ram_limit() -> int | None:
    from gpulint.runtime._limits import ram_limit

    return ram_limit()


def _hint(trial: Trial, arguments: tuple[str, ...]) -> str:
    if "No module named" in trial.detail:
        return f" (it runs with {sys.executable})"
    return "" if arguments else " (arguments of the script come behind `--`)"


def _show_output(text: str) -> None:
    click.echo(text, nl=False, err=True)


def _ignore(text: str) -> None:
    """Nobody wants to read it."""


def _number(rate: float) -> str:
    return f"{rate:,.0f}".replace(",", " ") if rate >= 100 else f"{rate:.3g}"


def _relative(file: Path) -> str:
    with contextlib.suppress(ValueError):
        return str(file.relative_to(Path.cwd()))
    return str(file)
