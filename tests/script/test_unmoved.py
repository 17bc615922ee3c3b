"""Models that stay on the host, whether their batches go to a device or not."""

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
    assert confidence(PROGRAM.replace("model(x)", "model(x.cpu())")) is LOW


def test_another_model_of_the_program_is_moved() -> None:
    other = "\n\nother = Net().cuda()\nfor x in loaded:\n    other(x.cuda())\n"
    unmoved = PROGRAM.replace("        x = x.to(device)\n", "") + other
    moved = unmoved.replace("model = Net()", "model = Net().cuda()")
    assert confidence(unmoved) is LOW
    assert confidence(moved) is HIGH


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
    ],
)
def test_models_that_may_be_moved(old: str, new: str) -> None:
    text = PROGRAM.replace(old, new, 1)
    assert text != PROGRAM
    assert confidence(text) is HIGH


NOTEBOOK = """\
import torch
from torchvision import models

from project import given, make_loader, make_net, summarize

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


def train(model, loader, optimizer):
    best = model.state_dict()
    for x in loader:
        loss = model(x.to(device)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
    model.load_state_dict(best)
    return model


net = models.alexnet(weights="DEFAULT")
print(net.features)
net.classifier[6] = torch.nn.Linear(4096, 2)
net.fc = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net = train(net, make_loader(device), optimizer)
train(net, make_loader(device), optimizer)
"""


@pytest.mark.parametrize(
    "old, new, sure",
    [
        ("", "", LOW),
        ("print(net.features)", "net.features.to(device)", HIGH),
        ("print(net.features)", "net.to(device)", HIGH),
        ("print(net.features)", "summarize(net)", HIGH),
        ("print(net.features)", "nets = [net]", HIGH),
        ('(weights="DEFAULT")', "().to(device)", HIGH),
        ("torch.nn.Linear(4096, 2)", "torch.nn.Linear(4096, 2).to(device)", HIGH),
        ("Linear(2, 2)", "Linear(2, 2, device=device)", HIGH),
        ("    best = model.state_dict()", "    best = model.cuda()", HIGH),
        ("train(net, make_loader(device), optimizer)\n", "train(*given)\n", HIGH),
        ("models.alexnet", "make_net", HIGH),
        ("from torchvision import models", "from mine import models", HIGH),
        ("\nnet = train", "\nother = models.alexnet().cuda()\nnet = train(other", HIGH),
    ],
)
def test_models_that_functions_are_given(old: str, new: str, sure: Confidence) -> None:
    text = NOTEBOOK.replace(old, new, 1)
    if new.startswith("\nother"):
        text = text.replace("train(other(net", "train(other")
    assert confidence(text) is sure


def test_loaders_and_inner_loops_of_such_models() -> None:
    loader = "torch.utils.data.DataLoader(range(99), num_workers=4)"
    text = NOTEBOOK.replace("make_loader(device)", "loader")
    text = text.replace("net = models", f"loader = {loader}\nnet = models", 1)
    text = text.replace("        print(loss.item())", "        show(loss)")
    text = text.replace(
        "show(loss)", "for i in range(8):\n            print(int(x[i]))"
    )
    text = text.replace("model(x.to(device))", "model(x)").replace(
        "    for x in loader:\n", "    for x in loader:\n        x = x.to(device)\n"
    )
    options = Options(select_rules(("GPU109", "GPU202")))
    for moved, sure in (("", LOW), (".to(device)", HIGH)):
        its = text.replace('alexnet(weights="DEFAULT")', f"alexnet(){moved}")
        found = check_source(Source(Path("a.py"), its), options).findings
        assert {f.code: f.confidence for f in found} == {"GPU109": sure, "GPU202": sure}


LOSS = """\
import torch
from torch import nn

from project import loader, model, optimizer


class Smooth(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.{}

    def forward(self, x, y):
        return self.inner(x).mean()


def train(criterion, device):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = criterion(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())


criterion = Smooth()
train(criterion, torch.device("cuda"))
"""


@pytest.mark.parametrize(
    "inner, sure", [("LogSoftmax(1)", HIGH), ("Linear(4, 4)", LOW)]
)
def test_losses_without_weights(inner: str, sure: Confidence) -> None:
    assert confidence(LOSS.format(inner)) is sure
