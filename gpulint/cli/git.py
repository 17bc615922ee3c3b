"""Which files have changes that git could not bring back."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from gpulint.files import run_git


def uncommitted(paths: Iterable[Path]) -> set[Path]:
    """Those that git reports as changed or untracked, as `cargo fix` counts them.

    Files outside a repository and ignored files are not among them.
    """
    repositories: dict[Path, list[Path]] = defaultdict(list)
    for path in paths:
        root = _root(path.resolve())
        if root:
            repositories[root].append(path)
    found: set[Path] = set()
    for root, members in repositories.items():
        changed = _changed(root)
        found.update(path for path in members if path.resolve() in changed)
    return found


def _root(path: Path) -> Path | None:
    return next((p for p in path.parents if (p / ".git").exists()), None)


def _changed(root: Path) -> set[Path]:
    output = run_git(root, "status", "--porcelain", "-z", "-uall", "--no-renames")
    lines = os.fsdecode(output or b"").split("\0")
    return {root / line[3:] for line in lines if line}
