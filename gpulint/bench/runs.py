"""Run two variants of a script in turns, each time in a fresh process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpulint.bench.overlay import environment
from gpulint.running import processes
from gpulint.running.reports import count_steps, last_line, read

POLL_SECONDS = 0.05
PROGRESS_SECONDS = 0.5  # reading the report takes time from what is measured


class BenchError(Exception):
    """A run that gives nothing to compare; the message says why, in one line."""


@dataclass(frozen=True)
class Variant:
    """A script, and other texts for some files than those on the disk."""

    label: str
    script: str
    texts: Mapping[Path, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """How much of a run is measured, and how long it may take."""

    steps: int
    warmup: int
    timeout: float  # seconds


@dataclass(frozen=True)
class Run:
    """What was measured in one process; lists have an item a step."""

    seconds: Sequence[float]
    waits: Sequence[float]
    samples: Sequence[int | None]
    between: Sequence[bool]  # an evaluation or the start of a pass came between
    losses: Sequence[float]  # of all steps, those of the warm-up too
    skipped: int  # steps that a GradScaler has left out
    device: str | None  # None: the host alone
    device_peak: int | None  # bytes
    host_peak: int | None


def in_turns(
    variants: Sequence[Variant], repeats: int, measure: Callable[[Variant], Run]
) -> list[list[Run]]:
    """All variants `repeats` times: A B B A A B …, so that slow drifts cancel out."""
    runs: list[list[Run]] = [[] for _ in variants]
    places = range(len(variants))
    for repeat in range(repeats):
        for place in places if repeat % 2 == 0 else reversed(places):
            runs[place].append(measure(variants[place]))
    return runs


class Children:
    """Measures variants, one child process at a time."""

    def __init__(
        self,
        arguments: Sequence[str],
        limits: Limits,
        progress: Callable[[int], None],
        output: Callable[[str], None],
    ) -> None:
        self.arguments = arguments
        self.limits = limits
        self.progress = progress
        self.output = output

    def __call__(self, variant: Variant) -> Run:
        """Run the script. Raises BenchError where it does not get so far."""
        with tempfile.TemporaryDirectory(prefix="gpulint-bench-") as folder:
            report, log = Path(folder, "report"), Path(folder, "log")
            report.touch()
            variables = environment(variant.texts, Path(folder))
            words = self._words(variant, report)
            with processes.started(words, variables, log) as child:
                code = self._watch(child, report)
            events = read(report)
            text = log.read_text("utf-8", errors="replace")
        self.output(text)
        last = events[-1] if events else {}
        if last.get("event") == "measured":
            return Run(**{key: last[key] for key in Run.__dataclass_fields__})
        raise BenchError(f"{variant.label}: {self._failure(code, events, text)}")

    def _words(self, variant: Variant, report: Path) -> list[str]:
        options = {
            "report": str(report),
            "steps": self.limits.steps,
            "warmup": self.limits.warmup,
            "parent": os.getpid(),
        }
        module = [sys.executable, "-m", "gpulint.bench.child", json.dumps(options)]
        return [*module, variant.script, *self.arguments]

    def _watch(self, child: subprocess.Popen[bytes], report: Path) -> int | None:
        """The exit code; None where it has not ended in time."""
        began = looked = time.monotonic()
        while child.poll() is None:
            now = time.monotonic()
            if now - looked >= PROGRESS_SECONDS:
                looked = now
                self.progress(count_steps(read(report)))
            if now - began > self.limits.timeout:
                return None
            time.sleep(POLL_SECONDS)
        return child.returncode

    def _failure(
        self, code: int | None, events: Sequence[dict[str, Any]], output: str
    ) -> str:
        """Why a run has not measured enough, in one line."""
        steps = count_steps(events)
        word = "step" if steps == 1 else "steps"
        if code is None:
            done = f"{steps} {word}" if steps else "no step"
            return f"{done} within {self.limits.timeout:g} s (--timeout)"
        last = events[-1] if events else {}
        if last.get("event") == "raised":
            return str(last["error"])
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        if code:
            return f"exit code {code}: {last_line(output)}"
        if not steps:
            return "it ended without a step of an optimizer"
        wanted = self.limits.steps + self.limits.warmup
        return f"it ended after {steps} {word}, {wanted} are needed (--steps, --warmup)"
