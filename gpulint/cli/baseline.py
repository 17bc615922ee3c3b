"""`gpulint baseline`: accept the findings that there are, and only those."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gpulint.baseline import NAME, NEVER, Allowance, Baseline, BaselineError, Entry
from gpulint.cli import complain
from gpulint.cli.options import (
    Function,
    caching,
    discovery,
    parallel,
    read_flags,
    selection,
)
from gpulint.report import Report, count, total

if TYPE_CHECKING:
    from gpulint.cli.run import Run
    from gpulint.finding import Finding
    from gpulint.report import Entry as FileEntry


@click.group
def baseline() -> None:
    """Accept the findings that there are, so that only new ones are reported.

    `create` writes them to a file, `gpulint check --baseline FILE` (or the setting
    `baseline`) passes them by. They are known by rule, file, definition and source
    text: moved lines and other layout change nothing. What is beyond the accepted
    number is reported. GPU000 is never accepted.
    """


def _shared(function: Function) -> Callable[..., object]:
    """What all of them are called with."""
    options: list[Callable[[Any], Any]] = [
        click.argument("paths", nargs=-1, metavar="[PATHS]..."),
        click.option(
            "--file",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help=f"The baseline.  [default: the setting `baseline`, else {NAME}]",
        ),
        selection,
        discovery,
        caching,
        parallel,
        click.option("-q", "--quiet", is_flag=True, help="Print less."),
        click.option("-v", "--verbose", is_flag=True, help="Say which settings hold."),
        click.pass_context,
    ]
    made: Any = function
    for option in reversed(options):
        made = option(made)
    return baseline.command(made)  # type: ignore[no-any-return]


class State(NamedTuple):
    """A baseline and what is found now.

    `new`: the findings beyond it; `stale`: what it accepts in vain; `now`: counts of
    all findings.
    """

    run: Run
    baseline: Baseline
    files: tuple[FileEntry, ...]
    stale: Counter[Entry]
    now: Counter[Entry]

    @property
    def name(self) -> str:
        """How the file is shown."""
        return Report(()).path(self.baseline.file)

    @property
    def new(self) -> list[tuple[FileEntry, Finding]]:
        """Findings that the baseline does not accept."""
        return [(e, f) for e in self.files for f in e.shown if f.code not in NEVER]


@_shared
def create(
    ctx: click.Context, /, paths: tuple[str, ...], file: Path | None, **given: Any
) -> None:
    """Write the findings in PATHS (default: the current folder) to a new baseline."""
    state = _state(paths, file, given, fresh=True)
    _write(state, state.now)
    if not state.run.flags.quiet:
        number = sum(state.now.values())
        files = count(len({entry.path for entry in state.now}), "file")
        click.echo(f"{state.name}: accepts {count(number, 'finding')} in {files}")
    for entry in state.files:
        for finding in entry.shown:
            if finding.code in NEVER:
                place = Report(()).place(finding.place, entry.source)
                complain(f"{place}: {finding.code} is never accepted", "warning")
    ctx.exit(0)


@_shared
@click.option("--allow-growth", is_flag=True, help="Accept new findings as well.")
def update(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    file: Path | None,
    allow_growth: bool,
    **given: Any,
) -> None:
    """Bring the baseline up to date.

    Exits with 1 and writes nothing where there are new findings, unless
    --allow-growth accepts them. Files outside of PATHS keep their entries.
    """
    state = _state(paths, file, given)
    new = state.new
    if new and not allow_growth:
        _list_new(state)
        found = total([finding for _, finding in new])
        complain(f"{state.name}: not written: {found} new; --allow-growth accepts them")
        ctx.exit(1)
    grown = Counter(state.baseline.entry(finding) for _, finding in new)
    _write(state, state.baseline.counts - state.stale + grown)
    _say(state, f"{len(new)} added, {sum(state.stale.values())} removed")
    ctx.exit(0)


@_shared
def prune(
    ctx: click.Context, /, paths: tuple[str, ...], file: Path | None, **given: Any
) -> None:
    """Remove what is no longer found; nothing is ever added."""
    state = _state(paths, file, given)
    _write(state, state.baseline.counts - state.stale)
    _say(state, f"{sum(state.stale.values())} removed")
    ctx.exit(0)


@_shared
def status(
    ctx: click.Context, /, paths: tuple[str, ...], file: Path | None, **given: Any
) -> None:
    """Count what the baseline accepts, per rule.

    Exits with 1 where findings are new or no longer there.
    """
    state = _state(paths, file, given)
    rules: Counter[str] = Counter()
    for entry, number in state.baseline.counts.items():
        rules[entry.code] += number
    width = len(str(max(rules.values(), default=0)))
    for code, number in sorted(rules.items(), key=lambda pair: (-pair[1], pair[0])):
        click.echo(f"{number:>{width}}  {code}")
    accepted, gone = sum(rules.values()), sum(state.stale.values())
    _say(state, f"{accepted} accepted, {len(state.new)} new, {gone} no longer there")
    ctx.exit(int(bool(state.new or state.stale)))


@_shared
def diff(
    ctx: click.Context, /, paths: tuple[str, ...], file: Path | None, **given: Any
) -> None:
    """List findings that are new (+) and entries that are no longer there (-).

    Exits with 1 where there are any.
    """
    from gpulint.cli.accepted import lines

    state = _state(paths, file, given)
    for line in lines(state.stale):
        click.echo(f"- {line}")
    _list_new(state, "+ ")
    ctx.exit(int(bool(state.new or state.stale)))


def _state(
    paths: tuple[str, ...],
    file: Path | None,
    given: dict[str, Any],
    fresh: bool = False,
) -> State:
    """Look at all files. ClickException: the baseline or a file cannot be read."""
    from gpulint.cli.accepted import opened, stale
    from gpulint.cli.check import look
    from gpulint.cli.run import (
        STDIN,
        Run,
        one_line_errors,
        rare_collections,
        tolerant_output,
    )

    tolerant_output()
    if STDIN in paths:
        raise click.UsageError("a baseline is of files, not of the standard input")
    flags = read_flags({**given, "fail_level": None, "exit_zero": False})
    with one_line_errors(), rare_collections():
        run = Run(flags)
        path = _file(run, file)
        known = Baseline(path) if fresh else opened(path)
        if fresh and os.path.lexists(path):
            name = Report(()).path(path)
            raise click.ClickException(
                f"{name} is there already; `gpulint baseline update` changes it"
            )
        looked = look(run, paths)
        if run.failed:
            raise click.ClickException("not all files could be checked")
        allowance = Allowance(known)
        files = [entry for entry, _ in looked.entries]
        now = known.count(f for entry in files for f in entry.findings)
        marked = tuple(
            entry._replace(findings=tuple(allowance.mark(entry.findings)))
            for entry in files
        )
        return State(run, known, marked, stale(run, allowance, looked), now)


def _file(run: Run, file: Path | None) -> Path:
    here = Path.cwd()
    chosen = file or run.resolver.of_folder(here).baseline or Path(NAME)
    return Path(os.path.normpath(here / chosen))


def _write(state: State, counts: Counter[Entry]) -> None:
    """Write it if it is not so already."""
    if counts == state.baseline.counts and state.baseline.file.exists():
        return
    try:
        Baseline(state.baseline.file, counts).write()
    except BaselineError as error:
        raise click.ClickException(str(error)) from None


def _list_new(state: State, sign: str = "") -> None:
    from gpulint.report.concise import line

    for entry, finding in state.new:
        click.echo(f"{sign}{line(Report(()), entry, finding)}")


def _say(state: State, what: str) -> None:
    if not state.run.flags.quiet:
        click.echo(f"{state.name}: {what}")
