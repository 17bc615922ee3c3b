"""`gpulint check`: report what wastes the GPU."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpulint.cli.options import (
    caching,
    discovery,
    gate,
    output_format,
    read_flags,
    selection,
)

if TYPE_CHECKING:
    from gpulint.cli.run import Job, Run
    from gpulint.engine import Checked
    from gpulint.finding import Finding, Place
    from gpulint.report import Entry, Report
    from gpulint.settings import Settings


@click.command
@click.argument("paths", nargs=-1, metavar="[PATHS|-]...")
@selection
@discovery
@caching
@output_format
@click.option(
    "-o",
    "--output-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write there instead of to the standard output.",
)
@click.option(
    "--statistics", is_flag=True, help="Count per rule instead of listing findings."
)
@gate
@click.pass_context
def check(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    output_file: Path | None,
    statistics: bool,
    **given: Any,
) -> None:
    """Report what wastes the GPU in training scripts. Writes no script.

    PATHS are files and folders (default: the current folder); `-` reads the standard
    input. Exit codes: 0 nothing at or above the fail level, 1 findings, 2 error.
    """
    from gpulint.cli.run import Run, one_line_errors, rare_collections, tolerant_output
    from gpulint.report import Report

    tolerant_output()
    flags = read_flags(given)
    with one_line_errors(), rare_collections():
        run = Run(flags)
        checked = _check(run, paths)
        form = run.resolver.of_folder(Path.cwd()).output_format
    report = Report(tuple(entry for entry, _ in checked), quiet=run.flags.quiet)
    _write(run, report, form, output_file, statistics)
    failing = any(_fails(entry, settings) for entry, settings in checked)
    ctx.exit(run.exit_code(failing))


def _check(run: Run, paths: tuple[str, ...]) -> list[tuple[Entry, Settings]]:
    from gpulint.cli.run import wants_stdin
    from gpulint.report import Entry

    if wants_stdin(paths):
        return _check_stdin(run)
    checked = []
    elsewhere: dict[Path, dict[tuple[str, Place], Finding]] = {}
    for job, result in _results(run, run.jobs(paths)):
        own = tuple(f for f in result.findings if f.path == job.path)
        for finding in result.findings:
            if finding.path != job.path:
                its = elsewhere.setdefault(finding.path, {})
                its.setdefault((finding.code, finding.place), finding)
        entry = Entry(result.source, own, job.settings.allow)
        checked.append((entry, job.settings))
    return checked + [_in_settings(run, path, f) for path, f in elsewhere.items()]


def _results(run: Run, jobs: list[Job]) -> Iterator[tuple[Job, Checked]]:
    """What is found in all files, some of it in earlier runs."""
    from gpulint.engine import check_path

    cache = run.cache()
    known = {}
    for job in jobs if cache is not None else ():
        assert cache is not None
        found = cache.find(job.path, job.key)
        if found is not None:
            known[job.path] = found
    run.ready(job for job in jobs if job.path not in known)

    def work(job: Job) -> Checked:
        if job.path in known:
            return known[job.path]
        make = functools.partial(check_path, job.path, job.options)
        checked = make() if cache is None else cache.keep(job.path, job.key, make)
        if checked.source is None:
            run.unread(job.path)
        return checked

    yield from run.each(jobs, work)
    if cache is not None:
        cache.save()


def _in_settings(
    run: Run, path: Path, found: dict[tuple[str, Place], Finding]
) -> tuple[Entry, Settings]:
    """What the scripts of the run, together, say about one YAML or JSON file."""
    from gpulint.index.settings_file import read_settings
    from gpulint.report import Entry

    settings = run.resolver.of_file(path)
    findings = tuple(sorted(found.values(), key=lambda f: f.order))
    return Entry(read_settings(path), findings, settings.allow), settings


def _check_stdin(run: Run) -> list[tuple[Entry, Settings]]:
    from gpulint.engine import check_source, trouble
    from gpulint.report import Entry
    from gpulint.source import SourceError, decode

    job = run.stdin_job()
    if job is None:
        return []
    try:
        source = decode(sys.stdin.buffer.read(), job.path)
    except SourceError as error:
        found = tuple(trouble(job.path, error, job.options))
        entry = Entry(None, found, job.settings.allow)
        return [(entry, job.settings)]
    return [
        (Entry(result.source, result.findings, job.settings.allow), job.settings)
        for _, result in run.each([job], lambda job: check_source(source, job.options))
    ]


def _fails(entry: Entry, settings: Settings) -> bool:
    from gpulint.cli.run import fails

    return fails(entry.findings, settings)


def _write(
    run: Run, report: Report, form: str, output_file: Path | None, statistics: bool
) -> None:
    from gpulint.report import write

    if output_file is None:
        write(report, form, sys.stdout, statistics)
        return
    try:
        with output_file.open("w", encoding="utf-8", errors="backslashreplace") as file:
            write(report, form, file, statistics)
    except OSError as error:
        run.error(f"{output_file}: {error.strerror or error}")
