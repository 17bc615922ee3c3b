"""Which of many files can import a module, by where they lie and what they import."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

MAX_COMPARED = 1000  # files that name the same module


def importable(
    starts: Collection[Path],
    files: Collection[Path],
    root: Path,
    imported: Callable[[Path], Collection[str]],
    most: int,
) -> Collection[Path]:
    """The files that may import a start, also through others of them that import it.

    Each of them names it in its imports, but forty projects of one repository may have
    a `utils.py` each. `imported`: the names in a file's imports. `files` themselves if
    that leaves more than `most`.
    """
    if len(files) > MAX_COMPARED:
        return files
    rest = {file: _folders(file, root) for file in files}
    found: list[Path] = []
    waiting = list(starts)
    while waiting and len(found) <= most:
        folders, inside = _leading_to(waiting.pop())
        near = [
            file
            for file, around in rest.items()
            if inside in around
            or any(folders.get(folder) in imported(file) for folder in around)
        ]
        for file in near:
            del rest[file]
        found += near
        waiting += near
    return found if len(found) <= most else files


def _leading_to(module: Path) -> tuple[dict[str, str], str | None]:
    """By the folders around a module what an import from there begins with.

    And the folder of a package, whose own files say `from . import`.
    """
    target = module.parent if module.name == "__init__.py" else module
    name = target.name.removesuffix(".py")
    found = {}
    for folder in target.parents:
        found[str(folder)] = name
        name = folder.name
    return found, str(target) if target is not module else None


def _folders(file: Path, root: Path) -> tuple[str, ...]:
    """Folders in which Python may look for what a file imports."""
    around = [str(folder) for folder in file.parents]
    inner = around.index(str(root)) + 1 if str(root) in around else 1
    return (*around[:inner], str(root / "src"))
