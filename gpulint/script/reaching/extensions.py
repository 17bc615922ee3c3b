"""The newest torch that builds the extensions in C++ or CUDA that a script imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gpulint.index import FileIndex
from gpulint.index.build import last_name
from gpulint.index.walk import dotted
from gpulint.torch_prose import text_of

if TYPE_CHECKING:
    from gpulint.index import Project

# What torch's headers have no more, and the last torch that has it.
_CHECK = re.compile(r"\bAT_CHECK\s*\(")
_DEFINED = re.compile(r"#\s*define\s+AT_CHECK\b")
_GONE = (
    (_CHECK, (1, 4)),
    (re.compile(r"#\s*include\s*[<\"]THC/THC\w*\.c?u?h"), (1, 10)),
)
_MAKERS = ("CUDAExtension", "CppExtension")
_SOURCES = (".cpp", ".cc", ".cu", ".cuh", ".h", ".hpp")
MAX_SOURCES = 60
MAX_DEPTH = 3  # folders below that of `setup.py`


def builds_only_until(index: FileIndex) -> tuple[int, int] | None:
    """The last torch that builds an extension which a file imports, if it is known."""
    project = index.project
    if project is None:
        return None
    setups = filter(None, map(project.index, project.mentioning("setup(")))
    found = [
        last
        for setup in setups
        if any(_is_imported(index, name) for name in _built_by(project, setup))
        for last in _limits(project, setup.source.path.parent)
    ]
    return min(found, default=None)


def _built_by(project: Project, setup: FileIndex) -> tuple[str, ...]:
    """The names of the extensions of a `setup.py`; each file of a project asks."""
    return project.remembered("builds", setup.tree, lambda: tuple(_names(setup)))


def _names(setup: FileIndex) -> Iterator[str]:
    """`ops._ext` of `CUDAExtension(name="ops._ext", …)`.

    Also where a name is one of the makers: `extension = CppExtension`.
    """
    kept = (
        target.id
        for node in setup.all(ast.Assign)
        if (dotted(node.value) or "").rpartition(".")[2] in _MAKERS
        for target in node.targets
        if isinstance(target, ast.Name)
    )
    for maker in dict.fromkeys([*_MAKERS, *kept]):
        for call in setup.calls_by_name.get(maker, ()):
            given = [k.value for k in call.keywords if k.arg == "name"] + call.args[:1]
            name = (
                given[0].value if given and isinstance(given[0], ast.Constant) else ""
            )
            if isinstance(name, str) and name and last_name(call) == maker:
                yield name


def _is_imported(index: FileIndex, name: str) -> bool:
    """Whether a file imports an extension, by its name or from beside it."""
    last = name.rpartition(".")[2]
    return any(origin.rpartition(".")[2] == last for origin in index.imported)


def _limits(project: Project, folder: Path) -> Iterator[tuple[int, int]]:
    """What the sources in a folder of an extension need."""
    texts = [text_of(path) for path in _sources(project, folder)]
    defined = any(map(_DEFINED.search, texts))
    for sign, last in _GONE:
        if not (defined and sign is _CHECK) and any(map(sign.search, texts)):
            yield last


def _sources(project: Project, folder: Path) -> list[Path]:
    found: list[Path] = []
    todo = [(folder, 0)]
    for place, depth in todo:
        for path in project.in_folder(place, "*"):
            if path.suffix in _SOURCES and project.is_file(path):
                found.append(path)
            elif not path.suffix and depth < MAX_DEPTH:
                todo.append((path, depth + 1))
        if len(found) > MAX_SOURCES:
            break
    return found[:MAX_SOURCES]
