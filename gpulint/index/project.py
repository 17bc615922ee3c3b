"""The files around a checked one: modules as Python finds them, and their users."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path

from gpulint.index.build import FileIndex, build_index
from gpulint.index.paths import added_to_path
from gpulint.index.settings_file import Dialect, parse_settings, read_settings
from gpulint.source import Source, SourceError, parse, read_source

MAX_LOADED = 4_000_000  # characters of loaded files, about 400 MB of syntax trees
MAX_TEXT = 64_000_000  # characters that are kept of files read as text only
MAX_IMPORTERS = 40
MAX_FILES = 20_000
MAX_NEIGHBOURS = 50
SETTINGS = (".yaml", ".yml", ".json")
_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
_IMPORT = re.compile(r"import[ \t]*(\([^)]*\)|[^\n#;]+)")  # starts with a plain word
_BEFORE_IMPORT = re.compile(r"[ \t]*(?:from[ \t]*([.\w]+)[ \t]*)?")
# `x.name = …`, not of `self`, wherever it stands; `x.name: int` and targets with a
# comma where a statement starts with them. The point comes first: `re` seeks it.
_WRITE = re.compile(
    r"\.(?<!\bself\.)(\w+)(?=[ \t]*"
    r"(?:(:)|(,[\w.\[\]'\", \t]*\)?[ \t]*)?(?:[-+*/%@&|^]|//|\*\*|<<|>>)?=(?!=)))"
)
_BEFORE_ANNOTATED = re.compile(r"[ \t]*[A-Za-z_][\w.]*")
_BEFORE_COMMA = re.compile(r"[ \t]*\(?[\w.\[\]'\", \t]*")
_DEFINED = re.compile(r"def[ \t]+(\w+)")
_BASES = re.compile(r"class[ \t]+\w+[ \t]*\(([^)]*)")
_WORD = re.compile(r"\w+")
Lister = Callable[[Path], Iterable[Path]]
Member = tuple[FileIndex, tuple[str, ...]]


class Project:
    """One repository, read as far as somebody asks.

    `lister` gives the Python files below a folder; without it nobody's callers in
    other files are known.
    """

    def __init__(self, root: Path, lister: Lister | None = None) -> None:
        self.root = root
        self._lister = lister
        self._loaded: dict[Path, FileIndex | None] = {}
        self._texts: dict[Path, str] = {}  # newer than what is on the disk
        self._read: dict[Path, str] = {}  # what is on the disk
        self._kept = 0  # characters of it
        self._words: dict[Path, frozenset[str]] = {}
        self._added: dict[Path, list[Path]] = {}
        self._held: dict[tuple[Path, str], bool] = {}
        self._owned: dict[tuple[Path, str], bool] = {}
        self._outer: dict[Path, list[Path]] = {}
        self._found: dict[tuple[Path, tuple[str, ...]], Member | None] = {}
        self._asked: dict[tuple[Path, str, str], tuple[Path, ...]] = {}
        self._holding: dict[str, list[str]] = {}
        self._members: dict[tuple[Path, str], Member | None] = {}
        self._recent: list[FileIndex] = []  # that held the nodes asked for last

    # Files

    def index(self, path: Path) -> FileIndex | None:
        """The index of a file; None where it cannot be read or analysed."""
        if path in self._loaded:
            self._loaded[path] = found = self._loaded.pop(path)  # used last
            return found
        self._loaded[path] = None
        try:
            source = read_source(path)
            if path in self._texts:
                source = source.with_text(self._texts[path])
            self.adopt(build_index(source, parse(source)))
        except (SourceError, SyntaxError, ValueError, RecursionError, MemoryError):
            pass  # the file's own check says so
        return self._loaded[path]

    def settings(self, path: Path, dialect: Dialect) -> FileIndex | None:
        """The index of a YAML or JSON file as its loader reads it, None if it fails."""
        if path not in self._loaded:
            self._loaded[path] = None
            if path.suffix in SETTINGS and path.is_file():
                try:
                    source = read_settings(path)
                    self.adopt(build_index(source, parse_settings(source, dialect)))
                except SourceError:
                    pass  # the program would stop with that file
        return self._loaded[path]

    def adopt(self, index: FileIndex) -> FileIndex:
        """Take in the index of a file that was read elsewhere."""
        index.project = self
        if self._loaded.pop(index.source.path, None) is not None:
            self._forget_nodes()
        self._loaded[index.source.path] = index
        return index

    def known(self, source: Source) -> FileIndex | None:
        """The index of just this text, if the file is loaded."""
        found = self._loaded.get(source.path)
        if found is None or found.source.text != source.text:
            return None
        self._loaded[source.path] = self._loaded.pop(source.path)  # used last
        return found

    def replace(self, path: Path, text: str) -> None:
        """A file has a new text, which need not be written yet."""
        self._texts[path] = text
        self._loaded.pop(path, None)
        self._words.pop(path, None)
        self._added.clear()
        self._owned.clear()
        self._asked.clear()
        self._holding.clear()
        self._forget_nodes()
        for name in ("_users", "_writers", "_derivers", "_defined", "_training"):
            self.__dict__.pop(name, None)

    def trim(self) -> None:
        """Let go of the files that were used longest ago, to bound the memory."""
        total = sum(len(i.source.text) for i in self._loaded.values() if i)
        for path, index in list(self._loaded.items()):
            if total <= MAX_LOADED:
                break
            del self._loaded[path]
            total -= len(index.source.text) if index else 0
            self._forget_nodes()

    def _forget_nodes(self) -> None:
        """Answers that may hold the index of a file that is no longer loaded."""
        self._members.clear()
        self._found.clear()
        self._recent = []

    def holder(self, node: ast.AST) -> FileIndex | None:
        """The index of the loaded file in which a node stands."""
        for index in self._recent:
            if node in index.parents or node is index.tree:
                return index
        for found in reversed(self._loaded.values()):
            if found is not None and found.holds(node):
                self._recent = [found, *self._recent[:3]]
                return found
        return None

    def texts(self, part: str) -> list[str]:
        """The texts of all Python files in which a string occurs."""
        if part not in self._holding:
            found = (self._text(path) for path in self.files)
            self._holding[part] = [text for text in found if part in text]
        return self._holding[part]

    def names_outside(self, folder: Path, part: str) -> bool:
        """Whether a Python file that is not in a folder, or below it, has a string."""
        outside = (p for p in self.files if folder not in p.parents)
        return any(part in self._text(path) for path in outside)

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
            self._members[key] = self._resolve(near, dotted)
        return self._members[key]

    def owns(self, near: FileIndex, dotted: str) -> bool:
        """Whether a dotted name of a file is one of this project; a cheap look."""
        head = dotted.partition(".")[0]
        if not head:
            return True  # relative
        key = (near.source.path, head)
        if key not in self._owned:
            folder = near.source.path.parent
            around = (folder, *self._outer_folders(folder), *self._sure_folders(near))
            self._owned[key] = any(self._holds(f, head) for f in around)
        return self._owned[key]

    def _holds(self, folder: Path, name: str) -> bool:
        key = (folder, name)
        if key not in self._held:
            self._held[key] = _has(folder, name)
        return self._held[key]

    def _resolve(self, near: FileIndex, dotted: str) -> Member | None:
        folder = near.source.path.parent
        name = dotted.lstrip(".")
        level = len(dotted) - len(name)
        parts = tuple(name.split(".")) if name else ()
        if level:
            for _ in range(level - 1):
                folder = folder.parent
            return self._find(folder, parts)
        for sure in self._sure_folders(near):
            found = self._find(sure, parts)
            if found is not None:
                return found
        others = [f for f in self._outer_folders(folder) if self._holds(f, parts[0])]
        return self._find(others[0], parts) if len(others) == 1 else None

    def _sure_folders(self, near: FileIndex) -> list[Path]:
        """Where Python looks first: folders the file adds, and a script's own."""
        path = near.source.path
        if path not in self._added:
            self._added[path] = added_to_path(near, self.root)
            if _is_run(near):
                self._added[path].append(path.parent)
        return self._added[path]

    def _outer_folders(self, folder: Path) -> list[Path]:
        """Folders around, to the root, in any of which a program may be started."""
        if folder not in self._outer:
            found = [above for above in self._up(folder) if not _is_package(above)]
            source = self.root / "src"
            if source.is_dir() and source not in found:
                found.append(source)
            self._outer[folder] = found
        return self._outer[folder]

    def _up(self, folder: Path) -> Iterator[Path]:
        """A folder and those around it, to the root."""
        yield folder
        while folder != self.root and self.root in folder.parents:
            folder = folder.parent
            yield folder

    def _find(self, folder: Path, parts: tuple[str, ...]) -> Member | None:
        """A module below a folder; a second look gives what the first one gave."""
        key = (folder, parts)
        if key not in self._found:
            self._found[key] = None  # a cycle adds nothing
            self._found[key] = self._look_up(folder, parts)
        return self._found[key]

    def _look_up(self, folder: Path, parts: tuple[str, ...]) -> Member | None:
        best: Member | None = None
        for number, part in enumerate(parts):
            rest = parts[number + 1 :]
            package = folder / part
            if (package / "__init__.py").is_file():
                index = self.index(package / "__init__.py")
                if index is None:
                    return None
                best = (index, rest)
                if rest and index.imports.get(rest[0], "." + rest[0]) != "." + rest[0]:
                    return best  # a name, which hides a module of that name
            elif (folder / f"{part}.py").is_file():
                module = self.index(folder / f"{part}.py")
                return (module, rest) if module is not None else None
            elif not package.is_dir():
                break
            folder = package
        if not parts and (folder / "__init__.py").is_file():
            own = self.index(folder / "__init__.py")
            return (own, ()) if own is not None else None
        return best

    # Who imports what

    def importers(
        self, index: FileIndex, name: str, call: str
    ) -> list[FileIndex] | None:
        """Other files that may use a function or class of a file; None: too many.

        `name`: under which it is imported; `call`: how a call of it looks, `.fit(`.
        """
        key = (index.source.path, name, call)
        if key not in self._asked:
            renamed = [f"{name} as ", f"= {name}\n"]
            self._asked[key] = tuple(
                p
                for p in self._importing(index, name)
                for text in [self._text(p)]
                if call in text or (name and any(r in text for r in renamed))
            )
        return self._indexes(self._asked[key])

    def users(self, index: FileIndex) -> Iterator[FileIndex]:
        """Other files that may import a file, each read when it is asked for."""
        found = sorted(self._importing(index, ""))
        if len(found) <= MAX_IMPORTERS:
            yield from (i for i in map(self.index, found) if i is not None)

    def setters(
        self, index: FileIndex, name: str, attribute: str
    ) -> list[FileIndex] | None:
        """Files that may import a class and set an attribute of it; None: too many."""
        setting = self._writers.get(attribute, set())
        return self._indexes(self._importing(index, name) & setting if setting else ())

    def derivers(self, index: FileIndex, name: str) -> list[FileIndex]:
        """Files that may import a class of a file and derive another from it."""
        deriving = self._derivers.get(name, set())
        if not deriving:
            return []
        return self._indexes(self._importing(index, name) & deriving) or []

    def _importing(self, index: FileIndex, name: str) -> set[Path]:
        path = index.source.path
        stem = path.parent.name if path.stem == "__init__" else path.stem
        return (self._users.get(stem, set()) | self._users.get(name, set())) - {path}

    def _indexes(self, paths: Iterable[Path]) -> list[FileIndex] | None:
        found = sorted(paths)
        if len(found) > MAX_IMPORTERS:
            return None
        return [i for i in map(self.index, found) if i is not None]

    def defines(self, name: str) -> bool:
        """Whether a function or method of a name may be defined in any file."""
        return not self.files or name in self._defined

    def trains(self, name: str) -> bool:
        """Whether a function of a name may be defined in a file that trains."""
        return not self.files or name in self._training

    def writing(self, name: str) -> list[FileIndex] | None:
        """Files that set an attribute of a name, not of `self`; None: too many."""
        return self._indexes(self._writers.get(name, ()))

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """All Python files of the project."""
        found = list(self._lister(self.root)) if self._lister is not None else []
        found = [path for path in found if path.suffix == ".py"]
        return tuple(found) if len(found) <= MAX_FILES else ()

    @cached_property
    def _users(self) -> dict[str, set[Path]]:
        """Files by each name in their import statements."""
        users: dict[str, set[Path]] = defaultdict(set)
        for path in self.files:
            for word in self._import_words(path):
                users[word].add(path)
        return users

    @cached_property
    def _defined(self) -> frozenset[str]:
        """Names of all functions and methods."""
        texts = map(self._text, self.files)
        return frozenset(name for text in texts for name in _DEFINED.findall(text))

    @cached_property
    def _training(self) -> frozenset[str]:
        """Names of the functions of all files with a backward pass."""
        texts = (text for text in map(self._text, self.files) if "backward(" in text)
        return frozenset(name for text in texts for name in _DEFINED.findall(text))

    @cached_property
    def _derivers(self) -> dict[str, set[Path]]:
        """Files by each name among the bases of their classes."""
        derivers: dict[str, set[Path]] = defaultdict(set)
        for path in self.files:
            for bases in _BASES.findall(self._text(path)):
                for name in _WORD.findall(bases):
                    derivers[name].add(path)
        return derivers

    @cached_property
    def _writers(self) -> dict[str, set[Path]]:
        """Files by each name of an attribute that they set."""
        writers: dict[str, set[Path]] = defaultdict(set)
        for path in self.files:
            for name in _written_attributes(self._text(path)):
                writers[name].add(path)
        return writers

    def _import_words(self, path: Path) -> frozenset[str]:
        if path not in self._words:
            self._words[path] = frozenset(_imported_words(self._text(path)))
        return self._words[path]

    def _text(self, path: Path) -> str:
        if path in self._texts:
            return self._texts[path]
        loaded = self._loaded.get(path)
        if loaded is not None:
            return loaded.source.text
        if path in self._read:
            return self._read[path]
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            text = ""
        if self._kept + len(text) <= MAX_TEXT:
            self._kept += len(text)
            self._read[path] = text
        return text


class Projects:
    """The projects that the files of one run belong to."""

    def __init__(self, lister: Lister | None = None) -> None:
        self._lister = lister
        self._roots: dict[Path, Path] = {}
        self._projects: dict[Path, Project] = {}

    def of(self, path: Path) -> Project:
        """The project of a file: its repository, else the folder of its packages."""
        folder = path.parent
        if folder not in self._roots:
            self._roots[folder] = self._find_root(folder)
        return self._projects[self._roots[folder]]

    def _find_root(self, folder: Path) -> Path:
        root, lister = find_root(folder), self._lister
        if root is None:
            root, lister = _outside_packages(folder), _neighbours
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


def _outside_packages(folder: Path) -> Path:
    while _is_package(folder) and folder.parent != folder:
        folder = folder.parent
    return folder


def _neighbours(folder: Path) -> list[Path]:
    """The scripts beside one that belongs to no repository; none in a crowd."""
    found = sorted(folder.glob("*.py"))
    return found if len(found) <= MAX_NEIGHBOURS else []


def _imported_words(text: str) -> Iterator[str]:
    """All names in a text's import statements."""
    for found in _IMPORT.finditer(text):
        start = text.rfind("\n", 0, found.start()) + 1
        before = _BEFORE_IMPORT.fullmatch(text, start, found.start())
        if before is not None:
            yield from _WORD.findall(f"{before[1] or ''} {found[1]}")


def _written_attributes(text: str) -> Iterator[str]:
    """Names of the attributes, not of `self`, that statements of a text set."""
    for found in _WRITE.finditer(text):
        name, annotated, several = found.groups()
        if annotated or several:
            start = text.rfind("\n", 0, found.start()) + 1
            before = _BEFORE_ANNOTATED if annotated else _BEFORE_COMMA
            if before.fullmatch(text, start, found.start()) is None:
                continue
        yield name


def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").is_file()


def _has(folder: Path, name: str) -> bool:
    """Whether a folder holds a module or package of a name."""
    return (
        (folder / f"{name}.py").is_file()
        or (folder / name / "__init__.py").is_file()
        or ((folder / name).is_dir() and any((folder / name).glob("*.py")))
    )


def _is_run(index: FileIndex) -> bool:
    """Whether a file has a main guard."""
    return any(
        isinstance(statement, ast.If)
        and any(
            isinstance(n, ast.Name) and n.id == "__name__"
            for n in ast.walk(statement.test)
        )
        for statement in index.tree.body
    )
