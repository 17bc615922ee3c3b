"""What is shown of a profile of a GPU."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from gpulint.finding import Confidence, Effect, Finding, Place, Position, Severity
from gpulint.profiling.attribution import Cost, Standing
from gpulint.profiling.gpu import GpuTimes
from gpulint.profiling.output import Profile, as_json, print_profile
from gpulint.profiling.recording import Line, Recording, Stack, Statements


def place(path: Path, row: int) -> Place:
    return Place(path, Position(row, 1), Position(row, 2))


def finding(path: Path, code: str, row: int) -> Finding:
    return Finding(
        code,
        code.lower(),
        "the\nmessage",
        Severity.NOTE,
        Effect.NONE,
        Confidence.HIGH,
        place(path, row),
    )


@pytest.fixture
def of_a_gpu(write: Callable[..., Path]) -> Profile:
    path = write("x = 1\ny = model(x)\nloss.backward()\n")
    elsewhere = Path("/elsewhere/data.py")
    launched = Stack("gpu", (Line(path, 2),), 0.4)
    recording = Recording(
        steps=(1.0,) * 4,
        samples=4000,
        stacks=[
            Stack("rest", (Line(path, 2),), 1.0),
            Stack("backward", (Line(path, 3),), 3.0),
            Stack("rest", (), 0.5),  # no line of the user's
        ],
        waits=(),
        ran=frozenset(),
        device="H100",
        gpu=GpuTimes(0.5, 0.25, 0.0625),
        launched=[launched],
    )
    costs = [
        Cost(finding(path, "GPU301", 2), Standing.MEASURED, "products", 0.25),
        Cost(finding(path, "GPU404", 3), Standing.UNKNOWN, "memory"),
        Cost(finding(elsewhere, "GPU404", 8), Standing.UNKNOWN, "memory"),
        Cost(finding(path, "GPU404", 1), Standing.UNKNOWN, "memory"),
        Cost(finding(path, "GPU601", 1), Standing.NOTHING, "its lines", 0.0),
    ]
    return Profile("train.py", ["-x"], 5, 4, recording, Statements(), costs, 1)


def test_a_page(of_a_gpu: Profile) -> None:
    page = io.StringIO()
    print_profile(of_a_gpu, 9, page)
    lines = [line.rstrip() for line in page.getvalue().splitlines()]
    assert lines[:2] == [
        "train.py -x",
        "4 steps after 5 of warm-up in 4.0 s, 4 000 samples; H100, 1 CPU",
    ]
    assert lines[2] == (
        "a step: 1000.0 ms (median 1000.0): no DataLoader gave a batch, "
        "backward 66.7 %, optimizer 0.0 %, forward and all else 33.3 %"
    )
    assert lines[3] == (
        "the GPU computes for 50.0 % of a step, "
        "25.0 % in matrix products and convolutions"
    )
    table = [line.split() for line in lines[5:8]]
    assert table == [
        ["share", "GPU", "place", "statement", "in"],
        ["66.7", "%", "0.0", "%", "train.py:3", "loss.backward()", "backward"],
        ["22.2", "%", "40.0", "%", "train.py:2", "y", "=", "model(x)"],
    ]
    at = lines.index("Findings by the most that they cost here, of a step:")
    assert lines[at + 1 : at + 3] == [
        "  25.0 %  train.py:2 GPU301 gpu301: products",
        "          the message",
    ]
    assert lines[at + 3 : at + 7] == [
        "Not measurable here: memory",
        "          GPU404 gpu404  train.py:1, :3  /elsewhere/data.py:8",
        "Costs nothing here, 0.0 % of a step: its lines",
        "          GPU601 gpu601  train.py:1",
    ]


def test_json(of_a_gpu: Profile) -> None:
    found = as_json(of_a_gpu)
    assert found["gpu"] == {"busy": 0.5, "matrix": 0.25, "to_device": 0.0625}
    assert found["parts"]["wait"] == 0.0
    assert [line["gpu_share"] for line in found["lines"]] == [0.0, 0.4]
    assert [its["at_most"] for its in found["findings"]] == [
        0.25,
        None,
        None,
        None,
        0.0,
    ]
