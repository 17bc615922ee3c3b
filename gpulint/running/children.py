"""Run a script in a child that records its steps, and say why that came to nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpulint.running import processes
from gpulint.running.reports import count_steps, last_line, read

POLL_SECONDS = 0.05
PROGRESS_SECONDS = 0.5  # reading the report takes time from what is measured
# What a launcher starts: its own first entry of `sys.path` is this file's folder.
LAUNCHED = """import sys
from {} import main
sys.exit(main(sys.argv[1:]))
"""


@dataclass(frozen=True)
class Ended:
    """A child that is over: what its ranks reported, and what the script printed."""

    code: int | None  # None: it was ended, as it took too long
    ranks: Sequence[Sequence[dict[str, Any]]]  # the events of each
    output: str
    timeout: float  # seconds

    @property
    def ends(self) -> list[dict[str, Any]]:
        """The last event of each rank."""
        return [events[-1] if events else {} for events in self.ranks]

    def failure(self, wanted: int) -> str:
        """Why it has not measured enough, in one line; `wanted`: steps."""
        steps = min(map(count_steps, self.ranks))
        word = "step" if steps == 1 else "steps"
        if self.code is None:
            done = f"{steps} {word}" if steps else "no step"
            return f"{done} within {self.timeout:g} s (--timeout)"
        raised = [end for end in self.ends if end.get("event") == "raised"]
        if raised:  # the first rank that did; the others lost it
            return str(min(raised, key=lambda end: end["at"])["error"])
        if self.code < 0:
            return f"killed by {signal.Signals(-self.code).name}"
        if self.code:
            return f"exit code {self.code}: {last_line(self.output)}"
        if not steps:
            return "it ended without a step of an optimizer"
        return f"it ended after {steps} {word}, {wanted} are needed (--steps, --warmup)"


def run_module(
    module: str,
    options: Mapping[str, Any],
    words: Sequence[str],
    variables: Mapping[str, str],
    folder: Path,
    timeout: float,
    progress: Callable[[int], None],
    launcher: Sequence[str] = (),
) -> Ended:
    """Run `python -m MODULE OPTIONS SCRIPT ARGUMENTS` for `timeout` seconds at most.

    `folder`, a temporary one, takes its reports and what it prints. A `launcher` starts
    the module in several ranks; each writes a report with its number.
    """
    facts = {**options, "report": str(folder / "report"), "parent": os.getpid()}
    report = folder / ("report.0" if launcher else "report")
    report.touch()
    start = [sys.executable, "-m", module]
    if launcher:
        program = folder / "launched.py"
        program.write_text(LAUNCHED.format(module), encoding="utf-8")
        start = [*launcher, str(program)]
        facts["launched"] = True
    call, log = [*start, json.dumps(facts), *words], folder / "log"
    with processes.started(call, variables, log) as child:
        code = _watch(child, report, timeout, progress)
    ranks = [read(file) for file in sorted(folder.glob("report*"))]
    return Ended(code, ranks, log.read_text("utf-8", "replace"), timeout)


def _watch(
    child: subprocess.Popen[bytes],
    report: Path,
    timeout: float,
    progress: Callable[[int], None],
) -> int | None:
    """The exit code; None where it has not ended in time."""
    began = looked = time.monotonic()
    while child.poll() is None:
        now = time.monotonic()
        if now - looked >= PROGRESS_SECONDS:
            looked = now
            progress(count_steps(read(report)))
        if now - began > timeout:
            return None
        time.sleep(POLL_SECONDS)
    return child.returncode
