"""Which numbers an expression draws, and how often a test of one holds."""

from __future__ import annotations

import ast

import pytest

from gpulint.script.reaching.drawn import Numbers, deviation

from .code import script_of, with_last

HEAD = """
import random
from random import uniform
LEAST = 0.8
"""


@pytest.mark.parametrize(
    "text,low,high",
    [
        ("random.random()", 0, 1),
        ("np.random.rand()", 0, 1),
        ("torch.rand(1).item()", 0, 1),
        ("float(torch.rand(1))", 0, 1),
        ("uniform(-10, 10)", -10, 10),
        ("uniform(10, -10)", -10, 10),
        ("np.random.uniform(high=2)", 0, 2),
        ("uniform(LEAST, 2 - LEAST)", 0.8, 1.2),
        ("1 + 0.4 * (random.random() - 0.5)", 0.8, 1.2),
        ("0.5 - random.random() / 2", 0, 0.5),
        ("(random.random() * 2 - 1) * 15", -15, 15),
        ("-random.random() * 3", -3, 0),
        ("random.randint(-5, 5)", -5, 5),
        ("np.random.randint(4)", 0, 3),
        ("random.randrange(1, 200)", 1, 199),
        ("random.choice([0, 90, 180])", 0, 180),
        ("LEAST", 0.8, 0.8),
    ],
)
def test_a_range_is_read(text: str, low: float, high: float) -> None:
    script, node = with_last(HEAD + text)
    drawn = Numbers(script).read(node)
    assert drawn is not None
    assert (drawn.low, drawn.high) == pytest.approx((low, high))
    assert drawn.literal
    assert (drawn.call is None) == (text == "LEAST")
    assert drawn.whole == any(w in text for w in ("rand(i", "randint", "range", "choi"))


@pytest.mark.parametrize(
    "text",
    [
        "random.random() * random.random()",
        "random.random() ** 2",
        "1 / random.random()",
        "random.random() / 0",
        "np.random.rand(3)",
        "uniform(low, 2)",
        "uniform(random.random(), 2)",
        "np.random.uniform(0, 1, 8)",
        "np.random.uniform(0, 1, size=8)",
        "random.randint(a, 5)",
        "random.randint(5, 1)",
        "random.choice(angles)",
        "random.choice([])",
        "random.choice(['a', 'b'])",
        "f(random.random())",
        "-f(1)",
        "True",
        "'text'",
    ],
)
def test_what_is_no_even_draw_is_not_read(text: str) -> None:
    script, node = with_last(HEAD + text)
    assert Numbers(script).read(node) is None


def test_names_are_followed_within_their_function_alone() -> None:
    script = script_of(
        HEAD + "angle = random.random()\n"
        "def f(given=0.5):\n"
        "    inner = random.random()\n"
        "    return inner, angle, given\n"
    )
    numbers = Numbers(script)
    returned = next(iter(script.index.all(ast.Return))).value
    assert isinstance(returned, ast.Tuple)
    inner, outer, given = map(numbers.read, returned.elts)
    assert inner is not None
    assert inner.call is not None
    assert outer is None
    assert given is not None
    assert not given.literal, "a caller may give another one"


def test_names_that_lead_in_a_circle_end() -> None:
    text = "a = b\nb = a\n" + "\n".join(f"c{n} = c{n + 1} + 1" for n in range(9))
    script, node = with_last(f"{HEAD}{text}\nc9 = random.random()\nc0")
    assert Numbers(script).read(node) is None


@pytest.mark.parametrize(
    "text,p",
    [
        ("random.random() < 0.3", 0.3),
        ("random.random() <= 0.3", 0.3),
        ("random.random() > 0.3", 0.7),
        ("0.3 > random.random()", 0.3),
        ("0.3 <= random.random()", 0.7),
        ("random.random() < 7", 1),
        ("random.random() < -7", 0),
        ("not random.random() < 0.3", 0.7),
        ("uniform(-1, 1) > 0.5", 0.25),
        ("random.randint(0, 1)", 0.5),
        ("random.randint(0, 1) == 1", 0.5),
        ("random.randint(0, 3) != 1", 0.75),
        ("np.random.randint(4) < 1", 0.25),
        ("np.random.randint(4) <= 1", 0.5),
        ("2 > np.random.randint(4)", 0.5),
        ("np.random.randint(4) >= 3", 0.25),
        ("random.choice([True, False])", 0.5),
        ("np.random.rand() < LEAST", 0.8),
    ],
)
def test_how_often_a_test_holds(text: str, p: float) -> None:
    script, node = with_last(HEAD + text)
    chance = Numbers(script).chance(node)
    assert chance is not None
    assert chance.p == pytest.approx(p)


@pytest.mark.parametrize(
    "text",
    [
        "random.random()",
        "random.random() == 0.5",
        "0.2 < random.random() < 0.5",
        "random.random() < random.random()",
        "0.2 < 0.5",
        "random.random() < chance",
        "random.randint(0, 3) in (1, 2)",
        "uniform(1, 1) < 1",
        "not given",
        "random.randint(0, 500)",
    ],
)
def test_tests_that_are_not_understood(text: str) -> None:
    script, node = with_last(HEAD + text)
    assert Numbers(script).chance(node) is None


@pytest.mark.parametrize(
    "text,width",
    [
        ("np.random.normal(0, 0.1, x.shape)", 0.1),
        ("np.random.normal(scale=0.2, size=x.shape)", 0.2),
        ("np.random.normal(loc=0, scale=0.2, size=x.shape) * 0.5", 0.1),
        ("torch.randn_like(x) * 0.05", 0.05),
        ("0.05 * np.random.randn(*x.shape)", 0.05),
        ("torch.randn(x.shape)", 1.0),
    ],
)
def test_noise_has_a_deviation(text: str, width: float) -> None:
    script, node = with_last(HEAD + text)
    drawn = deviation(script, node)
    assert drawn is not None
    assert drawn.low == drawn.high == pytest.approx(width)


@pytest.mark.parametrize(
    "text",
    [
        "np.random.normal(0, 0.1)",
        "np.random.normal(1, 0.1, x.shape)",
        "np.random.normal(m, 0.1, x.shape)",
        "np.random.normal(0, s, x.shape)",
        "torch.randn_like(x) * s",
        "torch.randn_like(x) * random.random()",
        "np.random.rand(*x.shape)",
        "x * y",
        "x",
    ],
)
def test_what_is_no_noise_of_one_deviation(text: str) -> None:
    script, node = with_last(HEAD + text)
    assert deviation(script, node) is None
