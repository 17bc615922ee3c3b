"""Run a script in a child that records some of its steps."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpulint.profiling.gpu import GpuTimes, read_trace
from gpulint.profiling.recording import Recording, Statements, read
from gpulint.running.children import run_module

LEAST_SECONDS = 2.0  # of recorded steps: a sample a millisecond, 0.05 % of the time


class ProfileError(Exception):
    """A run in which nothing could be recorded; the message says why, in one line."""


@dataclass(frozen=True)
class Limits:
    """How much of a run is recorded, and how long it may take."""

    steps: int
    warmup: int
    timeout: float  # seconds


def record(
    script: str,
    arguments: Sequence[str],
    limits: Limits,
    statements: Statements,
    progress: Callable[[int], None],
    output: Callable[[str], None],
) -> Recording:
    """Run the script for some steps. Raises ProfileError where it does not get so far.

    `output` is given what it prints.
    """
    options = {
        "steps": limits.steps,
        "warmup": limits.warmup,
        "seconds": LEAST_SECONDS,
    }
    with tempfile.TemporaryDirectory(prefix="gpulint-profile-") as folder:
        ended = run_module(
            "gpulint.profiling.child",
            options,
            [script, *arguments],
            os.environ,
            Path(folder),
            limits.timeout,
            progress,
        )
        output(ended.output)
        event = ended.ends[0]
        if event.get("event") != "measured":
            wanted = limits.steps + limits.warmup
            raise ProfileError(ended.failure(wanted))
        return read(event, statements, read_gpu(event["gpu"]))


def read_gpu(facts: Mapping[str, Any] | None) -> GpuTimes | None:
    """What a child tells of a GPU; None: it had none, or no trace of it."""
    if facts is None:
        return None
    try:
        trace = json.loads(Path(facts["trace"]).read_text("utf-8", "replace"))
    except (OSError, ValueError):  # the profiler has written none
        return None
    stacks = [tuple((str(name), int(row)) for name, row in s) for s in facts["stacks"]]
    timeline = [(int(at), int(number)) for at, number in facts["timeline"]]
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    return read_trace(events, timeline, stacks, facts["began"], facts["steps"])
