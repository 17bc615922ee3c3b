"""From paths and options to files with their settings, and the run over them."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

import click

from gpulint.cli import complain, internal, wants_traceback
from gpulint.cli.options import Flags
from gpulint.files import FilesError, is_excluded, list_files
from gpulint.index.projects import Projects
from gpulint.releases import TORCH
from gpulint.settings import Resolver, Settings, SettingsError

if TYPE_CHECKING:
    from gpulint.cache import Cache
    from gpulint.engine import Options
    from gpulint.finding import Finding
    from gpulint.releases import Range, Version
    from gpulint.source import Source

STDIN = "-"
Releases: TypeAlias = "tuple[Version | None, Version | None]"
Listed: TypeAlias = "dict[Path, tuple[Path, ...]]"  # by folder, the files below it
Packages: TypeAlias = "tuple[tuple[str, Range], ...]"
THRESHOLD = (2_000_000, 20, 100)
Result = TypeVar("Result")


class Job(NamedTuple):
    """One file (absolute, or `-`) with its settings.

    `torch`: the lowest and the newest release, as in `Options`, which `prepare` makes;
    `packages`: the same of others.
    """

    path: Path
    settings: Settings
    torch: Releases
    packages: Packages
    prepare: Callable[[Job], Options]

    @property
    def options(self) -> Options:
        """What the engine needs. click.UsageError: no rules of that name."""
        return self.prepare(self)

    @property
    def key(self) -> str:
        """What decides what is found in one text, beside other files."""
        its = self.settings
        releases = (self.torch, self.packages)
        known = (its.judged, its.named, its.target, releases, its.runtime)
        if not its.plugins:
            return repr(known)
        from gpulint.plugins import stamp

        return repr((*known, its.plugins, stamp(its.plugins)))


class Run:
    """One run of `check` or `fix`; remembers whether anything went wrong."""

    def __init__(self, flags: Flags) -> None:
        self.flags = flags
        self.failed = False
        self.resolver = Resolver(flags.overrides, flags.config, flags.isolated)
        self.projects = Projects(self._below)
        self.vendored: tuple[Path, ...] = ()  # files that are left alone
        self.accept: Callable[[Source, Finding], bool] | None = None
        self.listed: Listed = {}
        self._options: dict[tuple[object, ...], Options] = {}
        self._settled: dict[tuple[Path, int], tuple[Settings, Releases, Packages]] = {}

    def jobs(self, paths: tuple[str, ...]) -> list[Job]:
        """All files to read, in order; complains about folders that it cannot read."""
        listing = list_files(paths or (".",), self.resolver)
        self.vendored = tuple(listing.vendored)
        for error in listing.errors:
            self.error(error)
        folders = [Path(os.path.normpath(Path.cwd() / p)) for p in paths or (".",)]
        for folder in filter(Path.is_dir, folders):
            self.listed[folder] = _inside(folder, listing.files)
        if not (listing.files or listing.vendored or self.flags.quiet):
            complain("no Python files found", "warning")
        jobs = [self.job(path) for path in listing.files]
        if self.flags.verbose:
            self._say(jobs)
        return jobs

    def job(self, path: Path) -> Job:
        """A file with what holds for it."""
        folder, settings = path.parent, self.resolver.of_file(path)
        key = folder, id(settings)
        if key not in self._settled:
            self._settled[key] = self._settle(folder, settings)
        return Job(path, *self._settled[key], self._engine_options)

    def wanted(self, job: Job, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        """Findings, those in settings files as the settings of these want them."""
        seen = (self._as_wanted(job, finding) for finding in findings)
        return tuple(finding for finding in seen if finding is not None)

    def _as_wanted(self, job: Job, finding: Finding) -> Finding | None:
        if finding.path == job.path or not finding.path.is_absolute():
            return finding
        there = self.job(finding.path)
        if there.settings.judged == job.settings.judged:
            return finding
        options = there.options
        if all(rule.code != finding.code for rule in options.rules):
            return None
        return options.terms.applied(finding) if options.terms.admit(finding) else None

    def stdin_job(self) -> Job | None:
        """The standard input under the name it was given; None: excluded."""
        name = self.flags.stdin_filename
        job = self.job(Path.cwd() / (name or STDIN))
        if name and job.settings.force_exclude and is_excluded(job.path, job.settings):
            return None
        return job if name else job._replace(path=Path(STDIN))

    def ready(self, jobs: Iterable[Job]) -> None:
        """Select the rules for files; a name that matches none is said before all."""
        for job in jobs:
            self._engine_options(job)

    def each(
        self, jobs: Iterable[Job], work: Callable[[Job], Result]
    ) -> Iterator[tuple[Job, Result]]:
        """Work on all files; an internal error in one does not stop the others."""
        for job in jobs:
            try:
                result = work(job)
            except Exception as error:
                self.internal_error(job.path, internal(error), traceback.format_exc())
            else:
                yield job, result

    def internal_error(self, path: Path, message: str, trace: str) -> None:
        """Say that a file could not be checked; how it came to that, if asked for."""
        if wants_traceback(sys.argv[1:]) or self.flags.verbose:
            sys.stderr.write(trace)
        self.error(f"{path}: {message}")

    def cache(self) -> Cache | None:
        """The findings of earlier runs; None where they are not wanted."""
        from gpulint.cache import Cache, cache_folder

        if self.flags.no_cache:
            return None
        here = Path.cwd()
        named = self.flags.cache_dir or self.resolver.of_folder(here).cache_dir
        folder = cache_folder(here, named)
        return Cache(folder, self.flags.variant, self.projects)

    @property
    def processes(self) -> int | None:
        """In how many processes to look into files; None: whatever pays."""
        return self.resolver.of_folder(Path.cwd()).jobs

    def error(self, message: str) -> None:
        """One line on stderr; the run goes on, and ends with 2."""
        self.failed = True
        complain(message)

    def unread(self, path: Path) -> None:
        """Tell a file that may not be read from one that is no Python."""
        try:
            path.open("rb").close()
        except FileNotFoundError:  # deleted since it was listed: nothing to read
            return
        except OSError as error:
            self.error(f"{path}: {error.strerror or error}")

    def exit_code(self, fails: bool) -> int:
        """2 after an error, 1 where something `fails` unless `--exit-zero`, else 0."""
        if self.failed:
            return 2
        return int(fails and not self.flags.exit_zero)

    def _settle(
        self, folder: Path, settings: Settings
    ) -> tuple[Settings, Releases, Packages]:
        """Settings of files in a folder, and the releases of packages for them."""
        from gpulint.dependencies import find_torch_version, find_versions

        if settings.plugins:
            _use_plugins(settings)
        packages = find_versions(folder) | dict(settings.package_versions)
        torch: Releases = (settings.torch_version, None)
        found = None if settings.torch_version else find_torch_version(folder)
        if found is not None:
            torch = (found.version, found.highest)
        return settings, torch, tuple(packages.items())

    def _engine_options(self, job: Job) -> Options:
        from gpulint.engine import Options
        from gpulint.finding import Confidence
        from gpulint.registry import check_words, choose_rules, severities
        from gpulint.targets import fits
        from gpulint.terms import Terms

        settings, (torch, newest) = job.settings, job.torch
        key = id(settings), *job.torch, job.packages
        if key not in self._options:
            try:
                plugins = settings.plugins
                check_words(settings.named, plugins)
                rules = choose_rules(settings.rules, plugins)
                fixable = choose_rules(settings.fixes, plugins)
                levels = severities(settings.severity, plugins)
                named = settings.asked_for if settings.min_confidence is None else ()
                asked = choose_rules(named, plugins)
            except ValueError as error:
                raise click.UsageError(str(error)) from None
            self._options[key] = Options(
                tuple(r for r in rules if fits(r.hardware, settings.target)),
                settings.allow,
                torch,
                self.projects,
                newest,
                vendor=settings.runtime == "vendor",
                accept=self.accept,
                packages=job.packages,
                said=_said(settings),
                protect=settings.protect,
                terms=Terms(
                    levels,
                    settings.min_confidence or Confidence.MEDIUM,
                    frozenset(rule.code for rule in rules if rule not in fixable),
                    frozenset(rule.code for rule in asked),
                ),
            )
        return self._options[key]

    def _below(self, root: Path) -> tuple[Path, ...]:
        """All Python files of a project, whichever of them are checked."""
        for folder, files in self.listed.items():
            if folder == root:
                return files
            if folder in root.parents:
                return _inside(root, files)
        return list_files((str(root),), self.resolver).files

    def _say(self, jobs: list[Job]) -> None:
        files = sorted({str(job.settings.file or "defaults") for job in jobs})
        complain(f"{len(jobs)} files; settings: {', '.join(files)}", "note")
        versions = sorted({job.torch[0] for job in jobs} - {None}, key=str)
        shown = ", ".join(".".join(map(str, v)) for v in versions if v)
        complain(f"lowest torch: {shown or 'not declared'}", "note")


def _use_plugins(settings: Settings) -> None:
    from gpulint.registry import use_plugins

    try:
        use_plugins(settings.plugins)
    except ValueError as error:
        raise SettingsError(f"{settings.file}: `plugins`: {error}") from None


def _inside(folder: Path, files: tuple[Path, ...]) -> tuple[Path, ...]:
    start = f"{folder}{os.sep}".replace(os.sep * 2, os.sep)
    return tuple(file for file in files if str(file).startswith(start))


def _said(settings: Settings) -> frozenset[str]:
    """The packages whose releases stand in the settings or on the command line."""
    named = [name for name, _ in settings.package_versions]
    torch = [TORCH] if settings.torch_version is not None else []
    return frozenset([*torch, *named])


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Turns errors in settings and paths into what click prints in one line."""
    try:
        yield
    except (SettingsError, FilesError) as error:
        raise click.ClickException(str(error)) from None


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Syntax trees are many objects with few cycles: looking for some takes a fifth
    of a run's time. Not switched off, so that a long run stays small.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*THRESHOLD)
    try:
        yield
    finally:
        gc.freeze()  # else the lower threshold has it look through all of them now
        gc.set_threshold(*before)
        gc.unfreeze()


def tolerant_output() -> None:
    """A terminal that lacks a character shows another one instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def wants_stdin(paths: tuple[str, ...]) -> bool:
    """Whether `-` is given, which stands alone."""
    if STDIN not in paths:
        return False
    if len(paths) > 1:
        raise click.UsageError("`-` stands alone, without other paths")
    return True
