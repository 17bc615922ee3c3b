"""Runs scripts through a server, and remembers what came of them."""

from __future__ import annotations

import atexit
import functools
import json
from types import TracebackType

from .client import FIXED, REAL_GPU, Server
from .situation import Outcome, Situation

PLAIN = Situation()


class Runner:
    """A server with a pretended GPU, or this machine's, started when first needed."""

    def __init__(self, *, real_gpu: bool = False) -> None:
        self._server = Server("server", REAL_GPU if real_gpu else FIXED)
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
        return Outcome.from_json(self._server.ask(job))

    def forget(self) -> None:
        """Forget the outcomes, not the server."""
        self._known.clear()

    def close(self) -> None:
        """End the server."""
        self._server.close()

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@functools.cache
def shared_runner(*, real_gpu: bool = False) -> Runner:
    """The runner that all tests of a process share."""
    runner = Runner(real_gpu=real_gpu)
    atexit.register(runner.close)
    return runner
