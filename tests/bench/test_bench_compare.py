"""What is said of measured runs, and how it is printed."""

from __future__ import annotations

import io
import itertools
import json
import math
import random
import sys
from dataclasses import replace
from typing import Any

import pytest

from gpulint.bench.compare import (
    Comparison,
    compare,
    compare_losses,
    deviation,
)
from gpulint.bench.output import as_json, markdown, print_table
from gpulint.bench.rows import About, by_rule, conclusions, number, rows
from gpulint.bench.runs import Run, Variant, in_turns, orders, read_launcher, together

EXACT = frozenset({"exact"})
ABOUT = About(
    "train.py",
    "Fixes: GPU1|2",
    "no GPU, 2 CPUs",
    "6 runs",
    ["Busy."],
    ["exit code 1: no"],
)


def run(seconds: float = 0.1, losses: Any = (1.0, 0.5), **more: Any) -> Run:
    given: dict[str, Any] = {
        "seconds": [seconds] * 10,
        "waits": [seconds / 4] * 10,
        "samples": [32] * 10,
        "between": [False] * 10,
        "losses": list(losses),
        "skipped": 0,
        "device": None,
        "device_peak": None,
        "host_peak": 3 * 2**20,
    }
    return Run(**{**given, **more})


def compared(a: list[Run], b: list[Run], effects: Any = EXACT) -> Comparison:
    return compare(("original", "fixed"), (a, b), effects, 0.1)


def test_a_faster_rewrite() -> None:
    a = [run(0.1), run(0.11), run(0.105)]
    its = compared(a, [run(0.05), run(0.052), run(0.049)])
    assert its.verdict == "faster"
    assert its.unit == "samples/s"
    assert its.sides[0].rate.value == pytest.approx(32 / 0.105)
    assert its.sides[0].wait == pytest.approx(0.25)
    assert its.sides[0].step_ms[50] == pytest.approx(105)
    assert not its.failures(1.0)
    assert its.failures(5.0)
    table = {row.name: row for row in rows(its)}
    assert table["data wait"][1:3] == ("25 %", "25 %")
    assert table["GPU memory"][1:3] == ("n/a", "n/a")
    assert table["host syncs"][1:3] == ("n/a", "n/a")
    assert table["step time, median"].before == "105.0 ms"
    assert table["host memory"].before == "3.0 MiB"
    assert table["samples/s"].change.startswith("2.")
    assert "skipped steps" not in table


def test_a_slower_rewrite_fails() -> None:
    a = [run(0.05), run(0.052), run(0.049)]
    its = compared(a, [run(0.1), run(0.11), run(0.105)])
    assert its.verdict == "slower"
    assert its.failures(1.0)
    assert not its.failures(0.2)
    assert rows(compared(a, [run(10.0)] * 3))[0].change == "0.005x"


def test_a_gpu_and_skipped_steps_are_shown() -> None:
    on_gpu = {"device": "H100", "device_peak": 2**30, "skipped": 1}
    its = compared([run()] * 3, [run(**on_gpu)] * 3)
    table = {row.name: row for row in rows(its)}
    assert table["GPU memory"][1:3] == ("n/a", "1.0 GiB")
    assert table["skipped steps"][1:3] == ("0", "3")


def test_work_between_passes_counts_where_the_batches_are_the_same() -> None:
    uneven: dict[str, Any] = {"between": [False] * 9 + [True]}
    uneven["waits"] = [0.0] * 10
    times = [0.1] * 9 + [10.0]
    slow = replace(run(**uneven), seconds=times)
    its = compared([slow] * 3, [slow] * 3)
    assert its.whole
    assert its.sides[0].rate.value == pytest.approx(320 / 10.9)
    larger = [run(samples=[64] * 10)] * 3
    its = compared([slow] * 3, larger, frozenset({"hyperparams"}))
    assert not its.whole
    assert its.sides[0].rate.value == pytest.approx(320)
    assert "does not count" in conclusions(its)[0]


def test_batches_of_unknown_size() -> None:
    its = compared([run(samples=[None] * 10)] * 3, [run(samples=[None] * 10)] * 3)
    assert its.unit == "steps/s"
    assert its.sides[0].rate.value == pytest.approx(10)
    assert its.verdict == "no difference shown"
    assert any("steps are compared" in line for line in conclusions(its))


@pytest.mark.parametrize(
    "effects,after,differ,text",
    [
        (EXACT, [(1.0, 0.5)] * 2, False, "equal (2)"),
        (EXACT, [(1.0, 0.5000001)] * 2, True, "DIFFER: max relative deviation 1.3e-05"),
        (EXACT, [(1.0, 0.5, 0.2)] * 2, True, "DIFFER: 2 and 3 losses"),
        (EXACT, [(1.0, math.nan)] * 2, True, "DIFFER: max relative deviation infinite"),
        ({"exact", "numerics"}, [(1.0, 0.52)] * 2, False, "max relative deviation 2.7"),
        ({"numerics"}, [(1.0, 0.9)] * 2, True, "more than 10 %"),
        ({"random"}, [(9.0, 9.0)] * 2, False, "not comparable step by step: the fixes"),
        ({"random", "hyperparams"}, [(9.0,)] * 2, False, "random and hyperparams"),
        (EXACT, [(), ()], False, "not seen"),
        # runs of the same text differ as much: no seed
        (EXACT, [(1.1, 0.6), (1.0, 0.4)], False, "among runs of one text (no seed?)"),
    ],
)
def test_losses(effects: Any, after: Any, differ: bool, text: str) -> None:
    before = [run(), run()]
    its = compare_losses(
        before, [run(losses=x) for x in after], frozenset(effects), 0.1
    )
    assert text in its.text
    assert its.differ is differ


def test_losses_of_two_scripts_may_differ_unless_said_otherwise() -> None:
    before, after = [run()] * 2, [run(losses=(3.0, 2.0))] * 2
    assert not compare_losses(before, after, None, None).differ
    assert compare_losses(before, after, None, 0.5).differ
    assert not compare_losses(before, [run(losses=(1.0,))] * 2, None, None).differ


def test_deviations() -> None:
    assert deviation([2.0, 0.0], [2.0, 0.0]) == 0
    assert deviation([2.0, 0.0], [2.2, 0.1]) == pytest.approx(0.1)
    assert deviation([0.0], [0.1]) == math.inf
    assert deviation([math.nan, math.inf], [math.nan, math.inf]) == 0


def test_runs_take_turns() -> None:
    seen: list[str] = []

    def measure(variant: Variant) -> Run:
        seen.append(variant.label)
        return run(losses=(float(len(seen)),))

    pair = (Variant("A", ""), Variant("B", ""))
    a, b = in_turns(pair, 5, measure, random.Random(0))
    pairs = ["".join(seen[i : i + 2]) for i in range(0, 10, 2)]
    assert sorted(map(sorted, pairs)) == [["A", "B"]] * 5
    places = [[int(r.losses[0]) - 1 for r in its] for its in (a, b)]
    assert [seen[i] for i in places[0]] == ["A"] * 5
    assert [x // 2 for x in places[0]] == [x // 2 for x in places[1]] == [0, 1, 2, 3, 4]


def test_each_goes_first_as_often() -> None:
    drawn = {tuple(map(tuple, orders(2, 6, random.Random(i)))) for i in range(40)}
    assert len(drawn) > 10
    assert all(rounds.count((0, 1)) == 3 for rounds in drawn)
    for seed in range(20):
        rounds = orders(4, 6, random.Random(seed))
        for a, b in itertools.combinations(range(4), 2):
            assert sum(r.index(a) < r.index(b) for r in rounds) == 3
    assert len(orders(2, 5, random.Random(0))) == 5


def test_ranks_together() -> None:
    ranks = [
        run(0.1, device="H100", device_peak=4),
        run(0.2, device="H100", device_peak=5, losses=(9.0,), samples=[8] * 10),
    ]
    its = together(ranks)
    assert its.samples == [40] * 10
    assert (its.seconds, its.losses) == (ranks[0].seconds, ranks[0].losses)
    assert (its.device_peak, its.host_peak) == (5, 6 * 2**20)
    unknown = together([run(), run(samples=[None] * 10, host_peak=None)])
    assert unknown.samples == [None] * 10
    assert (unknown.device_peak, unknown.host_peak) == (None, None)


def test_launchers() -> None:
    words = read_launcher("torchrun --nproc-per-node=2")
    assert words == [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
    ]
    assert read_launcher("sh -c 'a b'")[1:] == ["-c", "a b"]


def test_single_fixes_are_rows_and_may_fail() -> None:
    its = compared([run()] * 3, [run()] * 3)
    odd = compared([run()] * 3, [run(losses=(1.0, 0.4))] * 3)
    alone = replace(
        odd, sides=(odd.sides[0], replace(odd.sides[1], label="GPU1 alone"))
    )
    whole = replace(its, alone=(alone,))
    assert by_rule(whole) == [
        ("GPU1", "320", "1.00x", "1.00 – 1.00", "no difference shown")
    ]
    assert any("losses with GPU1 alone: DIFFER" in x for x in conclusions(whole))
    assert whole.failures(1.0)
    assert not its.failures(1.0)
    found = as_json(whole, {}, 1)
    assert found["alone"][0]["sides"][1]["label"] == "GPU1 alone"


def test_what_is_printed() -> None:
    its = compared([run()] * 3, [run(losses=(1.0, math.nan))] * 3)
    stream = io.StringIO()
    print_table(its, ABOUT, stream)
    text = stream.getvalue()
    assert "samples/s" in text
    assert "losses: DIFFER" in text
    assert "verdict: no difference shown" in text
    assert "\nBusy.\n" in text
    assert text.endswith("would show\nexit code 1: no\n")
    page = markdown(its, ABOUT)
    assert page.startswith("### train.py\n")
    assert (
        "|  | original | fixed | change |\n|---|---:|---:|---:|\n| samples/s |" in page
    )
    whole = replace(its, alone=(its,))
    assert "| by rule | samples/s | change | 95 % interval |  |\n" in markdown(
        whole, ABOUT
    )
    found = as_json(its, {"scripts": ["train.py"]}, 1)
    text = json.dumps(found, allow_nan=False)
    assert json.loads(text)["schema"] == 1
    assert found["losses"]["max_relative_deviation"] == "inf"
    assert found["sides"][1]["losses"] == [1.0, "nan"]
    assert found["ratio"]["level"] == 0.95


def test_numbers() -> None:
    assert [number(x) for x in (12345.6, 123.4, 12.34, 0.01234)] == [
        "12 346",
        "123",
        "12.3",
        "0.0123",
    ]
