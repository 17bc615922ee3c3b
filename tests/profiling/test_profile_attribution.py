"""What findings cost, from recordings made by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpulint.finding import Confidence, Effect, Finding, Place, Position, Severity
from gpulint.profiling.attribution import (
    Cost,
    Standing,
    by_line,
    percent,
    rank,
)
from gpulint.profiling.costs import COSTS, Measure, cost_of
from gpulint.profiling.gpu import GpuTimes
from gpulint.profiling.output import parts_of
from gpulint.profiling.recording import (
    Line,
    LoaderWait,
    Recording,
    Stack,
    Statements,
    read,
)
from gpulint.registry import all_rules

Write = Callable[..., Path]
SCRIPT = """\
import torch

def main():
    loader = torch.utils.data.DataLoader(
        data,
        batch_size=8)
    for x, y in loader:
        loss = criterion(
            model(x), y)
        loss.backward()
        total += loss.item()
        if total > 9:
            save(total)

main()
"""
PATH = Path("train.py")


@pytest.fixture
def statements(write: Write) -> Statements:
    write(SCRIPT)
    return Statements()


def finding(code: str, row: int, *related: int, end: int | None = None) -> Finding:
    def place(row: int, end: int | None = None) -> Place:
        return Place(PATH, Position(row, 5), Position(end or row, 9))

    name = code.lower()
    return Finding(
        code,
        name,
        f"message of {code}",
        Severity.WARNING,
        Effect.NONE,
        Confidence.HIGH,
        place(row, end),
        tuple(place(other) for other in related),
    )


def stack(seconds: float, *rows: int, kind: str = "rest") -> Stack:
    return Stack(kind, tuple(Line(PATH, row) for row in rows), seconds)


def recording(*stacks: Stack, **facts: Any) -> Recording:
    facts.setdefault("steps", (1.0, 3.0))
    facts.setdefault("ran", frozenset({Line(PATH, 11)}))
    facts.setdefault("waits", ())
    return Recording(samples=len(stacks), stacks=stacks, **facts)


STACKS = (
    stack(1.0, 7, 15, kind="wait"),
    stack(1.0, 8, 15),
    stack(1.96, 10, 15, kind="backward"),
    stack(0.04, 11, 15),
)
LOADER = LoaderWait((Line(PATH, 4), Line(PATH, 15)), 0, 0.8, 0.2, 1)


def cost(its: Finding, record: Recording, statements: Statements) -> Cost:
    return rank([its], record, statements)[0]


def test_rows_belong_to_statements(statements: Statements, write: Write) -> None:
    rows = [statements.line(PATH, row).row for row in range(1, 16)]
    assert rows == [1, 2, 3, 4, 4, 4, 7, 8, 8, 10, 11, 12, 13, 14, 15]
    assert statements.text(Line(PATH, 10)) == "loss.backward()"
    assert statements.text(Line(PATH, 99)) == ""
    assert statements.of(finding("GPU106", 11, 7).related) == {Line(PATH, 7)}
    its = finding("GPU106", 11, 7)
    assert statements.of((its.place, *its.related)) == {Line(PATH, 11)}  # not the loop
    for name in ("train.yaml", "broken.py", "missing.py"):
        write("def (", name) if name == "broken.py" else None
        assert statements.line(Path(name), 3) == Line(Path(name), 3)


def test_every_rule_has_a_measure_and_every_measure_a_rule() -> None:
    codes = {rule.code for rule in all_rules() if not rule.code.startswith("GPU0")}
    assert all(isinstance(cost_of(code).measure, Measure) for code in codes)
    for key in COSTS:
        assert any(code.startswith(key) for code in codes), key
    used = {cost_of(code).measure for code in codes}
    assert used == set(Measure)


def test_the_time_of_lines(statements: Statements) -> None:
    its = cost(finding("GPU103", 9), recording(*STACKS), statements)
    assert its.sentence == "at most 25.0 % of a step here: its lines"
    both = cost(finding("GPU103", 9, 11), recording(*STACKS), statements)
    assert both.share == pytest.approx(0.26)
    whole = cost(finding("GPU103", 15), recording(*STACKS), statements)
    assert whole.share == pytest.approx(1.0)  # a call of what the time is spent in


def test_a_line_that_ran_and_one_that_did_not(statements: Statements) -> None:
    quick = recording(*STACKS[:3])
    its = cost(finding("GPU601", 11), quick, statements)
    assert (its.standing, its.share) == (Standing.NOTHING, 0.0)
    assert its.sentence == "costs nothing here: 0.0 % of a step: its lines"
    its = cost(finding("GPU601", 13), quick, statements)
    assert (its.standing, its.share) == (Standing.UNSEEN, None)
    assert its.sentence == "not seen here: its lines did not run in these steps"


def test_without_a_gpu_nothing_of_it_is_put_at_zero(statements: Statements) -> None:
    for code in ("GPU102", "GPU106", "GPU202", "GPU301", "GPU501", "GPU504"):
        its = cost(finding(code, 11), recording(*STACKS), statements)
        assert (its.standing, its.share) == (Standing.UNKNOWN, None)
        assert its.reason == "it takes a GPU, and none was used"
    its = cost(finding("GPU404", 11), recording(*STACKS), statements)
    assert its.sentence == "not measurable here: it costs memory, not time"


def test_waits_of_a_loader(statements: Statements) -> None:
    loaded = recording(*STACKS, waits=[LOADER])
    assert cost(finding("GPU201", 5), loaded, statements).share == 0.2
    assert cost(finding("GPU203", 4), loaded, statements).share == 0.05
    assert cost(finding("GPU901", 1), loaded, statements).share == 0.2
    other = cost(finding("GPU201", 1), loaded, statements)
    assert other.reason == "its loader gave no batch in these steps"
    going = LoaderWait(LOADER.made, 2, 0.8, 0.0, 0)
    its = cost(finding("GPU203", 4), recording(*STACKS, waits=[going]), statements)
    assert its.reason == "no pass over its loader began in these steps"


def test_lines_that_run_in_workers(statements: Statements) -> None:
    workers = LoaderWait(LOADER.made, 2, 0.4, 0.0, 0)
    its = finding("GPU206", 13)
    found = cost(its, recording(*STACKS, waits=[workers]), statements)
    assert found.sentence == (
        "at most 10.0 % of a step here: the wait for workers, in which its lines run"
    )
    unseen = cost(its, recording(*STACKS, waits=[LOADER]), statements)
    assert unseen.standing is Standing.UNSEEN
    here = recording(*STACKS, stack(1.0, 13, 7, 15, kind="wait"), waits=[workers])
    assert cost(its, here, statements).share == pytest.approx(0.2)


def test_a_gpu_bounds_what_the_host_can_win(statements: Statements) -> None:
    """Two steps in 4 s; in each the GPU computes for 1.8 s, 1.2 s of it in products."""
    stacks = {((str(PATH), 9), (str(PATH), 15)): 0.5, (("/x.py", 1),): 0.1}
    facts = {
        "seconds": [1.0, 3.0],
        "samples": 4,
        "stacks": [[s.kind, [[str(PATH), x.row] for x in s.lines], s.seconds] for s in STACKS],
        "waits": [[[[str(PATH), 5]], {"workers": 0, "seconds": 0.8, "starts": 0.2, "passes": 1, "batches": 2}]],
        "ran": {str(PATH): [11]},
        "device": "H100",
        "files": [str(PATH)],
    }  # fmt: skip
    gpu = GpuTimes(busy=1.8, matrix=1.2, to_device=0.02, stacks=stacks)
    its = read(facts, statements, gpu)
    assert its.idle == pytest.approx(0.1)
    assert its.launched_by([Line(PATH, 8)]) == pytest.approx(0.25)
    waits = cost(finding("GPU201", 4), its, statements)
    assert waits.sentence == (
        "at most 10.0 % of a step here: the wait for its loader "
        "(the GPU is idle for 10.0 %)"
    )
    lines = cost(finding("GPU505", 9), its, statements)
    assert lines.share == pytest.approx(0.1 + 0.25)  # idle, and what it launched
    assert cost(finding("GPU106", 11), its, statements).share == pytest.approx(0.01)
    assert cost(finding("GPU301", 9), its, statements).share == pytest.approx(0.6)
    assert cost(finding("GPU202", 4), its, statements).share == pytest.approx(0.01)
    assert cost(finding("GPU501", 9), its, statements).share == pytest.approx(0.8)
    assert cost(finding("GPU504", 9), its, statements).standing is Standing.NOTHING
    spent = by_line(its)
    assert (spent[0].line.row, spent[0].share, spent[0].gpu) == (10, 0.49, 0.0)
    assert [(s.line, s.kind) for s in spent if s.gpu] == [
        (Line(PATH, 8), "rest"),
        (Line(Path("/x.py"), 1), "gpu"),
    ]
    untraced = recording(*STACKS, device="Arc")
    its_ = cost(finding("GPU301", 9), untraced, statements)
    assert its_.reason == "no trace of this GPU could be made"


def test_the_optimizer(statements: Statements) -> None:
    its = recording(*STACKS, stack(1.0, 10, 15, kind="optimizer"), device="H100")
    assert cost(finding("GPU504", 1), its, statements).share == pytest.approx(0.2)


def test_the_order(statements: Statements) -> None:
    codes = [("GPU601", 1), ("GPU103", 11), ("GPU102", 11), ("GPU103", 9)]
    codes += [("GPU601", 11)]
    quick = recording(*STACKS[:3], stack(0.0004, 11, 15))
    costs = rank((finding(*its) for its in codes), quick, statements)
    assert [(c.standing.name, c.finding.place.start.row) for c in costs] == [
        ("MEASURED", 9),
        ("UNKNOWN", 11),
        ("UNSEEN", 1),
        ("NOTHING", 11),
        ("NOTHING", 11),
    ]


def test_parts_of_a_step_are_all_of_it() -> None:
    its = recording(*STACKS, waits=[LOADER])
    parts = dict(parts_of(its))
    assert parts["data wait"] == 0.2
    assert sum(parts.values()) == pytest.approx(1.0)
    assert percent(parts["backward"]) == "52.3 %"
