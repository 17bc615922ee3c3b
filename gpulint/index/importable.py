"""Which of many files can import a module, by where they lie and what they import."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

MAX_COMPARED = 1000  # files that name the same module


def importable(
    path: Path,
    files: Collection[Path],
    root: Path,
    imported: Callable[[Path], Collection[str]],
    extends: Callable[[Path], bool],
) -> Collection[Path]:
    """The files that may import one, also through others of them that import it.

    Each of them names it in its imports, but forty projects of one repository may have
    a `utils.py` each. `imported`: the names in a file's imports; `extends`: whether it
    puts folders on Python's path, so that all modules of the repository are in reach.
    """
    if len(files) > MAX_COMPARED:
        return files
    rest, waiting = set(files), [path]
    while waiting:
        module = waiting.pop()
        near = {f for f in rest if extends(f) or _reaches(f, module, root, imported(f))}
        rest -= near
        waiting += near
    return [f for f in files if f not in rest]


def _reaches(file: Path, module: Path, root: Path, imported: Collection[str]) -> bool:
    """Whether a file's imports may lead to a module from a folder around the file."""
    target = module.parent if module.name == "__init__.py" else module
    if target in file.parents:
        return True  # `from . import` in the package itself
    return any(
        target.relative_to(folder).parts[0].removesuffix(".py") in imported
        for folder in _folders(file, root)
        if folder in target.parents
    )


def _folders(file: Path, root: Path) -> Iterator[Path]:
    """Folders in which Python may look for what a file imports."""
    for folder in file.parents:
        yield folder
        if folder == root:
            yield root / "src"
            return
