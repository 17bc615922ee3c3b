"""Write a file beside its path, and put it in place when it is whole."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

SUFFIX = ".part"
LEFT_BEHIND = 3600.0  # seconds that a file was not written to: who wrote it was killed
_CREATE = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0)
# What file systems answer that cannot write back on demand.
_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EROFS)


class Replacement:
    """A new file that takes the place of `target`, at once and whole, or never.

    It is a file to write to for torch, whose writer must not meet an exception half
    way: an error is kept, what follows is dropped, and `commit` raises it.
    """

    def __init__(self, target: Path) -> None:
        """Open a hidden file beside `target`; raises OSError where that cannot be."""
        self.target = target
        name = f".{target.name}.{os.urandom(4).hex()}{SUFFIX}"
        self._file = target.with_name(name)
        self._descriptor = os.open(self._file, _CREATE, 0o666)
        self._error: OSError | None = None

    def write(self, data: bytes | memoryview) -> int:
        """Write all of `data`; return its number of bytes."""
        rest = memoryview(data).cast("B")
        size = len(rest)
        try:
            while self._error is None and rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            self._error = error
        return size

    def flush(self) -> None:
        """Nothing is kept back; torch asks for this method."""

    def commit(self) -> None:
        """Bring the file to the disk and put it in place; raises OSError."""
        try:
            if self._error is not None:
                raise self._error
            _sync(self._descriptor)
            self._close()
            self._file.replace(self.target)
        except OSError as error:
            self.discard()
            raise type(error)(error.errno, error.strerror, str(self.target)) from error
        with contextlib.suppress(OSError):  # Windows opens no folders
            _sync_folder(self.target.parent)

    def discard(self) -> None:
        """Leave the old file as it is."""
        self._close()
        with contextlib.suppress(OSError):
            self._file.unlink()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def takes_after(self, old: os.stat_result) -> bool:
        """Take the mode of the file in place; False if owners differ."""
        mine = self._file.stat()
        if (mine.st_uid, mine.st_gid) != (old.st_uid, old.st_gid):
            return False
        self._file.chmod(stat.S_IMODE(old.st_mode))
        return True

    def remove_left_behind(self) -> None:
        """Remove what processes that were killed had written of the same target."""
        now = self._file.stat().st_mtime  # by the clock of the file system
        with contextlib.suppress(OSError):
            for file in self.target.parent.iterdir():
                mine = _is_part(file.name, self.target.name)
                if mine and now - file.stat().st_mtime > LEFT_BEHIND:
                    file.unlink()


def _is_part(name: str, target: str) -> bool:
    return name.startswith(f".{target}.") and name.endswith(SUFFIX)


def replace_file(target: Path) -> Replacement | None:
    """Open what takes the place of a file; `target` is no link.

    None where a rename would do something else than writing to the file that is there:
    a device or pipe, a file with several names, of somebody else or read-only; and
    where no file can be made beside it.
    """
    try:
        old = target.stat()
    except OSError:
        old = None
    if old is not None and not _is_plain(target, old):
        return None
    try:
        new = Replacement(target)
    except OSError:
        return None
    try:
        if old is None or new.takes_after(old):
            new.remove_left_behind()
            return new
    except OSError:
        pass
    new.discard()
    return None


def _is_plain(target: Path, old: os.stat_result) -> bool:
    regular = stat.S_ISREG(old.st_mode) and old.st_nlink == 1
    return regular and os.access(target, os.W_OK)


def _sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
