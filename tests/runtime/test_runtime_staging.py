"""stage_local(): one complete copy for everybody, or the original."""

from __future__ import annotations

import builtins
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpulint import runtime
from gpulint.runtime._mounts import filesystem_of, is_remote

Files = Callable[[dict[str, str]], Path]
GIB = 1024**3
MOUNTS = """\
overlay / overlay rw 0 0
nas:/data /data nfs4 rw 0 0
tmpfs /data/quick tmpfs rw 0 0
nas:/odd /my\\040data nfs rw 0 0
/dev/sda /again ext4 rw 0 0
nas:/x /again nfs rw 0 0
nonsense
"""


@pytest.mark.parametrize(
    "path,filesystem",
    [
        ("/home/x", "overlay"),
        ("/data", "nfs4"),
        ("/data/train/1", "nfs4"),
        ("/database", "overlay"),
        ("/data/quick/1", "tmpfs"),
        ("/data/quick/../1", "nfs4"),
        ("/my data/x", "nfs"),
        ("/again/x", "nfs"),
    ],
)
def test_file_system(path: str, filesystem: str, files: Files) -> None:
    root = files({"proc/self/mounts": MOUNTS})
    assert filesystem_of(path, root=root) == filesystem


def test_systems_without_a_list_of_mounts(tmp_path: Path) -> None:
    assert filesystem_of("/data", root=tmp_path) is None


@pytest.mark.parametrize(
    "filesystem,expected",
    [
        ("nfs4", True),
        ("lustre", True),
        ("fuse.gcsfuse", True),
        ("fuse", True),
        ("fuse.fuse-overlayfs", False),
        ("fuseblk", False),
        ("ext4", False),
        ("overlay", False),
    ],
)
def test_remote(filesystem: str, expected: bool) -> None:
    assert is_remote(filesystem) is expected


# Copying


class World:
    """A network that is one folder, and a disk that is another."""

    def __init__(self, root: Path) -> None:
        self.net, self.disk = root / "net", root / "disk"
        self.kinds: dict[Path, str | None] = {self.net: "nfs4", self.disk: "ext4"}
        self.net.mkdir()
        self.disk.mkdir()

    def filesystem(self, path: str) -> str | None:
        for folder, kind in self.kinds.items():
            if Path(path).is_relative_to(folder):
                return kind
        return "ext4"

    @property
    def left(self) -> list[str]:
        """What is in this user's folder, apart from locks."""
        return sorted(
            p.name for p in self.disk.glob("gpulint*/*") if p.suffix != ".lock"
        )


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    its = World(tmp_path)
    where = "gpulint.runtime._staging.filesystem_of"
    monkeypatch.setattr(where, its.filesystem)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(its.disk))
    monkeypatch.setattr("gpulint.runtime._staging.KEPT_FREE", 0)
    monkeypatch.delenv("SLURM_TMPDIR", raising=False)
    return its


@pytest.fixture
def data(world: World) -> Path:
    folder = world.net / "train"
    for name, text in {"cat/1.txt": "one", "cat/2.txt": "", "dog/3.txt": "3"}.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def content(folder: Path) -> dict[str, str]:
    files = [f for f in folder.rglob("*") if f.is_file()]
    return {str(f.relative_to(folder)): f.read_text() for f in sorted(files)}


def explained() -> str:
    lines = [line.strip() for line in runtime.explain().splitlines()]
    return next(line for line in lines if line.startswith("stage_local: "))


def test_a_folder_is_copied_once(data: Path, world: World) -> None:
    copy = runtime.stage_local(data)
    assert copy.is_relative_to(world.disk)
    assert copy.name == "train"
    assert content(copy) == content(data)
    assert (copy / "cat/1.txt").stat().st_mtime_ns == (
        (data / "cat/1.txt").stat().st_mtime_ns
    )
    assert explained() == f"stage_local: {data} is read from {copy} (4 bytes from nfs4)"
    before = copy.stat().st_ino
    assert runtime.stage_local(data) == copy
    assert copy.stat().st_ino == before
    assert len(world.left) == 1
    assert "(4 bytes from nfs4, copied before)" in runtime.explain()


def test_a_file_and_the_type_of_the_path(data: Path) -> None:
    copy = runtime.stage_local(str(data / "cat/1.txt"))
    assert isinstance(copy, str)
    assert Path(copy).name == "1.txt"
    assert Path(copy).read_text() == "one"


def test_a_changed_original_is_copied_anew(data: Path) -> None:
    first = runtime.stage_local(data)
    (data / "cat/1.txt").write_text("two")
    os.utime(data / "cat/1.txt", ns=(1, 1))  # the same size
    second = runtime.stage_local(data)
    assert (second / "cat/1.txt").read_text() == "two"
    assert (first / "cat/1.txt").read_text() == "one"  # somebody may be reading it


def test_links_are_followed(data: Path, world: World) -> None:
    elsewhere = world.net / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "4.txt").write_text("four")
    (data / "fox").symlink_to(elsewhere)
    (data / "cat/5.txt").symlink_to(data / "dog/3.txt")
    copy = runtime.stage_local(data)
    assert (copy / "fox/4.txt").read_text() == "four"
    assert not (copy / "cat/5.txt").is_symlink()
    assert content(copy) == {**content(data), "fox/4.txt": "four"}


def test_a_damaged_copy_is_replaced(data: Path, world: World) -> None:
    copy = runtime.stage_local(data)
    (copy / "cat/1.txt").unlink()
    stale = copy.parent.with_suffix(".part_of_a_killed_process")
    stale.mkdir()
    assert runtime.stage_local(data) == copy
    assert content(copy) == content(data)
    assert world.left == [copy.parent.name]


@pytest.mark.parametrize("by", ["argument", "GPULINT_STAGE_DIR", "SLURM_TMPDIR"])
def test_the_disk_can_be_named(
    by: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "named" / "deep"
    if by != "argument":
        monkeypatch.setenv(by, str(named))
    to = named if by == "argument" else None
    assert runtime.stage_local(data, to=to).is_relative_to(named)


SCRIPT = """
import shutil, sys, time
from pathlib import Path
from gpulint import runtime
from gpulint.runtime import _staging

net, disk, log, go = map(Path, sys.argv[1:])
_staging.filesystem_of = lambda path: "nfs" if Path(path).is_relative_to(net) else "ext4"
_staging.KEPT_FREE = 0
copyfile = shutil.copyfile

def slowly(source, target):
    with log.open("a") as stream:
        stream.write(f"{source}\\n")
    time.sleep(0.05)
    copyfile(source, target)

shutil.copyfile = slowly
print("ready", flush=True)
while not go.exists():
    time.sleep(0.01)
copy = runtime.stage_local(net / "train", to=disk)
assert sum(1 for f in copy.rglob("*.txt")) == 3
assert "torch" not in sys.modules
print(copy)
"""


def test_processes_at_once_make_one_copy(
    data: Path, world: World, tmp_path: Path
) -> None:
    log, go = tmp_path / "log", tmp_path / "go"
    command = [sys.executable, "-c", SCRIPT, world.net, world.disk, log, go]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(runtime.__file__).parents[2]),
    }
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    go.touch()
    found = {process.communicate(timeout=60)[0] for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(found) == 1
    assert sorted(log.read_text().split()) == sorted(map(str, data.rglob("*.txt")))
    assert len(world.left) == 1


@pytest.mark.parametrize("faster", [False, True])
def test_without_locks_one_copy_wins(
    faster: bool, data: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def refuse(name: str, *given: Any, **named: Any) -> Any:
        if name == "fcntl":
            raise ImportError(name)
        return real(name, *given, **named)

    copyfile = shutil.copyfile
    nested: list[Path] = []

    def copy_twice(source: Any, target: Any) -> None:
        if faster and not nested:  # another process comes in between, and is done
            nested.append(Path(target))
            monkeypatch.setattr("shutil.copyfile", copyfile)
            nested.append(runtime.stage_local(data))
        copyfile(source, target)

    monkeypatch.setattr(builtins, "__import__", refuse)
    monkeypatch.setattr("shutil.copyfile", copy_twice)
    copy = runtime.stage_local(data)
    assert content(copy) == content(data)
    assert nested[1:] == ([copy] if faster else [])
    assert len(world.left) == 1


# Where nothing is copied


def assert_stays(path: Any, reason: str, world: World) -> None:
    assert runtime.stage_local(path) is path
    assert explained() == f"stage_local: {path} stays where it is ({reason})"
    assert not [name for name in world.left if ".part" in name]


def test_what_is_on_a_disk_stays(world: World) -> None:
    assert_stays(world.disk, "on ext4, no network", world)


def test_what_nobody_knows_stays(data: Path, world: World) -> None:
    world.kinds[world.net] = None
    assert_stays(data, "on an unknown file system, no network", world)


def test_urls_stay(world: World) -> None:
    assert_stays("s3://bucket/train", "a URL, only what is mounted is copied", world)


def test_a_full_disk(data: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage(9, 9, GIB))
    monkeypatch.setattr("gpulint.runtime._staging.KEPT_FREE", GIB)
    folder = world.disk / f"gpulint-{os.getuid()}"
    assert_stays(data, f"4 bytes, with 1.0 GiB free in {folder}", world)


def test_a_disk_that_fills_up(
    data: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: Any, target: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfile", fail)
    assert_stays(data, "[Errno 28] No space left on device", world)
    assert world.left == []


def test_an_original_that_grows(
    data: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.copyfile", lambda _, to: Path(to).write_text("longer"))
    assert_stays(data, "it changed while it was copied", world)
    assert world.left == []


@pytest.mark.parametrize("kind", ["tmpfs", "nfs"])
def test_temporary_files_in_memory_or_on_the_network(
    kind: str, data: Path, world: World
) -> None:
    world.kinds[world.disk] = kind
    reason = "no folder for temporary files is on a disk: GPULINT_STAGE_DIR"
    assert_stays(data, reason, world)


def test_folders_that_hold_themselves(data: Path, world: World) -> None:
    (data / "cat" / "loop").symlink_to(data)
    assert_stays(data, f"{data / 'cat/loop'} is in it twice, by a link", world)


def test_pipes_and_empty_folders(data: Path, world: World) -> None:
    empty = world.net / "empty"
    empty.mkdir()
    assert_stays(empty, "nothing to copy", world)
    runtime._reset()
    os.mkfifo(data / "pipe")
    assert_stays(data, f"{data / 'pipe'} is no file", world)


def test_what_does_not_exist(world: World) -> None:
    missing = world.net / "missing"
    reason = f"[Errno 2] No such file or directory: '{missing}'"
    assert_stays(missing, reason, world)


def test_a_folder_that_is_somebody_elses(
    data: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getuid", lambda: 12345)
    own = world.disk / "gpulint-12345"
    assert_stays(data, f"{own} is somebody else's", world)
    runtime._reset()
    own.rmdir()
    own.symlink_to(world.net)
    assert_stays(data, f"{own} is somebody else's", world)


def test_a_place_that_cannot_be_written(
    data: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise PermissionError(target)

    monkeypatch.setattr(Path, "rename", refuse)
    runtime.stage_local(data)
    assert "cannot be written" in explained()
    assert world.left == []


@pytest.mark.parametrize(
    "variable,value", [("GPULINT_RUNTIME", "off"), ("GPULINT_DEBUG", "1")]
)
def test_switched_off(
    variable: str, value: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    assert runtime.stage_local(data) is data
