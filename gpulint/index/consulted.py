"""What an answer rests on: files, entries of folders, searches through all files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from gpulint.index.words import Search

# How a name stands in a folder, as a sum: `name.py`; `name/__init__.py`; `name/`;
# `name/`, not a package, with Python files in it.
MODULE, PACKAGE, FOLDER, SCRIPTS = 1, 2, 4, 8
Entry = tuple[Path, str]


@dataclass
class Consulted:
    """Files whose text was looked at, names looked up in folders, and searches."""

    files: set[Path] = field(default_factory=set)
    entries: set[Entry] = field(default_factory=set)
    searches: set[Search] = field(default_factory=set)

    def add(self, other: Consulted) -> None:
        """What another answer rests on, too."""
        self.files |= other.files
        self.entries |= other.entries
        self.searches |= other.searches


def standing(folder: Path, name: str) -> int | str:
    """How a name stands in a folder; for `*.yaml`, the names of all such files."""
    if "*" in name:
        return "/".join(sorted(path.name for path in folder.glob(name)))
    inner = folder / name
    found = MODULE if (folder / f"{name}.py").is_file() else 0
    if inner.is_dir():
        found |= FOLDER
        if (inner / "__init__.py").is_file():
            found |= PACKAGE
        elif any(inner.glob("*.py")):
            found |= SCRIPTS
    return found
