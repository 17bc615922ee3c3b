"""Ask questions in child processes that may hang, crash or print what they like."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

CHILD = "gpulint.doctor.child"
POLL_SECONDS = 0.02
REAP_SECONDS = 1.0  # a process that hangs inside a driver cannot be killed
DETAIL = 200

Facts: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What a probe found, and what stopped it; `stage` is what it then did."""

    facts: Facts = field(default_factory=dict)
    trouble: str | None = None
    stage: str = ""

    @property
    def story(self) -> str:
        """Where it stopped and why: `importing torch: no answer within 60 s`."""
        return f"{self.stage}: {self.trouble}" if self.stage else str(self.trouble)


def ask(questions: Mapping[str, Facts], timeout: float) -> dict[str, Answer]:
    """Start all probes at once, each with its options; whatever happens is an answer.

    Returns after `timeout` seconds and a little more, even where a child cannot be
    ended.
    """
    with tempfile.TemporaryDirectory(
        prefix="gpulint-doctor-", ignore_cleanup_errors=True
    ) as folder:
        children = {
            name: _Child(name, options, Path(folder), timeout)
            for name, options in questions.items()
        }
        try:
            deadline = time.monotonic() + timeout
            return {name: child.wait(deadline) for name, child in children.items()}
        finally:
            for child in children.values():
                child.end()


class _Child:
    def __init__(self, name: str, options: Facts, folder: Path, timeout: float) -> None:
        self.timeout = timeout
        self.report, self.log = folder / f"{name}.report", folder / f"{name}.log"
        self.report.touch()
        told = {**options, "report": str(self.report), "timeout": timeout}
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", CHILD, name, json.dumps(told)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # to end what it starts with it
            )

    def wait(self, deadline: float) -> Answer:
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                return self._answer(f"no answer within {self.timeout:g} s")
            time.sleep(POLL_SECONDS)
        return self._answer(self._death())

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(REAP_SECONDS)

    def _death(self) -> str | None:
        code = self.process.returncode
        if code == 0:
            return None
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"the process was killed by {signal.Signals(-code).name}"
            return f"the process was killed by signal {-code}"
        text = self.log.read_text("utf-8", errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        said = f": {shorten(lines[-1])}" if lines else ""
        return f"the process ended with exit code {code}{said}"

    def _answer(self, trouble: str | None) -> Answer:
        facts: Facts = {}
        stage = "starting Python"
        for event in _events(self.report):
            facts |= event.get("facts", {})
            stage = event.get("stage", stage)
            trouble = event.get("error", trouble)
        return Answer(facts, trouble, stage if trouble else "")


def shorten(text: str) -> str:
    """One line of a length that can be read."""
    line = " ".join(text.split())
    return line if len(line) <= DETAIL else f"{line[: DETAIL - 3]}..."


def _events(report: Path) -> list[dict[str, Any]]:
    events = []
    for line in report.read_text("utf-8", errors="replace").splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:  # half a line: the process was killed
            continue
    return events
