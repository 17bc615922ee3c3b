"""Devices that a program's own defaults settle: nothing goes to a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_source
from gpulint.registry import select_rules
from gpulint.source import Source

PROGRAM = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


class Config:
    def __init__(self, size=64, no_cuda=True):
        self.size = size
        self.no_cuda = no_cuda


def train(model, loader, optimizer, device):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())


def main():
    config = Config()
    use_cuda = not config.no_cuda and torch.cuda.is_available()
    device = torch.device("cuda" if use_cuda else "cpu")
    data = datasets.MNIST("data", transform=transforms.ToTensor())
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, DataLoader(data, batch_size=config.size), optimizer, device)


if __name__ == "__main__":
    main()
"""


def codes(text: str) -> set[str]:
    options = Options(select_rules(("GPU106", "GPU401")))
    found = check_source(Source(Path("a.py"), text), options).findings
    return {f.code for f in found}


def test_a_default_that_no_call_replaces() -> None:
    assert codes(PROGRAM) == set()


@pytest.mark.parametrize(
    "old, new",
    [
        ("no_cuda=True", "no_cuda=False"),
        ("Config()", "Config(no_cuda=False)"),
        ("Config()", "Config(**given)"),
        ("    main()\n", "    print(Config(64, False))\n    main()\n"),
        ('if __name__ == "__main__":\n    main()\n', ""),
        ("not config.no_cuda and ", ""),
    ],
)
def test_a_device_that_may_be_a_gpu(old: str, new: str) -> None:
    assert old in PROGRAM
    assert "GPU106" in codes(PROGRAM.replace(old, new))
