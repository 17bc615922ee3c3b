"""Checkpoints that are written later: what was passed, whole or not at all."""

from __future__ import annotations

import atexit
import errno
import io
import json
import os
import signal
import subprocess
import sys
import threading
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gpulint import runtime
from gpulint.runtime import _async_save, _replacement, _snapshot

NAME = "gpulint.runtime._replacement.os.write"
Weights = dict[str, torch.Tensor]


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Nothing is written in threads until the event is set."""
    opened = threading.Event()
    write = os.write

    def wait(descriptor: int, data: bytes) -> int:
        if threading.current_thread() is not threading.main_thread():
            assert opened.wait(30)
        return write(descriptor, data)

    monkeypatch.setattr(NAME, wait)
    yield opened
    opened.set()
    runtime._reset()


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let the disk be full from the next file on."""

    def fill() -> None:
        def refuse(descriptor: int, data: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(NAME, refuse)

    return fill


def files(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def load(file: Path) -> Any:
    return torch.load(file, weights_only=False)


class Special(torch.Tensor):
    pass


class Counter:
    def __init__(self, count: int) -> None:
        self.count = count


# What is saved


def test_objects_are_those_of_torch_save(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    base = torch.arange(12.0)
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "views": [base, base[2:6], base.reshape(3, 4).t()],
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "special": torch.ones(3).as_subclass(Special),
        "types": [torch.ones(2, dtype=d) for d in (torch.bfloat16, torch.int8)],
        "sparse": torch.eye(3).to_sparse(),
        "empty": torch.empty(0),
        "plain": [1, "two", None, {"three": 3.0}, torch.float16],
    }
    runtime.async_save(state, tmp_path / "mine.pt")
    torch.save(state, tmp_path / "theirs.pt")
    runtime.flush()
    mine, theirs = load(tmp_path / "mine.pt"), load(tmp_path / "theirs.pt")
    assert repr(mine) == repr(theirs)
    assert type(mine["model"]) is OrderedDict
    assert type(mine["special"]) is Special
    assert isinstance(mine["parameter"], torch.nn.Parameter)
    mine["views"][0][3] = 70  # one storage still
    assert mine["views"][1][1] == 70
    assert mine["views"][2][3, 0] == 70
    assert mine["views"][2].stride() == (1, 4)


def test_the_device_is_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:1")
        runtime.async_save(torch.ones(2), tmp_path / "a.pt")
    runtime.flush()
    seen = []

    def to_host(storage: Any, location: str) -> Any:
        seen.append(location)
        return storage

    torch.load(tmp_path / "a.pt", map_location=to_host)
    assert seen == ["cuda:1"]


def test_what_changes_later_is_saved_as_it_was(
    tmp_path: Path, gate: threading.Event
) -> None:
    state = {"w": torch.zeros(1000), "log": [1], "counter": Counter(1)}
    runtime.async_save(state, tmp_path / "a.pt")
    state["w"] += 1  # type: ignore[operator]
    state["log"].append(2)  # type: ignore[union-attr]
    state["counter"].count = 2  # type: ignore[union-attr]
    assert files(tmp_path) != ["a.pt"]
    gate.set()
    runtime.flush()
    saved = load(tmp_path / "a.pt")
    assert saved["w"].eq(0).all()
    assert (saved["log"], saved["counter"].count) == ([1], 1)
    assert files(tmp_path) == ["a.pt"]


def test_a_hundred_saves_while_weights_change(tmp_path: Path) -> None:
    weights = torch.zeros(20_000)
    for number in range(100):
        weights.fill_(number)
        runtime.async_save({"w": weights, "n": number}, tmp_path / f"{number}.pt")
        weights.fill_(-1)
    runtime.flush()
    for number in range(100):
        saved = load(tmp_path / f"{number}.pt")
        assert saved["n"] == number
        assert saved["w"].eq(number).all()


def test_one_save_at_a_time(tmp_path: Path, gate: threading.Event) -> None:
    runtime.async_save(torch.zeros(2), tmp_path / "a.pt")
    second = threading.Thread(
        target=runtime.async_save, args=(torch.ones(2), tmp_path / "a.pt")
    )
    second.start()
    second.join(0.05)
    assert second.is_alive()
    assert len(files(tmp_path)) == 1  # the second has not begun
    gate.set()
    second.join()
    runtime.flush()
    assert load(tmp_path / "a.pt").eq(1).all()


def test_other_files_wait_in_memory(tmp_path: Path, gate: threading.Event) -> None:
    weights = torch.zeros(100)
    for number in range(8):
        runtime.async_save(weights.fill_(number), tmp_path / f"{number}.pt")
    ninth = threading.Thread(
        target=runtime.async_save, args=(torch.ones(2), tmp_path / "8.pt")
    )
    ninth.start()
    ninth.join(0.05)
    assert ninth.is_alive()
    gate.set()
    ninth.join()
    runtime.flush()
    for number in range(8):
        assert load(tmp_path / f"{number}.pt").eq(number).all()
    assert len(files(tmp_path)) == 9


def test_memory_of_those_that_wait(
    tmp_path: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime.async_save(torch.zeros(2), tmp_path / "a.pt")
    monkeypatch.setattr(_snapshot, "free_memory", lambda: 4000)
    threading.Timer(0.05, gate.set).start()
    runtime.async_save(torch.ones(1000), tmp_path / "b.pt")  # too large even alone
    assert load(tmp_path / "a.pt").eq(0).all()
    assert load(tmp_path / "b.pt").eq(1).all()
    answers = [4000, 4000, 1_000_000]
    monkeypatch.setattr(_snapshot, "free_memory", lambda: answers.pop(0))
    gate.clear()
    runtime.async_save(torch.zeros(2), tmp_path / "a.pt")
    threading.Timer(0.05, gate.set).start()
    runtime.async_save(torch.ones(1000), tmp_path / "c.pt")
    assert answers == []
    runtime.flush()
    assert load(tmp_path / "c.pt").eq(1).all()


def test_a_folder_that_changes_meanwhile(
    tmp_path: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    runtime.async_save(torch.zeros(2), "müde.pt")
    monkeypatch.chdir(tmp_path / "elsewhere")
    gate.set()
    runtime.flush()
    assert files(tmp_path) == ["elsewhere", "müde.pt"]


# Where it is saved


def test_file_objects_are_written_at_once(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    runtime.async_save(torch.ones(2), buffer)
    buffer.seek(0)
    assert torch.load(buffer).eq(1).all()
    with (tmp_path / "a.pt").open("wb") as file:
        runtime.async_save(torch.ones(2), file)
    assert load(tmp_path / "a.pt").eq(1).all()


def test_links_and_modes_stay(tmp_path: Path) -> None:
    (tmp_path / "real.pt").write_bytes(b"")
    (tmp_path / "real.pt").chmod(0o640)
    (tmp_path / "link.pt").symlink_to("real.pt")
    runtime.async_save(torch.ones(2), tmp_path / "link.pt")
    runtime.flush()
    assert (tmp_path / "link.pt").is_symlink()
    assert load(tmp_path / "real.pt").eq(1).all()
    assert (tmp_path / "real.pt").stat().st_mode & 0o777 == 0o640


def test_a_file_with_two_names_keeps_both(tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(b"")
    os.link(tmp_path / "a.pt", tmp_path / "b.pt")
    runtime.async_save(torch.ones(2), tmp_path / "a.pt")
    assert load(tmp_path / "b.pt").eq(1).all()
    assert "torch.save: no new file" in runtime.explain()


def test_devices_are_written_to() -> None:
    runtime.async_save(torch.ones(2), os.devnull)
    assert not Path(os.devnull).is_file()


def test_files_of_others_are_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.pt").write_bytes(b"")
    number = (tmp_path / "a.pt").stat().st_ino
    monkeypatch.setattr(
        _replacement.Replacement, "takes_after", lambda self, old: False
    )
    runtime.async_save(torch.ones(2), tmp_path / "a.pt")
    assert load(tmp_path / "a.pt").eq(1).all()
    assert (tmp_path / "a.pt").stat().st_ino == number
    assert files(tmp_path) == ["a.pt"]


def test_owners_are_compared(tmp_path: Path) -> None:
    old = (tmp_path).stat()
    new = _replacement.Replacement(tmp_path / "a.pt")
    other = types.SimpleNamespace(st_uid=old.st_uid + 1, st_gid=old.st_gid)
    assert not new.takes_after(other)  # type: ignore[arg-type]
    new.discard()
    assert files(tmp_path) == []


def test_read_only_files_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.pt").write_bytes(b"old")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert _replacement.replace_file(tmp_path / "a.pt") is None
    monkeypatch.undo()

    def refuse(self: Path, mode: int) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "chmod", refuse)
    assert _replacement.replace_file(tmp_path / "a.pt") is None
    assert files(tmp_path) == ["a.pt"]


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    old, new = tmp_path / ".a.pt.0123abcd.part", tmp_path / ".a.pt.4567abcd.part"
    other = tmp_path / ".b.pt.0123abcd.part"
    for file in (old, new, other):
        file.write_bytes(b"")
    os.utime(old, (1, 1))
    os.utime(other, (1, 1))
    runtime.async_save(torch.ones(2), tmp_path / "a.pt")
    runtime.flush()
    assert files(tmp_path) == [new.name, other.name, "a.pt"]


# What goes wrong


@pytest.mark.parametrize("name", ["none/a.pt", "", "x" * 300, "file/a.pt"])
def test_paths_that_cannot_be_written(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, name: str
) -> None:
    if name.startswith("file"):  # where a folder should be
        tmp_path = tmp_path_factory.mktemp("other") / "file"
        tmp_path.write_bytes(b"")
        name = "a.pt"
    with pytest.raises(Exception) as theirs:  # noqa: PT011
        torch.save(torch.ones(2), tmp_path / name)
    with pytest.raises(Exception) as mine:  # noqa: PT011
        runtime.async_save(torch.ones(2), tmp_path / name)
    assert type(mine.value) is type(theirs.value)
    assert tmp_path.is_file() or files(tmp_path) == []


def test_what_cannot_be_pickled(tmp_path: Path) -> None:
    runtime.async_save(torch.ones(2), tmp_path / "a.pt")
    with pytest.raises(Exception) as theirs:  # noqa: PT011
        torch.save([lambda: 1], tmp_path / "b.pt")
    with pytest.raises(Exception) as mine:  # noqa: PT011
        runtime.async_save([lambda: 1], tmp_path / "a.pt")
    assert type(mine.value) is type(theirs.value)
    assert str(mine.value) == str(theirs.value)
    assert load(tmp_path / "a.pt").eq(1).all()
    assert files(tmp_path) == ["a.pt", "b.pt"]


@pytest.mark.parametrize("then", ["flush", "save"])
def test_a_full_disk(tmp_path: Path, full: Callable[[], None], then: str) -> None:
    runtime.async_save(torch.ones(2), tmp_path / "a.pt")
    runtime.flush()
    full()
    runtime.async_save(torch.zeros(2), tmp_path / "a.pt")
    with pytest.raises(OSError, match=r"No space left on device: .*a\.pt") as error:
        runtime.flush() if then == "flush" else runtime.async_save(1, tmp_path / "a.pt")
    assert error.value.errno == errno.ENOSPC
    assert load(tmp_path / "a.pt").eq(1).all()
    assert files(tmp_path) == ["a.pt"]
    runtime.flush()  # it is said once


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_is_really_full(small_disk: Path) -> None:
    path = small_disk / "a.pt"
    runtime.async_save(torch.ones(20_000), path)
    runtime.async_save(torch.zeros(60_000), path)
    with pytest.raises(OSError, match=r"No space left on device: .*a\.pt"):
        runtime.flush()
    assert load(path).eq(1).all()
    assert files(small_disk) == ["a.pt"]
    runtime.async_save(torch.full((20_000,), 2.0), path)  # there is room for both
    runtime.flush()
    assert load(path).eq(2).all()


def test_a_disk_that_fails_to_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = [errno.EINVAL, errno.EINVAL, errno.EIO]

    def sync(descriptor: int) -> None:
        raise OSError(codes.pop(0), "cannot")

    monkeypatch.setattr(_replacement.os, "fsync", sync)
    runtime.async_save(torch.ones(2), tmp_path / "a.pt")
    runtime.flush()  # a file system that knows no fsync, also not of folders
    runtime.async_save(torch.zeros(2), tmp_path / "a.pt")
    with pytest.raises(OSError, match="cannot"):
        runtime.flush()
    assert load(tmp_path / "a.pt").eq(1).all()


def test_errors_of_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object, file: object) -> None:
        raise MemoryError

    monkeypatch.setattr(_snapshot.Snapshot, "write_to", fail)
    runtime.async_save(torch.ones(2), tmp_path / "a.pt")
    with pytest.raises(MemoryError):
        runtime.flush()
    assert files(tmp_path) == []


# Where the script waits


def test_off_is_torch_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPULINT_RUNTIME", "off")
    seen = []
    monkeypatch.setattr(torch, "save", lambda *given: seen.append(given))
    runtime.async_save(1, tmp_path / "a.pt")
    assert seen == [(1, tmp_path / "a.pt")]


def test_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_snapshot, "free_memory", lambda: 4000)
    runtime.async_save(torch.ones(1000), tmp_path / "a.pt")
    assert load(tmp_path / "a.pt").eq(1).all()
    assert "waits for its checkpoints: there is too little memory" in runtime.explain()


def test_worker_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpulint.runtime._async_save.in_worker", lambda: True)
    runtime.async_save(torch.ones(2), tmp_path / "a.pt")
    assert load(tmp_path / "a.pt").eq(1).all()
    assert "this is a worker process" in runtime.explain()


def test_another_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch whose inner functions differ saves as it does, also at once or never."""
    monkeypatch.setattr(_snapshot.Snapshot, "write_record", None)
    runtime.async_save(torch.ones(2), tmp_path / "a.pt")
    assert load(tmp_path / "a.pt").eq(1).all()
    assert "no copy could be taken" in runtime.explain()
    assert files(tmp_path) == ["a.pt"]


def test_records_of_older_torches(tmp_path: Path) -> None:
    values = torch.arange(5)
    snapshot = _snapshot.Snapshot(values)
    last, *_ = snapshot._records.pop()
    storage = values.untyped_storage()
    snapshot.write_record(last, storage.data_ptr(), storage.nbytes())
    values.zero_()
    new = _replacement.Replacement(tmp_path / "a.pt")
    snapshot.write_to(new)
    new.commit()
    assert load(tmp_path / "a.pt").tolist() == [0, 1, 2, 3, 4]


def test_at_exit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    over = types.SimpleNamespace(is_alive=lambda: False)
    monkeypatch.setattr(
        "gpulint.runtime._async_save.threading.main_thread", lambda: over
    )
    runtime.async_save(torch.ones(2), tmp_path / "a.pt")
    assert load(tmp_path / "a.pt").eq(1).all()
    assert "waits for its checkpoints: the script ends" in runtime.explain()


def test_no_more_threads(
    tmp_path: Path, full: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    runtime.async_save(torch.ones(2), tmp_path / "a.pt")
    assert load(tmp_path / "a.pt").eq(1).all()
    full()
    with pytest.raises(OSError, match="No space left"):
        runtime.async_save(torch.zeros(2), tmp_path / "a.pt")
    assert load(tmp_path / "a.pt").eq(1).all()


# The end of the process, by its parts


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What the last function at exit does, in order."""
    seen: list[object] = []
    monkeypatch.setattr(atexit, "_run_exitfuncs", lambda: seen.append("others"))
    monkeypatch.setattr(os, "_exit", seen.append)
    return seen


def test_the_exit_code_tells_of_the_last_save(
    tmp_path: Path,
    full: Callable[[], None],
    ended: list[object],
    capfd: pytest.CaptureFixture[str],
) -> None:
    _async_save._end()
    runtime.async_save(torch.ones(2), tmp_path / "a.pt")
    _async_save._end()
    assert ended == []
    full()
    runtime.async_save(torch.ones(2), tmp_path / "a.pt")
    _async_save._end()
    assert ended == ["others", 1]
    assert "No space left on device" in capfd.readouterr().err


def test_the_handler_of_the_script_comes_after_the_save(
    tmp_path: Path, full: Callable[[], None], capfd: pytest.CaptureFixture[str]
) -> None:
    seen = []

    def handle(number: int, frame: object) -> None:
        seen.append(files(tmp_path))

    before = signal.signal(signal.SIGTERM, handle)
    try:
        runtime.async_save(torch.ones(2), tmp_path / "a.pt")
        runtime.async_save(torch.ones(2), tmp_path / "b.pt")
        signal.raise_signal(signal.SIGTERM)
        assert seen == [["a.pt", "b.pt"]]
        full()
        runtime.async_save(torch.ones(2), tmp_path / "a.pt")
        signal.raise_signal(signal.SIGTERM)
        assert len(seen) == 2
        assert "No space left on device" in capfd.readouterr().err
        runtime._reset()
        assert signal.getsignal(signal.SIGTERM) is handle
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_signal_that_is_ignored_stays_so(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        runtime.async_save(torch.ones(2), tmp_path / "a.pt")
        runtime.flush()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_default_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[object] = []
    monkeypatch.setattr(os, "kill", lambda *given: sent.append(given))
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        runtime.async_save(torch.ones(2), tmp_path / "a.pt")
        signal.raise_signal(signal.SIGTERM)
        assert sent == [(os.getpid(), signal.SIGTERM)]
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_child_begins_anew(tmp_path: Path, gate: threading.Event) -> None:
    before = signal.getsignal(signal.SIGTERM)
    runtime.async_save(torch.ones(2), tmp_path / "a.pt")
    thread = _async_save._running[0]
    assert signal.getsignal(signal.SIGTERM) is not before
    _async_save._forget_parent()
    runtime.flush()  # does not wait
    assert thread.is_alive()
    assert signal.getsignal(signal.SIGTERM) is before
    gate.set()
    thread.join()


# Whole processes: one imports torch, its children are killed or end in their own way

CHILDREN = '''
import json, os, random, resource, signal, sys, time
import torch
from gpulint import runtime

folder = sys.argv[1]
path = os.path.join(folder, "last.pt")
generator = random.Random(3)


def state(step):
    return {"step": step, "w": torch.full((60_000,), float(step)), "v": torch.full((7,), step)}


def child(name, run):
    """Start a child; its output goes to files, and it ends like a script."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    for number, kind in ((1, "out"), (2, "err")):
        os.dup2(os.open(os.path.join(folder, name + "." + kind), os.O_CREAT | os.O_WRONLY), number)
    run()
    sys.exit(0)


def ends(name, run):
    _, status = os.waitpid(child(name, run), 0)
    return os.waitstatus_to_exitcode(status)


def slow():
    """Let the writing take its time."""
    from gpulint.runtime._replacement import Replacement
    commit = Replacement.commit
    def late(self):
        time.sleep(0.2)
        commit(self)
    Replacement.commit = late


def killed():
    torn, behind, seen = [], [], set()
    for number in range(40):
        read, write = os.pipe()
        start = 1000 * number
        def run():
            step = start
            while True:
                step += 1
                runtime.async_save(state(step), path)
                os.write(write, step.to_bytes(8, "big"))
        pid = child("killed", run)
        os.close(write)
        acknowledged = int.from_bytes(os.read(read, 8), "big")
        time.sleep(generator.uniform(0, 0.02))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        rest = os.read(read, 1 << 20)
        if rest:
            acknowledged = int.from_bytes(rest[-8:], "big")
        os.close(read)
        if not os.path.exists(path):
            continue
        its = torch.load(path)
        if not (its["w"].eq(its["step"]).all() and its["v"].eq(its["step"]).all()):
            torn.append(its["step"])
        if acknowledged - 1 > start and its["step"] < acknowledged - 1:
            behind.append((its["step"], acknowledged))
        seen.add(its["step"])
    left = [f for f in os.listdir(folder) if f.endswith(".part")]
    for file in left:
        os.unlink(os.path.join(folder, file))
    return {"torn": torn, "behind": behind, "seen": len(seen)}


def save_and_leave():
    slow()
    runtime.async_save(state(1), path)


def save_and_fail():
    save_and_leave()
    raise KeyError("of the script")


def save_and_exit():
    save_and_leave()
    sys.exit(5)


def save_late():
    import atexit
    atexit.register(lambda: print("other", flush=True))
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    runtime.async_save(state(1), path)
    print("went on")


def at_the_end():
    import atexit
    slow()
    atexit.register(runtime.async_save, state(1), path)


def fork_and_wait():
    """A child of the script has nothing to wait for, and writes on its own."""
    slow()
    handler = signal.getsignal(signal.SIGTERM)
    runtime.async_save(state(1), path)
    pid = os.fork()
    if not pid:
        runtime.flush()
        same = signal.getsignal(signal.SIGTERM) is handler
        written = os.path.exists(path)
        runtime.async_save(state(2), path + ".child")
        runtime.flush()
        os._exit(0 if same and not written and os.path.exists(path + ".child") else 1)
    _, status = os.waitpid(pid, 0)
    print(status, flush=True)


def from_a_process():
    from torch import multiprocessing
    slow()
    process = multiprocessing.get_context("fork").Process(target=runtime.async_save, args=(state(1), path))
    process.start()
    process.join()
    print(process.exitcode, os.path.exists(path), flush=True)


def save_too_much(fails):
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    runtime.async_save(state(1), path)
    if fails:
        raise KeyError("of the process")


def late_in_processes():
    """Each finds the error of its own last save, beside one of its parent."""
    from torch import multiprocessing
    context = multiprocessing.get_context("fork")
    runtime.async_save(state(1), path + ".parent")
    codes = []
    for fails in (False, True):
        process = context.Process(target=save_too_much, args=(fails,))
        process.start()
        process.join()
        codes.append(process.exitcode)
    print(codes, flush=True)


def terminated(name, prepare):
    read, write = os.pipe()
    def run():
        prepare()
        slow()
        runtime.async_save(state(1), path)
        os.write(write, b"x")
        time.sleep(30)
    pid = child(name, run)
    os.close(write)
    os.read(read, 1)
    os.close(read)
    os.kill(pid, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def asked():
    def handle(number, frame):
        print("asked", os.path.exists(path), flush=True)
        runtime.async_save(state(7), path)
        sys.exit(3)
    signal.signal(signal.SIGTERM, handle)


def step():
    try:
        its = torch.load(path)["step"]
        os.unlink(path)
        return its
    except FileNotFoundError:
        return None


found = {"killed": killed()}
step()
for run in (save_and_leave, save_and_fail, save_and_exit, at_the_end, fork_and_wait, from_a_process, late_in_processes):
    found[run.__name__] = (ends(run.__name__, run), step())
torch.save(state(0), path)
found["save_late"] = (ends("save_late", save_late), step())
found["default"] = (terminated("default", lambda: None), step())
found["asked"] = (terminated("asked", asked), step())
print(json.dumps(found))
'''


@pytest.fixture(scope="module")
def children(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("children")
    # killed while they write what they have counted, they would leave broken files
    uncounted = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CHILDREN, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={**uncounted, "OMP_NUM_THREADS": "1", "GPULINT_RUNTIME": "on"},
        cwd=Path(runtime.__file__).parents[2],
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), folder


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@needs_fork
def test_killed_at_any_time(children: tuple[dict[str, Any], Path]) -> None:
    found = children[0]["killed"]
    assert found["torn"] == []
    assert found["behind"] == []  # what was saved before the last call is there
    assert found["seen"] > 5


@needs_fork
@pytest.mark.parametrize(
    "name,code",
    [("save_and_leave", 0), ("save_and_fail", 1), ("save_and_exit", 5)],
)
def test_the_end_waits(
    children: tuple[dict[str, Any], Path], name: str, code: int
) -> None:
    assert children[0][name] == [code, 1]


@needs_fork
def test_the_traceback_is_that_of_the_script(
    children: tuple[dict[str, Any], Path],
) -> None:
    lines = (children[1] / "save_and_fail.err").read_text().splitlines()
    said = [line for line in lines if not line.startswith("gpulint: ")]
    assert said[0] == "Traceback (most recent call last):"
    assert said[-1] == "KeyError: 'of the script'"
    assert len([line for line in said if line.startswith("Traceback")]) == 1


@needs_fork
def test_a_save_at_exit(children: tuple[dict[str, Any], Path]) -> None:
    assert children[0]["at_the_end"] == [0, 1]


@needs_fork
def test_the_last_save_fails(children: tuple[dict[str, Any], Path]) -> None:
    found, folder = children
    assert found["save_late"] == [1, 0]  # the old file
    text = (folder / "save_late.err").read_text()
    assert "gpulint: async_save: the last checkpoint was not saved" in text
    assert "OSError: [Errno 27] File too large: " in text
    assert (folder / "save_late.out").read_text() == "went on\nother\n"


@needs_fork
def test_forked_children_have_nothing_to_wait_for(
    children: tuple[dict[str, Any], Path],
) -> None:
    found, folder = children
    assert found["fork_and_wait"] == [0, 1]
    assert (folder / "fork_and_wait.out").read_text() == "0\n"


@needs_fork
def test_processes_wait_at_their_end(children: tuple[dict[str, Any], Path]) -> None:
    found, folder = children
    assert found["from_a_process"] == [0, 1]
    assert (folder / "from_a_process.out").read_text() == "0 True\n"


@needs_fork
def test_the_last_save_of_a_process_fails(
    children: tuple[dict[str, Any], Path],
) -> None:
    found, folder = children
    assert found["late_in_processes"] == [0, None]
    assert (folder / "late_in_processes.out").read_text() == "[1, 1]\n"
    text = (folder / "late_in_processes.err").read_text()
    assert text.count("gpulint: async_save: the last checkpoint was not saved") == 2
    assert text.count("OSError: [Errno 27] File too large: ") == 2
    assert text.count("KeyError: 'of the process'") == 1


@needs_fork
def test_termination_waits(children: tuple[dict[str, Any], Path]) -> None:
    found, folder = children
    assert found["default"] == [-signal.SIGTERM, 1]
    assert found["asked"] == [3, 7]  # by the script's own handler, which saves again
    assert (folder / "asked.out").read_text() == "asked True\n"
