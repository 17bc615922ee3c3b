"""Namespaces of settings that one file makes, others read, and others set."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.index import Evaluator, Resolver
from tests.index.test_importers import index_of

MADE = """\
from easydict import EasyDict

CONF = EasyDict()
CONF.ML = EasyDict()
CONF.ML.n = 4
"""
IMPORTED = "from made import CONF\n"


@pytest.mark.parametrize(
    "text, sure",
    [
        ("", True),
        ("print(CONF.ML.n)\n", True),
        ("CONF.ML.m = x\n", True),
        ("def f():\n    CONF.ML.n = x\n", False),
        ("def f(c):\n    c.ML.n = x\nf(CONF)\n", False),
        ("def f():\n    c = CONF\n    m = c.ML\n    m.n = x\n", False),
        ("import made\ndef f():\n    made.CONF.ML.n = x\n", False),
        ("class A:\n  def __init__(self):\n    self.c = CONF\n    self.c.ML.n = x\n", False),
        ("def f():\n    CONF.ML.n += 1\n", False),
        ("def f():\n    CONF.ML.n, y = x\n", False),
        ("def f(k):\n    setattr(CONF, k, x)\n", False),
    ],
)  # fmt: skip
def test_what_other_files_set(tmp_path: Path, text: str, sure: bool) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "made.py").write_text(MADE)
    (tmp_path / "sets.py").write_text(IMPORTED + text)
    (tmp_path / "reads.py").write_text(f"{IMPORTED}use(CONF.ML.n)\n")
    index = index_of(tmp_path / "reads.py")
    (call,) = index.calls["use"]
    found = Evaluator(Resolver(index)).values(call.args[0])
    assert found.complete is sure
    assert [v.constant for v in found.known if sure] == [4] * sure
