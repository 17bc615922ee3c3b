"""Answers that are kept are whole ones."""

from __future__ import annotations

from gpulint.index.answers import Answers


def test_an_answer_is_found_once() -> None:
    kept, answers, asked = Answers(), {}, []
    for _ in range(2):
        assert kept.whole(answers, "x", lambda: asked.append("x") or 3) == 3
    assert asked == ["x"]


def test_what_a_cut_may_have_left_out_is_found_again() -> None:
    """Also by who asks for it: `outer` rests on `inner`, which met itself."""
    kept, answers = Answers(), {}
    found = iter([(), (), (1,)])

    def inner() -> tuple[int, ...]:
        its = next(found)
        if not its:
            kept.cut()
        return its

    def outer() -> tuple[int, ...]:
        return kept.whole(answers, "inner", inner)

    assert kept.whole(answers, "outer", outer) == ()
    assert answers == {}
    assert kept.whole(answers, "inner", inner) == ()
    assert kept.whole(answers, "outer", outer) == (1,)
    assert answers == {"inner": (1,), "outer": (1,)}
