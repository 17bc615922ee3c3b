"""Files that nothing but tests of a project import."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.finding import Confidence
from tests.script.test_doubts import LOOP, confidences

LOW, HIGH = Confidence.LOW, Confidence.HIGH

TEST = """\
from engine import assess
from parts import loader, model


def test_assess():
    assert assess(model, loader) is None


test_assess()
"""
TRAIN = """\
from parts import loader, model, optimizer

if __name__ == "__main__":
    for x, y in loader:
        model(x, y).backward()
        optimizer.step()
"""
ADDS = """\
import sys

sys.path.append("../nets")
from engine import assess
"""


@pytest.mark.parametrize(
    "files, sure",
    [
        ({"../train.py": TRAIN}, LOW),
        ({}, HIGH),
        ({"../train.py": TRAIN, "main.py": TEST.replace("test_", "")}, HIGH),
        ({"../train.py": TRAIN, "../lib/use.py": ADDS}, HIGH),
        ({"../train.py": TRAIN + "    start('engine.py')\n"}, HIGH),
        ({"../train.py": TRAIN, "../README.md": "    import engine\n"}, HIGH),
        ({"../train.py": TRAIN, "../setup.py": "setup(py_modules=['nets'])"}, LOW),
        ({"../unit_test.py": TRAIN.replace("if __", "import unittest\nif __")}, HIGH),
    ],
    ids=[
        "beside a training",
        "alone",
        "another program",
        "a module elsewhere",
        "named",
        "described",
        "no package",
        "a test that trains",
    ],
)
def test_a_file_for_tests(
    tmp_path: Path, files: dict[str, str], sure: Confidence
) -> None:
    files = {"engine.py": LOOP, "unit_test.py": TEST, "../.git/HEAD": "", **files}
    assert confidences(tmp_path / "nets", files)[19] is sure
