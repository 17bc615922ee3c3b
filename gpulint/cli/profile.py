"""`gpulint profile`: what the findings in a script cost on this machine."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpulint.cli import complain
from gpulint.cli.interrupts import terminated
from gpulint.cli.options import (
    isolated,
    read_flags,
    rule_selection,
    timeout,
    verbose_script,
)
from gpulint.cli.progress import progress_on

if TYPE_CHECKING:
    from gpulint.finding import Finding
    from gpulint.profiling.output import Profile
    from gpulint.profiling.recording import Recording, Statements
    from gpulint.profiling.runs import Limits

UNREAD = ("GPU000", "GPU001")
ABOUT_GPULINT = "GPU0"
# What `check` offers beside the selection of rules.
NEUTRAL: dict[str, Any] = {
    "config": None,
    "stdin_filename": None,
    "exit_zero": False,
    "quiet": True,
    "verbose": False,
    "no_cache": True,
    "fail_level": None,
    "exclude": (),
    "extend_exclude": (),
    "allow": (),
    "torch_version": None,
}


@click.command
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, metavar="[-- ARGS...]")
@rule_selection
@isolated
@click.option(
    "--steps",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Optimizer steps to record, or more, so that they take 2 seconds.",
)
@click.option(
    "--warmup",
    type=click.IntRange(3),
    default=5,
    show_default=True,
    help="Steps before them, whose time does not count.",
)
@timeout
@click.option(
    "--top",
    type=click.IntRange(0),
    default=12,
    metavar="N",
    show_default=True,
    help="How many lines of source to show.",
)
@click.option("--json", "as_json", is_flag=True, help="As a JSON object.")
@click.option(
    "-o",
    "--output-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write there instead of to the standard output.",
)
@verbose_script
def profile(
    script: str,
    arguments: tuple[str, ...],
    steps: int,
    warmup: int,
    timeout: float,
    top: int,
    as_json: bool,
    output_file: Path | None,
    verbose: bool,
    **given: Any,
) -> None:
    """Say what the findings in SCRIPT cost on this machine.

    Runs it, as it is, for a few training steps, takes the time of its lines, and ranks
    what `gpulint check` finds in it and in the files that it imports. Then the process
    ends; it does what the script does until then, writing its files included.

    Exit codes: 0; 2 where the script fails, hangs or never trains.
    """
    from gpulint.cli.run import one_line_errors, tolerant_output
    from gpulint.profiling.attribution import rank
    from gpulint.profiling.output import Profile
    from gpulint.profiling.recording import Statements
    from gpulint.profiling.runs import Limits
    from gpulint.runtime._limits import available_cpus

    tolerant_output()
    _check(script, output_file)
    with one_line_errors():
        findings = _Findings(given, script)
    statements = Statements()
    limits = Limits(steps, warmup, timeout)
    recording = _record(script, arguments, limits, statements, verbose)
    with one_line_errors():
        found = findings.of(recording.files)
    costs = rank(found, recording, statements)
    its = Profile(
        *(script, arguments, warmup, steps, recording, statements, costs),
        cpus=available_cpus(),
    )
    _write(its, top, as_json, output_file)


class _Findings:
    """What `check` says about the script and the files that it imports."""

    def __init__(self, given: dict[str, Any], script: str) -> None:
        from gpulint.cli.run import Run

        self.script = Path(os.path.normpath(Path.cwd() / script))
        self.run = Run(read_flags({**NEUTRAL, **given}))
        self.run.ready([self.run.job(self.script)])  # before minutes are spent

    def of(self, files: Sequence[Path]) -> list[Finding]:
        """All findings that are not suppressed, each once."""
        found = {
            (finding.code, finding.place): finding
            for finding in self._in({self.script, *files})
        }
        return sorted(found.values(), key=lambda finding: finding.order)

    def _in(self, files: set[Path]) -> Iterator[Finding]:
        from gpulint.engine import check_path

        jobs = [self.run.job(path) for path in sorted(files)]
        for job, checked in self.run.each(
            jobs, lambda job: check_path(job.path, job.options)
        ):
            for finding in checked.findings:
                if finding.code in UNREAD:
                    complain(f"{job.path}: {finding.message}", "warning")
                elif not finding.suppressed and finding.code[:4] != ABOUT_GPULINT:
                    yield finding


def _record(
    script: str,
    arguments: tuple[str, ...],
    limits: Limits,
    statements: Statements,
    verbose: bool,
) -> Recording:
    """Run it, showing the progress. ClickException where nothing is recorded."""
    from gpulint.profiling.runs import ProfileError, record

    show = _show_output if verbose else _ignore
    with terminated(), progress_on(sys.stderr) as progress:
        progress.begin(script)
        try:
            return record(script, arguments, limits, statements, progress.steps, show)
        except ProfileError as error:
            message = f"{script}: {error}"
            if "No module named" in message:
                message += f" (it runs with {sys.executable})"
            raise click.ClickException(message) from None


def _check(script: str, output: Path | None) -> None:
    if os.name != "posix":
        raise click.ClickException(
            "profile ends processes as POSIX systems do; use WSL"
        )
    if Path(script).suffix == ".ipynb":
        raise click.ClickException(f"{script} is a notebook; profile runs scripts")
    if output is not None:
        folder = output.resolve().parent
        if not os.access(folder, os.W_OK | os.X_OK):
            raise click.ClickException(f"{folder} is no folder that can be written to")


def _write(its: Profile, top: int, as_json: bool, output: Path | None) -> None:
    from gpulint.profiling.output import as_json as to_json
    from gpulint.profiling.output import print_profile

    def write(stream: Any) -> None:
        if as_json:
            stream.write(json.dumps(to_json(its), indent=1) + "\n")
        else:
            print_profile(its, top, stream)

    if output is None:
        write(sys.stdout)
        return
    try:
        with output.open("w", encoding="utf-8", errors="backslashreplace") as file:
            write(file)
    except OSError as error:
        raise click.ClickException(f"{output}: {error.strerror or error}") from None
    complain(f"written: {output}", "note")


def _show_output(text: str) -> None:
    click.echo(text, nl=False, err=True)


def _ignore(text: str) -> None:
    """Nobody wants to read it."""
