"""Checks and fixes what editors hold, in one thread, with what it learned before."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import click

from gpulint import dependencies
from gpulint.baseline import Allowance, Baseline, read_baseline
from gpulint.cli.options import Flags
from gpulint.cli.run import Job, Run
from gpulint.cli.vendored import behind
from gpulint.engine import Options, check_source, fix_one, fix_source, trouble
from gpulint.files import is_excluded
from gpulint.finding import Effect, Finding
from gpulint.ignores import Form, add_ignores
from gpulint.index.consulted import Consulted
from gpulint.runtime_name import ENDING
from gpulint.server.documents import Document
from gpulint.source import MAX_BYTES, Source, SourceError


class Looked(NamedTuple):
    """What was found in a document, sorted, without what is accepted or ignored.

    `elsewhere`: what its text has said about settings files.
    """

    document: Document
    options: Options
    findings: tuple[Finding, ...] = ()
    elsewhere: tuple[Finding, ...] = ()


class Checker:
    """Looks at documents; everything in it belongs to the thread that calls it.

    `folders`: where the editor works; patterns of files to leave out count from there.
    """

    def __init__(self, flags: Flags, folders: Iterable[Path] = ()) -> None:
        self._flags = flags
        self._folders = tuple(folders)
        self.forget()

    def forget(self) -> None:
        """Settings, dependencies or the list of files have changed on the disk."""
        dependencies.forget()
        self._run = Run(self._flags)
        self._told: dict[Path, str] = {}
        self._baselines: dict[Path, Baseline] = {}

    def reread(self, path: Path) -> None:
        """A file that no editor holds has changed on the disk."""
        self._run.projects.of(path).reread(path)

    def rest(self) -> None:
        """Let go of what earlier texts have left, while nobody waits for an answer.

        Syntax trees refer to themselves: only a collection frees them, and one that
        comes by itself, after many texts, would take longer than all else.
        """
        gc.collect()

    def excludes(self, path: Path) -> bool:
        """Whether the settings leave a file out. SettingsError: they are wrong."""
        settings = self._job(path).settings
        around = next((f for f in self._folders if f in path.parents), None)
        return is_excluded(path, settings, around)

    def check(self, document: Document, held: Iterable[Document]) -> Looked | None:
        """Look at a document while the editor holds others; None: it is left out.

        SettingsError, BaselineError, click.UsageError: what the settings say cannot be.
        """
        if self.excludes(document.path):
            return None
        job = self._job(document.path)
        options = job.options
        try:
            source = self._source(document, held)
        except SourceError as error:
            found = tuple(trouble(document.path, error, options))
            return Looked(document, options, found)
        findings = self._shown(check_source(source, options).findings, job)
        own = tuple(f for f in findings if f.path == document.path)
        others = tuple(f for f in findings if f.path != document.path)
        return Looked(document, options, own, others)

    def fixed(self, looked: Looked, finding: Finding) -> str | None:
        """The source after the fix of one finding; None: it cannot be applied."""
        if finding.fix is None:
            return None
        text = fix_one(looked.document.source, finding.fix)
        return text if self._stands_alone(looked, text) else None

    def fixed_all(
        self, looked: Looked, held: Iterable[Document], code: str = ""
    ) -> str | None:
        """The source after all exact fixes, or after all those of one rule.

        None: nothing to fix.
        """
        document, options = looked.document, looked.options
        options = options._replace(allow=frozenset({Effect.EXACT}))
        if code:
            rules = tuple(rule for rule in options.rules if rule.code == code)
            options = options._replace(rules=rules, allow=frozenset(Effect))
        source = self._source(document, held)
        text = fix_source(source, options).text
        self._told.pop(document.path, None)  # the project knows the fixed text now
        if text == source.text:
            return None
        return text if self._stands_alone(looked, text) else None

    def ignored(self, looked: Looked, finding: Finding) -> str | None:
        """The source with a comment that switches a finding off, where one can be."""
        return add_ignores(looked.document.source, [finding], Form())

    def _job(self, path: Path) -> Job:
        """What holds for a file; where it was never saved, as beside the server."""
        return self._run.job(Path.cwd() / path)

    def _source(self, document: Document, held: Iterable[Document]) -> Source:
        """The text to look at, its project knowing all texts that editors hold."""
        source = document.source
        if len(source.text) > MAX_BYTES:
            raise SourceError(f"not analysed: more than {MAX_BYTES} characters")
        scripts = {
            its.path: its.texts[0].content
            for its in held
            if its.path.is_absolute() and not its.is_notebook
        }
        for path in self._told.keys() - scripts.keys():
            del self._told[path]
            self._run.projects.of(path).reread(path)
        for path, text in scripts.items():
            if self._told.get(path) != text:
                self._run.projects.of(path).replace(path, text)
                self._told[path] = text
        if document.path.is_absolute():  # what answers rest on is for the cache of runs
            self._run.projects.of(document.path).noted = Consulted()
        return source

    def _shown(self, findings: Iterable[Finding], job: Job) -> list[Finding]:
        """Those that no comment and no baseline has an answer to."""
        findings = self._run.wanted(job, findings)
        file = job.settings.baseline
        if file is not None:
            if file not in self._baselines:
                self._baselines[file] = read_baseline(file)
            findings = Allowance(self._baselines[file]).mark(findings)
        return [finding for finding in findings if finding.suppressed is None]

    def _stands_alone(self, looked: Looked, text: str | None) -> bool:
        """Whether a text needs no vendored file that is still to be written."""
        path = looked.document.path
        if text is None or not looked.options.vendor or ENDING not in text:
            return text is not None
        if not path.is_absolute() or looked.document.is_notebook:
            return False
        self._run.projects.of(path).replace(path, text)
        self._told.pop(path, None)
        try:
            return not behind(self._run.projects, {path: text})
        except click.ClickException:
            return False
