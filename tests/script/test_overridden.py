"""Methods of classes that are only there for others, which have their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_path
from gpulint.finding import Confidence
from gpulint.index import Projects
from gpulint.registry import select_rules

LOW, HIGH = Confidence.LOW, Confidence.HIGH

BASE = """\
import torch
from torch.utils.data import DataLoader


class Trainer:
    def __init__(self, model, data):
        self.model = model.cuda()
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.loader = DataLoader(data, batch_size=64, num_workers=4, pin_memory=True)

    def run(self):
        for epoch in range(10):
            self.train()

    def train(self):
        for x, y in self.loader:
            loss = (self.model(x.cuda()) - y.cuda()).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
"""
HEIR = """\
import sys

from base import Trainer


class Own(Trainer):
    def train(self):
        for x, y in self.loader:
            self.step(x, y)


if __name__ == "__main__":
    Own(*sys.argv[1:]).run()
"""

MIXIN = """\
class Mixin:
    def train(self):
        print("begins")
        super().train()


"""


@pytest.mark.parametrize(
    "change, instead, sure",
    [
        ("", "", LOW),
        ("def train", "def fit", HIGH),
        ("            self.step(x, y)", "            super().train()", HIGH),
        ("    Own(*sys.argv[1:])", "    Trainer(*sys.argv[1:])", HIGH),
        ("import sys", "import sys\nfrom base import Trainer as Plain", LOW),
        ("    Own(*sys.argv[1:])", "    make(Trainer)", HIGH),
        ("    Own(*sys.argv[1:])", "    dict(plain=Trainer)[sys.argv[1]](x)", HIGH),
        ("import sys", "import sys\nprint('Trainer')", HIGH),
        ("import sys", "import sys\nclass More(Trainer):\n    pass", HIGH),
        ("import sys", "import sys\nclass More(Own):\n    pass", LOW),
        ("import sys", "import sys\nassert issubclass(Own, Trainer)", LOW),
        ("class Own(Trainer):", f"{MIXIN}class Own(Mixin, Trainer):", HIGH),
        ("import sys", "import sys\nimport importlib as i\ni.import_module(x)", HIGH),
    ],
    ids=[
        "own",
        "of another name",
        "asked by super",
        "made",
        "imported only",
        "handed on",
        "in a table",
        "named in a text",
        "an heir without",
        "an heir of the heir",
        "asked about",
        "asked by what stands before it",
        "modules by their names",
    ],
)
def test_what_all_heirs_have_of_their_own(
    tmp_path: Path, change: str, instead: str, sure: Confidence
) -> None:
    (tmp_path / ".git").mkdir()
    assert change in HEIR
    (tmp_path / "base.py").write_text(BASE)
    (tmp_path / "own.py").write_text(HEIR.replace(change, instead, 1))
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(select_rules(("GPU102",)), projects=projects)
    (found,) = check_path(tmp_path / "base.py", options).findings
    assert found.confidence is sure
