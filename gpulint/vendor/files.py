"""The vendored files of a project: which ones its scripts need, and what they hold."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from gpulint import __version__
from gpulint.index import Project, Projects
from gpulint.runtime_name import ENDING, VENDORED
from gpulint.source import Source, write_source
from gpulint.vendor.header import Header, read_header, render
from gpulint.vendor.modules import runtime
from gpulint.vendor.uses import Uses, homes, read_uses

FILE = f"{VENDORED}.py"
_MENTION = re.compile(rb"gpulint_runtime|gpulint\.runtime|gpulint[ \t]+import")


class VendorError(Exception):
    """What cannot be vendored, or written; the message is one line for the user."""


class _Script(NamedTuple):
    path: Path
    uses: Uses
    homes: frozenset[Path]
    imports: bool  # the vendored file, not the package


@dataclass(frozen=True)
class VendoredFile:
    """A file as it should be: the helpers in it, and the scripts that use each.

    `others`: those of the scripts that import the package still.
    """

    path: Path
    users: dict[str, tuple[Path, ...]]
    others: frozenset[Path] = frozenset()

    @property
    def scripts(self) -> frozenset[Path]:
        """All scripts that use it."""
        return frozenset(path for users in self.users.values() for path in users)

    @cached_property
    def text(self) -> str:
        """What it should hold."""
        return render(self.users)

    @cached_property
    def written(self) -> str | None:
        """What it holds, None: it is not there. VendorError: it cannot be read."""
        try:
            return self.path.read_text("utf-8")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            return ""
        except OSError as error:
            raise VendorError(f"{self.path}: {error.strerror or error}") from None

    def keeping_more(self) -> VendoredFile:
        """The same with all helpers that the file holds now, whoever uses them."""
        held = self.header.helpers if self.header is not None else frozenset[str]()
        more = dict.fromkeys(held & runtime().helpers.keys(), ())
        users = {**more, **self.users}
        return VendoredFile(
            self.path, {h: users[h] for h in sorted(users)}, self.others
        )

    @property
    def header(self) -> Header | None:
        """What it says of itself. VendorError: somebody else wrote a file there."""
        if self.written is None:
            return None
        header = read_header(self.written)
        if header is None:
            raise VendorError(f"{self.path}: not written by gpulint, left as it is")
        return header

    @property
    def fault(self) -> str | None:
        """Why it is not what it should be: missing, edited or stale; None: it is."""
        header = self.header
        if header is None:
            return f"missing, for {_listed({p.name for p in self.scripts})}"
        if self.written == self.text:
            return None
        if header.edited:
            return "edited: its text is not what gpulint has written"
        if header.version != __version__:
            return f"stale: written by gpulint {header.version}, this is {__version__}"
        lacks, more = set(self.users) - header.helpers, header.helpers - set(self.users)
        if lacks:
            return f"stale: it lacks {_listed(lacks)}"
        if more:
            return f"stale: nothing uses {_listed(more)} any longer"
        return "stale: the runtime of this gpulint is another one"

    def write(self) -> None:
        """Write it, at once or not at all. VendorError: it cannot be written."""
        try:
            if self.header is None:
                _create(self.path, self.text)
            elif self.written is not None:
                write_source(Source(self.path, self.written), self.text)
        except OSError as error:
            reason = error.strerror or error
            raise VendorError(f"{self.path}: not written: {reason}") from None


def check_name(name: str) -> None:
    """VendorError: `gpulint check` would not know a file of that name."""
    stem, dot, suffix = name.rpartition(".")
    if not (stem.isidentifier() and stem.endswith(ENDING) and dot and suffix == "py"):
        raise VendorError(
            f"{name!r} does not end with `{ENDING}.py`, as vendored files do"
        )


def project_files(
    project: Project,
    given: Collection[Path] = (),
    name: str = FILE,
    others: Collection[Path] = (),
) -> list[VendoredFile]:
    """The vendored files that the scripts of a project import, in order.

    `given`: scripts that need not import it yet: they may import the package.
    `others`: scripts to look at, of which the project may not know.
    """
    scripts = _scripts(project, given, name, others)
    folders = sorted({home for script in scripts for home in script.homes})
    return [
        _file(folder / name, [s for s in scripts if _serves(folder, s)])
        for folder in folders
    ]


def one_file(
    projects: Projects, given: Collection[Path], path: Path
) -> VendoredFile | None:
    """The file at a place of the user's choice, None where nothing needs it."""
    found: dict[Path, _Script] = {}
    for project in {id(p): p for p in map(projects.of, given)}.values():
        its = [script for script in given if projects.of(script) is project]
        for script in _scripts(project, its, path.name):
            if script.path in given or path.parent in script.homes:
                found[script.path] = script
    return _file(path, found.values()) if found else None


def mentions(path: Path) -> bool:
    """Whether a file may import the runtime; a cheap look."""
    try:
        return _MENTION.search(path.read_bytes()) is not None
    except OSError:
        return False


def _scripts(
    project: Project,
    given: Collection[Path],
    name: str,
    others: Collection[Path] = (),
) -> list[_Script]:
    """Scripts that import the vendored file, and given ones that use the package."""
    module = name.removesuffix(".py")
    asked = [*project.mentioning(module), *given, *others]
    found = []
    for path in sorted(set(asked)):
        index = project.index(path)
        if index is None:
            raise VendorError(f"{path}: cannot be read as Python")
        uses = read_uses(index)
        imports = any(m.rpartition(".")[2] == module for m in uses.modules)
        if uses.modules and (imports or path in given):
            for row, unknown in uses.unknown:
                raise VendorError(f"{path}:{row}: there is no helper `{unknown}`")
            if uses.helpers:
                places = homes(index, project, uses.modules)
                found.append(_Script(path, uses, places, imports))
    return found


def _serves(folder: Path, script: _Script) -> bool:
    """Whether a script finds the file in a folder when a program of it runs.

    In a package's folder it is found by all modules of the package, where one of them
    is started as a script.
    """
    package = (folder / "__init__.py").is_file() and folder in script.path.parents
    return folder in script.homes or package


def _file(path: Path, scripts: Collection[_Script]) -> VendoredFile:
    users: dict[str, list[Path]] = {}
    for script in scripts:
        for helper in script.uses.helpers:
            users.setdefault(helper, []).append(script.path)
    others = frozenset(script.path for script in scripts if not script.imports)
    return VendoredFile(path, {h: tuple(users[h]) for h in sorted(users)}, others)


def _create(path: Path, text: str) -> None:
    """Write a new file with the mode that new files have here."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_text(text, "utf-8", newline="\n")
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
