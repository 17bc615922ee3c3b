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
from gpulint.finding import Finding
from gpulint.index.project import Projects
from gpulint.settings import Resolver, Settings, SettingsError

if TYPE_CHECKING:
    from gpulint.cache import Cache
    from gpulint.engine import Options
    from gpulint.torch_range import Version

STDIN = "-"
Releases: TypeAlias = "tuple[Version | None, Version | None]"
THRESHOLD = (1_000_000, 20, 100)
Result = TypeVar("Result")


class Job(NamedTuple):
    """One file (absolute, or `-`) with its settings.

    `torch`: the lowest and the newest release, as in `Options`, which `prepare` makes.
    """

    path: Path
    settings: Settings
    torch: Releases
    prepare: Callable[[Job], Options]

    @property
    def options(self) -> Options:
        """What the engine needs. click.UsageError: no rules of that name."""
        return self.prepare(self)

    @property
    def key(self) -> str:
        """What decides what is found in one text, beside other files."""
        its = self.settings
        return repr((its.select, its.ignore, self.torch, its.runtime))


class Run:
    """One run of `check` or `fix`; remembers whether anything went wrong."""

    def __init__(self, flags: Flags) -> None:
        self.flags = flags
        self.failed = False
        self.resolver = Resolver(flags.overrides, flags.config, flags.isolated)
        self.projects = Projects(self._below)
        self.vendored: tuple[Path, ...] = ()  # files that are left alone
        self._listed: dict[Path, tuple[Path, ...]] = {}
        self._options: dict[tuple[object, ...], Options] = {}
        self._folders: dict[Path, tuple[Settings, Releases]] = {}

    def jobs(self, paths: tuple[str, ...]) -> list[Job]:
        """All files to read, in order; complains about folders that it cannot read."""
        listing = list_files(paths or (".",), self.resolver)
        self.vendored = tuple(listing.vendored)
        for error in listing.errors:
            self.error(error)
        folders = [Path(os.path.normpath(Path.cwd() / p)) for p in paths or (".",)]
        for folder in filter(Path.is_dir, folders):
            self._listed[folder] = _inside(folder, listing.files)
        if not (listing.files or listing.vendored or self.flags.quiet):
            complain("no Python files found", "warning")
        jobs = [self.job(path) for path in listing.files]
        if self.flags.verbose:
            self._say(jobs)
        return jobs

    def job(self, path: Path) -> Job:
        """A file with what holds for it."""
        folder = path.parent
        if folder not in self._folders:
            self._folders[folder] = self._in_folder(folder)
        return Job(path, *self._folders[folder], self._engine_options)

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
                if wants_traceback(sys.argv[1:]) or self.flags.verbose:
                    traceback.print_exc()
                self.error(f"{job.path}: {internal(error)}")
            else:
                yield job, result

    def cache(self) -> Cache | None:
        """The findings of earlier runs; None where they are not wanted."""
        from gpulint.cache import NAME, Cache
        from gpulint.index.project import find_root

        if self.flags.no_cache:
            return None
        here = Path.cwd()
        folder = self.flags.cache_dir or self.resolver.of_folder(here).cache_dir
        root = find_root(here) or here
        return Cache(here / (folder or root / NAME), self.flags.variant, self.projects)

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

    def _in_folder(self, folder: Path) -> tuple[Settings, Releases]:
        """The settings of a folder's files, and the releases of torch for them."""
        from gpulint.torch_version import find_torch_version

        settings = self.resolver.of_folder(folder)
        if settings.torch_version is not None:
            return settings, (settings.torch_version, None)
        found = find_torch_version(folder)
        if found is None:
            return settings, (None, None)
        return settings, (found.version, found.highest)

    def _engine_options(self, job: Job) -> Options:
        from gpulint.engine import Options
        from gpulint.registry import select_rules

        settings, (torch, newest) = job.settings, job.torch
        key = id(settings), *job.torch
        if key not in self._options:
            try:
                rules = select_rules(settings.select, settings.ignore)
            except ValueError as error:
                raise click.UsageError(str(error)) from None
            self._options[key] = Options(
                rules,
                settings.allow,
                torch,
                self.projects,
                newest,
                vendor=settings.runtime == "vendor",
            )
        return self._options[key]

    def _below(self, root: Path) -> tuple[Path, ...]:
        """All Python files of a project, whichever of them are checked."""
        for folder, files in self._listed.items():
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


def _inside(folder: Path, files: tuple[Path, ...]) -> tuple[Path, ...]:
    start = f"{folder}{os.sep}".replace(os.sep * 2, os.sep)
    return tuple(file for file in files if str(file).startswith(start))


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


def fails(findings: Iterable[Finding], settings: Settings) -> bool:
    """Whether a finding that is not suppressed reaches the fail level."""
    return any(
        finding.severity.rank >= settings.fail_level.rank
        for finding in findings
        if finding.suppressed is None
    )
