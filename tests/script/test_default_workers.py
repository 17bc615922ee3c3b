"""Options for the number of workers that are 0 by default, where more is not known."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_path
from gpulint.index import Projects
from gpulint.registry import select_rules

LOADERS = """
from torch.utils.data import DataLoader

from rows import Rows


def loaders(size, workers=0):
    return DataLoader(Rows(), size, num_workers=workers)
"""
TRAIN = """
import argparse

import torch

from loaders import loaders
from net import Net

parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=0)
args = parser.parse_args()
device = torch.device("cuda")
net = Net().to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loaders(64, args.workers):
    loss = torch.nn.functional.cross_entropy(net(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
TEST = """
import pickle

import torch

from loaders import loaders
from net import Net

args = pickle.load(open("args.pickle", "rb"))
device = torch.device("cuda")
net = Net().to(device).eval()
with torch.no_grad():
    for x, y in loaders(64, args.workers):
        print(net(x.to(device)).argmax(1) == y.to(device))
"""
SHOW = """
from loaders import loaders

for x, y in loaders(1, workers=1):
    print(x, y)
"""


@pytest.mark.parametrize(
    "file, text, sure",
    [
        ("README.md", "", "low"),
        ("run.sh", "python train.py\n", "low"),
        ("run.sh", "python train.py --workers 8\n", "high"),
        ("show.py", SHOW.replace("print(x, y)", "net(x.cuda())"), "high"),
        ("train.py", TRAIN.replace("default=0", "default=4"), "high"),
        ("other.py", TRAIN.replace("default=0", "default=4"), "high"),
        ("train.py", TRAIN.replace("args.workers", "find()"), "high"),
    ],
)
def test_options_that_ask_for_none(
    tmp_path: Path, file: str, text: str, sure: str
) -> None:
    files = {"loaders.py": LOADERS, "train.py": TRAIN, "test.py": TEST, "show.py": SHOW}
    for name, content in (files | {file: text}).items():
        (tmp_path / name).write_text(content)
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(select_rules(("GPU202",)), projects=projects)
    found = check_path(tmp_path / "loaders.py", options).findings
    assert [finding.confidence.value for finding in found] == [sure]
