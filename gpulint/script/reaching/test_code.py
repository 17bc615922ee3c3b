"""Whether a file tests a program: what its loops cost in time matters to nobody."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from gpulint.index import FileIndex
from gpulint.index.walk import dotted, walk

MAX_NEIGHBOURS = 5  # files beside one that are read to see what a folder is for
_FRAMEWORKS = frozenset(["pytest", "unittest"])
_NAME = re.compile(r"^test_|_tests?$|^conftest$")
_HELPER = re.compile(r"^test(ing)?_utils?$")  # a file, in whatever package
_FOLDER = re.compile(r"^((unit|integration|functional|e2e)[-_]?)?tests([-_]\w+)?$")
_MAYBE = re.compile(r"^((unit|integration|functional|e2e)[-_]?)?test(ing|_utils)?$")


def is_test_code(index: FileIndex) -> bool:
    """Whether a file holds tests, or lies with what tests use, in its project.

    Not by a name alone: `test.py` and `test_kitti.py` often evaluate a model, and so
    does `def test(model, loader)`.
    """
    if has_tests(index) or _HELPER.match(index.source.path.stem):
        return True
    folders = _folders(index)
    return any(_FOLDER.match(f.name) for f in folders) or any(
        _holds_tests(index, f) for f in folders if _MAYBE.match(f.name)
    )


def has_tests(index: FileIndex) -> bool:
    """Whether a file has test cases, judged by what stands in it."""
    if any(map(_is_test_case, index.all(ast.ClassDef))):
        return True
    modules = {v.partition(".")[0] for v in index.imported}
    tests = [f for f in index.functions if f.name.startswith("test_")]
    if not _NAME.search(index.source.path.stem):
        return "pytest" in modules and bool(tests)
    if modules & _FRAMEWORKS:
        return True
    return any(isinstance(n, ast.Assert) for f in tests for n in walk(*f.body))


def _is_test_case(node: ast.ClassDef) -> bool:
    """`class TransferTest(unittest.TestCase)`, or one of `tf.test.Benchmark`."""
    names = (dotted(base) or "" for base in node.bases)
    return any(name.endswith(("TestCase", "test.Benchmark")) for name in names)


def _folders(index: FileIndex) -> list[Path]:
    """The folders around a file, inside its project."""
    path = index.source.path
    root = index.project.root if index.project is not None else path.parent
    return [f for f in path.parents if root in f.parents]


def _holds_tests(index: FileIndex, folder: Path) -> bool:
    """Whether other files below a folder are tests: `test/` may evaluate a model."""
    project = index.project
    assert project is not None
    named = [path for path in project.below(folder) if _NAME.search(path.stem)]
    indexes = map(project.index, named[:MAX_NEIGHBOURS])
    return any(i is not None and has_tests(i) for i in indexes)
