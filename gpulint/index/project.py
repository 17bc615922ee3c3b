"""The files around a checked one: modules as Python finds them, and their users."""

from __future__ import annotations

import ast
import gc
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from gpulint.index.build import FileIndex, build_index, number_of
from gpulint.index.consulted import MODULE, PACKAGE, Consulted, Entry, standing
from gpulint.index.importable import importable
from gpulint.index.module_search import ModuleSearch
from gpulint.index.settings_file import Dialect, parse_settings, read_settings
from gpulint.index.texts import Texts
from gpulint.index.words import Search, Words, has_word, settings_files
from gpulint.runtime_name import is_vendored_file
from gpulint.source import NOTEBOOK, Source, SourceError, parse_older

MAX_LOADED = 24_000_000  # characters of loaded files, about 1.2 GB of syntax trees
MAX_IMPORTERS = 40
MAX_FILES = 20_000
MAX_NAME = 255  # bytes of a file's name, on nearly all file systems
MAX_PATH = 2000  # bytes of a path's names; systems allow 4096 with what is between
SETTINGS = (".yaml", ".yml", ".json")
Lister = Callable[[Path], Iterable[Path]]
Answer = TypeVar("Answer")


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
        self._older: set[Path] = set()  # those of them that only an old Python takes
        self._size = 0  # characters of what is loaded
        self._dropped = 0  # and of what was unloaded since the last collection
        self._settings: dict[tuple[Path, Dialect], FileIndex | None] = {}
        self._texts = Texts()
        self.noted = Consulted()
        self.around: dict[Path, Consulted] = defaultdict(Consulted)
        self.entries: dict[Entry, int | str] = {}
        self.words = Words(lambda: self.files, lambda: self._settings_files, self.text)
        self.modules = ModuleSearch(self)
        self._asked: dict[tuple[Path, Search], tuple[Path, ...]] = {}
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
            source = self._texts.source(path)
            tree, is_older = parse_older(source)
            self.adopt(build_index(source, tree))
            if is_older:
                self._older.add(path)
        except (SourceError, SyntaxError, ValueError, RecursionError, MemoryError):
            pass  # the file's own check says so
        return self._loaded[path]

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
        self._older.discard(index.source.path)
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
        if source.path in self._older:
            return None  # no Python that runs gpulint takes it
        self.noted.files.add(source.path)
        self._loaded[source.path] = self._loaded.pop(source.path)  # used last
        return found

    def replace(self, path: Path, text: str) -> None:
        """A file has a new text, which need not be written yet."""
        self._texts.replace(path, text)
        self._renew(path)

    def reread(self, path: Path) -> None:
        """A file is what lies on the disk now, whatever it was before."""
        self._texts.forget(path)
        self._renew(path)

    def _renew(self, path: Path) -> None:
        """Forget what was known of a file's text."""
        self._unload(path)
        self.words.forget(path)
        self.modules.renew()
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
        self._texts.release()
        self._forget_nodes()

    def _forget_nodes(self) -> None:
        """Answers that may hold the index of a file that is no longer loaded."""
        self.modules.forget_nodes()
        self._remembered.clear()

    def holder(self, node: ast.AST) -> FileIndex | None:
        """The index of the loaded file in which a node stands."""
        return self.numbered.get(number_of(node))

    def text(self, path: Path) -> str | None:
        """The text of a file with plain newlines; None: it cannot be read."""
        loaded = self._loaded.get(path)
        return self._texts.plain(path, loaded.source if loaded else None)

    def is_loaded(self, path: Path) -> bool:
        """Whether the index of a file is at hand, or known to be none."""
        return path in self._loaded

    def texts(self, part: str) -> list[str]:
        """The texts of all Python files in which a string occurs."""
        found = self.mentioning(part)
        self.noted.files.update(found)
        return [self.text(path) or "" for path in found]

    def mentioning(self, part: str) -> list[Path]:
        """The Python files in which a string occurs."""
        return self._in_order(self._search("mentions", part))

    def saying(self, word: str) -> list[Path]:
        """The Python files in which a name occurs as a whole word."""
        return self._in_order(self._search("says", word))

    def mentions(self, part: str) -> bool:
        """Whether a string occurs in any Python file."""
        return bool(self._search("mentions", part))

    def starts_in(self, folder: Path) -> bool:
        """Whether a file with a main guard stands in a folder, by the texts."""
        found = self._search("mentions", "__main__")
        return any(path.parent == folder for path in found)

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

    def settings_name(self, word: str) -> bool:
        """Whether a settings file has a name as a whole word."""
        found = self._search("written", word)
        return any(has_word(self.text(path) or "", word) for path in sorted(found))

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

    # What stands in a folder

    def stands(self, folder: Path, name: str, how: int) -> bool:
        found = self._entry(folder, name)
        return isinstance(found, int) and bool(found & how)

    def has_module(self, folder: Path, name: str) -> bool:
        """Whether a folder holds a module or a package of a name."""
        return self.stands(folder, name, MODULE | PACKAGE)

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
        """Files that may import a class of a file and derive another from it.

        Also by a name that a third file gives it: `from .base import Net as BaseNet`.
        """
        waiting = [(index, name)]
        asked: set[tuple[FileIndex, str]] = set()
        found: dict[FileIndex, None] = {}
        while waiting:
            home, its = asking = waiting.pop()
            if asking not in asked:
                asked.add(asking)
                path = home.source.path
                for kind in ("derivers", "renamers"):
                    for user in self._indexes(path, kind, _stem(path), its) or ():
                        if kind == "derivers":
                            found[user] = None
                        else:
                            waiting += ((user, new) for new in user.renamings(its))
        return list(found)

    def _indexes(self, path: Path | None, *search: str) -> list[FileIndex] | None:
        found = self._beside(path, *search)
        if found is None:
            return None
        return [i for i in map(self.index, found) if i is not None]

    def _beside(self, path: Path | None, *search: str) -> tuple[Path, ...] | None:
        """What a search finds beside a file; None: too many. Nobody uses a notebook."""
        if path is not None and path.suffix == NOTEBOOK:
            return ()
        searches = [search, *self._through_package(path, search)]
        self.noted.searches.update(searches)
        key = (path or self.root, search)
        if key not in self._asked:
            files = frozenset().union(*map(self.words.search, searches))
            self._asked[key] = tuple(sorted(self._in_reach(path, files - {path})))
        found = self._asked[key]
        return found if len(found) <= MAX_IMPORTERS else None

    def _in_reach(self, path: Path | None, files: frozenset[Path]) -> Collection[Path]:
        """Those of too many files that can import one at all."""
        if path is None or len(files) <= MAX_IMPORTERS:
            return files
        self.noted.files.update(files)
        adding = {file for file in files if "sys.path" in (self.text(file) or "")}
        if len(adding) > MAX_IMPORTERS:
            return files
        near = importable(
            {path, *adding},
            files - adding,
            self.root,
            lambda file: self.words.of(file, "imports"),
            MAX_IMPORTERS - len(adding),
        )
        return {*adding, *near}

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

    def taking(self, module: str) -> frozenset[Path]:
        """The Python files with `from module import …`, of no package, at their top."""
        return self._search("takes", module)

    def writing(self, name: str) -> list[FileIndex] | None:
        """Files that set an attribute of a name, not of `self`; None: too many."""
        return self._indexes(None, "writes", name)

    @cached_property
    def folders(self) -> frozenset[str]:
        """The names of all folders below the root that Python files lie in."""
        parents = {path.parent for path in self.files}
        below = (
            p.relative_to(self.root) for p in parents if p.is_relative_to(self.root)
        )
        return frozenset(part for folder in below for part in folder.parts)

    @cached_property
    def stems(self) -> frozenset[str]:
        """The names of all Python files, without their ending."""
        return frozenset(path.stem for path in self.files)

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """All Python files of the project."""
        found = list(self._lister(self.root)) if self._lister is not None else []
        found = [p for p in found if p.suffix == ".py" and not is_vendored_file(p)]
        return tuple(found) if len(found) <= MAX_FILES else ()

    @cached_property
    def _settings_files(self) -> list[Path]:
        return settings_files(self.root)


def _stem(path: Path) -> str:
    """The name under which a module is imported."""
    return path.parent.name if path.stem == "__init__" else path.stem
