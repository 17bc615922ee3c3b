"""Replaces a file in one step: a reader sees the old bytes or the new ones."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


def replace_file(file: Path, data: bytes) -> None:
    """Replace a file, or make it; OSError leaves what was there.

    Writes a temporary file beside it and renames. A symbolic link stays a link, a file
    keeps its mode, and what is no file (a pipe, `/dev/stdout`) is written to.
    """
    target = file.resolve()
    if target.exists() and not target.is_file():
        target.write_bytes(data)
        return
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        Path(name).chmod(_mode(target))
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_text(file: Path, text: str) -> None:
    """The same with UTF-8; what it has no bytes for becomes an escape."""
    replace_file(file, text.encode("utf-8", "backslashreplace"))


def _mode(target: Path) -> int:
    """The file's mode, or what a new file has: `mkstemp` lets only its owner read."""
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
