"""How many GPUs settings give a program."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_path
from gpulint.finding import Confidence
from gpulint.index import Projects
from gpulint.registry import select_rules

LOW, HIGH = Confidence.LOW, Confidence.HIGH

TRAIN = """\
import json
import sys

import torch
from torch import nn


class Trainer:
    def __init__(self, model, config):
        self.device, cards = self.prepare(config["n_gpu"])
        self.model = model.to(self.device)
        if len(cards) > 1:
            self.model = nn.DataParallel(model, device_ids=cards)

    def prepare(self, wanted):
        there = torch.cuda.device_count()
        if wanted > there:
            wanted = there
        return torch.device("cuda:0"), list(range(wanted))

    def run(self, loader, optimizer):
        for x, y in loader:
            loss = nn.functional.cross_entropy(self.model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


with open(sys.argv[1]) as file:
    config = json.load(file)
Trainer(nn.Linear(4096, 4096), config).run(loader, optimizer)
"""
ONE, TWO = '{"n_gpu": 1}', '{"n_gpu": 2}'


@pytest.mark.parametrize(
    "old, new, files, sure",
    [
        ("", "", {"small.json": ONE, "large.json": ONE}, LOW),
        ("", "", {"small.yaml": "n_gpu: 1\n"}, LOW),
        ("", "", {"small.json": ONE, "large.json": TWO}, HIGH),
        ("", "", {"small.json": '{"epochs": 1}'}, HIGH),
        ('["n_gpu"]', ".n_gpu", {"small.json": ONE}, LOW),
        ("list(range(wanted))", "range(wanted)", {"small.json": ONE}, LOW),
        ("list(range(wanted))", "list(range(1, wanted))", {"small.json": ONE}, HIGH),
        ("wanted = there", "wanted = 8", {"small.json": ONE}, HIGH),
        ("Trainer(nn", "config['n_gpu'] = 4\nTrainer(nn", {"s.json": ONE}, HIGH),
        ("", "", {"small.json": ONE, "other.py": "options = ['--n_gpu']\n"}, HIGH),
        ("", "", {"small.json": ONE, "other.py": "x['n_gpu'] = y['n_gpu']\n"}, LOW),
        ("", "", {"small.json": ONE, "other.py": "config.n_gpu = 4\n"}, HIGH),
    ],
    ids=[
        "one each",
        "YAML",
        "two in one",
        "none",
        "an attribute",
        "a range",
        "another range",
        "a number",
        "set",
        "an option",
        "copied",
        "set as an attribute",
    ],
)  # fmt: skip
def test_as_many_as_settings_say(
    tmp_path: Path, old: str, new: str, files: dict[str, str], sure: Confidence
) -> None:
    assert old in TRAIN
    (tmp_path / ".git").mkdir()
    text = TRAIN.replace(old, new) if old else TRAIN
    for name, written in {"train.py": text, **files}.items():
        (tmp_path / name).write_text(written)
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(select_rules(("GPU701",)), projects=projects)
    found = check_path(tmp_path / "train.py", options).findings
    assert {f.confidence for f in found} == {sure}
