"""Searches through the texts of a project: which files have a word in what role."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import pairwise
from pathlib import Path

MAX_SETTINGS = 2000
MAX_JSON = 200  # more are data
MAX_JSON_SIZE = 64_000  # bytes
MAX_NAMES = 100_000  # of files of all kinds: a folder of data lies in the project
_SUFFIXES = (".yaml", ".yml")
# Kinds of searches that go through settings files.
IN_SETTINGS = frozenset(["targets", "keys", "written"])
_OTHERS = frozenset("node_modules venv site-packages __pycache__".split())
_IMPORT = re.compile(r"import[ \t]*(\([^)]*\)|[^\n#;]+)")  # starts with a plain word
_BEFORE_IMPORT = re.compile(r"[ \t]*(?:from[ \t]*([.\w]+)[ \t]*)?")
# `x.name = …`, not of `self`, wherever it stands; `x.name: int` and targets with a
# comma where a statement starts with them. The point comes first: `re` seeks it. What
# may follow a comma is bounded, and numbers are none of it: each number of a table in
# one line of 100 kB would look through all that come after it.
_WRITE = re.compile(
    r"\.(?<!\bself\.)((?!\d)\w+)(?=[ \t]*"
    r"(?:(:)|((?:,[\w.\[\]'\", \t]{0,200}\)?|\))[ \t]*)?"
    r"(?:[-+*/%@&|^]|//|\*\*|<<|>>)?=(?!=)))"
)
_BEFORE_ANNOTATED = re.compile(r"[ \t]*[A-Za-z_][\w.]*")
_BEFORE_COMMA = re.compile(r"[ \t]*\(?[\w.\[\]'\", \t]*")
_DEFINED = re.compile(r"def[ \t]+(\w+)")
_BASES = re.compile(r"class[ \t]+\w+[ \t]*(?:\[[^\]]*\])?[ \t]*\(([^:]*)")
_BY_NAME = re.compile(r"import(?:_module|__)[ \t]*\([^)]*\)[^\n#]*")
_TAKES = re.compile(r"def[ \t]+(\w+)[ \t]*\(([^)]+)\)")
_LAST_WORD = re.compile(r"\w+$")
MAX_NAME = 80  # characters
_KEPT = re.compile(r"(?:^\w+ = (?:\w+\.)+|= )(\w+)[ \t]*(?:#.*)?\r?$", re.MULTILINE)
# What a name is given; all lines of a call or a literal that is written over several.
_GIVEN = re.compile(
    r"^[ \t]*(\w+)[ \t]*=(?!=)((?:[^\n#]*[(\[{][ \t]*\n[^)\]}]*)|[^\n#]+)", re.MULTILINE
)
_TAKEN = re.compile(r"^from[ \t]+(\w+)[ \t]+import\b", re.MULTILINE)  # at the top
_WORD = re.compile(r"\w+")
_TARGET = re.compile(
    r"""(?<!\w)(?:_target_|target)["']?[ \t]*:[ \t]*["']?([\w.]+\.\w+)"""
    r"""|(?<!\w)class_path["']?[ \t]*:[ \t]*["']?([\w.]+)"""
)
_KEY = re.compile(r"""(?:^|[{,])[ \t]*["']?([\w-]+)["']?[ \t]*:""", re.MULTILINE)
_ROLE_OF = {"setters": "writes", "derivers": "bases", "renamers": "renamed"}
# The kind of search and what is searched for, such as ("defines", "forward").
Search = tuple[str, ...]
Files = frozenset[Path]


def has_word(text: str, word: str) -> bool:
    """Whether a word stands in a text with no letter, digit or `_` on either side.

    The same as `\\bword\\b` finds in ten times the time, of words that begin and end
    with such; of an empty word nothing.
    """
    start = text.find(word) if word else -1
    while start >= 0:
        end = start + len(word)
        around = (text[max(start - 1, 0) : start], text[end : end + 1])
        if not any(map(_WORD.match, around)):
            return True
        start = text.find(word, start + 1)
    return False


class Words:
    """Answers searches with sets of files.

    Whether a file is in an answer depends on its own path and text alone, so that an
    answer can be brought up to date by looking at the files that changed.
    `python`, `settings`: all files of a kind; `read`: a file's text, None if unread.
    `known`, `stored`: answers to searches, and words of one role by file, that were
    found earlier and still hold.
    """

    def __init__(
        self,
        python: Callable[[], Iterable[Path]],
        settings: Callable[[], Iterable[Path]],
        read: Callable[[Path], str | None],
    ) -> None:
        self._python = python
        self._settings = settings
        self._read = read
        self.known: Callable[[Search], Files | None] = lambda _: None
        self.stored: Callable[[str], dict[Path, frozenset[str]]] = lambda _: {}
        self.answers: dict[Search, Files] = {}
        self.found: dict[str, dict[Path, frozenset[str]]] = {}  # words by role
        self.loaded: set[str] = set()  # roles of which `found` has what is stored
        self._tables: dict[str, dict[str, set[Path]]] = {}  # files by word, by role
        self._having: dict[str, dict[Path, bool]] = defaultdict(dict)  # by part

    def search(self, search: Search) -> Files:
        """The files that a search finds."""
        if search not in self.answers:
            found = self.known(search)
            if found is None:
                every = self._candidates(search)
                if search[0] == "importers":  # the most, by far: these do import it
                    found = frozenset(p for p in every if self._uses(p, *search[2:]))
                else:
                    found = frozenset(p for p in every if self.holds(p, search))
            self.answers[search] = found
        return self.answers[search]

    def holds(self, path: Path, search: Search) -> bool:
        """Whether a search finds this file, among those of its kind."""
        match search:
            case ("importers", stem, name, call):
                return self._imports(path, stem, name) and self._uses(path, name, call)
            case ("setters", stem, name, attribute):
                if not self._has(path, f".{attribute}"):
                    return False  # most files: at a hundredth of the cost
                writes = attribute in self.of(path, "writes")
                return writes and self._imports(path, stem, name)
            case ("derivers", stem, name):
                derives = name in self.of(path, "bases")
                return derives and self._imports(path, stem, name)
            case ("renamers", stem, name):
                renamed = name in self.of(path, "renamed")
                return renamed and self._imports(path, stem, name)
            case ("mentions" | "written", part):
                return part in (self._read(path) or "")
            case ("says", word):
                return has_word(self._read(path) or "", word)
            case ("targets", name):
                its = self.of(path, "targets")
                return any(its_target(name, t) or packages_around(name, t) for t in its)
            case ("keys", *keys):
                return self.of(path, "keys").issuperset(keys)
            case ("below", folder):
                return Path(folder) in path.parents
            case ("listed", other):
                return str(path) == other
            case ("unread",):
                return self._read(path) is None
        role, word = search
        return word in self.of(path, role)

    def of(self, path: Path, role: str) -> frozenset[str]:
        """The words of a file that have a role."""
        found = self.found.setdefault(role, {})
        if path not in found:
            found[path] = frozenset(_ROLES[role](self._read(path) or ""))
        return found[path]

    def forget(self, path: Path) -> None:
        """A file has another text."""
        for found in self.found.values():
            found.pop(path, None)
        self.answers.clear()
        self._tables.clear()
        self._having.clear()

    def _imports(self, path: Path, stem: str, name: str) -> bool:
        imported = self.of(path, "imports")
        return stem in imported or name in imported

    def _uses(self, path: Path, name: str, call: str) -> bool:
        """Whether a file has a call, or gives what it would call another name."""
        return self._has(path, call) or name in self.of(path, "renamed")

    def _has(self, path: Path, part: str) -> bool:
        """Whether a part stands in a file: asked of one file for many names."""
        found = self._having[part]
        if path not in found:
            found[path] = part in (self._read(path) or "")
        return found[path]

    def _candidates(self, search: Search) -> Collection[Path]:
        """Some files, all that the search finds among them."""
        match search:
            case ("importers", stem, name, _):
                users = self._table("imports")
                return users.get(stem, set()) | users.get(name, set())
            case ("setters" | "derivers" | "renamers" as kind, stem, name, *_):
                self._load(_ROLE_OF[kind])
                users = self._table("imports")  # few, so that few others are read
                return users.get(stem, set()) | users.get(name, set())
            case (kind, *_) if kind in IN_SETTINGS:
                return tuple(self._settings())
            case (role, word) if role in _ROLES:
                return self._table(role).get(word, set())
        return tuple(self._python())

    def _table(self, role: str) -> dict[str, set[Path]]:
        """The Python files by each of their words that has a role."""
        if role not in self._tables:
            self._load(role)
            table: dict[str, set[Path]] = defaultdict(set)
            for path in self._python():
                for word in self.of(path, role):
                    table[word].add(path)
            self._tables[role] = table
        return self._tables[role]

    def _load(self, role: str) -> None:
        if role not in self.loaded:
            self.found[role] = {**self.stored(role), **self.found.get(role, {})}
            self.loaded.add(role)


def settings_files(root: Path) -> list[Path]:
    """The YAML files below a folder, in order, then JSON files of the size of settings.

    None where there are too many; no JSON files where those alone are too many.
    """
    found: list[Path] = []
    other: list[Path] = []
    seen = 0
    for folder, inner, names in os.walk(root):
        seen += len(names)
        inner[:] = sorted(n for n in inner if n[0] != "." and n not in _OTHERS)
        found += [Path(folder, n) for n in sorted(names) if n.endswith(_SUFFIXES)]
        if len(other) <= MAX_JSON:
            other += [Path(folder, n) for n in sorted(names) if n.endswith(".json")]
        if len(found) > MAX_SETTINGS or seen > MAX_NAMES:
            return []
    return found + (_small(other) if len(other) <= MAX_JSON else [])


def _small(paths: list[Path]) -> list[Path]:
    return [p for p in paths if p.is_file() and p.stat().st_size <= MAX_JSON_SIZE]


def its_target(qualified_name: str, target: str) -> bool:
    """Whether a target in settings names a class, given its name from the root."""
    return f".{qualified_name}".endswith(f".{target}")


def packages_around(qualified_name: str, target: str) -> list[list[str]]:
    """The packages around a class's module by which a target may name it.

    `src.models` of `src.models.small.Net`, for `models.Net`: it may hand the class on.
    """
    *modules, name = qualified_name.split(".")
    package, _, named = target.rpartition(".")
    if not package or named != name:
        return []
    around = [modules[:size] for size in range(1, len(modules))]
    return [its for its in around if its_target(".".join(its), package)]


def _imported(text: str) -> Iterator[str]:
    """All names in a text's import statements, and beside `import_module`."""
    for line in _BY_NAME.findall(text):
        yield from _WORD.findall(line)
    for found in _IMPORT.finditer(text):
        start = text.rfind("\n", 0, found.start()) + 1
        before = _BEFORE_IMPORT.fullmatch(text, start, found.start())
        if before is not None:
            yield from _WORD.findall(f"{before[1] or ''} {found[1]}")


def _written(text: str) -> Iterator[str]:
    """Names of the attributes, not of `self`, that statements of a text set."""
    for found in _WRITE.finditer(text):
        name, annotated, several = found.groups()
        if annotated or several:
            start = text.rfind("\n", 0, found.start()) + 1
            before = _BEFORE_ANNOTATED if annotated else _BEFORE_COMMA
            if before.fullmatch(text, start, found.start()) is None:
                continue
        yield name


def _bases(text: str) -> Iterator[str]:
    """All names among the bases of a text's classes, and what they stand for.

    A base that is a function's parameter stands for what the function is given.
    """
    named = {word for bases in _BASES.findall(text) for word in _WORD.findall(bases)}
    yield from named
    if named:
        yield from (name for name, other in _named_as(text) if other in named)
        for other, value in _GIVEN.findall(text):
            if other in named:
                yield from _WORD.findall(value)
        for function, parameters in _TAKES.findall(text):
            if not named.isdisjoint(_WORD.findall(parameters)):
                for call in re.findall(rf"\b{function}\(([^)]*)", text):
                    yield from _WORD.findall(call)


def _renamed(text: str) -> Iterator[str]:
    """Names to which a text gives another: `Net as Model`, `Model = Net`."""
    yield from (name for name, _ in _named_as(text))
    yield from _KEPT.findall(text)


def _named_as(text: str) -> Iterator[tuple[str, str]]:
    """`Net` and `Model` of each `Net as Model`; a pattern would try all words."""
    for before, after in pairwise(text.split(" as ")):
        name = _LAST_WORD.search(before[-MAX_NAME:].rstrip())
        other = _WORD.match(after.lstrip(" \t\r\n\\"))
        if name and other:
            yield name[0], other[0]


def _targets(text: str) -> Iterator[str]:
    """What settings name as a class to build."""
    return (target or path for target, path in _TARGET.findall(text))


def _trained(text: str) -> list[str]:
    """Names of all functions of a text with a backward pass."""
    return _DEFINED.findall(text) if "backward(" in text else []


_ROLES: dict[str, Callable[[str], Iterable[str]]] = {
    "bases": _bases,
    "defines": _DEFINED.findall,
    "imports": _imported,
    "keys": _KEY.findall,
    "renamed": _renamed,
    "takes": _TAKEN.findall,
    "targets": _targets,
    "trains": _trained,
    "writes": _written,
}
