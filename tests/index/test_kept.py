"""Answers that are kept are whole ones."""

from __future__ import annotations

from gpulint.index.kept import Kept


def test_an_answer_is_found_once() -> None:
    kept, answers, asked = Kept(), {}, []
    for _ in range(2):
        assert kept.answer(answers, "x", lambda: asked.append("x") or 3) == 3
    assert asked == ["x"]


def test_what_a_cut_may_have_left_out_is_found_again() -> None:
    """Also by who asks for it: `outer` rests on `inner`, which met itself."""
    kept, answers = Kept(), {}
    found = iter([(), (), (1,)])

    def inner() -> tuple[int, ...]:
        its = next(found)
        if not its:
            kept.cut()
        return its

    def outer() -> tuple[int, ...]:
        return kept.answer(answers, "inner", inner)

    assert kept.answer(answers, "outer", outer) == ()
    assert answers == {}
    assert kept.answer(answers, "inner", inner) == ()
    assert kept.answer(answers, "outer", outer) == (1,)
    assert answers == {"inner": (1,), "outer": (1,)}
