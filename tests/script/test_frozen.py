"""Models that end their own gradients when they are made."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_source
from gpulint.index import Projects
from gpulint.registry import find_rule
from gpulint.source import Source

DISTANCE = """
from torch import nn


class Distance(nn.Module):
    def __init__(self, train=False):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 1, 1))
        {}

    def forward(self, images, others):
        return (self.layers(images) - self.layers(others)).abs().mean()
"""
EVALUATED = """
import torch
from distance import Distance

device = torch.device("cuda")
distance = Distance().to(device)


def validate(loader):
    distance.eval()
    total = 0
    for images, others in loader:
        total += distance(images.to(device), others.to(device))
    return total / len(loader.dataset)
"""
EACH = "for parameter in self.parameters():\n            parameter.requires_grad = {}"

SOME = (
    "for name, parameter in self.named_parameters():\n"
    "            if 'bias' in name:\n                parameter.requires_grad = False"
)


@pytest.mark.parametrize(
    "line, found",
    [
        ("", 1),
        (EACH.format("False"), 0),
        (EACH.format("True"), 1),
        (EACH.format("train"), 0),
        (SOME, 1),
        ("self.requires_grad_(False)", 0),
        ("self.requires_grad_()", 1),
        ("self.layers.requires_grad_(False)", 1),
    ],
    ids=[
        "plain",
        "each",
        "each on",
        "off by default",
        "some",
        "all",
        "all on",
        "a part",
    ],
)
def test_a_model_without_gradients(tmp_path: Path, line: str, found: int) -> None:
    (tmp_path / "distance.py").write_text(DISTANCE.format(line), "utf-8")
    path = tmp_path / "evaluate.py"
    path.write_text(EVALUATED, "utf-8")
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options((find_rule("GPU403"),), projects=projects)
    assert len(check_source(Source(path, EVALUATED), options).findings) == found
