"""`gpulint fix`: rewrite scripts."""

from __future__ import annotations

import contextlib
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from gpulint.cli import complain
from gpulint.cli.fix_files import refuse_dirty, vendored_files, write_results
from gpulint.cli.fix_report import (
    remaining_fail,
    show_diff,
    tell,
    write_report,
)
from gpulint.cli.fix_results import is_changed, is_fixed, text_of
from gpulint.cli.options import discovery, fixing, gate, ratchet, read_flags, selection
from gpulint.finding import Finding
from gpulint.runtime_name import ENDING
from gpulint.settings_values import RUNTIMES

MAX_ROUNDS = 5  # over the files of a run
MAX_COMMITS = 200

if TYPE_CHECKING:
    from gpulint.cli.fix_results import Results
    from gpulint.cli.interactive import Asking
    from gpulint.cli.run import Job, Run
    from gpulint.engine import Checked, Fixed
    from gpulint.source import Source


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
    vendored = [] if done else vendored_files(run, results)
    if diff:
        differs = show_diff(run, results, vendored)
        write_report(run, results, report)
        ctx.exit(run.exit_code(differs))
    if stdin is not None:
        _echo_stdin(run, stdin, results)
    elif not commit_per_rule:
        if not allow_dirty:
            refuse_dirty(results)
        results = write_results(run, results, vendored, backup)
    write_report(run, results, report)
    tell(run, results, stderr=stdin is not None)
    changed = any(is_changed(result) for _, result in results)
    failing = remaining_fail(results) or (exit_non_zero_on_fix and changed)
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
        vendored = vendored_files(run, results)
        changed = [pair for pair in results if is_changed(pair[1])]
        if not changed:
            continue
        written = write_results(run, changed, vendored, backup)
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
    return is_fixed(result) and any(
        f.fix is not None and not f.suppressed and f.fix.effect in job.settings.allow
        for f in result.remaining
    )


def _next_code(results: Results, tried: set[str]) -> str | None:
    """The rule whose fixes come next: those that change least first."""
    offered = {
        (f.fix.effect.rank, f.code)
        for job, result in results
        if is_fixed(result)
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
    if not is_fixed(result) or first is None or not is_fixed(first):
        return pair
    done = tuple(applied[job.path])
    return job, result._replace(source=first.source, applied=done)


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
    fresh = {path for path, (_, result) in found.items() if is_changed(result)}

    def again(job: Job) -> Fixed | Checked:
        project = run.projects.of(job.path)
        result = found[job.path][1]
        others = any(p != job.path and run.projects.of(p) is project for p in fresh)
        if not others or not is_fixed(result):
            return result
        return _unless_edited(run, job, lambda: fix_again(result, job.options))

    for _ in range(MAX_ROUNDS):
        before = dict(found)
        for job, result in run.each([job for job, _ in before.values()], again):
            found[job.path] = (job, result)
        fresh = {p for p in found if text_of(found[p][1]) != text_of(before[p][1])}
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
        if is_fixed(result):
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
        if is_changed(result):
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
