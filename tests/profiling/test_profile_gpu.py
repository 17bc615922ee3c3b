"""Kernels and the lines that launched them, from the events of a trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpulint.profiling.gpu import MARK, read_trace
from gpulint.profiling.runs import read_gpu

FORWARD = (("train.py", 7), ("train.py", 20))
BACKWARD = (("train.py", 20),)
STACKS = [(), FORWARD, BACKWARD]
BEGAN = 5_000_000_000  # nanoseconds of our clock, when the marked range began
MARKED = 900_000.0  # the same moment, in the trace's microseconds
# From 10 µs after the mark on line 7 is going on, from 50 µs line 20, from 90 µs none.
TIMELINE = [(BEGAN + 10_000, 1), (BEGAN + 50_000, 2), (BEGAN + 90_000, 0)]


def span(cat: str, name: str, at: float, length: float, **its: Any) -> dict[str, Any]:
    args = {key.replace("_", " "): value for key, value in its.items()}
    return {
        "ph": "X", "cat": cat, "name": name, "ts": MARKED + at, "dur": length, "args": args
    }  # fmt: skip


def kernel(at: float, length: float, number: int, name: str = "k", **its: Any) -> Any:
    return span("kernel", name, at, length, correlation=number, **its)


def launch(at: float, number: int, cat: str = "cuda_runtime") -> dict[str, Any]:
    return span(cat, "cudaLaunchKernel", at, 2, correlation=number)


EVENTS = [
    {"ph": "M", "name": "process_name"},
    span("user_annotation", MARK, 0, 1),
    span("cpu_op", "aten::addmm", 12, 9, External_id=4),
    span("cpu_op", "aten::relu", 22, 9, External_id=5),
    launch(13, 1),
    launch(23, 2),
    launch(60, 3, "cuda_driver"),  # a thread of the backward pass
    launch(95, 4),  # when none of the user's lines was going on
    kernel(200, 100, 1, "sgemm", External_id=4),
    kernel(250, 100, 2, External_id=5),  # beside it, on another stream
    kernel(400, 30, 3, "triton_conv_fused"),
    kernel(500, 20, 4, "unknown"),
    kernel(600, 10, 99),  # its launch came before the trace
    span("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 150, 8, correlation=1),
    span("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 160, 4, correlation=3),
]


def test_kernels_belong_to_the_line_that_launched_them() -> None:
    its = read_trace(EVENTS, TIMELINE, STACKS, BEGAN, steps=2)
    assert its is not None
    assert its.stacks == {
        FORWARD: pytest.approx((100 + 100 + 8) / 2e6),
        BACKWARD: pytest.approx((30 + 4) / 2e6),
    }
    assert its.busy == pytest.approx((150 + 30 + 20 + 10) / 2e6)  # overlaps count once
    assert its.matrix == pytest.approx((100 + 30) / 2e6)
    assert its.to_device == pytest.approx(8 / 2e6)


def test_a_trace_without_kernels_or_mark_says_nothing() -> None:
    host = [e for e in EVENTS if e.get("cat") != "kernel"]
    assert read_trace(host, TIMELINE, STACKS, BEGAN, 2) is None
    unmarked = [e for e in EVENTS if e.get("name") != MARK]
    assert read_trace(unmarked, TIMELINE, STACKS, BEGAN, 2) is None


@pytest.mark.parametrize("inner", [False, True])
def test_a_trace_that_a_child_has_left(tmp_path: Path, inner: bool) -> None:
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"traceEvents": EVENTS} if inner else EVENTS))
    facts = {
        "trace": str(file),
        "began": BEGAN,
        "steps": 2,
        "timeline": TIMELINE,
        "stacks": STACKS,
    }
    told = json.loads(json.dumps(facts))
    assert read_gpu(told) == read_trace(EVENTS, TIMELINE, STACKS, BEGAN, steps=2)
    file.write_text("[{")
    assert read_gpu(told) is None
    assert read_gpu(None) is None
