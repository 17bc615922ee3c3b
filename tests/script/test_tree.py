"""What needs LibCST: builders on nodes, and how it says that it cannot."""

from __future__ import annotations

from pathlib import Path

import libcst as cst
import pytest

from gpulint.script.rewriting.tree import Tree, with_deep_stack
from gpulint.source import Source, SourceError

TEXT = "x = 1\nif (a.b(c, d=2)):\n    y = {'k': a[0]}\n"


def source_of(text: str) -> Source:
    return Source(Path("a.py"), text)


def test_a_text_that_libcst_takes_has_a_tree() -> None:
    assert Tree(source_of(TEXT)).module.code == TEXT


def test_a_text_that_libcst_refuses_is_not_analysed() -> None:
    with pytest.raises(SourceError, match="not analysed"):
        with_deep_stack(lambda: cst.parse_module("x = = 1\n"))


def test_a_text_that_libcst_changes_is_not_analysed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = cst.parse_module("x = 2\n")
    monkeypatch.setattr(cst, "parse_module", lambda text: other)
    with pytest.raises(SourceError, match="does not give the text back"):
        Tree(source_of("x = 1\n"))


@pytest.mark.parametrize("error", [RecursionError, MemoryError])
def test_too_deep_for_any_stack_is_not_analysed(error: type[Exception]) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(SourceError, match="nested too deeply"):
        with_deep_stack(fail)


def test_other_errors_stay_as_they_are() -> None:
    with pytest.raises(ZeroDivisionError):
        with_deep_stack(lambda: 1 // 0)
