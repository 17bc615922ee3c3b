"""Look a thousand times a second at what the main thread is doing.

Why this and not a profiler: torch's knows functions by their first line only, and
nothing of operators (`a @ b`); a trace function takes longer than many lines do. With a
script whose lines were timed by hand (Python loops, small and large operations, numpy,
waits) these samples were within 2 points of the truth. They are so because the main
thread hands the interpreter over within 20 microseconds: with Python's 5 ms, and with
signals, which come between two instructions only, a line's time went to another one.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any

from gpulint.profiling.own import Call, Own, Rows, calls

INTERVAL = 0.001  # seconds between samples
SWITCH = 0.00002  # seconds until a thread that computes hands the interpreter over
LOADER = "/torch/utils/data/dataloader.py"
TENSOR = "/torch/_tensor.py"
AUTOGRAD = "/torch/autograd/"
OPTIMIZERS = "/torch/optim/"
BESIDE_STEPS = ("lr_scheduler.py", "swa_utils.py")
STEPS = ("step", "wrapper")  # `wrapper` is around the step of each optimizer

Key = tuple[str, Rows]  # a kind, and the user's lines


class Sampler:
    """Samples of the thread that trains, with the seconds since the ones before."""

    def __init__(
        self, own: Own, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.own, self.clock = own, clock
        self.seconds: dict[Key, float] = {}  # up to the last step
        self.count = 0
        self._fresh: dict[Key, float] = {}
        self._taken = 0
        self._since = 0.0
        self._thread = 0
        self._going = False
        self._lock = threading.Lock()
        self._switch = 0.0
        self._kinds: dict[CodeType, str] = {}

    def start(self) -> None:
        """Begin to take samples of the thread that calls this, in another one."""
        self._thread = threading.get_ident()
        self._switch = sys.getswitchinterval()
        sys.setswitchinterval(min(SWITCH, self._switch))
        self._going, self._since = True, self.clock()
        threading.Thread(target=self._run, daemon=True).start()

    def stop(self) -> None:
        """Take no more."""
        self._going = False
        sys.setswitchinterval(self._switch)

    def commit(self) -> None:
        """A step is done: what was seen so far counts."""
        with self._lock:
            for key, seconds in self._fresh.items():
                self.seconds[key] = self.seconds.get(key, 0.0) + seconds
            self.count += self._taken
            self._fresh.clear()
            self._taken = 0

    def take(self, frame: Any) -> None:
        """One sample: the thread's innermost frame."""
        now = self.clock()
        chain = calls(frame)
        key = self._kind(chain), self.own.lines(chain)
        with self._lock:
            if self._going:
                before = self._fresh.get(key, 0.0)
                self._fresh[key] = before + now - self._since
                self._taken += 1
        self._since = now

    def _kind(self, chain: Iterable[Call]) -> str:
        """The kind of a chain of calls.

        A loader that works in the main process waits as well; what it calls is its.
        """
        found = "rest"
        for code, _ in chain:
            if code not in self._kinds:
                self._kinds[code] = kind(code)
            its = self._kinds[code]
            if its == "wait":
                return its
            if found == "rest":
                found = its
        return found

    def _run(self) -> None:
        while self._going:
            time.sleep(INTERVAL)
            frame = sys._current_frames().get(self._thread)
            if frame is not None:
                self.take(frame)


def kind(code: CodeType) -> str:
    """The part of a step that code of torch is: wait, backward, optimizer or rest."""
    file, function = code.co_filename.replace("\\", "/"), code.co_name
    if file.endswith(LOADER):
        return "wait" if function in ("__next__", "__iter__") else "rest"
    if file.endswith(TENSOR) or AUTOGRAD in file:
        return "backward" if function in ("backward", "grad") else "rest"
    if OPTIMIZERS in file and function in STEPS and not file.endswith(BESIDE_STEPS):
        return "optimizer"
    return "rest"
