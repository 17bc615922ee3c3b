"""Which file of a project an import means, as Python looks for it."""

from __future__ import annotations

import ast
import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gpulint.index.consulted import FOLDER, MODULE, PACKAGE, SCRIPTS, Consulted
from gpulint.index.paths import added_to_path
from gpulint.source import NOTEBOOK

if TYPE_CHECKING:
    from gpulint.index.build import FileIndex
    from gpulint.index.project import Project

    Member = tuple[FileIndex, tuple[str, ...]]
    Looked = tuple[Member | None, Consulted]

MAX_MODULES = 50  # of one package
_BINDS = r"^(?:class|def|async def) {0}\b|^{0} *=[^=]"
_STAR = re.compile(r"\bimport[\s\\]*\*")


class ModuleSearch:
    """The modules of one project, by the names under which its files import them."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._added: dict[Path, list[Path]] = {}
        self._folders: dict[Path, list[Path]] = {}
        self._owned: dict[tuple[Path, str], bool] = {}
        self._found: dict[tuple[Path, tuple[str, ...]], Looked] = {}
        self._members: dict[tuple[Path, str], Member | None] = {}

    def renew(self) -> None:
        """A file has another text: it may add other folders, or be a new module."""
        self._added.clear()
        self._owned.clear()

    def forget_nodes(self) -> None:
        """Answers that may hold the index of a file that is no longer loaded."""
        self._members.clear()
        self._found.clear()

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
            self.project.noted.files.add(member[0].source.path)
        return member

    def owns(self, near: FileIndex, dotted: str) -> bool:
        """Whether a dotted name of a file is one of this project; a cheap look."""
        self.project.noted.files.add(near.source.path)
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

    def modules_in(self, near: FileIndex, package: str) -> list[FileIndex]:
        """The modules of a package, as a file names it: `models.vision`."""
        if not package or not self.owns(near, package):
            return []
        with self._about(near):
            around = dict.fromkeys([*self._sure_folders(near), *self._up(near)])
            folders = [folder.joinpath(*package.split(".")) for folder in around]
            first = next((f for f in folders if self._is(f, FOLDER)), None)
            found = self.project.in_folder(first, "*.py") if first is not None else []
            modules = [self.project.index(path) for path in found[:MAX_MODULES]]
        return [index for index in modules if index is not None]

    def star_lacks(self, near: FileIndex, star: str, name: str) -> bool:
        """Whether `from .layers import *` surely brings no such name; reads text only.

        Nothing is parsed for it, so that a package of a hundred modules stays cheap.
        """
        module = star[1:]
        if not star.startswith(".") or not module.isidentifier():
            return False
        folder = near.source.path.parent
        path = folder / f"{module}.py"
        if self.project.is_loaded(path) or self.project.stands(folder, module, PACKAGE):
            return False
        if not self.project.stands(folder, module, MODULE):
            return False
        text = self.project.text(path)
        self.project.noted.files.add(path)
        return text is not None and name not in text and not _STAR.search(text)

    def plainly_binds(self, near: FileIndex, module: str, names: list[str]) -> bool:
        """Whether `.layers` is a module with top-level definitions of these names.

        By its text alone: that of a hundred modules costs less than to parse one.
        """
        parts = module.lstrip(".").split(".")
        level = len(module) - len(module.lstrip("."))
        above = near.source.path.parents
        if not 0 < level <= len(above) or not all(map(str.isidentifier, parts)):
            return False
        folder = above[level - 1].joinpath(*parts[:-1])
        path = folder / f"{parts[-1]}.py"
        stands = self.project.stands
        if stands(folder, parts[-1], PACKAGE) or not stands(folder, parts[-1], MODULE):
            return False
        text = self.project.text(path)
        self.project.noted.files.add(path)
        return text is not None and all(
            name == "*" or _binds_at_top(text, name) for name in names
        )

    @contextlib.contextmanager
    def _about(self, near: FileIndex) -> Iterator[None]:
        """What is noted meanwhile concerns all who ask about the imports of a file."""
        before, self.project.noted = (
            self.project.noted,
            self.project.around[near.source.path],
        )
        try:
            yield
        finally:
            self.project.noted = before

    def _holds(self, folder: Path, name: str) -> bool:
        """Whether a folder holds a module or package of a name."""
        if self.project.stands(folder, name, MODULE | PACKAGE | SCRIPTS):
            return True
        # A folder of folders, none of which is a package.
        return self.project.stands(folder, name, FOLDER) and bool(
            self.project.below(folder / name)
        )

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
        if len(others) > 1:
            others = [f for f in others if not self._has_no_part(f, parts)]
        if len(others) > 1 and not any(self._is(f / parts[0], MODULE) for f in others):
            # Python takes a plain folder for a package only where there is no other.
            whole = [f for f in others if self._is(f / parts[0], PACKAGE)]
            others = whole if len(whole) == 1 else others
        others = others or list(self._folders_of_programs(near, parts))
        return self._find(others[0], parts) if len(others) == 1 else None

    def _folders_of_programs(
        self, near: FileIndex, parts: tuple[str, ...]
    ) -> Iterator[Path]:
        """The next package around in which programs are started, if it has a name.

        `from trainer import fit`, in a folder with an `__init__.py` that nobody needs.
        """
        path = near.source.path
        if parts[0] in sys.stdlib_module_names:
            return
        for folder in self._up(near):
            if not self._is(folder, PACKAGE) or folder / f"{parts[0]}.py" == path:
                continue
            if self._holds(folder, parts[0]) and self.project.starts_in(folder):
                if not self._has_no_part(folder, parts):
                    yield folder
                return

    def _has_no_part(self, folder: Path, parts: tuple[str, ...]) -> bool:
        """Whether the first name is a module there, of which the second is nothing.

        `utils/utils.py`, for a file beside it that imports `utils.utils`: that is found
        where the program is started, in the folder around. Or it is a folder without
        the second: that around `net/src/net`, for one that imports `net.models`.
        """
        head = parts[0]
        stands = self.project.stands
        if len(parts) == 1 or stands(folder, head, PACKAGE):
            return False
        if not stands(folder, head, MODULE):
            ways = (PACKAGE, MODULE, FOLDER)
            return not any(stands(folder / head, parts[1], way) for way in ways)
        index = self.project.index(folder / f"{head}.py")
        return index is not None and not (
            index.stars
            or index.makes_names
            or parts[1] in index.bound_names | index.imports.keys()
        )

    def _sure_folders(self, near: FileIndex) -> list[Path]:
        """Where Python looks first: folders the file adds, and a script's own."""
        path = near.source.path
        if path not in self._added:
            added = added_to_path(near, self.project.root)
            for beside in self._adding_beside(near):
                added += added_to_path(beside, self.project.root)
            self._added[path] = [f for f in added if self._is(f, FOLDER)]
            if is_run(near):
                self._added[path].append(path.parent)
        return self._added[path]

    def _adding_beside(self, near: FileIndex) -> Iterator[FileIndex]:
        """Modules beside a file that it imports for the folders they add.

        `import _init_paths`, in a folder of programs that all begin with it.
        """
        folder = near.source.path.parent
        heads = dict.fromkeys(o.partition(".")[0] for o in near.imported)
        for head in heads:
            if not head or not self.project.stands(folder, head, MODULE):
                continue
            path = folder / f"{head}.py"
            self.project.noted.files.add(path)
            if path != near.source.path and "sys.path" in (
                self.project.text(path) or ""
            ):
                index = self.project.index(path)
                if index is not None:
                    yield index

    def _outer_folders(self, near: FileIndex) -> list[Path]:
        """Folders around, to the root, in any of which a program may be started."""
        up, root = self._up(near), self.project.root
        found = [f for f in up if f == root or not self._is(f, PACKAGE)]
        source = self.project.root / "src"
        if self._is(source, FOLDER) and source not in found:
            found.append(source)
        return found

    def _is(self, folder: Path, how: int) -> bool:
        return self.project.stands(folder.parent, folder.name, how)

    def _up(self, near: FileIndex) -> list[Path]:
        """A file's folder and those around it, to the root."""
        path = near.source.path
        if path not in self._folders:
            folders = list(path.parents)
            inner = (
                folders.index(self.project.root) + 1
                if self.project.root in folders
                else 1
            )
            self._folders[path] = folders[:inner]
        return self._folders[path]

    def _find(self, folder: Path, parts: tuple[str, ...]) -> Member | None:
        """A module below a folder; a second look gives what the first one gave."""
        key = (folder, parts)
        if key not in self._found:
            before, self.project.noted = self.project.noted, Consulted()
            try:
                self._found[key] = self._look_up(folder, parts), self.project.noted
            finally:
                self.project.noted = before
        found, noted = self._found[key]
        self.project.noted.add(noted)
        return found

    def _look_up(self, folder: Path, parts: tuple[str, ...]) -> Member | None:
        best: Member | None = None
        for number, part in enumerate(parts):
            rest = parts[number + 1 :]
            package = folder / part
            if self.project.stands(folder, part, PACKAGE):
                index = self.project.index(package / "__init__.py")
                if index is None:
                    return None
                best = (index, rest)
                if rest and index.imports.get(rest[0], f".{rest[0]}") not in (
                    f".{rest[0]}",
                    ".".join(parts[: number + 2]),  # `from package import module`
                ):
                    return best  # a name, which hides a module of that name
            elif self.project.stands(folder, part, MODULE):
                module = self.project.index(folder / f"{part}.py")
                return (module, rest) if module is not None else None
            elif not self.project.stands(folder, part, FOLDER):
                break
            folder = package
        if not parts and self._is(folder, PACKAGE):
            own = self.project.index(folder / "__init__.py")
            return (own, ()) if own is not None else None
        return best


def _binds_at_top(text: str, name: str) -> bool:
    """Whether a line at the margin, outside of long strings, binds a name."""
    found = re.search(_BINDS.format(name), text, re.MULTILINE)
    before = text[: found.start()] if found is not None else ""
    quoted = any(before.count(quotes) % 2 for quotes in ('"""', "'''"))
    return found is not None and not quoted


def is_run(index: FileIndex) -> bool:
    """Whether a file is run: a notebook, or one whose main guard does anything."""
    return index.source.path.suffix == NOTEBOOK or any(
        is_main_guard(statement) and not all(map(only_says, statement.body))
        for statement in index.tree.body
        if isinstance(statement, ast.If)
    )


def is_main_guard(statement: ast.If) -> bool:
    """`if __name__ == "__main__":`."""
    named = (n for n in ast.walk(statement.test) if isinstance(n, ast.Name))
    return any(name.id == "__name__" for name in named)


def only_says(statement: ast.stmt) -> bool:
    """`pass`, or `print("a module of losses")`: nobody starts a file for that."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call):
        said = isinstance(call.func, ast.Name) and call.func.id == "print"
        return said and all(isinstance(a, ast.Constant) for a in call.args)
    return isinstance(statement, ast.Pass) or isinstance(call, ast.Constant)
