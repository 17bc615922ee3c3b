"""`gpulint fix`: rewrite scripts."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import click

from gpulint.atomic import replace_file
from gpulint.cli import complain
from gpulint.cli.options import discovery, fixing, gate, ratchet, read_flags, selection
from gpulint.finding import Effect, Finding
from gpulint.report import Entry, Report, count, one_line, summary, total
from gpulint.runtime_name import ENDING
from gpulint.settings_values import RUNTIMES

MAX_ROUNDS = 5  # over the files of a run
MAX_COMMITS = 200

if TYPE_CHECKING:
    from gpulint.cli.interactive import Asking
    from gpulint.cli.run import Job, Run
    from gpulint.engine import Checked, Fixed
    from gpulint.source import Source
    from gpulint.vendor.files import VendoredFile

    Results = list[tuple[Job, Fixed | Checked]]


@click.command
@click.argument("paths", nargs=-1, metavar="[PATHS|-]...")
@selection
@fixing
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
@click.option(
    "-i",
    "--interactive",
    is_flag=True,
    help="Ask about each fix; nothing is written before the last answer.",
)
@click.option(
    "--commit-per-rule",
    is_flag=True,
    help="Make one git commit of each rule's fixes; refuses a work tree with changes.",
)
@click.option(
    "--backup",
    metavar="SUFFIX",
    help="Keep each file that is rewritten under its name with this suffix.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a JSON list of the fixes there.",
)
@ratchet
@gate
@click.pass_context
def fix(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    diff: bool,
    exit_non_zero_on_fix: bool,
    allow_dirty: bool,
    interactive: bool,
    commit_per_rule: bool,
    backup: str | None,
    report: Path | None,
    **given: Any,
) -> None:
    """Rewrite training scripts so that they do not waste the GPU.

    PATHS are files and folders (default: the current folder); `-` reads the standard
    input and writes the result to the standard output. Fixes that may change results
    are applied only with --allow, and then not to files that git reports as changed
    or untracked (--allow-dirty lifts this); nothing is written if one is refused.
    A script that imports the runtime already keeps the form of that import, and a
    vendored file that a rewritten script imports is written as well. Findings that a
    baseline accepts are fixed too; those that remain are neither shown nor counted.

    Exit codes: 0 nothing at or above the fail level remains, 1 something remains
    (with --diff: there is a diff), 2 error.
    """
    from gpulint.cli.run import (
        STDIN,
        Run,
        one_line_errors,
        rare_collections,
        tolerant_output,
    )

    tolerant_output()
    flags = read_flags(given)
    _check_suffix(backup)
    if commit_per_rule and (diff or STDIN in paths):
        raise click.UsageError("--commit-per-rule writes files")
    chooser = _Chooser(_asking(STDIN in paths) if interactive else None)
    with one_line_errors(), rare_collections():
        run = Run(flags)
        run.accept = chooser if interactive or commit_per_rule else None
        if commit_per_rule:
            results = _commit_rules(run, paths, chooser, backup)
            stdin = None
        else:
            stdin, results = _fix(run, paths)
        results = _accept(run, results)
    done = stdin is not None or commit_per_rule
    vendored = [] if done else _vendored(run, results)
    if diff:
        differs = _show_diff(run, results, vendored)
        _write_report(run, results, report)
        ctx.exit(run.exit_code(differs))
    if stdin is not None:
        _echo_stdin(run, stdin, results)
    elif not commit_per_rule:
        if not allow_dirty:
            _refuse_dirty(results)
        results = _write(run, results, vendored, backup)
    _write_report(run, results, report)
    _tell(run, results, stderr=stdin is not None)
    changed = any(_changed(result) for _, result in results)
    failing = _remaining_fail(results) or (exit_non_zero_on_fix and changed)
    ctx.exit(run.exit_code(failing))


@dataclass
class _Chooser:
    """Which of the offered fixes are applied: those of one rule, those asked for.

    `only`: the rule's code, `""` for none, None for all.
    """

    asking: Asking | None
    only: str | None = None

    def __call__(self, source: Source, finding: Finding) -> bool:
        if self.only is not None and finding.code != self.only:
            return False
        return self.asking is None or self.asking(source, finding)


def _asking(stdin: bool) -> Asking:
    from gpulint.cli.interactive import Asking, check_terminal

    check_terminal(stdin)
    return Asking()


def _check_suffix(backup: str | None) -> None:
    """UsageError for a suffix that names no other file, or another script."""
    if backup is not None and (
        not backup or set(backup) & {"/", "\\", "\0"} or backup.endswith(".py")
    ):
        raise click.UsageError(f"--backup: not a suffix for copies: {backup!r}")


def _commit_rules(
    run: Run, paths: tuple[str, ...], chooser: _Chooser, backup: str | None
) -> Results:
    """Rewrite, write and commit rule by rule, the smallest effect first.

    All that was done, as one result for each file.
    """
    from gpulint.cli.git import check_clean, commit

    chooser.only = ""
    _, results = _fix(run, paths)
    offered = [job.path for job, result in results if _offers(job, result)]
    check_clean(offered)
    before = {job.path: result for job, result in results}
    applied: dict[Path, list[Finding]] = defaultdict(list)
    tried: set[str] = set()
    commits = 0
    while (code := _next_code(results, tried)) and commits < MAX_COMMITS:
        chooser.only = code
        _, results = _fix(run, paths)
        tried.add(code)
        vendored = _vendored(run, results)
        changed = [pair for pair in results if _changed(pair[1])]
        if not changed:
            continue
        written = _write(run, changed, vendored, backup)
        files = [job.path for job, _ in written] + [file.path for file in vendored]
        for job, result in written:
            applied[job.path] += cast("Fixed", result).applied
        if not written:
            break
        commit(files, _message(code))
        commits += 1
        tried = {code}  # what has changed may have made others possible
    return [_merged(pair, before, applied) for pair in results]


def _offers(job: Job, result: Fixed | Checked) -> bool:
    return _is_fixed(result) and any(
        f.fix is not None and not f.suppressed and f.fix.effect in job.settings.allow
        for f in result.remaining
    )


def _next_code(results: Results, tried: set[str]) -> str | None:
    """The rule whose fixes come next: those that change least first."""
    offered = {
        (f.fix.effect.rank, f.code)
        for job, result in results
        if _is_fixed(result)
        for f in result.remaining
        if f.fix is not None and not f.suppressed and f.code not in tried
        if f.fix.effect in job.settings.allow
    }
    return min(offered)[1] if offered else None


def _message(code: str) -> str:
    from gpulint.registry import find_rule

    rule = find_rule(code)
    return f"Fix {code} {rule.name}" if rule else f"Fix {code}"


def _merged(
    pair: tuple[Job, Fixed | Checked],
    before: dict[Path, Fixed | Checked],
    applied: dict[Path, list[Finding]],
) -> tuple[Job, Fixed | Checked]:
    """A result with all that was applied since the first text."""
    job, result = pair
    first = before.get(job.path)
    if not _is_fixed(result) or first is None or not _is_fixed(first):
        return pair
    done = tuple(applied[job.path])
    return job, result._replace(source=first.source, applied=done)


def _write_report(run: Run, results: Results, file: Path | None) -> None:
    """A JSON list of the fixes; rows are those of the text that a fix was made in."""
    if file is None:
        return
    fixes = [
        {
            "code": finding.code,
            "name": finding.name,
            "effect": finding.fix.effect.value,
            "title": finding.fix.title,
            "message": finding.message,
            "filename": str(finding.path),
            "location": finding.place.start._asdict(),
            "fingerprint": finding.fingerprint,
        }
        for _, result in results
        if _is_fixed(result)
        for finding in result.applied
        if finding.fix is not None
    ]
    try:
        replace_file(file, (json.dumps(fixes, indent=2) + "\n").encode())
    except OSError as error:
        run.error(f"{file}: {error.strerror or error}")


def _fix(run: Run, paths: tuple[str, ...]) -> tuple[bytes | None, Results]:
    """The standard input's bytes, if that is what is read, and all results."""
    from gpulint.cli.run import wants_stdin
    from gpulint.engine import Checked, fix_path

    if wants_stdin(paths):
        return _fix_stdin(run)
    jobs = run.jobs(paths)
    run.ready(jobs)

    def work(job: Job) -> Fixed | Checked:
        return _unless_edited(run, job, lambda: fix_path(job.path, job.options))

    results: Results = list(run.each(jobs, work))
    for job, result in results:
        if isinstance(result, Checked) and result.source is None:
            run.unread(job.path)
    return None, _settled(run, results)


def _unless_edited(
    run: Run, job: Job, make: Callable[[], Fixed | Checked]
) -> Fixed | Checked:
    """A result; from the start each time the user has edited the file."""
    from gpulint.cli.interactive import Edited
    from gpulint.engine import fix_path
    from gpulint.source import SourceError, read_source

    try:
        return make()
    except Edited:
        asking = cast("_Chooser", run.accept).asking
        assert asking is not None
        asking.read_again(job.path)
        with contextlib.suppress(SourceError):  # the next reading says so
            text = read_source(job.path).text
            run.projects.of(job.path).replace(job.path, text)
        return _unless_edited(run, job, lambda: fix_path(job.path, job.options))


def _settled(run: Run, results: Results) -> Results:
    """All results, once no fix in a file gives rise to another one elsewhere."""
    from gpulint.engine import fix_again

    found = {job.path: (job, result) for job, result in results}
    fresh = {path for path, (_, result) in found.items() if _changed(result)}

    def again(job: Job) -> Fixed | Checked:
        project = run.projects.of(job.path)
        result = found[job.path][1]
        others = any(p != job.path and run.projects.of(p) is project for p in fresh)
        if not others or not _is_fixed(result):
            return result
        return _unless_edited(run, job, lambda: fix_again(result, job.options))

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


def _accept(run: Run, results: Results) -> Results:
    """The same, with what baselines accept marked among what remains."""
    from gpulint.cli.accepted import Accepted

    accepted = Accepted(run)
    accepted.read(job.settings for job, _ in results)
    marked: Results = []
    for job, result in results:
        if _is_fixed(result):
            wanted = run.wanted(job, result.remaining)
            left = accepted.marked(wanted, job.settings)
            marked.append((job, result._replace(remaining=left)))
        else:
            found = accepted.marked(cast("Checked", result).findings, job.settings)
            marked.append((job, cast("Checked", result)._replace(findings=found)))
    return marked


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


def _write(
    run: Run, results: Results, vendored: list[VendoredFile], backup: str | None
) -> Results:
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
                if backup is not None:
                    shutil.copy2(job.path, f"{job.path}{backup}")
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
            source = result.source
            lines += [_applied(report, source, finding) for finding in result.applied]
            for finding in result.undone:
                reason = "fix undone: its result does not compile"
                place = f"{report.place(finding.place, result.source)}: {finding.code}"
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


def _applied(report: Report, source: Source, finding: Finding) -> str:
    title = finding.fix.title if finding.fix else finding.message
    place = report.place(finding.place, source)
    return f"{place}: {finding.code} fixed: {one_line(title)}"


def _effects(result: Fixed) -> set[Effect]:
    return {f.fix.effect if f.fix else f.effect for f in result.applied}


def _remaining_fail(results: Results) -> bool:
    entries = (_entry(job, result) for job, result in results)
    return any(entry.fails(f) for entry in entries for f in entry.findings)


def _is_fixed(result: Fixed | Checked) -> TypeGuard[Fixed]:
    return hasattr(result, "text")


def _changed(result: Fixed | Checked) -> TypeGuard[Fixed]:
    return _is_fixed(result) and result.text != result.source.text


def _text(result: Fixed | Checked) -> str | None:
    return result.text if _is_fixed(result) else None


def _entry(job: Job, result: Fixed | Checked) -> Entry:
    allow, level = job.settings.allow, job.settings.fail_level
    if _is_fixed(result):
        after = result.source.with_text(result.text)
        return Entry(after, result.remaining, allow, level)
    findings = cast("Checked", result).findings
    return Entry(result.source, findings, allow, level)
