"""What `gpulint fix` writes: files, each whole or not at all, and the runtime."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpulint.cli.fix_report import effects_of
from gpulint.cli.fix_results import is_changed
from gpulint.finding import Effect
from gpulint.report import Report, count

if TYPE_CHECKING:
    from gpulint.cli.fix_results import Results
    from gpulint.cli.run import Run
    from gpulint.vendor.files import VendoredFile


def vendored_files(run: Run, results: Results) -> list[VendoredFile]:
    """The vendored files that are to be written because scripts changed."""
    from gpulint.cli.vendored import behind

    changed = {job.path: result.text for job, result in results if is_changed(result)}
    return behind(run.projects, changed)


def refuse_dirty(results: Results) -> None:
    """Stops where a fix with an effect is for a file with uncommitted changes."""
    from gpulint.cli.git import uncommitted

    risky = {
        job.path: effects
        for job, result in results
        if is_changed(result) and (effects := effects_of(result) - {Effect.EXACT})
    }
    dirty = sorted(uncommitted(risky)) if risky else []
    if dirty:
        names = ", ".join(sorted(effect.value for effect in risky[dirty[0]]))
        more = f" and {count(len(dirty) - 1, 'more file')}" if dirty[1:] else ""
        raise click.ClickException(
            f"{Report(()).path(dirty[0])}{more}: uncommitted changes, and the fixes "
            f"may change {names}; commit first, or pass --allow-dirty"
        )


def write_results(
    run: Run, results: Results, vendored: list[VendoredFile], backup: str | None
) -> Results:
    """Write what changed; what could not be written is left out of the result.

    Vendored files come first: no script is left with an import that leads nowhere.
    """
    from gpulint.source import write_source

    without = write_vendored(run, vendored)
    written: Results = []
    for job, result in results:
        if job.path in without:
            continue
        try:
            if is_changed(result):
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


def write_vendored(run: Run, vendored: list[VendoredFile]) -> set[Path]:
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
