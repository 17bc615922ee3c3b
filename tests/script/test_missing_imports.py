"""Imports of what the project lacks: a program that starts with one never runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.finding import Confidence
from tests.script.test_doubts import LOOP, MAIN, confidences

LOW, HIGH = Confidence.LOW, Confidence.HIGH
README = {"README.md": "# Net\n\nRun `python main.py`.\n", ".git/HEAD": ""}


@pytest.mark.parametrize(
    "statement, files, sure",
    [
        ("from center_loss import CenterLoss", {}, LOW),
        ("import rotation", {}, LOW),
        ("import numpy, loss_function", {}, LOW),
        ("import focal_loss", {"old/focal_loss.py": ""}, HIGH),
        ("import focal_loss", {"requirements.txt": "focal-loss\n"}, HIGH),
        ("import focal_loss", {"setup.py": "requires = ['focal_loss']\n"}, HIGH),
        ("import focal_loss", {"README.md": "pip install focal_loss\n"}, HIGH),
        ("import focal_loss", {".gitmodules": "[submodule]\n"}, HIGH),
        ("import sys\nsys.path.append('../old')\nimport focal_loss", {}, HIGH),
        ("try:\n    import focal_loss\nexcept ImportError:\n    pass", {}, HIGH),
        ("import focal_frob", {}, HIGH),
    ],
    ids=[
        "from",
        "import",
        "one of two",
        "elsewhere",
        "required",
        "set up",
        "prose",
        "submodule",
        "other folders",
        "without it",
        "a package",
    ],
)
def test_modules_that_were_left_out(
    tmp_path: Path, statement: str, files: dict[str, str], sure: Confidence
) -> None:
    given = {"engine.py": f"{statement}\n{LOOP}", "main.py": MAIN}
    found = confidences(tmp_path, README | given | files)
    assert found[11 + statement.count("\n") + 1] is sure


def test_a_single_file_may_have_modules_elsewhere(tmp_path: Path) -> None:
    files = {"engine.py": f"import focal_loss\n{LOOP}", "main.py": MAIN}
    assert confidences(tmp_path, {".git/HEAD": ""} | files)[12] is HIGH


@pytest.mark.parametrize(
    "call, beside, sure",
    [
        ("tools.init_run()", "def start():\n    pass\n", LOW),
        ("tools.start()", "def start():\n    pass\n", HIGH),
        ("tools.init_run()", "from runs import *\n", HIGH),
        ("tools.init_run()", "def __getattr__(name):\n    return print\n", HIGH),
        ("tools.init_run()", "globals().update(init_run=print)\n", HIGH),
    ],
    ids=["lacks it", "has it", "all of others", "makes names", "sets names"],
)
def test_a_module_that_lacks_what_is_called(
    tmp_path: Path, call: str, beside: str, sure: Confidence
) -> None:
    loop = "        for x, y in loader:\n"
    text = LOOP.replace(loop, f"        {call}\n{loop}", 1)
    files = {"engine.py": f"import tools\n{text}", "main.py": MAIN, "tools.py": beside}
    assert confidences(tmp_path, README | files)[13] is sure


def test_a_package_that_is_required_may_be_another(tmp_path: Path) -> None:
    loop = "        for x, y in loader:\n"
    text = LOOP.replace(loop, f"        tools.init_run()\n{loop}", 1)
    files = {"engine.py": f"import tools\n{text}", "main.py": MAIN}
    files["tools/__init__.py"] = "start = print\n"
    assert confidences(tmp_path, README | files)[13] is LOW
    assert confidences(tmp_path, {"requirements.txt": "tools\n"})[13] is HIGH
