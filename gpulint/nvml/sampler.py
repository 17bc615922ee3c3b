"""Listen to a child that reads the GPUs, and bear that it hangs, dies or has none."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from gpulint.nvml.figures import GpuFigures
from gpulint.nvml.library import MISMATCH, NO_DRIVER, NO_LIBRARY

CHILD = "gpulint.nvml.child"
REAP_SECONDS = 1.0  # a process that hangs inside a driver cannot be killed
TROUBLES = {
    NO_LIBRARY: "nvidia-ml-py is not installed: pip install nvidia-ml-py",
    NO_DRIVER: "no NVIDIA driver (in a container: docker run --gpus all)",
    MISMATCH: "the driver's library and its kernel module are of different versions: "
    "restart the machine",
}


class Reading(NamedTuple):
    """The GPUs at one moment, by `time.monotonic`."""

    at: float
    gpus: tuple[GpuFigures, ...]


@dataclass(frozen=True)
class Latest:
    """What is known now. `trouble` is why the GPUs are not, in one line."""

    gpus: tuple[GpuFigures, ...] = ()
    trouble: str | None = None
    count: int | None = None  # of the GPUs that the driver has, chosen or not


class Sampler:
    """Reads GPUs every `interval` seconds in a process of its own, while entered.

    With nothing heard for `timeout` seconds more the driver counts as stuck, until it
    answers again. `gpus`: the numbers of those to read, as NVML counts them; None: all.
    `kept`: the readings that `take` gives at most, the newest.
    """

    def __init__(
        self,
        interval: float,
        timeout: float,
        gpus: Collection[int] | None = None,
        kept: int = 0,
    ) -> None:
        self.interval, self.timeout = interval, timeout
        self.chosen = None if gpus is None else sorted(gpus)
        self._readings: deque[Reading] = deque(maxlen=kept)
        self._last: Reading | None = None
        self._stage, self._error = "starting Python", ""
        self._count: int | None = None
        self._news = threading.Condition()
        self._ended = False

    def __enter__(self) -> Sampler:
        options = {
            "interval": self.interval,
            "gpus": self.chosen,
            "parent": os.getpid(),
        }
        self._heard = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", CHILD, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for us
        )
        self._thread = threading.Thread(
            target=self._listen, name="gpulint-nvml", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()  # it ends with its input
        try:
            self._process.wait(REAP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(REAP_SECONDS)
        self._thread.join(REAP_SECONDS)
        if not self._thread.is_alive() and self._process.stdout is not None:
            self._process.stdout.close()

    def latest(self) -> Latest:
        """The last figures that are not older than the time-out."""
        with self._news:
            trouble = self._trouble()
            gpus = () if trouble or self._last is None else self._last.gpus
            return Latest(gpus, trouble, self._count)

    def wait(self) -> Latest:
        """The same, as soon as there are figures or a reason for having none."""
        with self._news:
            while self._last is None and not self._trouble():
                left = self._heard + self.timeout + self.interval - time.monotonic()
                self._news.wait(max(left, 0.01))
        return self.latest()

    def take(self) -> list[Reading]:
        """All readings since the last call."""
        with self._news:
            taken = list(self._readings)
            self._readings.clear()
        return taken

    def _trouble(self) -> str | None:
        if self._error:
            return TROUBLES.get(self._error, self._error)
        if self._ended:
            return f"{self._stage}: {self._death()}"
        if time.monotonic() - self._heard > self.timeout + self.interval:
            return f"{self._stage}: no answer within {self.timeout:g} s"
        return None

    def _death(self) -> str:
        code = self._process.poll()
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                return f"the process was killed by {signal.Signals(-code).name}"
        return f"the process ended with exit code {code}"

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                event = json.loads(line)
            except ValueError:  # half a line: the process was killed
                continue
            self._hear(event)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(REAP_SECONDS)
        with self._news:
            self._ended = True
            self._news.notify_all()

    def _hear(self, event: dict[str, Any]) -> None:
        with self._news:
            self._heard = time.monotonic()
            self._stage = event.get("stage", self._stage)
            self._error = event.get("error", self._error)
            self._count = event.get("count", self._count)
            if "gpus" in event:
                gpus = tuple(map(GpuFigures.of, event["gpus"]))
                self._last = Reading(event["at"], gpus)
                self._readings.append(self._last)
            self._news.notify_all()
