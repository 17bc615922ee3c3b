"""The files around a checked one: modules as Python finds them, and their users."""

from __future__ import annotations

import ast
import contextlib
import gc
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from gpulint.index.build import FileIndex, build_index, number_of
from gpulint.index.consulted import (
    FOLDER,
    MODULE,
    PACKAGE,
    SCRIPTS,
    Consulted,
    Entry,
    standing,
)
from gpulint.index.paths import added_to_path
from gpulint.index.settings_file import Dialect, parse_settings, read_settings
from gpulint.index.words import Search, Words, settings_files
from gpulint.runtime_name import is_vendored_file
from gpulint.source import NOTEBOOK, Source, SourceError, decode, parse, read_source

MAX_LOADED = 24_000_000  # characters of loaded files, about 1.2 GB of syntax trees
MAX_TEXT = 64_000_000  # characters that are kept of files read as text only
MAX_IMPORTERS = 40
MAX_FILES = 20_000
MAX_NAME = 255  # bytes of a file's name, on nearly all file systems
MAX_PATH = 2000  # bytes of a path's names; systems allow 4096 with what is between
MAX_NEIGHBOURS = 50
SETTINGS = (".yaml", ".yml", ".json")
_STAR = re.compile(r"\bimport[\s\\]*\*")
_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
Lister = Callable[[Path], Iterable[Path]]
Member = tuple[FileIndex, tuple[str, ...]]
Answer = TypeVar("Answer")
Looked = tuple[Member | None, Consulted]


class Project:
    """One repository, read as far as somebody asks.

    `lister` gives the Python files below a folder; without it nobody's callers in
    other files are known. `noted` is what the answers since it was set rest on, and
    `around` what those about the imports of a file rest on, whoever asked for them.
    """

    def __init__(self, root: Path, lister: Lister | None = None) -> None:
        self.root = root
        self._lister = lister
        self._loaded: dict[Path, FileIndex | None] = {}
        self._size = 0  # characters of what is loaded
        self._dropped = 0  # and of what was unloaded since the last collection
        self._settings: dict[tuple[Path, Dialect], FileIndex | None] = {}
        self._texts: dict[Path, str] = {}  # newer than what is on the disk
        self._read: dict[Path, str | None] = {}  # what is on the disk
        self._kept = 0  # characters of it
        self.noted = Consulted()
        self.around: dict[Path, Consulted] = defaultdict(Consulted)
        self.entries: dict[Entry, int | str] = {}
        self.words = Words(lambda: self.files, lambda: self._settings_files, self._text)
        self._added: dict[Path, list[Path]] = {}
        self._folders: dict[Path, list[Path]] = {}
        self._owned: dict[tuple[Path, str], bool] = {}
        self._found: dict[tuple[Path, tuple[str, ...]], Looked] = {}
        self._asked: dict[tuple[Path, Search], tuple[Path, ...]] = {}
        self._members: dict[tuple[Path, str], Member | None] = {}
        self.numbered: dict[int, FileIndex] = {}  # what is loaded
        self._remembered: dict[tuple[str, ast.AST], tuple[Any, Consulted]] = {}

    # Files

    def index(self, path: Path) -> FileIndex | None:
        """The index of a file; None where it cannot be read or analysed."""
        self.noted.files.add(path)
        if path in self._loaded:
            self._loaded[path] = found = self._loaded.pop(path)  # used last
            return found
        self._loaded[path] = None
        try:
            source = self._newest(path)
            self.adopt(build_index(source, parse(source)))
        except (SourceError, SyntaxError, ValueError, RecursionError, MemoryError):
            pass  # the file's own check says so
        return self._loaded[path]

    def _newest(self, path: Path) -> Source:
        """A file with its newest text. SourceError: it cannot be read."""
        text = self._texts.get(path)
        if text is None:
            return read_source(path)
        return (
            read_source(path).with_text(text) if path.is_file() else Source(path, text)
        )

    def settings(self, path: Path, dialect: Dialect) -> FileIndex | None:
        """The index of a YAML or JSON file as its loader reads it, None if it fails."""
        self.noted.files.add(path)
        key = (path, dialect)
        if key not in self._settings:
            self._settings[key] = None
            if path.suffix in SETTINGS and path.is_file():
                try:
                    source = read_settings(path)
                    index = build_index(source, parse_settings(source, dialect))
                    index.project, self._settings[key] = self, index
                    self.numbered[index.number] = index
                except SourceError:
                    pass  # the program would stop with that file
        return self._settings[key]

    def is_file(self, path: Path) -> bool:
        """Whether a path leads to a file; a text may be none, but of any length."""
        parts = [len(part.encode("utf-8", "replace")) for part in path.parts]
        if max(parts, default=0) > MAX_NAME or sum(parts) > MAX_PATH:
            return False
        self.noted.files.add(path)
        return path.is_file()

    def adopt(self, index: FileIndex) -> FileIndex:
        """Take in the index of a file that was read elsewhere."""
        index.project = self
        self.noted.files.add(index.source.path)
        if self._loaded.get(index.source.path) is not None:
            self._unload(index.source.path)
        self._loaded.pop(index.source.path, None)
        self._loaded[index.source.path] = index
        self._size += len(index.source.text)
        self.numbered[index.number] = index
        return index

    def known(self, source: Source) -> FileIndex | None:
        """The index of just this text, if the file is loaded."""
        found = self._loaded.get(source.path)
        if found is None or found.source.text != source.text:
            return None
        self.noted.files.add(source.path)
        self._loaded[source.path] = self._loaded.pop(source.path)  # used last
        return found

    def replace(self, path: Path, text: str) -> None:
        """A file has a new text, which need not be written yet."""
        self._texts[path] = text
        self._renew(path)

    def reread(self, path: Path) -> None:
        """A file is what lies on the disk now, whatever it was before."""
        self._texts.pop(path, None)
        if path in self._read:
            self._kept -= len(self._read.pop(path) or "")
        self._renew(path)

    def _renew(self, path: Path) -> None:
        """Forget what was known of a file's text."""
        self._unload(path)
        self.words.forget(path)
        self._added.clear()
        self._owned.clear()
        self._asked.clear()

    def trim(self) -> None:
        """Let go of the files that were used longest ago, to bound the memory.

        Of a quarter of them at once: with them goes what is known of the others.
        """
        if self._size <= MAX_LOADED:
            return
        for path in list(self._loaded):
            if self._size <= 0.75 * MAX_LOADED:
                break
            self._unload(path)
        if self._dropped > MAX_LOADED:  # their trees are in cycles
            self._dropped = 0
            gc.collect()

    def _unload(self, path: Path) -> None:
        index = self._loaded.pop(path, None)
        if index is not None:
            self._size -= len(index.source.text)
            self._dropped += len(index.source.text)
            del self.numbered[index.number]
        self._forget_nodes()

    def release(self) -> None:
        """Let go of all files; they are read again when somebody asks."""
        self._loaded.clear()
        self._size = 0
        self._dropped = 0
        self._settings.clear()
        self.numbered.clear()
        self._read.clear()
        self._kept = 0
        self._forget_nodes()

    def _forget_nodes(self) -> None:
        """Answers that may hold the index of a file that is no longer loaded."""
        self._members.clear()
        self._found.clear()
        self._remembered.clear()

    def holder(self, node: ast.AST) -> FileIndex | None:
        """The index of the loaded file in which a node stands."""
        return self.numbered.get(number_of(node))

    def texts(self, part: str) -> list[str]:
        """The texts of all Python files in which a string occurs."""
        found = self.mentioning(part)
        self.noted.files.update(found)
        return [self._text(path) or "" for path in found]

    def mentioning(self, part: str) -> list[Path]:
        """The Python files in which a string occurs."""
        return self._in_order(self._search("mentions", part))

    def mentions(self, part: str) -> bool:
        """Whether a string occurs in any Python file."""
        return bool(self._search("mentions", part))

    def below(self, folder: Path) -> list[Path]:
        """The Python files below a folder."""
        return self._in_order(self._search("below", str(folder)))

    def lists(self, path: Path) -> bool:
        """Whether a file is one of the project's Python files."""
        return bool(self._search("listed", str(path)))

    @property
    def is_read(self) -> bool:
        """Whether there is no Python file that cannot be read."""
        return not self._search("unread")

    def targeting(self, qualified_name: str) -> list[tuple[Path, list[str]]]:
        """Settings files that may name a class as a target, with all their targets."""
        found = sorted(self._search("targets", qualified_name))
        return [(path, sorted(self.words.of(path, "targets"))) for path in found]

    def settings_have(self, part: str) -> bool:
        """Whether a string occurs in a settings file."""
        return bool(self._search("written", part))

    def having_keys(self, keys: Iterable[str]) -> list[Path]:
        """Settings files in which all these keys occur, wherever they stand."""
        return sorted(self._search("keys", *sorted(keys)))

    def _search(self, *search: str) -> frozenset[Path]:
        self.noted.searches.add(search)
        return self.words.search(search)

    def _in_order(self, found: frozenset[Path]) -> list[Path]:
        order = self._order if found else {}
        return sorted((path for path in found if path in order), key=order.__getitem__)

    @cached_property
    def _order(self) -> dict[Path, int]:
        """The number of each Python file, as `files` has them."""
        return {path: number for number, path in enumerate(self.files)}

    def names_outside(self, folder: Path, part: str) -> bool:
        """Whether a Python file that is not in a folder, or below it, has a string."""
        return any(folder not in p.parents for p in self.mentioning(part))

    # Modules

    def resolve(self, near: FileIndex, dotted: str) -> Member | None:
        """Where a dotted name of a file leads: a module, and what is left of it.

        `pkg.train.fit` → the index of `pkg/train.py` and `("fit",)`. None: not of
        this project, or not clear which of several modules is meant.
        """
        if not self.owns(near, dotted):
            return None
        key = (near.source.path, dotted)
        if key not in self._members:
            self._members[key] = None  # a cycle adds nothing
            with self._about(near):
                self._members[key] = self._resolve(near, dotted)
        member = self._members[key]
        if member is not None:
            self.noted.files.add(member[0].source.path)
        return member

    def owns(self, near: FileIndex, dotted: str) -> bool:
        """Whether a dotted name of a file is one of this project; a cheap look."""
        self.noted.files.add(near.source.path)
        head = dotted.partition(".")[0]
        if not head:
            return True  # relative
        key = (near.source.path, head)
        if key not in self._owned:
            with self._about(near):
                outer = self._outer_folders(near)
                around = (self._up(near)[0], *outer, *self._sure_folders(near))
                self._owned[key] = any(self._holds(f, head) for f in around)
        return self._owned[key]

    @contextlib.contextmanager
    def _about(self, near: FileIndex) -> Iterator[None]:
        """What is noted meanwhile concerns all who ask about the imports of a file."""
        before, self.noted = self.noted, self.around[near.source.path]
        try:
            yield
        finally:
            self.noted = before

    def _holds(self, folder: Path, name: str) -> bool:
        """Whether a folder holds a module or package of a name."""
        if self._stands(folder, name, MODULE | PACKAGE | SCRIPTS):
            return True
        # A folder of folders, none of which is a package.
        return self._stands(folder, name, FOLDER) and bool(self.below(folder / name))

    def _stands(self, folder: Path, name: str, how: int) -> bool:
        found = self._entry(folder, name)
        return isinstance(found, int) and bool(found & how)

    def _entry(self, folder: Path, name: str) -> int | str:
        entry = (folder, name)
        self.noted.entries.add(entry)
        if entry not in self.entries:
            self.entries[entry] = standing(folder, name)
        return self.entries[entry]

    def in_folder(self, folder: Path, pattern: str) -> list[Path]:
        """The files of a folder that match `*.yaml` or the like, in order."""
        names = str(self._entry(folder, pattern))
        return [folder / name for name in names.split("/") if name]

    def _resolve(self, near: FileIndex, dotted: str) -> Member | None:
        name = dotted.lstrip(".")
        level = len(dotted) - len(name)
        parts = tuple(name.split(".")) if name else ()
        if level:
            folder = near.source.path.parent
            for _ in range(level - 1):
                folder = folder.parent
            return self._find(folder, parts)
        for sure in self._sure_folders(near):
            found = self._find(sure, parts)
            if found is not None:
                return found
        path = near.source.path
        others = [
            folder
            for folder in self._outer_folders(near)
            if self._holds(folder, parts[0]) and folder / f"{parts[0]}.py" != path
        ]
        return self._find(others[0], parts) if len(others) == 1 else None

    def modules_in(self, near: FileIndex, package: str) -> list[FileIndex]:
        """The modules of a package, as a file names it: `models.vision`."""
        if not package or not self.owns(near, package):
            return []
        with self._about(near):
            around = dict.fromkeys([*self._sure_folders(near), *self._up(near)])
            folders = [folder.joinpath(*package.split(".")) for folder in around]
            first = next((f for f in folders if self._is(f, FOLDER)), None)
            found = self.in_folder(first, "*.py") if first is not None else []
            modules = [self.index(path) for path in found[:MAX_NEIGHBOURS]]
        return [index for index in modules if index is not None]

    def _sure_folders(self, near: FileIndex) -> list[Path]:
        """Where Python looks first: folders the file adds, and a script's own."""
        path = near.source.path
        if path not in self._added:
            added = added_to_path(near, self.root)
            self._added[path] = [f for f in added if self._is(f, FOLDER)]
            if is_run(near):
                self._added[path].append(path.parent)
        return self._added[path]

    def _outer_folders(self, near: FileIndex) -> list[Path]:
        """Folders around, to the root, in any of which a program may be started."""
        up, root = self._up(near), self.root
        found = [f for f in up if f == root or not self._is(f, PACKAGE)]
        source = self.root / "src"
        if self._is(source, FOLDER) and source not in found:
            found.append(source)
        return found

    def _is(self, folder: Path, how: int) -> bool:
        return self._stands(folder.parent, folder.name, how)

    def _up(self, near: FileIndex) -> list[Path]:
        """A file's folder and those around it, to the root."""
        path = near.source.path
        if path not in self._folders:
            folders = list(path.parents)
            inner = folders.index(self.root) + 1 if self.root in folders else 1
            self._folders[path] = folders[:inner]
        return self._folders[path]

    def _find(self, folder: Path, parts: tuple[str, ...]) -> Member | None:
        """A module below a folder; a second look gives what the first one gave."""
        key = (folder, parts)
        if key not in self._found:
            before, self.noted = self.noted, Consulted()
            try:
                self._found[key] = self._look_up(folder, parts), self.noted
            finally:
                self.noted = before
        found, noted = self._found[key]
        self.noted.add(noted)
        return found

    def remembered(
        self, question: str, node: ast.AST, find: Callable[[], Answer]
    ) -> Answer:
        """The answer of `find` to a question about a node, whichever file asks first.

        Who asks again gets the same answer, and it rests on the same.
        """
        key = (question, node)
        if key not in self._remembered:
            before, self.noted = self.noted, Consulted()
            try:
                self._remembered[key] = find(), self.noted
            finally:
                self.noted = before
        found, noted = self._remembered[key]
        self.noted.add(noted)
        return found  # type: ignore[no-any-return]

    def _look_up(self, folder: Path, parts: tuple[str, ...]) -> Member | None:
        best: Member | None = None
        for number, part in enumerate(parts):
            rest = parts[number + 1 :]
            package = folder / part
            if self._stands(folder, part, PACKAGE):
                index = self.index(package / "__init__.py")
                if index is None:
                    return None
                best = (index, rest)
                if rest and index.imports.get(rest[0], f".{rest[0]}") not in (
                    f".{rest[0]}",
                    ".".join(parts[: number + 2]),  # `from package import module`
                ):
                    return best  # a name, which hides a module of that name
            elif self._stands(folder, part, MODULE):
                module = self.index(folder / f"{part}.py")
                return (module, rest) if module is not None else None
            elif not self._stands(folder, part, FOLDER):
                break
            folder = package
        if not parts and self._is(folder, PACKAGE):
            own = self.index(folder / "__init__.py")
            return (own, ()) if own is not None else None
        return best

    def star_lacks(self, near: FileIndex, star: str, name: str) -> bool:
        """Whether `from .layers import *` surely brings no such name; reads text only.

        Nothing is parsed for it, so that a package of a hundred modules stays cheap.
        """
        module = star[1:]
        if not star.startswith(".") or not module.isidentifier():
            return False
        folder = near.source.path.parent
        path = folder / f"{module}.py"
        if path in self._loaded or self._stands(folder, module, PACKAGE):
            return False
        if not self._stands(folder, module, MODULE):
            return False
        text = self._text(path)
        self.noted.files.add(path)
        return text is not None and name not in text and not _STAR.search(text)

    # Who imports what

    def importers(
        self, index: FileIndex, name: str, call: str
    ) -> list[FileIndex] | None:
        """Other files that may use a function or class of a file; None: too many.

        `name`: under which it is imported; `call`: how a call of it looks, `.fit(`.
        """
        path = index.source.path
        return self._indexes(path, "importers", _stem(path), name, call)

    def users(self, index: FileIndex) -> Iterator[FileIndex]:
        """Other files that may import a file, each read when it is asked for."""
        path = index.source.path
        found = self._beside(path, "importers", _stem(path), "", "")
        yield from (i for i in map(self.index, found or ()) if i is not None)

    def setters(
        self, index: FileIndex, name: str, attribute: str
    ) -> list[FileIndex] | None:
        """Files that may import a class and set an attribute of it; None: too many."""
        path = index.source.path
        return self._indexes(path, "setters", _stem(path), name, attribute)

    def derivers(self, index: FileIndex, name: str) -> list[FileIndex]:
        """Files that may import a class of a file and derive another from it."""
        path = index.source.path
        return self._indexes(path, "derivers", _stem(path), name) or []

    def _indexes(self, path: Path | None, *search: str) -> list[FileIndex] | None:
        found = self._beside(path, *search)
        if found is None:
            return None
        return [i for i in map(self.index, found) if i is not None]

    def _beside(self, path: Path | None, *search: str) -> tuple[Path, ...] | None:
        """What a search finds beside a file; None: too many."""
        searches = [search, *self._through_package(path, search)]
        self.noted.searches.update(searches)
        key = (path or self.root, search)
        if key not in self._asked:
            files = frozenset().union(*map(self.words.search, searches))
            self._asked[key] = tuple(sorted(files - {path}))
        found = self._asked[key]
        return found if len(found) <= MAX_IMPORTERS else None

    def _through_package(self, path: Path | None, search: Search) -> Iterator[Search]:
        """The search for who has a module's names by its package: `models.Net()`."""
        if path is None or path.name == "__init__.py" or len(search) < 3:
            return
        kind, stem, name, *rest = search
        package = path.parent / "__init__.py"
        if name and self.lists(package):
            self.noted.files.add(package)
            if stem in self.words.of(package, "imports"):
                yield (kind, path.parent.name, name, *rest)

    def defines(self, name: str) -> bool:
        """Whether a function or method of a name may be defined in any file."""
        return not self.files or bool(self._search("defines", name))

    def trains(self, name: str) -> bool:
        """Whether a function of a name may be defined in a file that trains."""
        return not self.files or bool(self._search("trains", name))

    def writing(self, name: str) -> list[FileIndex] | None:
        """Files that set an attribute of a name, not of `self`; None: too many."""
        return self._indexes(None, "writes", name)

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """All Python files of the project."""
        found = list(self._lister(self.root)) if self._lister is not None else []
        found = [p for p in found if p.suffix == ".py" and not is_vendored_file(p)]
        return tuple(found) if len(found) <= MAX_FILES else ()

    @cached_property
    def _settings_files(self) -> list[Path]:
        return settings_files(self.root)

    def _text(self, path: Path) -> str | None:
        """The text of a file with plain newlines; None: it cannot be read."""
        loaded = self._loaded.get(path)
        if path in self._texts or loaded is not None:
            return _plain(loaded.source.text if loaded else self._texts[path])
        if path in self._read:
            return self._read[path]
        text = _read(path)
        if self._kept + len(text or "") <= MAX_TEXT:
            self._kept += len(text or "")
            self._read[path] = text
        return text


def _read(path: Path) -> str | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    try:
        return _plain(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        try:
            return _plain(decode(data, path).text)
        except SourceError:
            return _plain(data.decode("utf-8", "replace"))


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


class Projects:
    """The projects that the files of one run belong to."""

    def __init__(self, lister: Lister | None = None) -> None:
        self._lister = lister
        self._roots: dict[Path, Path] = {}
        self._projects: dict[Path, Project] = {}
        self._last: Project | None = None

    def of(self, path: Path) -> Project:
        """The project of a file: its repository, else the folder of its packages."""
        folder = path.parent
        if folder not in self._roots:
            self._roots[folder] = self._find_root(folder)
        return self._projects[self._roots[folder]]

    def enter(self, path: Path) -> Project:
        """The project of a file that is checked now; another one's files are let go."""
        project = self.of(path)
        if self._last is not None and self._last is not project:
            self._last.release()
        self._last = project
        return project

    def _find_root(self, folder: Path) -> Path:
        root, lister = find_root(folder), self._lister
        if root is None:
            root, lister = outside_packages(folder), _neighbours
        self._projects.setdefault(root, Project(root, lister))
        return root


def find_root(folder: Path) -> Path | None:
    """The repository of a folder, else the next folder that declares a project."""
    around = [folder, *folder.parents]
    for mark in _MARKS:
        for candidate in around:
            if (candidate / mark).exists():
                return candidate
    return None


def outside_packages(folder: Path) -> Path:
    """The folder itself, or the one that holds the package it belongs to."""
    while _is_package(folder) and folder.parent != folder:
        folder = folder.parent
    return folder


def _neighbours(folder: Path) -> list[Path]:
    """The scripts beside one that belongs to no repository; none in a crowd."""
    found = sorted(folder.glob("*.py"))
    return found if len(found) <= MAX_NEIGHBOURS else []


def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").is_file()


def _stem(path: Path) -> str:
    """The name under which a module is imported."""
    return path.parent.name if path.stem == "__init__" else path.stem


def is_run(index: FileIndex) -> bool:
    """Whether a file is run: a notebook, or one with a main guard."""
    return index.source.path.suffix == NOTEBOOK or any(
        isinstance(statement, ast.If)
        and any(
            isinstance(n, ast.Name) and n.id == "__name__"
            for n in ast.walk(statement.test)
        )
        for statement in index.tree.body
    )
