"""The page with charts: well-formed, complete, and safe whatever the names are."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest

from gpulint.bench.compare import compare
from gpulint.bench.html import Frame, curves, page, steps_between
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
    frame = Frame(0, 10, 0, 1)
    assert frame.x(0) < frame.x(5) < frame.x(10)
    assert frame.y(1) < frame.y(0)
