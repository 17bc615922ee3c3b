"""The baselines of a run: what they accept, and what they accept in vain."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpulint.baseline import Allowance, Baseline, BaselineError, Entry, read_baseline
from gpulint.cli import complain
from gpulint.registry import find_rule
from gpulint.report import Report, count
from gpulint.source import SourceError, parse, read_source

if TYPE_CHECKING:
    from gpulint import report
    from gpulint.cli.check import Looked
    from gpulint.cli.run import Run
    from gpulint.finding import Finding
    from gpulint.settings import Settings

NOT_ANALYSED = frozenset({"GPU000", "GPU001"})


class Accepted:
    """The baselines that the settings of a run's files name, each read once."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._allowances: dict[Path, Allowance] = {}

    def read(self, settings: Iterable[Settings]) -> None:
        """Read them all. ClickException: one is missing or broken."""
        for file in dict.fromkeys(its.baseline for its in settings):
            if file is not None:
                self._of(file)

    def mark(
        self, entry: report.Entry, settings: Settings
    ) -> tuple[report.Entry, Settings]:
        """The same file, its accepted findings marked."""
        findings = self.marked(entry.findings, settings)
        return entry._replace(findings=findings), settings

    def marked(
        self, findings: tuple[Finding, ...], settings: Settings
    ) -> tuple[Finding, ...]:
        """Findings in files with these settings, those marked that are accepted."""
        if settings.baseline is None:
            return findings
        return tuple(self._of(settings.baseline).mark(findings))

    def tell_stale(self, looked: Looked, strict: bool) -> bool:
        """Say on stderr which baselines accept what is not there; whether any does."""
        told = False
        for file, allowance in self._allowances.items():
            number = sum(stale(self._run, allowance, looked).values())
            told = told or bool(number)
            if number and (strict or not self._run.flags.quiet):
                complain(
                    f"{Report(()).path(file)} accepts {count(number, 'finding')} too "
                    "many; `gpulint baseline prune` removes what is no longer there",
                    "error" if strict else "note",
                )
        return told

    def _of(self, file: Path) -> Allowance:
        if file not in self._allowances:
            self._allowances[file] = Allowance(opened(file))
        return self._allowances[file]


def opened(file: Path) -> Baseline:
    """A baseline. ClickException: it cannot be read."""
    try:
        return read_baseline(file)
    except BaselineError as error:
        raise click.ClickException(str(error)) from None


def stale(run: Run, allowance: Allowance, looked: Looked) -> Counter[Entry]:
    """What is left of a baseline in files and for rules that this run looked into."""
    covers = _covers(looked)
    baseline = allowance.baseline
    return Counter(
        {
            entry: number
            for entry, number in allowance.left.items()
            if number > 0
            and _is_selected(run, baseline.path(entry), entry.code)
            and covers(baseline.path(entry))
        }
    )


def _covers(looked: Looked) -> Callable[[Path], bool]:
    """Whether a run has seen all that there is to find in a file.

    Not where it could not be analysed: its findings come back with the next text.
    Files that are gone or excluded, and settings files, count with their folder.
    """
    folders = [Path(os.path.normpath(Path.cwd() / p)) for p in looked.paths or (".",)]
    known: dict[Path, bool] = {}

    def covers(path: Path) -> bool:
        if path not in looked.listed:
            return any(folder in path.parents for folder in folders)
        if path not in known:
            known[path] = path in looked.found and _analysed(path, looked.found[path])
        return known[path]

    return covers


def _analysed(path: Path, findings: Iterable[Finding]) -> bool:
    if any(finding.code in NOT_ANALYSED for finding in findings):
        return False
    try:
        parse(read_source(path))
    except (SourceError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _is_selected(run: Run, path: Path, code: str) -> bool:
    """Whether a rule runs in a file; one that is gone can find nothing."""
    if find_rule(code) is None:
        return True
    return any(rule.code == code for rule in run.job(path).options.rules)


def lines(stale_entries: Counter[Entry]) -> Iterator[str]:
    """Entries as lines for people."""
    for entry, number in sorted(stale_entries.items()):
        times = f" ({number} times)" if number > 1 else ""
        yield f"{entry.path}: {entry.code} {entry.fingerprint}{times}"
