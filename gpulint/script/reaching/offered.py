"""What a project may be for: programs that are not here, or notebooks around."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from gpulint.index import Project
from gpulint.index.words import has_word
from gpulint.torch_prose import text_of

if TYPE_CHECKING:
    from gpulint.script.model import Script

# What says in a file of packaging that the project is a package, and not just how its
# extensions are built or its tools are set.
_PACKAGED = {
    "setup.py": re.compile(r"\b(packages|py_modules|install_requires)\s*="),
    "setup.cfg": re.compile(r"^\[(metadata|options)\]", re.MULTILINE),
    "pyproject.toml": re.compile(
        r"^\[(project|tool\.(poetry|flit|pdm))\b", re.MULTILINE
    ),
}
# `name = "package.module:function"`, as console scripts and their like are written.
_ENTRY = re.compile(r"=\s*['\"]?([A-Za-z_][\w.]*)\s*:\s*([A-Za-z_]\w*)")
_OF_PROGRAMS = re.compile(r"(^|_)(examples?|tutorials?|demos?|experiments?)$")


def is_offered(script: Script, name: str | None = None) -> bool:
    """Whether a file may be for programs that are not here or not read: a library's.

    Or for a notebook around that has its name or its folder's, and the one asked for.
    """
    project = script.index.project
    if project is None or not project.files or not project.is_read:
        return True
    path, root = script.source.path, project.root
    package = _is_another_package(project, path.parent)
    around = () if package else (path.parent.name,)
    named = [(path.stem, *around), *([(name,)] if name else [])]
    return (
        path.stem == "hubconf"
        or is_packaged(script)
        or any(
            project.is_file(notebook)
            and all(
                any(has_word(text_of(notebook), word) for word in words)
                for words in named
            )
            for notebook in notebooks_in(project, {root, path.parent})
        )
    )


def is_packaged(script: Script) -> bool:
    """Whether a file is a part of what others install and import."""
    project, folder = script.index.project, script.source.path.parent
    if project is None:
        return False
    files = [project.root / file for file in _PACKAGED]
    texts = [text_of(file) if project.is_file(file) else "" for file in files]
    says = zip(texts, _PACKAGED.values(), strict=True)
    if not any(pattern.search(text) for text, pattern in says):
        return False
    if folder == project.root:
        return True
    if not folder.is_relative_to(project.root):
        return _is_in_package(project, folder)
    first = folder.relative_to(project.root).parts[0]
    if _OF_PROGRAMS.search(first):
        return False  # for programs of the project alone
    if _is_in_package(project, folder):
        return True
    return any("find_namespace" in text and has_word(text, first) for text in texts)


def is_a_command(script: Script, name: str | None = None) -> bool:
    """Whether packaging makes a command of a function, or of any that a file has.

    `train = "package.cli:main"`, in a folder between the file and the project's root.
    """
    project, path = script.index.project, script.source.path
    if project is None or not path.is_relative_to(project.root):
        return False
    module = path.parent if path.stem == "__init__" else path.with_suffix("")
    ending = ".".join(module.relative_to(project.root).parts)
    folders = [f for f in path.parents if f.is_relative_to(project.root)]
    files = [folder / file for folder in folders for file in _PACKAGED]
    return any(
        f".{ending}".endswith(f".{entry[1]}") and name in (None, entry[2])
        for file in files
        if project.is_file(file)
        for entry in _ENTRY.finditer(text_of(file))
    )


def _is_another_package(project: Project, folder: Path) -> bool:
    """Whether the name of a folder is that of the project's package, `src/name`."""
    tops = (project.root / folder.name, project.root / "src" / folder.name)
    if folder in tops or project.lists(folder / "__init__.py"):
        return False
    return any(project.lists(top / "__init__.py") for top in tops)


def _is_in_package(project: Project, folder: Path) -> bool:
    """Whether a folder is a package, in none but packages, up to the root or `src`."""
    tops = (project.root, project.root / "src")
    around = takewhile(lambda f: f not in tops, (folder, *folder.parents))
    return all(project.lists(f / "__init__.py") for f in around)


def notebooks_in(project: Project, folders: set[Path]) -> list[Path]:
    return [path for folder in folders for path in project.in_folder(folder, "*.ipynb")]
