"""The LibCST tree of a file: what it finds, and how it says that it cannot."""

from __future__ import annotations

import ast
from pathlib import Path

import libcst as cst
import pytest

from gpulint.script.tree import Tree, with_deep_stack
from gpulint.source import Source, SourceError

TEXT = "x = 1\nif (a.b(c, d=2)):\n    y = {'k': a[0]}\n"


def source_of(text: str) -> Source:
    return Source(Path("a.py"), text)


def test_every_expression_has_its_node() -> None:
    tree = Tree(source_of(TEXT))
    wanted = (ast.Call, ast.Name, ast.Attribute, ast.Subscript, ast.keyword, ast.Dict)
    nodes = [n for n in ast.walk(ast.parse(TEXT)) if isinstance(n, wanted)]
    for node in nodes:
        start, end = tree.span(tree.find(node))
        assert TEXT[start:end].strip("()") in ast.get_source_segment(TEXT, node)
    assert len(nodes) == 10


def test_an_expression_of_another_file_is_an_error() -> None:
    tree = Tree(source_of(TEXT))
    node = ast.parse("x = 1\n\nz(1)\n").body[1].value  # type: ignore[attr-defined]
    with pytest.raises(LookupError, match="no LibCST node for Call"):
        tree.find(node)


def test_another_kind_of_node_at_a_place_is_not_taken() -> None:
    tree = Tree(source_of("x.y\n"))
    node = ast.parse("x()\n").body[0].value  # type: ignore[attr-defined]
    with pytest.raises(LookupError, match=r"a.py:1:1"):
        tree.find(node)


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
