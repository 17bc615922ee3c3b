"""Copy data from a network to this machine's disk, once for all its processes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from ._hardware import in_units
from ._log import decide, report
from ._mounts import MEMORY, filesystem_of, is_remote
from ._settings import settings

AnyPath = TypeVar("AnyPath", str, Path)

KEPT_FREE = 1024**3  # bytes that stay free on the disk, for checkpoints and logs
COPIERS = 8  # files copied at a time: a network answers late, but to many


class Item(NamedTuple):
    """A file of what is copied; `path` is relative to it, "" if it is a file itself."""

    path: str
    size: int  # bytes
    changed: int  # nanoseconds


class StaysAsItIs(Exception):
    """The data is used where it lies; the message says why."""


def stage_local(path: AnyPath, *, to: str | Path | None = None) -> AnyPath:
    """Return where the file or folder at `path` is on this machine's own disk.

    Copied is what lies on a network (NFS, Lustre, buckets and drives that are mounted,
    and the like), with the name it has, to a folder of this user in `to`, by default
    `GPULINT_STAGE_DIR`, else SLURM's folder of the job, else the system's for temporary
    files if that is a disk. Another process, rank or run on the machine finds the copy,
    or waits for it, as long as names, sizes and times of the original are the same.

    A copy is complete or not there at all. Links are followed. Use the result for
    reading: nothing goes back, and nobody but the system (or SLURM) removes it.

    `path` itself, with one line that says why, where it is on a local disk, or may be
    (systems other than Linux), where no disk has room for it and 1 GiB more, where it
    is a URL, and where reading or writing fails. Off and under GPULINT_DEBUG: `path`.
    """
    if settings().off or settings().debug:
        return path
    original = os.fspath(path)
    try:
        copy, text = _staged(original, to)
    except StaysAsItIs as reason:
        decide("stage_local", f"{original} stays where it is ({reason})")
        return path
    except (OSError, RuntimeError) as error:  # the latter: links in a circle
        decide("stage_local", f"{original} stays where it is ({error})")
        return path
    decide("stage_local", f"{original} is read from {copy} ({text})")
    return type(path)(copy)


def _staged(original: str, to: str | Path | None) -> tuple[Path, str]:
    """Return where the copy is, and what it is."""
    if "://" in original:
        raise StaysAsItIs("a URL, only what is mounted is copied")
    filesystem = filesystem_of(original)
    if filesystem is None or not is_remote(filesystem):
        raise StaysAsItIs(f"on {filesystem or 'an unknown file system'}, no network")
    source = Path(original).absolute()
    items = _items(source)
    if not source.name or not items:
        raise StaysAsItIs("nothing to copy")
    folder = _own_folder(_disk(to))
    key = repr((str(source.resolve()), items)).encode("utf-8", "surrogatepass")
    place = folder / hashlib.sha256(key).hexdigest()[:16]
    size = sum(item.size for item in items)
    said = f"{in_units(size)} from {filesystem}"
    with _locked(place.with_suffix(".lock")) as alone:
        if _is_complete(place / source.name, items):
            return place / source.name, f"{said}, copied before"
        _require_room(folder, size)
        report("stage_local", f"copying {said}: {original}")
        _copy(source, place, items, alone=alone)
    return place / source.name, said


# What there is


def _items(source: Path) -> list[Item]:
    if not source.is_dir():
        return [_item(source, "")]
    items: list[Item] = []
    seen: set[tuple[int, int]] = set()
    for name, _, files in os.walk(source, followlinks=True, onerror=_raise):
        folder = Path(name)
        status = folder.stat()
        if (status.st_dev, status.st_ino) in seen:
            raise StaysAsItIs(f"{folder} is in it twice, by a link")
        seen.add((status.st_dev, status.st_ino))
        beneath = folder.relative_to(source)
        items += [_item(folder / file, str(beneath / file)) for file in files]
    return sorted(items)


def _item(file: Path, path: str) -> Item:
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise StaysAsItIs(f"{file} is no file")
    return Item(path, status.st_size, status.st_mtime_ns)


def _raise(error: OSError) -> None:
    raise error


# Where to


def _disk(to: str | Path | None) -> Path:
    """Return the folder the user names, else the first of the usual ones on a disk."""
    named = to or settings().stage_folder
    if named is not None:
        return Path(named)
    usual = filter(None, (os.environ.get("SLURM_TMPDIR"), tempfile.gettempdir()))
    for folder in usual:
        filesystem = filesystem_of(folder) or ""
        if filesystem not in MEMORY and not is_remote(filesystem):
            return Path(folder)
    raise StaysAsItIs("no folder for temporary files is on a disk: GPULINT_STAGE_DIR")


def _own_folder(folder: Path) -> Path:
    """Return this user's part of a folder that may be everybody's."""
    user = os.getuid() if hasattr(os, "getuid") else None
    own = folder / ("gpulint" if user is None else f"gpulint-{user}")
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = own.lstat()
    if not stat.S_ISDIR(status.st_mode) or user not in (None, status.st_uid):
        raise StaysAsItIs(f"{own} is somebody else's")
    return own


def _require_room(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if size + KEPT_FREE > free:
        raise StaysAsItIs(f"{in_units(size)}, with {in_units(free)} free in {folder}")


# Copying


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[bool]:
    """Let one process at a time in; yields whether the system can do that.

    The system gives the lock back when a process ends, however it ends.
    """
    try:
        import fcntl
    except ImportError:  # Windows: each copies for itself, and one of them wins
        yield False
        return
    with file.open("wb") as stream:
        fcntl.flock(stream.fileno(), fcntl.LOCK_EX)
        yield True


def _is_complete(copy: Path, items: list[Item]) -> bool:
    try:
        return all(_file(copy, item).stat().st_size == item.size for item in items)
    except OSError:
        return False


def _file(copy: Path, item: Item) -> Path:
    return copy / item.path if item.path else copy


def _copy(source: Path, place: Path, items: list[Item], *, alone: bool) -> None:
    if alone:  # what a process left that was killed, or the system has thinned out
        for left in [place, *place.parent.glob(f"{place.name}.part*")]:
            shutil.rmtree(left, ignore_errors=True)
    part = Path(tempfile.mkdtemp(prefix=f"{place.name}.part", dir=place.parent))
    try:
        _copy_files(source, part / source.name, items)
        if not _is_complete(part / source.name, items):
            raise StaysAsItIs("it changed while it was copied")
        with contextlib.suppress(OSError):  # another process was faster
            part.rename(place)
        if not _is_complete(place / source.name, items):
            raise StaysAsItIs(f"{place} cannot be written")
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _copy_files(source: Path, copy: Path, items: list[Item]) -> None:
    for folder in {_file(copy, item).parent for item in items}:
        folder.mkdir(parents=True, exist_ok=True)

    def copy_one(item: Item) -> None:
        target = _file(copy, item)
        shutil.copyfile(_file(source, item), target)
        os.utime(target, ns=(item.changed, item.changed))

    with ThreadPoolExecutor(COPIERS) as pool:
        list(pool.map(copy_one, items))
