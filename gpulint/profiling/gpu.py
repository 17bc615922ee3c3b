"""Which lines a GPU works for, from a trace of torch's profiler.

A kernel runs long after the line that launched it. The trace ties it, by a number, to
the call that launched it, and the time of that call to the user's line that was going
on in the main thread: in a backward pass, whose kernels another thread launches, the
line that called `backward`.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpulint.profiling.lines import Moment
from gpulint.profiling.own import Rows

MARK = "gpulint"  # the range in the trace that ties its clock to ours
LAUNCHES = ("cuda_runtime", "cuda_driver", "hip_runtime")
KERNEL, COPY, RANGE = "kernel", "gpu_memcpy", "user_annotation"
# Operators that half precision, TF32 and `channels_last` make faster.
MATRIX = re.compile(
    r"aten::(_?addmm|mm|bmm|baddbmm|addbmm|_scaled_mm|linear|matmul"
    r"|\w*convolution\w*|_thnn_\w+|_cudnn_rnn\w*|miopen_rnn\w*"
    r"|_?scaled_dot_product\w*|_(flash|efficient|cudnn)_attention\w*)$"
)
MATRIX_KERNEL = re.compile(r"gemm|conv|cutlass|wgrad|dgrad|fmha|flash", re.IGNORECASE)
TO_DEVICE = re.compile(r"Memcpy HtoD", re.IGNORECASE)


@dataclass(frozen=True)
class GpuTimes:
    """Seconds of a GPU in one step."""

    busy: float  # at least one kernel runs
    matrix: float  # matrix products, convolutions, attention
    to_device: float  # copies from the host
    stacks: Mapping[Rows, float] = field(default_factory=dict)  # kernels and copies


def read_trace(
    events: Iterable[Mapping[str, Any]],
    timeline: Sequence[Moment],
    stacks: Sequence[Rows],
    began: int,
    steps: int,
) -> GpuTimes | None:
    """What the events of a Chrome trace say; None: no kernel is in it.

    `timeline`: which of `stacks` was going on, by our clock in nanoseconds; `began`:
    when, by this clock, the range that is called MARK was entered.
    """
    events = [event for event in events if event.get("ph") == "X"]
    marks = (e for e in events if e.get("cat") == RANGE and e.get("name") == MARK)
    start = next((float(mark["ts"]) for mark in marks), None)
    kernels = [e for e in events if e.get("cat") == KERNEL]
    if start is None or not kernels:
        return None
    launched = {
        its["correlation"]: began + (float(event["ts"]) - start) * 1000
        for event in events
        if event.get("cat") in LAUNCHES
        and "correlation" in (its := event.get("args", {}))
    }
    operators = {
        its["External id"]: str(event["name"])
        for event in events
        if event.get("cat") == "cpu_op"
        and "External id" in (its := event.get("args", {}))
    }
    copies = [e for e in events if e.get("cat") == COPY]
    moments = [moment[0] for moment in timeline]
    seconds: dict[Rows, float] = {}
    for event in (*kernels, *copies):
        at = launched.get(event.get("args", {}).get("correlation"))
        place = bisect.bisect_right(moments, at) - 1 if at is not None else -1
        rows = stacks[timeline[place][1]] if place >= 0 else ()
        if rows:
            its = float(event["dur"]) / 1e6 / steps
            seconds[rows] = seconds.get(rows, 0.0) + its
    return GpuTimes(
        busy=_covered(kernels) / steps,
        matrix=_seconds(k for k in kernels if _is_matrix(k, operators)) / steps,
        to_device=_seconds(c for c in copies if TO_DEVICE.match(c["name"])) / steps,
        stacks=dict(seconds),
    )


def _is_matrix(kernel: Mapping[str, Any], operators: Mapping[Any, str]) -> bool:
    operator = operators.get(kernel.get("args", {}).get("External id"))
    if operator is not None and operator.startswith("aten::"):
        return MATRIX.match(operator) is not None
    return MATRIX_KERNEL.search(str(kernel["name"])) is not None  # compiled, or others'


def _seconds(events: Iterable[Mapping[str, Any]]) -> float:
    return sum(float(event["dur"]) for event in events) / 1e6


def _covered(events: Iterable[Mapping[str, Any]]) -> float:
    """The seconds in which at least one is going on; streams run side by side."""
    covered = end = 0.0
    for since, length in sorted((float(e["ts"]), float(e["dur"])) for e in events):
        covered += max(since + length - max(since, end), 0.0)
        end = max(end, since + length)
    return covered / 1e6
