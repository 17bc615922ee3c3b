"""Run the script with a candidate in a child process, and say what came of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gpulint.running import processes
from gpulint.running.reports import count_steps, last_line, read
from gpulint.runtime._hardware import in_units
from gpulint.tuning.candidate import (
    PREFIXES,
    VARIABLES,
    Candidate,
    Facts,
    Outcome,
    Trial,
)

POLL_SECONDS = 0.05
MEMORY_SECONDS = 0.25  # reading a large process's pages takes the kernel milliseconds
LEAST_SECONDS = 2.0  # of measured steps: on a busy machine a shorter time is chance
KINDS_ON_HOST = ("cpu",)


@dataclass(frozen=True)
class Limits:
    """What a run may take."""

    memory: float  # the fraction of the device's and of the host's memory
    host_bytes: int | None
    steps: int
    timeout: float  # seconds
    least_seconds: float = LEAST_SECONDS


class Ended(NamedTuple):
    """How a child ended, apart from what it reported."""

    code: int
    late: bool
    host_peak: int | None
    over: bool  # it was ended because it took more than its share of the host's memory


class Runs:
    """Measures candidates, one child process at a time."""

    def __init__(
        self,
        script: str,
        arguments: Sequence[str],
        limits: Limits,
        progress: Callable[[int], None],
        output: Callable[[str], None],
    ) -> None:
        self.words = [script, *arguments]
        self.limits = limits
        self.progress = progress
        self.output = output

    def __call__(self, candidate: Candidate) -> Trial:
        """Run the script; whatever happens to it is a result."""
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="gpulint-tune-") as folder:
            report, log = Path(folder, "report"), Path(folder, "log")
            report.touch()
            ended = self._run(candidate, report, log)
            events = read(report)
            text = log.read_text("utf-8", errors="replace")
        self.output(text)
        seconds = time.monotonic() - began
        return judge(candidate, events, ended, text, self.limits, seconds)

    def _run(self, candidate: Candidate, report: Path, log: Path) -> Ended:
        options = {
            "report": str(report),
            "steps": self.limits.steps,
            "seconds": self.limits.least_seconds,
            "channels_last": candidate.channels_last,
            "parent": os.getpid(),
        }
        module = [sys.executable, "-m", "gpulint.tuning.child"]
        words = [*module, json.dumps(options), *self.words]
        with processes.started(words, _environment(candidate), log) as child:
            return self._watch(child, report)

    def _watch(self, child: subprocess.Popen[bytes], report: Path) -> Ended:
        limits = self.limits
        budget = limits.host_bytes and int(limits.host_bytes * limits.memory)
        began, looked, peak = time.monotonic(), 0.0, None
        while child.poll() is None:
            now = time.monotonic()
            if now - looked >= MEMORY_SECONDS:
                looked = now
                held = processes.memory(processes.family(child.pid))
                peak = max(filter(None, (peak, held)), default=None)
                self.progress(count_steps(read(report)))
                if budget and peak and peak > budget:
                    return Ended(0, False, peak, True)
            if now - began > limits.timeout:
                return Ended(0, True, peak, False)
            time.sleep(POLL_SECONDS)
        return Ended(child.returncode, False, peak, False)


def judge(
    candidate: Candidate,
    events: Sequence[dict[str, Any]],
    ended: Ended,
    output: str,
    limits: Limits,
    seconds: float,
) -> Trial:
    """What a child's report and its end mean."""
    last = events[-1] if events else {}
    its = last if last.get("event") in ("measured", "ended") else {}
    on_host = its.get("hardware", {}).get("kind", "cpu") in KINDS_ON_HOST
    host_peak = max(filter(None, (ended.host_peak, its.get("own_peak"))), default=None)
    peak = host_peak if on_host else its.get("peak")
    total = limits.host_bytes if on_host else its.get("hardware", {}).get("memory")
    steps = count_steps(events)
    outcome, detail = _outcome(last, ended, output, limits, steps)
    if outcome is Outcome.OK and peak and total and peak > total * limits.memory:
        outcome = Outcome.MEMORY
        detail = f"it took {in_units(peak)} of {in_units(total)}"
    return Trial(
        candidate,
        outcome,
        rate=(its.get("rate") or 0.0) if outcome is Outcome.OK else 0.0,
        peak_bytes=peak,
        steps=steps,
        seconds=seconds,
        detail=detail,
        facts=_facts(events),
    )


def _outcome(
    last: dict[str, Any], ended: Ended, output: str, limits: Limits, steps: int
) -> tuple[Outcome, str]:
    if ended.over:
        held = f"it took {in_units(ended.host_peak or 0)}"
        return Outcome.MEMORY, f"{held} of {in_units(limits.host_bytes or 0)}"
    if ended.late:
        after = f"{limits.timeout:g} s"
        if steps:
            return Outcome.TIMEOUT, f"{steps} steps within {after}"
        return Outcome.TIMEOUT, f"no step within {after}"
    if last.get("event") == "raised":
        kind = Outcome.MEMORY if last["memory"] else Outcome.CRASH
        return kind, str(last["error"])
    if ended.code == -signal.SIGKILL:
        return Outcome.MEMORY, "killed, as by the system when memory runs out"
    if ended.code < 0:
        return Outcome.CRASH, f"killed by {signal.Signals(-ended.code).name}"
    if ended.code:
        return Outcome.CRASH, f"exit code {ended.code}: {last_line(output)}"
    if not steps:
        return Outcome.NO_STEPS, "it ended without a step of an optimizer"
    if last.get("rate") is None:
        word = "step" if steps == 1 else "steps"
        return Outcome.FEW_STEPS, f"it ended after {steps} {word}, too few to measure"
    return Outcome.OK, ""


def _facts(events: Sequence[dict[str, Any]]) -> Facts:
    """What the script asked for, as far as its report goes."""
    sizes, defaults = {}, {}
    found: dict[str, Any] = {}
    for event in events:
        helper = event.get("helper", event["event"])
        if helper == "batch_size":
            sizes[event["name"]] = event["size"]
            defaults[event["name"]] = event["default"]
        elif helper == "loader_kwargs" and event["train"] and "workers" not in found:
            if not event["fixed"]:
                found["workers"] = event["workers"]
                found["prefetch_fixed"] = event["prefetch_fixed"]
        elif helper == "amp_dtype" and event["choices"]:
            found["amp"] = event["choice"]
            found["amp_choices"] = tuple(event["choices"])
        elif helper == "maybe_compile":
            found["compilable"] = found.get("compilable") or event["possible"]
        elif helper == "scaled_lr":
            found["lr_rule"] = event["rule"]
        elif helper == "optimizer":
            found["optimizer"], found["lr"] = event["kind"], event["lr"]
        elif helper in ("measured", "ended"):
            found |= {k: event[k] for k in ("samples", "batches", "hardware")}
    return Facts(sizes=sizes, defaults=defaults, **found)


def _environment(candidate: Candidate) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(PREFIXES) and name not in VARIABLES
    }
    return {**kept, "GPULINT_TUNED": "off", **candidate.variables()}
