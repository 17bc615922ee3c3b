"""Runs scripts through a server, and remembers what came of them."""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from .harness import FIXED
from .situation import Outcome, Situation

TESTS = Path(__file__).resolve().parent.parent
PLAIN = Situation()


class Runner:
    """A server that is started when first needed."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[str] | None = None
        self._known: dict[tuple[str, str], Outcome] = {}

    def run(self, script: str, situation: Situation = PLAIN) -> Outcome:
        """Run a script; the same script in the same situation is run once."""
        key = script, json.dumps(situation.as_json(), sort_keys=True)
        if key not in self._known:
            self._known[key] = self.run_again(script, situation)
        return self._known[key]

    def run_again(self, script: str, situation: Situation = PLAIN) -> Outcome:
        """Run a script, whether it is known or not."""
        job = {"script": script, "situation": situation.as_json()}
        return Outcome.from_json(self._ask(job))

    def forget(self) -> None:
        """Forget the outcomes, not the server."""
        self._known.clear()

    def close(self) -> None:
        """End the server."""
        if self._server is not None:
            assert self._server.stdin is not None
            self._server.stdin.close()
            self._server.wait()
            if self._server.stdout is not None:
                self._server.stdout.close()
            self._server = None

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self, job: dict[str, Any]) -> dict[str, Any]:
        if self._server is None:
            self._server = start()
        server = self._server
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(job) + "\n")
        server.stdin.flush()
        answer = server.stdout.readline()
        if not answer:
            raise RuntimeError(f"the server ended with status {server.wait()}")
        outcome: dict[str, Any] = json.loads(answer)
        return outcome


@functools.cache
def shared_runner() -> Runner:
    """The runner that all tests of a process share."""
    runner = Runner()
    atexit.register(runner.close)
    return runner


def start() -> subprocess.Popen[str]:
    """Start a server that finds this checkout's packages."""
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GPULINT_", "COVERAGE_"))
    }
    return subprocess.Popen(
        [sys.executable, "-m", "equivalence.server"],
        env={**kept, **FIXED, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
