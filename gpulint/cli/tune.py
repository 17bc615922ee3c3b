"""`gpulint tune`: find the batch size and workers that this machine is fastest with."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpulint.cli import complain
from gpulint.cli.interrupts import terminated
from gpulint.cli.options import timeout, verbose_script
from gpulint.cli.progress import progress_on

if TYPE_CHECKING:
    from gpulint.tuning.candidate import Candidate, Trial
    from gpulint.tuning.plan import Found, Plan, Range
    from gpulint.tuning.runs import Limits

TRIES = ("precision", "compile", "channels_last")
SWITCHES = ("GPULINT_RUNTIME", "GPULINT_DEBUG")
NO_CALLS = (
    "{script} asks gpulint.runtime for nothing that could be tuned; "
    "`gpulint fix --allow hyperparams,random {script}` writes such calls "
    "(batch_size, loader_kwargs)"
)


def _read_range(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> Range | None:
    """`MIN:MAX` or `MIN:MAX:STEP`."""
    from gpulint.tuning.plan import Range

    if text is None:
        return None
    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(part.isdecimal() for part in parts):
        raise click.BadParameter(f"{text!r} is not MIN:MAX or MIN:MAX:STEP", ctx, param)
    numbers = [int(part) for part in parts]
    if 0 in numbers or numbers[0] > numbers[1]:
        raise click.BadParameter(f"{text!r}: 1 <= MIN <= MAX, 1 <= STEP", ctx, param)
    return Range(*numbers)


def _read_counts(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> tuple[int, ...] | None:
    """Numbers of workers, commas between."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if not word.isdecimal():
            raise click.BadParameter(f"{word!r} is no number of workers", ctx, param)
    return tuple(sorted({int(word) for word in words}))


def _read_tries(
    ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
) -> frozenset[str]:
    """Words, given once or several times, commas between."""
    words = frozenset(word.strip() for text in texts for word in text.split(","))
    for word in sorted(words.difference(TRIES)):
        known = ", ".join(TRIES)
        raise click.BadParameter(f"{word!r} is not one of {known}", ctx, param)
    return words


@click.command
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, metavar="[-- ARGS...]")
@click.option(
    "--batch",
    callback=_read_range,
    metavar="MIN:MAX[:STEP]",
    help="Batch sizes to try, doubled without STEP.  [default: the script's own and up "
    "to 8 times as many, at least 10 batches a pass]",
)
@click.option(
    "--workers",
    callback=_read_counts,
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
    multiple=True,
    callback=_read_tries,
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
@timeout
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to keep what is found.  [default: gpulint.tuned.json beside SCRIPT]",
)
@verbose_script
def tune(
    script: str,
    arguments: tuple[str, ...],
    batch: Range | None,
    workers: tuple[int, ...] | None,
    memory: float,
    tries: frozenset[str],
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
    from gpulint.runtime._limits import available_cpus, ram_available, ram_limit
    from gpulint.tuning.plan import Plan
    from gpulint.tuning.report import summary
    from gpulint.tuning.runs import Limits
    from gpulint.tuning.store import NAME, StoreError, write

    _check(script)
    file = output or Path(script).resolve().parent / NAME
    _check_file(file, Path(script))
    plan = Plan(available_cpus(), batch, workers, tries)
    host = min(filter(None, (ram_limit(), ram_available())), default=None)
    limits = Limits(memory, host, steps, timeout)
    found = _search(script, arguments, plan, limits, verbose)
    for line in summary(found):
        click.echo(line)
    try:
        write(file, Path(script), found)
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror or error}") from None
    except StoreError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"Stored in {_relative(file)}.")


def _search(
    script: str, arguments: tuple[str, ...], plan: Plan, limits: Limits, verbose: bool
) -> Found:
    """Try, showing the progress; ClickException where nothing can be tuned."""
    from gpulint.tuning.report import describe
    from gpulint.tuning.runs import Runs
    from gpulint.tuning.search import Search

    with terminated(), progress_on(sys.stderr) as progress:

        def measure(candidate: Candidate) -> Trial:
            progress.begin(str(candidate))
            trial = runs(candidate)
            progress.end(describe(trial))
            return trial

        show = _show_output if verbose else _ignore
        runs = Runs(script, arguments, limits, progress.steps, show)
        found = Search(measure, plan).run()
    if not found.winner.ok:
        hint = _hint(found.winner, arguments)
        raise click.ClickException(f"{script}: {found.winner.detail}{hint}")
    if not found.winner.facts.tunable:
        raise click.ClickException(NO_CALLS.format(script=script))
    return found


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


def _hint(trial: Trial, arguments: tuple[str, ...]) -> str:
    if "No module named" in trial.detail:
        return f" (it runs with {sys.executable})"
    if arguments or trial.outcome.value != "crash":
        return ""
    return " (arguments of the script come behind `--`)"


def _show_output(text: str) -> None:
    click.echo(text, nl=False, err=True)


def _ignore(text: str) -> None:
    """Nobody wants to read it."""


def _relative(file: Path) -> str:
    with contextlib.suppress(ValueError):
        return str(file.relative_to(Path.cwd()))
    return str(file)
