"""`gpulint fix`: rewrite scripts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import click

from gpulint.cli import complain
from gpulint.cli.options import discovery, gate, read_flags, selection
from gpulint.finding import Effect, Finding
from gpulint.report import Entry, Report, count, one_line, summary, total
from gpulint.runtime_name import ENDING
from gpulint.settings import RUNTIMES

MAX_ROUNDS = 5  # over the files of a run

if TYPE_CHECKING:
    from pathlib import Path

    from gpulint.cli.run import Job, Run
    from gpulint.engine import Checked, Fixed
    from gpulint.vendor.files import VendoredFile

    Results = list[tuple[Job, Fixed | Checked]]


@click.command
@click.argument("paths", nargs=-1, metavar="[PATHS|-]...")
@selection
@discovery
@click.option("--diff", is_flag=True, help="Write nothing; print a unified diff.")
@click.option(
    "--runtime",
    type=click.Choice(RUNTIMES),
    help="Where scripts get the runtime's helpers: `import` them from gpulint, or "
    "`vendor` them in a file beside the script.  [default: import]",
)
@click.option(
    "--exit-non-zero-on-fix", is_flag=True, help="Exit with 1 where a file changed."
)
@click.option(
    "--allow-dirty",
    is_flag=True,
    help="Apply fixes with an effect also to files with uncommitted changes.",
)
@gate
@click.pass_context
def fix(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    diff: bool,
    exit_non_zero_on_fix: bool,
    allow_dirty: bool,
    **given: Any,
) -> None:
    """Rewrite training scripts so that they do not waste the GPU.

    PATHS are files and folders (default: the current folder); `-` reads the standard
    input and writes the result to the standard output. Fixes that may change results
    are applied only with --allow, and then not to files that git reports as changed
    or untracked (--allow-dirty lifts this); nothing is written if one is refused.
    A script that imports the runtime already keeps the form of that import, and a
    vendored file that a rewritten script imports is written as well.

    Exit codes: 0 nothing at or above the fail level remains, 1 something remains
    (with --diff: there is a diff), 2 error.
    """
    from gpulint.cli.run import Run, one_line_errors, rare_collections, tolerant_output

    tolerant_output()
    flags = read_flags(given)
    with one_line_errors(), rare_collections():
        run = Run(flags)
        stdin, results = _fix(run, paths)
    vendored = _vendored(run, results) if stdin is None else []
    if diff:
        ctx.exit(run.exit_code(_show_diff(run, results, vendored)))
    if stdin is not None:
        _echo_stdin(run, stdin, results)
    else:
        if not allow_dirty:
            _refuse_dirty(results)
        results = _write(run, results, vendored)
    _tell(run, results, stderr=stdin is not None)
    changed = any(_changed(result) for _, result in results)
    failing = _remaining_fail(results) or (exit_non_zero_on_fix and changed)
    ctx.exit(run.exit_code(failing))


def _fix(run: Run, paths: tuple[str, ...]) -> tuple[bytes | None, Results]:
    """The standard input's bytes, if that is what is read, and all results."""
    from gpulint.cli.run import wants_stdin
    from gpulint.engine import Checked, fix_path

    if wants_stdin(paths):
        return _fix_stdin(run)
    jobs = run.jobs(paths)
    run.ready(jobs)
    results: Results = list(run.each(jobs, lambda job: fix_path(job.path, job.options)))
    for job, result in results:
        if isinstance(result, Checked) and result.source is None:
            run.unread(job.path)
    return None, _settled(run, results)


def _settled(run: Run, results: Results) -> Results:
    """All results, once no fix in a file gives rise to another one elsewhere."""
    from gpulint.engine import fix_again

    found = {job.path: (job, result) for job, result in results}
    fresh = {path for path, (_, result) in found.items() if _changed(result)}

    def again(job: Job) -> Fixed | Checked:
        project = run.projects.of(job.path)
        result = found[job.path][1]
        others = any(p != job.path and run.projects.of(p) is project for p in fresh)
        return (
            fix_again(result, job.options) if others and _is_fixed(result) else result
        )

    for _ in range(MAX_ROUNDS):
        before = dict(found)
        for job, result in run.each([job for job, _ in before.values()], again):
            found[job.path] = (job, result)
        fresh = {p for p in found if _text(found[p][1]) != _text(before[p][1])}
        if not fresh:
            break
    else:
        run.error("fixes in some files give rise to others without end; run again")
    return list(found.values())


def _fix_stdin(run: Run) -> tuple[bytes, Results]:
    from gpulint.engine import Checked, fix_source, trouble
    from gpulint.source import SourceError, decode

    data = sys.stdin.buffer.read()
    job = run.stdin_job()
    if job is None:
        return data, []
    try:
        source = decode(data, job.path)
    except SourceError as error:
        found = tuple(trouble(job.path, error, job.options))
        return data, [(job, Checked(None, found))]
    return data, list(run.each([job], lambda job: fix_source(source, job.options)))


def _echo_stdin(run: Run, data: bytes, results: Results) -> None:
    """The rewritten text, or the input as it was where nothing could be done."""
    for job, result in results:
        if _changed(result):
            try:
                data = result.source.encode(result.text)
            except UnicodeEncodeError as error:
                run.error(f"{job.path}: not rewritten: {error}")
            else:
                if ENDING in result.text:
                    hint = "`gpulint vendor` writes the file that it imports"
                    complain(f"{job.path}: {hint}", "note")
    out = sys.stdout.buffer
    out.write(data)
    out.flush()


def _vendored(run: Run, results: Results) -> list[VendoredFile]:
    """The vendored files that are to be written because scripts changed."""
    from gpulint.cli.vendored import behind

    changed = {job.path: result.text for job, result in results if _changed(result)}
    return behind(run.projects, changed)


def _show_diff(run: Run, results: Results, vendored: list[VendoredFile]) -> bool:
    """Print what would change; whether anything would."""
    from gpulint.report.diff import created, unified
    from gpulint.source import Source

    report = Report(())
    out = sys.stdout.buffer
    fixed: list[Finding] = []
    for _, result in results:
        if _changed(result):
            source = result.source
            diff = unified(report.path(source.path), source, result.text)
            # Bytes of the file's own encoding apply to it; a terminal shows UTF-8.
            encoding = "utf-8" if sys.stdout.isatty() else source.encoding
            out.write(diff.encode(encoding, "replace"))
            fixed += result.applied
    for file in vendored:
        name, old = report.path(file.path), file.written
        new = created(name, file.text)
        if old is not None:
            new = unified(name, Source(file.path, old), file.text)
        out.write(new.encode("utf-8"))
    out.flush()
    if not run.flags.quiet:
        text = f"Would fix {total(fixed)}" if fixed else "Nothing to fix"
        click.echo(text, err=True)
    return bool(fixed)


def _refuse_dirty(results: Results) -> None:
    from gpulint.cli.git import uncommitted

    risky = {
        job.path: effects
        for job, result in results
        if _changed(result) and (effects := _effects(result) - {Effect.EXACT})
    }
    dirty = sorted(uncommitted(risky)) if risky else []
    if dirty:
        names = ", ".join(sorted(effect.value for effect in risky[dirty[0]]))
        more = f" and {count(len(dirty) - 1, 'more file')}" if dirty[1:] else ""
        raise click.ClickException(
            f"{Report(()).path(dirty[0])}{more}: uncommitted changes, and the fixes "
            f"may change {names}; commit first, or pass --allow-dirty"
        )


def _write(run: Run, results: Results, vendored: list[VendoredFile]) -> Results:
    """Write what changed; what could not be written is left out of the result.

    Vendored files come first: no script is left with an import that leads nowhere.
    """
    from gpulint.source import write_source

    without = _write_vendored(run, vendored)
    written: Results = []
    for job, result in results:
        if job.path in without:
            continue
        try:
            if _changed(result):
                write_source(result.source, result.text)
        except OSError as error:
            run.error(f"{job.path}: not written: {error.strerror or error}")
        except UnicodeEncodeError as error:
            run.error(f"{job.path}: not written: {error}")
        else:
            written.append((job, result))
    return written


def _write_vendored(run: Run, vendored: list[VendoredFile]) -> set[Path]:
    """Write these files; the scripts that need one which could not be written."""
    from gpulint.vendor.files import VendorError

    without: set[Path] = set()
    for file in vendored:
        try:
            file.write()
        except VendorError as error:
            run.error(str(error))
            without |= file.scripts
        else:
            name = Report(()).path(file.path)
            if not run.flags.quiet:
                click.echo(f"{name}: written, with {', '.join(file.users)}")
    return without


def _tell(run: Run, results: Results, stderr: bool) -> None:
    """What was fixed and what remains, one line each, and the totals."""
    from gpulint.report.concise import line

    entries = tuple(_entry(job, result) for job, result in results)
    report = Report(entries)
    lines = []
    fixed: list[Finding] = []
    for entry, (_, result) in zip(entries, results, strict=True):
        if _is_fixed(result):
            fixed += result.applied
            lines += [_applied(report, finding) for finding in result.applied]
            for finding in result.undone:
                reason = "fix undone: its result does not compile"
                place = f"{report.place(finding)}: {finding.code}"
                complain(f"{place} {reason}", "warning")
            if not result.stable:
                run.error(
                    f"{report.path(result.source.path)}: fixes did not come to an end;"
                    " the last text is kept"
                )
        lines += [line(report, entry, finding) for finding in entry.shown]
    if not run.flags.quiet:
        lines += [f"Fixed {total(fixed)}"] if fixed else []
        lines += summary(report, "Remaining:")
    for text in lines:
        click.echo(text, err=stderr)


def _applied(report: Report, finding: Finding) -> str:
    title = finding.fix.title if finding.fix else finding.message
    return f"{report.place(finding)}: {finding.code} fixed: {one_line(title)}"


def _effects(result: Fixed) -> set[Effect]:
    return {f.fix.effect if f.fix else f.effect for f in result.applied}


def _remaining_fail(results: Results) -> bool:
    from gpulint.cli.run import fails

    return any(
        fails(_entry(job, result).shown, job.settings) for job, result in results
    )


def _is_fixed(result: Fixed | Checked) -> TypeGuard[Fixed]:
    return hasattr(result, "text")


def _changed(result: Fixed | Checked) -> TypeGuard[Fixed]:
    return _is_fixed(result) and result.text != result.source.text


def _text(result: Fixed | Checked) -> str | None:
    return result.text if _is_fixed(result) else None


def _entry(job: Job, result: Fixed | Checked) -> Entry:

    if _is_fixed(result):
        after = result.source.with_text(result.text)
        return Entry(after, result.remaining, job.settings.allow)
    findings = cast("Checked", result).findings
    return Entry(result.source, findings, job.settings.allow)
