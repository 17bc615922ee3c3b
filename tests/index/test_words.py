"""Words of a text by their role: which attributes it sets."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.index.words import Words, has_word


def of(text: str, role: str) -> frozenset[str]:
    return Words(list, list, lambda _: text).of(Path("a.py"), role)


@pytest.mark.parametrize(
    "text, names",
    [
        ("args.amp = True", {"amp"}),
        ("    a.b, c.d = 1, 2", {"b", "d"}),
        ("(a.b, c['x'], d.e) = f()", {"b", "e"}),
        ("a.b: int = 1", {"b"}),
        ("a.b += 1", {"b"}),
        ("self.b = 1", set()),
        ("a.b == 1", set()),
        ("f(0.5, 0.25, c=1)", set()),
        ("a.b[.5, .25, 2] = 1", set()),
        ("scale = 1.\nd.e = 2", {"e"}),
    ],
)
def test_attributes_that_a_text_sets(text: str, names: set[str]) -> None:
    assert of(text, "writes") == names


def test_all_numbers_of_a_long_line_are_passed_over() -> None:
    table = ", ".join(["('Cutout', 0.5, 0.25)"] * 20_000)
    assert of(f"POLICY = [{table}]\nargs.amp = True\n", "writes") == {"amp"}


def test_whole_words() -> None:
    texts = {Path("a.py"): "from net import fit", Path("b.py"): "profit = outfit.x"}
    words = Words(lambda: texts, list, texts.get)
    assert words.search(("says", "fit")) == {Path("a.py")}
    assert words.search(("mentions", "fit")) == set(texts)


def test_modules_that_a_text_takes_from() -> None:
    text = (
        "from net import fit\nfrom a.b import c\n  from d import e\nfrom .f import g\n"
    )
    assert of(text, "takes") == {"net"}


@pytest.mark.parametrize(
    "text, found",
    [
        ("import train", True),
        ("python train.py", True),
        ("trainer, training and retrain", False),
        ("trainer of a train", True),
        ("a_train", False),
        ("train", True),
        ("", False),
    ],
)
def test_words_of_a_text(text: str, found: bool) -> None:
    assert has_word(text, "train") is found


def test_words_that_are_none() -> None:
    assert not has_word("version", "")
    assert has_word("aa-a-a", "a-a")
