"""Whether files and folders are as they were."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

# Nanoseconds. Two changes of a file within the resolution of the clock of its file
# system, two seconds at worst, may leave the same time behind.
MARGIN = 2_000_000_000
# When it was changed, when it was replaced or its mode was, its size; None: not there.
Stamp = tuple[int, int, int]
UNSURE: Stamp = (0, 0, 0)  # never that of a file: its text must be looked at


def stamp(path: str) -> Stamp | None:
    """What the file system says of a file or folder."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a thousand times a run
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size


def digest(path: str) -> str:
    """Of the bytes of a file; empty where it cannot be read."""
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError):
        return ""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def is_settled(found: Stamp | None, start: int) -> bool:
    """Whether what was read after `start` is surely what the stamp stands for."""
    return found is not None and found[0] < start - MARGIN
