"""The largest and the smallest number that an expression can be."""

from __future__ import annotations

from math import inf

import pytest

from gpulint.script.bounds import at_least, at_most, most_turns
from tests.script.code import with_last


@pytest.mark.parametrize(
    "text, most",
    [
        ("20 ** 2", 400),
        ("width = 20\nwidth ** 2", 400),
        ("3 * 4 + 2", 14),
        ("width = 64 if small else 128\nwidth * 2", 256),
        ("widths = [8, 16]\nwidths[i]", 16),
        ("100 // parts", 100),
        ("100 - skipped", 100),
        ("width ** 2", inf),
        ("2 ** number", inf),
        ("2 ** 99", inf),
        ("100 / 3", inf),
        ("100 % 16", 16),
        ("nodes % 16", 16),
        ("max(8, 16)", 16),
        ("max(nodes, 16)", inf),
        ("min(nodes, 16)", 16),
        ("max(int(math.log2(nodes)), 16)", 64),
        ("int(100 / 4)", 100),
        ("int(100 / share)", inf),
        ("max(*widths)", inf),
    ],
)
def test_bounds(text: str, most: float) -> None:
    script, node = with_last(text)
    assert at_most(script, node) == most


@pytest.mark.parametrize(
    "text, turns",
    [
        ("range(4)", 4),
        ("range(args.epochs)", inf),
        ("parts = ['a', 'b']\nparts", 2),
        ("parts = ['a', 'b']\nparts.append('c')\nparts", 3),
        ("parts = ['a', 'b']\nparts.extend(others)\nparts", inf),
        ("parts = []\nfor k in range(3):\n  parts.append(k)\nparts", 3),
        ("parts = []\nfor k in others:\n  parts.append(k)\nparts", inf),
        ("parts = []\nparts += others\nparts", inf),
        ("parts = {'a': 1, 'b': 2}\nparts.items()", 2),
        ("parts = {'a': 1}\nparts[name] = 2\nparts.items()", inf),
        ("parts = {'a': 1}\nparts.update(others)\nparts", inf),
        ("parts = {name: read(name) for name in ['a', 'b']}\nparts.items()", 2),
        ("list(enumerate(['a', 'b', 'c']))", 3),
        ("['a', *others]", inf),
        ("others", inf),
    ],
)
def test_turns(text: str, turns: float) -> None:
    script, node = with_last(text)
    assert most_turns(script, node) == turns


@pytest.mark.parametrize(
    "text, least",
    [
        ("width = 64 if small else 128\nwidth", 64),
        ("width = 64 if small else 128\nwidth * 2 + 1", 129),
        ("width = 64 if small else wide\nwidth", 64),
        ("(width := 512) // 8", 64),
        ("512 // parts", 0),
        ("widths = [8, 16]\nwidths[i]", 0),
        ("nodes * 16", 0),
        ("512 - skipped", 0),
        ("nodes", 0),
    ],
)
def test_lower_bounds(text: str, least: float) -> None:
    script, node = with_last(text)
    assert at_least(script, node) == least
