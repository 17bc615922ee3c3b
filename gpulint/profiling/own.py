"""Tell the user's own files from libraries."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import CodeType
from typing import Any

from gpulint.runtime_name import is_vendored_file

Call = tuple[CodeType, int | None]
Rows = tuple[tuple[str, int], ...]  # files and rows, the innermost call first
PACKAGES = ("site-packages", "dist-packages")
GPULINT = Path(__file__).resolve().parent.parent
SCHEMES = ("stdlib", "platstdlib", "purelib", "platlib")


class Own:
    """Whether code is the user's, looked up once for each code object."""

    def __init__(self) -> None:
        paths = sysconfig.get_paths()
        folders = {os.path.realpath(paths[name]) for name in SCHEMES}
        folders.add(str(GPULINT))
        self._outside = tuple(f"{folder}{os.sep}" for folder in sorted(folders))
        self._files: dict[str, bool] = {}

    def code(self, code: CodeType) -> bool:
        """Whether the user wrote it."""
        return self.file(code.co_filename)

    def file(self, name: str) -> bool:
        """Whether this is one of the user's files."""
        known = self._files.get(name)
        if known is None:
            known = self._files[name] = self._look(name)
        return known

    def lines(self, chain: Iterable[Call]) -> Rows:
        """The user's lines of a chain of calls, in its order."""
        return tuple(
            (code.co_filename, row)
            for code, row in chain
            if row is not None and self.code(code)
        )

    def _look(self, name: str) -> bool:
        if not name.endswith(".py") or name.startswith("<"):
            return False
        path = Path(os.path.realpath(name))
        if any(part in PACKAGES for part in path.parts):
            return False
        if str(path).startswith((*self._outside, *_torch())):
            return False
        return path.is_file() and not is_vendored_file(path)


def _torch() -> tuple[str, ...]:
    """The folder of a torch that was built from a checkout."""
    file = getattr(sys.modules.get("torch"), "__file__", None)
    return (f"{Path(os.path.realpath(file)).parent}{os.sep}",) if file else ()


def calls(frame: Any) -> list[Call]:
    """A frame and those above it, at once: a thread that is looked at goes on soon."""
    chain = []
    while frame is not None:
        chain.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return chain
