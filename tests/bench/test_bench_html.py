"""The page with charts: well-formed, complete, and safe whatever the names are."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from gpulint.bench.charts import Frame, by_rule_chart, curves, steps_between
from gpulint.bench.compare import compare
from gpulint.bench.html import page
from gpulint.bench.rows import About
from gpulint.bench.runs import Run


def run(seconds: float, losses: list[float]) -> Run:
    times = [seconds * (1 + i / 50) for i in range(20)]
    return Run(times, [0.0] * 20, [8] * 20, [False] * 20, losses, 0, None, None, None)


def made(losses: list[float]) -> str:
    before = [run(0.1 + i / 100, [2.0, 1.5, 1.2]) for i in range(3)]
    after = [run(0.05 + i / 100, losses) for i in range(3)]
    effects = frozenset({"numerics"})
    its = compare(("<old>", "fixed"), (before, after), effects, 0.1)
    return page(its, About("a<b>.py", "", "no GPU & 2 CPUs", "3 runs", ["Busy."]))


@pytest.mark.parametrize("losses", [[2.0, 1.4, 1.1], [2.0, math.nan, 1.0], [0.0] * 3])
def test_the_page(losses: list[float]) -> None:
    text = made(losses)
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        chart = ElementTree.fromstring(svg)
        for mark in chart.iter():
            assert "nan" not in " ".join(mark.attrib.values())
    assert text.count("<svg") == 3
    assert text.count("<circle") == 6
    assert "<old>" not in text
    assert "&lt;old&gt;" in text
    assert "no GPU &amp; 2 CPUs" in text
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"https?:|src=|@import|url\(", text)


def test_no_losses_no_curve() -> None:
    before = [run(0.1, [])] * 3
    its = compare(("a", "b"), (before, before), None, None)
    text = page(its, About("a", "", "", ""))
    assert text.count("<svg") == 2


def test_a_gap_where_a_loss_is_no_number() -> None:
    before = [run(0.1, [2.0, 1.0, math.inf, 1.0, 0.5])] * 3
    its = compare(("a", "b"), (before, before), None, None)
    chart = curves(its.sides)
    paths = re.findall(r'<path d="(M[^"]*)" fill="none"', chart)
    assert [len(re.findall("M", path)) for path in paths] == [2, 2]


def test_ticks() -> None:
    assert steps_between(0, 1050) == [0, 500, 1000]
    assert steps_between(0, 10) == [0, 2, 4, 6, 8, 10]
    assert steps_between(-1, 1) == pytest.approx([-1, -0.5, 0, 0.5, 1])
    assert steps_between(0.11, 0.13) == pytest.approx([0.11, 0.115, 0.12, 0.125, 0.13])


def test_where_values_lie() -> None:
    frame = Frame((0, 10), (0, 1))
    assert frame.x(0) < frame.x(5) < frame.x(10)
    assert frame.y(1) < frame.y(0)


def test_rules_on_the_page() -> None:
    before = [run(0.1 + i / 100, []) for i in range(4)]
    names = ["fixed", "GPU1 alone", "GPU2 alone", "GPU3 alone"]
    times = [(0.05, 0.051), (0.09, 0.1), (0.02, 0.9), (0.1, 0.11)]
    found = []
    for name, pair in zip(names, times, strict=True):
        after = [run(seconds, []) for seconds in (*pair, *pair)]
        found.append(compare(("original", name), (before, after), None, None))
    its = replace(found[0], alone=tuple(found[1:]))
    assert 'class="verdict faster"' in page(its, About("a", "", "", ""))
    text = page(its, About("a", "", "", "", [], ["exit code 1: why"]))
    assert text.count("<svg") == 3
    assert 'class="verdict failed"' in text
    assert "<br>exit code 1: why</p>" in text
    assert "<td>GPU2</td>" in text
    chart = ElementTree.fromstring(by_rule_chart(its))
    labels = [mark for mark in chart.iter("text") if mark.get("text-anchor") == "end"]
    assert [mark.text for mark in labels] == ["fixed", "GPU1", "GPU2", "GPU3"]
    ticks = sorted(
        float(mark.attrib["x"])
        for mark in chart.iter("text")
        if re.fullmatch(r"[\d.]+x", mark.text or "")
    )
    assert all(b - a >= 30 for a, b in itertools.pairwise(ticks))
    for mark in chart.iter():
        for name in ("x", "cx"):
            assert 0 <= float(mark.get(name, "0")) <= 400
        for x in re.findall(r"[MLH](-?[\d.]+)", mark.get("d", "")):
            assert 0 <= float(x) <= 400


def test_long_names_are_cut() -> None:
    before = [run(0.1, [])] * 3
    name = "experiments/" * 9 + "train.py"
    its = compare((name, "b"), (before, before), None, None)
    text = page(its, About("a", "", "", ""))
    labels = re.findall(r">([^<]*train\.py: [^<]*)</text>", text)
    assert labels[0].startswith("…")
    assert len(labels[0]) < 60
