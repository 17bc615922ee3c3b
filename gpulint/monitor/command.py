"""Run a training that is to be watched, and hand on what it prints."""

from __future__ import annotations

import codecs
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence

from gpulint.running.processes import end

GRACE_SECONDS = 30.0  # to save what it has learned


class Command:
    """A process with its output in our hands; it leads a session of its own.

    `say` is called with whole lines and with what has no end yet (a progress bar), by a
    thread of its own: `say(text, False)` and `say(text, True)`.
    """

    def __init__(self, words: Sequence[str], say: Callable[[str, bool], None]) -> None:
        self.words, self.say = words, say
        self.process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(
            target=self._read, name="gpulint-output", daemon=True
        )

    def start(self) -> None:
        """Start it. OSError: there is no such program.

        Apart from making the object, so that who is interrupted meanwhile has it.
        """
        self.process = subprocess.Popen(
            self.words,
            env={"PYTHONUNBUFFERED": "1", **os.environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for us; we pass it on
        )
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """The number of its first process; None: it has not started."""
        return self.process.pid if self.process is not None else None

    def runs(self) -> bool:
        """Whether it has started and not ended yet."""
        return self.process is not None and self.process.poll() is None

    def interrupt(self) -> None:
        """Pass a Ctrl-C on and wait until it has ended; a second one kills it."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            self.process.wait(GRACE_SECONDS)

    def close(self) -> int:
        """End what is left of it; returns its exit code, negative for a signal."""
        if self.process is None:
            return 0
        if self.runs():
            end(self.process.pid)
        code = self.process.wait()
        if self._thread.is_alive():
            self._thread.join(1.0)  # a process that it has left may keep it open
        if not self._thread.is_alive() and self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def _read(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        rest = ""
        while data := os.read(self.process.stdout.fileno(), 65536):
            *lines, rest = (rest + decoder.decode(data)).split("\n")
            for line in lines:
                self.say(_last_state(line), False)
            self.say(_last_state(rest), True)
            rest = rest[rest.rstrip("\r").rfind("\r") + 1 :]  # or it would only grow
        if rest:
            self.say(_last_state(rest), False)


def _last_state(line: str) -> str:
    """A progress bar writes over itself: what stands there in the end."""
    return line.rstrip("\r").rpartition("\r")[2]
