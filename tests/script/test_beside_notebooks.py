"""Functions of a file that notebooks beside it use, and those that they leave out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpulint.engine import Options, check_path
from gpulint.finding import Confidence
from gpulint.index import Projects
from gpulint.registry import select_rules
from tests.script.test_doubts import LOOP, confidences

LOW, HIGH = Confidence.LOW, Confidence.HIGH
PAD = "#" * 300_000  # as much as pictures take


def notebook(*lines: str) -> str:
    """A notebook of one cell."""
    cell = {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": [f"{line}\n" for line in lines],
    }
    return json.dumps(
        {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    )


@pytest.mark.parametrize(
    "more, sure",
    [
        ({"a.ipynb": notebook("from engine import Trainer", "Trainer().fit()")}, LOW),
        ({"a.ipynb": notebook("from engine import assess", "assess(1, 2)")}, HIGH),
        ({"a.ipynb": notebook("import engine", "engine.assess(1, 2)")}, HIGH),
        ({"a.ipynb": notebook("from other import Trainer")}, HIGH),
        ({"a.ipynb": notebook("from engine import Trainer", PAD)}, LOW),
        ({"a.ipynb": notebook("from engine import *", PAD, "assess(1, 2)")}, HIGH),
        ({}, HIGH),
    ],
)
def test_what_notebooks_leave_out(
    tmp_path: Path, more: dict[str, str], sure: Confidence
) -> None:
    files = {"engine.py": LOOP, ".git/HEAD": "", **more}
    assert confidences(tmp_path, files)[19] is sure


def test_notebooks_that_are_too_large_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpulint.script.reaching.unused.MAX_NOTEBOOKS", 1000)
    text = notebook("from engine import Trainer", PAD)
    files = {"engine.py": LOOP, ".git/HEAD": "", "a.ipynb": text}
    assert confidences(tmp_path, files)[19] is HIGH


READER = """\
import torch


class Reader:
    def __init__(self, values, **options):
        self.values = values
        self.device = options.get("device", "cpu")

    def read(self):
        return torch.from_numpy(self.values).to(self.device)
"""
READS = (
    "import numpy as np",
    "import torch",
    "from torch.utils.data import DataLoader, TensorDataset",
    "from reader import Reader",
    "values = Reader(np.ones((1000, 8))).read()[:900]",
    "model = torch.nn.Linear(8, 8).cuda()",
    "loader = DataLoader(TensorDataset(values, values), 50, num_workers=2)",
    "for x, y in loader:",
    "    loss = (model(x.cuda()) - y.cuda()).square().mean()",
    "    loss.backward()",
)


@pytest.mark.parametrize("given, found", [("", [7]), (', device="cuda"', [])])
def test_what_a_notebook_gives_a_class(
    tmp_path: Path, given: str, found: list[int]
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "reader.py").write_text(READER)
    (tmp_path / "train.py").write_text("from reader import Reader\nReader([])\n")
    lines = [line.replace("8)))", f"8)){given})") for line in READS]
    book = tmp_path / "train.ipynb"
    book.write_text(notebook(*lines))
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(select_rules(("GPU202",)), projects=projects)
    rows = [finding.place.start.row for finding in check_path(book, options).findings]
    assert rows == [row + 1 for row in found]  # below the head of the cell


@pytest.mark.parametrize(
    "said, more, sure",
    [
        ("from net import Net", {}, LOW),
        ("from engine import assess", {}, HIGH),
        ("from net import Net", {"scripts/net/__init__.py": ""}, HIGH),
    ],
    ids=["the package", "the file", "a package of that name itself"],
)
def test_a_notebook_about_the_package_of_a_name(
    tmp_path: Path, said: str, more: dict[str, str], sure: Confidence
) -> None:
    """It asks for nothing of a folder of that name, whose program does not start."""
    main = "from engine import assess\nfrom net.parts import gone\n\nrun(assess)\n"
    files = {
        "src/net/__init__.py": "class Net: pass\n",
        "src/net/parts.py": "size = 1\n",
        "scripts/net/engine.py": LOOP,
        "scripts/net/main.py": f"{main}\nif __name__ == '__main__':\n    print()\n",
        "a.ipynb": notebook(said),
        ".git/HEAD": "",
        **more,
    }
    assert confidences(tmp_path, files, "scripts/net/engine.py")[19] is sure
