"""What `gpulint fix` says: the diff, what it has fixed, and a report of the rest."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpulint.atomic import replace_file
from gpulint.cli import complain
from gpulint.cli.fix_results import entry_of, is_changed, is_fixed
from gpulint.finding import Effect, Finding
from gpulint.report import Report, for_newer_torch, one_line, summary, total

if TYPE_CHECKING:
    from gpulint.cli.fix_results import Results
    from gpulint.cli.run import Run
    from gpulint.engine import Fixed
    from gpulint.source import Source
    from gpulint.vendor.files import VendoredFile

# A script that imports the package's runtime, not a copy of it.
_RUNTIME = re.compile(
    r"^\s*(from gpulint import .*\bruntime\b|import gpulint\b)", re.MULTILINE
)


def write_report(run: Run, results: Results, file: Path | None) -> None:
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
        if is_fixed(result)
        for finding in result.applied
        if finding.fix is not None
    ]
    try:
        replace_file(file, (json.dumps(fixes, indent=2) + "\n").encode())
    except OSError as error:
        run.error(f"{file}: {error.strerror or error}")


def show_diff(run: Run, results: Results, vendored: list[VendoredFile]) -> bool:
    """Print what would change; whether anything would."""
    from gpulint.report.diff import created, unified
    from gpulint.source import Source

    report = Report(())
    out = sys.stdout.buffer
    fixed: list[Finding] = []
    for _, result in results:
        if is_changed(result):
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
        entries = (entry_of(job, result) for job, result in results)
        left = for_newer_torch(f for entry in entries for f in entry.shown)
        for line in (text, *left, *_needs(results)):
            click.echo(line, err=True)
    return bool(fixed)


def tell(run: Run, results: Results, stderr: bool) -> None:
    """What was fixed and what remains, one line each, and the totals."""
    from gpulint.report.concise import line

    entries = tuple(entry_of(job, result) for job, result in results)
    report = Report(entries)
    lines = []
    fixed: list[Finding] = []
    for entry, (_, result) in zip(entries, results, strict=True):
        if is_fixed(result):
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
        lines += _needs(results)
        lines += summary(report, "Remaining:")
    for text in lines:
        click.echo(text, err=stderr)


def _needs(results: Results) -> list[str]:
    """What scripts that import the runtime now need where they train."""
    changed = [result for _, result in results if is_changed(result)]
    new = [
        result
        for result in changed
        if _RUNTIME.search(result.text) and not _RUNTIME.search(result.source.text)
    ]
    if not new:
        return []
    files, train = f"{len(new)} files import", "they train"
    if len(new) == 1:
        files, train = "1 file imports", "it trains"
    needs = f"`pip install 'gpulint[runtime]'` where {train}"
    return [f"{files} gpulint.runtime now: {needs}, or fix with `--runtime vendor`"]


def _applied(report: Report, source: Source, finding: Finding) -> str:
    title = finding.fix.title if finding.fix else finding.message
    place = report.place(finding.place, source)
    return f"{place}: {finding.code} fixed: {one_line(title)}"


def effects_of(result: Fixed) -> set[Effect]:
    return {f.fix.effect if f.fix else f.effect for f in result.applied}


def remaining_fail(results: Results) -> bool:
    """Whether what remains makes the run end with an error."""
    entries = (entry_of(job, result) for job, result in results)
    return any(entry.fails(f) for entry in entries for f in entry.findings)
