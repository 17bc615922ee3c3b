"""`gpulint check`: report what wastes the GPU."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gpulint.cli import complain
from gpulint.cli.adding import WithReasons, add_comments, adding, read_form
from gpulint.cli.options import (
    caching,
    discovery,
    fixing,
    gate,
    output_format,
    parallel,
    ratchet,
    read_flags,
    selection,
)

if TYPE_CHECKING:
    from gpulint.cache import Cache
    from gpulint.cli.accepted import Accepted
    from gpulint.cli.options import Flags
    from gpulint.cli.pool import Answer
    from gpulint.cli.run import Job, Run
    from gpulint.cli.since import Since
    from gpulint.engine import Checked
    from gpulint.finding import Finding, Place
    from gpulint.ignores import Form
    from gpulint.report import Entry
    from gpulint.settings import Settings
    from gpulint.source import Source

# Files to look into, from which on several processes are done sooner than one: each
# starts, and reads what the files of a project have to do with each other, by itself.
MANY_FILES = 1000


@click.command(cls=WithReasons)
@click.argument("paths", nargs=-1, metavar="[PATHS|-]...")
@selection
@fixing
@discovery
@caching
@parallel
@output_format
@click.option(
    "-o",
    "--output-file",
    multiple=True,
    metavar="[FORMAT:]FILE",
    help="Write there instead of to the standard output; with FORMAT: beside it, or, "
    "as FORMAT:-, in its place. Repeatable.",
)
@click.option(
    "--statistics",
    is_flag=True,
    help="Count per rule instead of listing findings; in text and JSON.",
)
@ratchet
@click.option(
    "--strict-baseline",
    is_flag=True,
    help="Exit with 1 where the baseline accepts more than there is.",
)
@click.option(
    "--new-only-since",
    metavar="REF",
    help="Only findings on lines changed since the merge base with this commit.",
)
@click.option(
    "--ignore-noqa",
    is_flag=True,
    help="Report also what comments switch off.",
)
@adding
@click.option(
    "--report-unused-ignores/--no-report-unused-ignores",
    "unused_ignores",
    default=None,
    help="Whether GPU002 runs, whatever else is selected.",
)
@click.option(
    "-w",
    "--watch",
    is_flag=True,
    help="Check again whenever a file of the project changes, until Ctrl-C.",
)
@gate
@click.pass_context
def check(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    output_file: tuple[str, ...],
    statistics: bool,
    strict_baseline: bool,
    new_only_since: str | None,
    ignore_noqa: bool,
    add_ignore: str | None,
    add_noqa: str | None,
    watch: bool,
    **given: Any,
) -> None:
    """Report what wastes the GPU in training scripts.

    PATHS are files and folders (default: the current folder); `-` reads the standard
    input. No script is written, but for the comments of --add-ignore and --add-noqa;
    then what is left is reported.

    Exit codes: 0 nothing at or above the fail level, 1 findings, 2 error, 130
    interrupted, as every --watch ends.
    """
    from gpulint.cli.run import tolerant_output

    tolerant_output()
    flags = read_flags(given)
    form = read_form(add_ignore, add_noqa)
    if form is not None and (ignore_noqa or "-" in paths):
        raise click.UsageError("comments cannot be added with --ignore-noqa, or to `-`")
    asked = Asked(
        flags,
        paths,
        output_file,
        statistics,
        strict_baseline,
        new_only_since,
        ignore_noqa,
        form,
    )
    if not watch:
        ctx.exit(_check(asked))
    if form is not None or "-" in paths:
        raise click.UsageError("--watch is for files, and adds no comments to them")
    from gpulint.cli.outputs import files_of
    from gpulint.cli.watching import watch as keep_watch

    its = files_of(output_file)
    look = functools.partial(_check, asked)
    keep_watch(look, paths or (".",), flags.config, its, flags.quiet)


class Asked(NamedTuple):
    """What `check` was called with, in the order of its options."""

    flags: Flags
    paths: tuple[str, ...]
    output_file: tuple[str, ...]
    statistics: bool
    strict_baseline: bool
    new_only_since: str | None
    ignore_noqa: bool
    form: Form | None


def _check(asked: Asked) -> int:
    """Look at all files and report what is found; the exit code."""
    from gpulint.cli.outputs import read_outputs, write_outputs
    from gpulint.cli.run import Run, one_line_errors, rare_collections
    from gpulint.report import Report

    flags, paths, since = asked.flags, asked.paths, asked.new_only_since
    with one_line_errors(), rare_collections():
        written = Run(flags).resolver.of_folder(Path.cwd()).output_format
        outputs = read_outputs(asked.output_file, written, asked.statistics)
        seen = _see(flags, paths, since)
        if asked.form is not None:
            add_comments(seen.run, [entry for entry, _ in seen.checked], asked.form)
            failed = seen.run.failed
            seen = _see(flags, paths, since)
            seen.run.failed |= failed
    run, accepted, looked, checked = seen
    if asked.ignore_noqa:
        checked = [(_with_ignored(entry), settings) for entry, settings in checked]
    entries = tuple(entry for entry, _ in checked)
    warn = functools.partial(complain, kind="warning")
    report = Report(entries, quiet=run.flags.quiet, warn=warn)
    write_outputs(report, outputs, asked.statistics, run.error)
    slack = accepted.tell_stale(looked, asked.strict_baseline)
    failing = any(entry.fails(f) for entry in entries for f in entry.findings)
    return run.exit_code(failing or (slack and asked.strict_baseline))


class Seen(NamedTuple):
    """What a run has to tell: `checked` is `looked` with what is accepted marked."""

    run: Run
    accepted: Accepted
    looked: Looked
    checked: list[tuple[Entry, Settings]]


def _see(flags: Flags, paths: tuple[str, ...], reference: str | None) -> Seen:
    """Look at all files; `reference`: only for what is new since this commit."""
    from gpulint.cli.accepted import Accepted
    from gpulint.cli.run import Run

    since = _since(reference, paths)
    run = Run(flags)
    accepted = Accepted(run)
    looked = look(run, paths, accepted)
    checked = [accepted.mark(*pair) for pair in looked.entries]
    if since is not None:
        checked = [(since.only_new(entry), its) for entry, its in checked]
    return Seen(run, accepted, looked, checked)


def _with_ignored(entry: Entry) -> Entry:
    """The same file as if it had no comments that switch findings off."""
    findings = tuple(
        f._replace(suppressed=None) if f.suppressed == "inline" else f
        for f in entry.findings
    )
    return entry._replace(findings=findings)


def _since(reference: str | None, paths: tuple[str, ...]) -> Since | None:
    if reference is None:
        return None
    from gpulint.cli.run import wants_stdin
    from gpulint.cli.since import Since

    if wants_stdin(paths):
        raise click.UsageError("--new-only-since is for files, not for `-`")
    return Since(reference, paths or (".",))


class Looked(NamedTuple):
    """What was found: in each file, and beside it in YAML and JSON files.

    `found`: by the files that were listed; those that failed are not among them.
    """

    paths: tuple[str, ...]
    entries: list[tuple[Entry, Settings]]
    listed: frozenset[Path] = frozenset()
    found: Mapping[Path, tuple[Finding, ...]] = {}


def look(run: Run, paths: tuple[str, ...], accepted: Accepted | None = None) -> Looked:
    """Check all files; baselines that `accepted` cannot read are said before that."""
    from gpulint.cli.run import wants_stdin

    stdin = wants_stdin(paths)
    jobs = [job for job in [run.stdin_job()] if job] if stdin else run.jobs(paths)
    if accepted is not None:
        accepted.read(job.settings for job in jobs)
    entries, found = [], {}
    elsewhere: dict[Path, dict[tuple[str, Place], Finding]] = {}
    for job, result in (_stdin if stdin else _results)(run, jobs):
        own = tuple(f for f in result.findings if f.path == job.path)
        for finding in run.wanted(job, result.findings):
            if finding.path != job.path:
                its = elsewhere.setdefault(finding.path, {})
                its.setdefault((finding.code, finding.place), finding)
        entries.append((_entry(result.source, own, job.settings), job.settings))
        found[job.path] = own
    entries += [_in_settings(run, path, f) for path, f in elsewhere.items()]
    if stdin:
        return Looked(paths, entries)
    return Looked(paths, entries, frozenset(job.path for job in jobs), found)


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
    new = [job for job in jobs if job.path not in known]
    run.ready(new)
    answered = _in_processes(run, new, cache)

    def work(job: Job) -> Checked:
        if job.path in known:
            return known[job.path]
        make = functools.partial(check_path, job.path, job.options)
        checked = make() if cache is None else cache.keep(job.path, job.key, make)
        if checked.source is None:
            run.unread(job.path)
        return checked

    for job in jobs:
        its = next(answered, None) if job.path not in known else None
        if its is not None:
            yield from ((job, checked) for checked in its)
        else:
            yield from run.each([job], work)
    if cache is not None:
        cache.save()


def _in_processes(
    run: Run, jobs: list[Job], cache: Cache | None
) -> Iterator[list[Checked] | None]:
    """What several processes find in each file, where those pay.

    None: this process has to look for itself. Empty after an internal error.
    """
    asked = run.processes
    if asked == 1 or (asked is None and len(jobs) < MANY_FILES):
        return
    from gpulint.cli.pool import answers, processes

    number = processes(asked, len(jobs))
    if number == 1:
        return
    paths = [job.path for job in jobs]
    every = answers(run.flags, run.listed, paths, number)
    for job, its in zip(jobs, every, strict=True):
        if its is None:
            yield None
        elif its.findings is None:
            run.internal_error(job.path, its.error, its.trace)
            yield []
        else:
            if not its.read:
                run.unread(job.path)
            yield [_taken(job, its, cache)]


def _taken(job: Job, its: Answer, cache: Cache | None) -> Checked:
    """What another process found, for this one to show and to keep."""
    from gpulint.cache.findings import from_lists
    from gpulint.engine import Checked
    from gpulint.source import SourceError, read_source

    findings = tuple(map(from_lists, its.findings or ()))
    try:
        source = read_source(job.path) if its.read else None
    except SourceError:  # removed since
        source = None
    checked = Checked(source, findings)
    return (
        checked if cache is None else cache.take(job.path, job.key, checked, its.noted)
    )


def _in_settings(
    run: Run, path: Path, found: dict[tuple[str, Place], Finding]
) -> tuple[Entry, Settings]:
    """What the scripts of the run, together, say about one YAML or JSON file."""
    from gpulint.index.settings_file import read_settings

    findings = tuple(sorted(found.values(), key=lambda f: f.order))
    settings = run.resolver.of_file(path)
    return _entry(read_settings(path), findings, settings), settings


def _stdin(run: Run, jobs: list[Job]) -> Iterator[tuple[Job, Checked]]:
    from gpulint.engine import Checked, trouble
    from gpulint.source import SourceError, decode

    for job in jobs:  # one, if it is not excluded
        try:
            source = decode(sys.stdin.buffer.read(), job.path)
        except SourceError as error:
            yield job, Checked(None, tuple(trouble(job.path, error, job.options)))
        else:
            yield from _checked(run, job, source)


def _checked(run: Run, job: Job, source: Source) -> Iterator[tuple[Job, Checked]]:
    from gpulint.engine import check_source

    return run.each([job], lambda job: check_source(source, job.options))


def _entry(
    source: Source | None, findings: tuple[Finding, ...], settings: Settings
) -> Entry:
    from gpulint.report import Entry

    return Entry(source, findings, settings.allow, settings.fail_level)
