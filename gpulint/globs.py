"""Patterns of files, as in a .gitignore."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec


class Globs(NamedTuple):
    """Patterns as in a .gitignore, relative to `root` (None: the folder searched)."""

    patterns: tuple[str, ...]
    root: Path | None = None


class FileGlob(NamedTuple):
    """One pattern of files below `root`; with `!` in front, of all the others."""

    pattern: str
    root: Path

    def matches(self, path: Path) -> bool:
        """Whether an absolute path of a file is meant."""
        wanted = not self.pattern.startswith("!")
        spec = _compiled(self.pattern.removeprefix("!"))
        return spec.match_file("/".join(relative(path, self.root))) is wanted


def gitignore(lines: Iterable[str]) -> GitIgnoreSpec:
    """Compiled patterns. ValueError: git would not take one of them either."""
    from pathspec import GitIgnoreSpec  # 20 ms that few need

    try:
        return GitIgnoreSpec.from_lines(lines)
    except re.error as error:
        raise ValueError(f"no pattern: {error}") from None


@functools.cache
def _compiled(pattern: str) -> GitIgnoreSpec:
    return gitignore([pattern])


def relative(path: Path, base: Path) -> tuple[str, ...]:
    """Parts of `path` below `base`; only its name where it lies elsewhere."""
    depth = len(base.parts)
    if path.parts[:depth] == base.parts:
        return path.parts[depth:]
    return path.parts[-1:]
