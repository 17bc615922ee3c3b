"""Results of `gpulint fix`: which files are fixed or changed, and their entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard, cast

from gpulint.report import Entry

if TYPE_CHECKING:
    from gpulint.cli.run import Job
    from gpulint.engine import Checked, Fixed

    Results = list[tuple[Job, Fixed | Checked]]


def is_fixed(result: Fixed | Checked) -> TypeGuard[Fixed]:
    """Whether a file could be read and has been through all passes."""
    return hasattr(result, "text")


def is_changed(result: Fixed | Checked) -> TypeGuard[Fixed]:
    """Whether its text is another one now."""
    return is_fixed(result) and result.text != result.source.text


def text_of(result: Fixed | Checked) -> str | None:
    """Its text as it is now; None where it could not be read."""
    return result.text if is_fixed(result) else None


def entry_of(job: Job, result: Fixed | Checked) -> Entry:
    """What reports say of a file: what remains, and what of it fails a run."""
    allow, level = job.settings.allow, job.settings.fail_level
    if is_fixed(result):
        after = result.source.with_text(result.text)
        return Entry(after, result.remaining, allow, level)
    findings = cast("Checked", result).findings
    return Entry(result.source, findings, allow, level)
