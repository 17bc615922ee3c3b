"""Save checkpoints while training goes on."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.util import Finalize
from pathlib import Path
from types import FrameType
from typing import Any

from ._hardware import introduce
from ._log import decide
from ._ranks import in_worker
from ._replacement import Replacement, replace_file
from ._settings import settings
from ._snapshot import Snapshot, TooLarge

Handler = Callable[[int, FrameType | None], Any]


def async_save(obj: object, path: Any) -> None:
    """Save like `torch.save(obj, path)`, and write the file while training goes on.

    What `obj` holds now is what is saved: this pickles it and copies its tensors to
    host memory, before it returns. A thread then writes a new file beside `path`,
    brings it to the disk and puts it in the place of the old one, so that a crash at
    any time leaves the old file or the new one, whole. Links are followed, the file's
    mode is kept. One file is written at a time; a call waits where the same file, or
    eight others, are still to be written, and the end of the script, also by SIGTERM,
    waits for all. `flush()` waits too: call it before anything reads the file.

    Raises what pickling raises. An error of writing (a full disk) is raised by the next
    call that finds it, or by `flush()`; at the end of the script it is printed and the
    exit code is 1.

    Waits until the file is in place in worker processes, and where the copy would take
    more than half of the free memory. Is `torch.save` for file objects, where a rename
    would do something else (devices, files with several names or of another user,
    folders that take no new file), and when switched off.
    """
    import torch

    introduce()
    if settings().off:
        torch.save(obj, path)
        return
    with _lock[0]:
        name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
        target = Path(os.path.realpath(name)) if isinstance(name, str) else None
        _raise_first(_waited(target))
        new = replace_file(target) if target is not None else None
        if new is None:
            flush()
            torch.save(obj, path)
            decide("async_save", "torch.save: no new file can take this one's place")
        else:
            _save_to(new, obj)


def flush() -> None:
    """Wait until all that `async_save` was given is on the disk.

    Raises the first error that was met.
    """
    with _lock[0]:
        _raise_first(_waited())


class _Save(threading.Thread):
    """Writes one snapshot after another thread. The interpreter waits for it to end."""

    def __init__(self, snapshot: Snapshot, new: Replacement) -> None:
        super().__init__(name="gpulint-save", daemon=False)
        self.target = new.target
        self.error: BaseException | None = None
        self._before = _running[-1] if _running else None
        self._work: tuple[Snapshot, Replacement] | None = (snapshot, new)

    def run(self) -> None:
        before, self._before = self._before, None
        if before is not None:
            before.join()
        assert self._work is not None
        snapshot, new = self._work
        self._work = None  # the memory is free when this function ends
        try:
            snapshot.write_to(new)
        except BaseException as error:
            new.discard()
            self.error = error
            return
        try:
            new.commit()
        except BaseException as error:
            self.error = error


MOST_WAITING = 8  # files that one epoch saves; memory is looked after as well

_lock = [threading.RLock()]  # a signal may come in the middle, and saves as well
_running: list[_Save] = []  # the first writes, the others wait for their turn
_prepared: list[bool] = []
_children: list[int] = []  # process ids, of the last process and of forked parents
_LAST = -100  # what else multiprocessing does at the end of a process comes before
_handlers: list[tuple[Any, Any]] = []  # of SIGTERM: the one set here, the one before


def _save_to(new: Replacement, obj: object) -> None:
    """Write to a new file, in a thread if a copy of the object can be taken."""
    import torch

    snapshot = None
    try:
        if in_worker():
            why = "this is a worker process"
        elif not threading.main_thread().is_alive():
            why = "the script ends"  # nothing would wait for a thread
        else:
            snapshot, why = _snapshot(obj)
        if snapshot is None:
            torch.save(obj, new)  # type: ignore[arg-type]
    except BaseException:
        new.discard()
        raise
    if snapshot is not None:
        _start(snapshot, new)
        decide("async_save", "checkpoints are written while training goes on")
    else:
        new.commit()
        decide("async_save", f"the script waits for its checkpoints: {why}")


def _snapshot(obj: object) -> tuple[Snapshot | None, str]:
    """Return a copy of an object, or why there is none."""
    try:
        try:
            return Snapshot(obj), ""
        except TooLarge:
            if not _running:
                raise
        for save in _running:  # what they hold is free when they are written
            save.join()
        return Snapshot(obj), ""
    except TooLarge:
        return None, "there is too little memory for a copy"
    except Exception:  # torch.save says it better, if it is not for a copy alone
        return None, "no copy could be taken"


def _start(snapshot: Snapshot, new: Replacement) -> None:
    _prepare()
    save = _Save(snapshot, new)
    try:
        save.start()
    except RuntimeError:  # the system allows no more threads
        save.run()
        _raise_first(save.error)
    else:
        _running.append(save)


def _waited(target: Path | None = None) -> BaseException | None:
    """Wait for all saves; return the first error.

    With a target: only as long as it, or too many others, are still to be written.
    """
    error = None
    while _running:
        save = _running[0]
        if target is not None and save.is_alive():
            others = len(_running) < MOST_WAITING
            if others and all(s.target != target for s in _running):
                break
        save.join()
        with contextlib.suppress(ValueError):  # another thread has waited as well
            _running.remove(save)
            error = error or save.error
    return error


def _raise_first(error: BaseException | None) -> None:
    if error is not None:
        raise error


def forget_saves() -> None:
    """Begin anew, as in a fresh process, once what runs is done."""
    _waited()
    _leave_signals()


# The end of the process, and its children


def _prepare() -> None:
    if not _prepared:
        _prepared.append(True)
        atexit.register(_end)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_forget_parent)
    if parent_process() is not None and os.getpid() not in _children:
        _children.append(os.getpid())
        Finalize(None, _end_child, exitpriority=_LAST)
    if threading.current_thread() is threading.main_thread():
        _catch_termination()


def _end() -> None:
    """Print the error of the last save, and let the exit code say so as well.

    What else is to be done at exit is done first; Python offers no other way to
    change the exit code here.
    """
    error = _waited()
    if error is not None:
        _print_error(error)
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(1)


def _end_child() -> None:
    """The same in a process of multiprocessing, which may end without `atexit`."""
    error = _waited()
    if error is not None:
        _print_error(error)
        if sys.exc_info()[0] is None:  # else its own error ends it, with a code of 1
            raise SystemExit(1)


def _print_error(error: BaseException) -> None:
    with contextlib.suppress(Exception):
        sys.stderr.write("gpulint: async_save: the last checkpoint was not saved\n")
        traceback.print_exception(error)


def _catch_termination() -> None:
    """Let SIGTERM wait for the save, then do what it did; not where it is ignored."""
    before = signal.getsignal(signal.SIGTERM)
    ours = bool(_handlers) and before is _handlers[-1][0]
    if ours or not (before is signal.SIG_DFL or callable(before)):
        return

    def handle(number: int, frame: FrameType | None) -> None:
        error = _waited()
        if error is not None:
            _print_error(error)
        if callable(before):
            before(number, frame)
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    _handlers.append((handle, before))
    signal.signal(signal.SIGTERM, handle)


def _forget_parent() -> None:
    """In a forked child: the thread is the parent's, and so is what it writes."""
    _running.clear()
    _lock[0] = threading.RLock()
    _leave_signals()


def _leave_signals() -> None:
    """Let SIGTERM do what it did, where nobody has changed that since."""
    while _handlers:
        handler, before = _handlers.pop()
        if signal.getsignal(signal.SIGTERM) is handler:
            with contextlib.suppress(ValueError):  # not the main thread
                signal.signal(signal.SIGTERM, before)
