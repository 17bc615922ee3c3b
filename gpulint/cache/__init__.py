"""Findings of earlier runs, used again where nothing they rest on has changed.

A check notes which files it looked into, which names it looked up in folders and which
searches through all files it made (`gpulint.index.consulted`). What it found holds as
long as all these answers are the same. A cache that is broken, of another version or
that cannot be written is none; it is never an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gpulint import __version__
from gpulint.cache.findings import from_lists
from gpulint.cache.memory import Memory
from gpulint.cache.record import MAX_BYTES, Record, dump, load
from gpulint.engine import Checked
from gpulint.files import FilesError
from gpulint.index.consulted import Consulted
from gpulint.index.project import Project
from gpulint.index.projects import Projects, find_root
from gpulint.settings import SettingsError
from gpulint.source import SourceError, read_source

NAME = ".gpulint_cache"
MAX_FILES = 40
_TAG = """Signature: 8a477f597d28d172789f06886806bc55
# This folder holds findings of gpulint, which makes them anew where they are missing.
"""
_IGNORED = "*\n"
_TEMPORARY = "gpulint-"
_BROKEN = (OSError, ValueError, KeyError, IndexError, TypeError, RecursionError)


def cache_folder(here: Path, named: Path | None) -> Path:
    """Where findings are kept: in `named`, or at the root of the project."""
    return here / (named or (find_root(here) or here) / NAME)


def remove_cache(folder: Path) -> bool:
    """Remove what was kept in a folder, and the folder if nothing else is in it.

    Whether there was anything of gpulint's. OSError: it may not be removed.
    """
    tag = folder / "CACHEDIR.TAG"
    if not tag.is_file() or tag.read_text("utf-8", "replace") != _TAG:
        return False
    for path in sorted(folder.iterdir()):
        known = re.fullmatch(rf"[0-9a-f]{{24}}\.jsonl|{_TEMPORARY}\w+", path.name)
        if known and path.is_file():
            path.unlink()
    ignored = folder / ".gitignore"
    if ignored.is_file() and ignored.read_text("utf-8", "replace") == _IGNORED:
        ignored.unlink()
    tag.unlink()  # the last: until here, a second call goes on
    with contextlib.suppress(OSError):
        folder.rmdir()
    return True


class Cache:
    """The findings of earlier runs below a folder.

    `variant`: what else, beside the versions of gpulint and Python, decides which
    files are listed; runs that differ in it do not share what they keep.
    """

    def __init__(self, folder: Path, variant: str, projects: Projects) -> None:
        self._folder = folder
        self._variant = variant
        self._head = f"{variant}\n{_tool()}"
        self._projects = projects
        self._start = time.time_ns()
        self._memories: dict[Project, Memory | None] = {}
        self._folders: dict[Path, Memory | None] = {}

    def find(self, path: Path, key: str) -> Checked | None:
        """What was found in a file with what `key` stands for, if it holds."""
        memory = self._memory(path)
        data = memory.find(path, key) if memory is not None else None
        if not data:
            return None if data is None else Checked(None, ())
        try:
            return Checked(read_source(path), tuple(map(from_lists, data)))
        except SourceError:
            return None

    def keep(self, path: Path, key: str, check: Callable[[], Checked]) -> Checked:
        """What is found in a file now."""
        memory = self._memory(path)
        if memory is None:
            return check()
        memory.project.noted = Consulted()
        checked = check()
        if checked.source is not None:
            memory.keep(path, key, checked.findings)
        return checked

    def take(self, path: Path, key: str, checked: Checked, noted: Consulted) -> Checked:
        """Keep what another process found in a file, and what it looked at for that."""
        memory = self._memory(path)
        if memory is not None and checked.source is not None:
            memory.project.noted = noted
            memory.keep(path, key, checked.findings)
        return checked

    def save(self) -> None:
        """Write what is new, where that can be done."""
        for project, memory in self._memories.items():
            if memory is not None and memory.changed and memory.settle():
                data = dump(memory.record, self._head)
                if len(data) <= MAX_BYTES:
                    with contextlib.suppress(OSError):
                        self._write(self._file(project), data)

    def _memory(self, path: Path) -> Memory | None:
        folder = path.parent
        if folder not in self._folders:
            self._folders[folder] = self._opened(self._projects.of(path))
        return self._folders[folder]

    def _opened(self, project: Project) -> Memory | None:
        """None: the files of the project cannot be listed."""
        if project not in self._memories:
            record = self._memories[project] = None
            with contextlib.suppress(*_BROKEN):
                record = load(self._file(project).read_bytes(), self._head)
            with contextlib.suppress(SettingsError, FilesError):
                made = Memory(project, record or Record(), self._start)
                self._memories[project] = made
        return self._memories[project]

    def _file(self, project: Project) -> Path:
        name = _digest(f"{project.root}\n{self._variant}")
        return self._folder / f"{name}.jsonl"

    def _write(self, file: Path, data: bytes) -> None:
        """Atomically: another run reads the old file or the new one."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for name, text in (("CACHEDIR.TAG", _TAG), (".gitignore", _IGNORED)):
            if not (self._folder / name).exists():
                (self._folder / name).write_text(text, encoding="utf-8")
        handle, name = tempfile.mkstemp(prefix=_TEMPORARY, dir=self._folder)
        try:
            with os.fdopen(handle, "wb") as opened:
                opened.write(data)
            Path(name).replace(file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        kept = sorted(self._folder.glob("*.jsonl"), key=lambda p: p.stat().st_mtime)
        for old in kept[:-MAX_FILES]:
            old.unlink(missing_ok=True)


def _tool() -> str:
    """What makes findings: versions, and the files of the rules and the parser."""
    own = Path(__file__).parent.parent
    folders = [own, *map(Path, importlib.import_module("gpulint.rules").__path__)]
    parser = importlib.util.find_spec("libcst")
    files = [Path(parser.origin)] if parser is not None and parser.origin else []
    files += sorted(path for folder in folders for path in folder.rglob("*.py"))
    stats = [(str(path), path.stat()) for path in files]
    return _digest(
        __version__
        + sys.version
        + "".join(f"{path}{s.st_mtime_ns}{s.st_size}" for path, s in stats)
    )


def _digest(text: str) -> str:
    data = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=12).hexdigest()
