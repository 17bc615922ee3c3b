"""Models that stay on the host while their batches go to a device."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_source
from gpulint.finding import Confidence
from gpulint.registry import select_rules
from gpulint.source import Source

LOW, HIGH = Confidence.LOW, Confidence.HIGH

PROGRAM = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, device=None):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x)


def make():
    return Net().cuda()


def place(model):
    model.cuda()


def train(loader, device):
    model = Net()
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in loader:
        x = x.to(device)
        loss = model(x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())


train(torch.utils.data.DataLoader(range(9)), torch.device("cuda"))
"""


def confidence(text: str) -> Confidence:
    """Of the wait in the training loop."""
    options = Options(select_rules(("GPU106",)))
    (found,) = check_source(Source(Path("a.py"), text), options).findings
    return found.confidence


def test_a_model_that_is_never_moved() -> None:
    assert confidence(PROGRAM) is LOW


@pytest.mark.parametrize(
    "old, new",
    [
        ("model.train()", "model.to(device)"),
        ("model = Net()", "model = Net().to(device)"),
        ("model = Net()", "model = Net(device)"),
        ("model = Net()", "model = make()"),
        ("model.train()", "model = nn.DataParallel(model)"),
        ("model.train()", "place(model)"),
        ("super().__init__()\n", "super().__init__()\n        self.cuda()\n"),
        ("import torch\n", "import torch\n\ntorch.set_default_device('cuda')\n"),
        ("model(x)", "model(x.cpu())"),
    ],
)
def test_models_that_may_be_moved(old: str, new: str) -> None:
    text = PROGRAM.replace(old, new, 1)
    assert text != PROGRAM
    assert confidence(text) is HIGH
