"""The projects that checked files belong to, and where each begins."""

from __future__ import annotations

from pathlib import Path

from gpulint.index.project import Lister, Project

MAX_NEIGHBOURS = 50
_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg")


class Projects:
    """The projects that the files of one run belong to."""

    def __init__(self, lister: Lister | None = None) -> None:
        self._lister = lister
        self._roots: dict[Path, Path] = {}
        self._projects: dict[Path, Project] = {}
        self._last: Project | None = None

    def of(self, path: Path) -> Project:
        """The project of a file: its repository, else the folder of its packages."""
        folder = path.parent
        if folder not in self._roots:
            self._roots[folder] = self._find_root(folder)
        return self._projects[self._roots[folder]]

    def enter(self, path: Path) -> Project:
        """The project of a file that is checked now; another one's files are let go."""
        project = self.of(path)
        if self._last is not None and self._last is not project:
            self._last.release()
        self._last = project
        return project

    def _find_root(self, folder: Path) -> Path:
        root, lister = find_root(folder), self._lister
        if root is None:
            root, lister = outside_packages(folder), _neighbours
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


def outside_packages(folder: Path) -> Path:
    """The folder itself, or the one that holds the package it belongs to."""
    while _is_package(folder) and folder.parent != folder:
        folder = folder.parent
    return folder


def _neighbours(folder: Path) -> list[Path]:
    """The scripts beside one that belongs to no repository; none in a crowd."""
    found = sorted(folder.glob("*.py"))
    return found if len(found) <= MAX_NEIGHBOURS else []


def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").is_file()
