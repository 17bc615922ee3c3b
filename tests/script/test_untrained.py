"""Modules of Lightning in projects that make no trainer."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_path
from gpulint.finding import Confidence
from gpulint.index import Projects
from gpulint.registry import select_rules

LOW, HIGH = Confidence.LOW, Confidence.HIGH

MODULE = """\
import pytorch_lightning as pl
import torch
from torch import nn


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def training_step(self, batch, number):
        return self.layer(batch + torch.zeros(8).to(self.device)).mean()


class NetTrainer(pl.Trainer):
    pass
"""
MAIN = """\
import sys

from net import Net

if __name__ == "__main__":
    net = Net.load_from_checkpoint(sys.argv[1])
    print(net.layer.weight)
"""


def confidence(folder: Path, files: dict[str, str]) -> Confidence:
    """Of GPU104 in `training_step`."""
    for name, text in files.items():
        (folder / name).write_text(text)
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(select_rules(("GPU104",)), projects=projects)
    (found,) = check_path(folder / "net.py", options).findings
    return found.confidence


@pytest.mark.parametrize(
    "more, sure",
    [
        ("", LOW),
        ("import pytorch_lightning as pl\npl.Trainer().fit(Net())\n", HIGH),
        ("from pytorch_lightning import Trainer as T\nT().fit(Net())\n", HIGH),
        ("from net import NetTrainer\nNetTrainer().fit(Net())\n", HIGH),
        ("import pytorch_lightning as pl\nclass Fit(pl.Trainer):\n    pass\n", HIGH),
        ("import pytorch_lightning as pl\nfit = builds(pl.Trainer, epochs=2)\n", HIGH),
        ("import lightning as L\nfabric = L.Fabric()\n", HIGH),
        ("make({'_target_': 'pytorch_lightning.Trainer'}).fit(net)\n", HIGH),
        ("for batch in sys.argv:\n    net.training_step(batch, 0)\n", HIGH),
        ("from sklearn import tree\ntree.Tree().fit(sys.argv)\n", LOW),
    ],
    ids=[
        "none",
        "made",
        "renamed",
        "derived",
        "of another name",
        "built",
        "Fabric",
        "by its name",
        "an own loop",
        "another fit",
    ],
)
def test_what_only_a_trainer_calls(tmp_path: Path, more: str, sure: Confidence) -> None:
    files = {"net.py": MODULE, "main.py": MAIN + more}
    assert confidence(tmp_path, files) is sure


@pytest.mark.parametrize(
    "name, text",
    [
        ("setup.py", "setup(name='net', packages=['net'])\n"),
        ("trainer.yaml", "_target_: pytorch_lightning.Trainer\n"),
        ("train.sh", "lightning fit --model net.Net\n"),
    ],
)
def test_trainers_of_others(tmp_path: Path, name: str, text: str) -> None:
    """A library's users make them, and so do a settings file and a command."""
    files = {"net.py": MODULE, "main.py": MAIN, name: text}
    assert confidence(tmp_path, files) is HIGH


def test_a_file_alone(tmp_path: Path) -> None:
    assert confidence(tmp_path, {"net.py": MODULE}) is HIGH
