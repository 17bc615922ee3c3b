"""`gpulint check --watch`: check again whenever a file of the projects changes."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import click

from gpulint import dependencies
from gpulint.cli import complain
from gpulint.index.projects import find_root
from gpulint.report import Report
from gpulint.settings import EXCLUDES

PAUSE = 0.5  # seconds between looks at the disk, at least
SHARE = 0.05  # of the time that looking may take
SETTLING = 0.1  # seconds in which nothing changes any more, as editors save in steps
# Scripts, and what decides what is found in them: settings, declared releases.
SUFFIXES = (".py", ".ipynb", ".toml", ".yaml", ".yml", ".json", ".cfg", ".lock", ".txt")
State = dict[str, tuple[int, int]]


def watch(
    check: Callable[[], object],
    paths: Iterable[str],
    settings: Path | None = None,
    written: Iterable[Path] = (),
    quiet: bool = False,
) -> NoReturn:
    """Check, and again after each change, until the user interrupts it.

    What is wrong with the settings ends the first check, and is only said in others.
    `settings`: a file to look at wherever it lies; `written`: what a check writes.
    """
    disk = Disk(_folders(paths), settings, frozenset(_absolute(p) for p in written))
    state, first = disk.state(), True
    while True:
        try:
            check()
        except click.ClickException as error:
            if first:
                raise
            complain(error.format_message().rstrip("."))
        first = False
        sys.stdout.flush()
        if not quiet:
            complain("watching for changes; Ctrl-C ends it", "note")
        changed, state = _wait(disk, state)
        dependencies.forget()
        if sys.stdout.isatty():
            click.clear()
        if not quiet:
            complain(f"{Report(()).path(Path(changed))} has changed", "note")


def _folders(paths: Iterable[str]) -> list[Path]:
    """Where to look: the projects that the paths belong to, none inside another."""
    found = set()
    for path in paths:
        there = Path(os.path.normpath(Path.cwd() / path))
        folder = there if there.is_dir() else there.parent
        found.add(find_root(folder) or folder)
    return sorted(f for f in found if found.isdisjoint(f.parents))


class Disk(NamedTuple):
    """Where changes are looked for: folders, a file, and not in what is our own."""

    folders: list[Path]
    file: Path | None
    ours: frozenset[str]

    def state(self) -> State:
        """Time and size of each file that a check may rest on."""
        state = {}
        found: list[os.DirEntry[str] | Path] = []
        for folder in self.folders:
            found += _entries(str(folder))
        if self.file is not None:
            found.append(self.file)
        for path in found:
            name = os.fspath(path)
            if name not in self.ours:
                with contextlib.suppress(OSError):  # gone by now
                    its = path.stat()
                    state[name] = its.st_mtime_ns, its.st_size
        return state


def _absolute(path: Path) -> str:
    return os.path.normpath(Path.cwd() / path)


def _wait(disk: Disk, before: State) -> tuple[str, State]:
    """Wait for a change; a file that has one, and how all files then are."""
    while True:
        start = time.monotonic()
        now = disk.state()
        if now != before:
            break
        time.sleep(max(PAUSE, (time.monotonic() - start) / SHARE))
    changed = min(path for path, _ in set(now.items()) ^ set(before.items()))
    while True:
        time.sleep(SETTLING)
        later = disk.state()
        if later == now:
            return changed, now
        now = later


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    """Files below a folder, without those of environments, builds and runs."""
    try:
        with os.scandir(folder) as scanned:
            entries = list(scanned)
    except OSError:
        return
    if any(entry.name == "pyvenv.cfg" for entry in entries):
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in EXCLUDES:
                yield from _entries(entry.path)
        elif entry.name.endswith(SUFFIXES):
            yield entry
