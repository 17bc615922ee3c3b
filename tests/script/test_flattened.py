"""How large pictures are, by the linear layer that reads them flattened."""

from __future__ import annotations

from math import inf

import pytest

from gpulint.script.modelling.flattened import flattened_side
from gpulint.script.training.training_step import find_steps
from tests.script.code import script_of

NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 5)
        self.conv2 = nn.Conv2d(32, 64, 5)
        self.pool = nn.MaxPool2d(2)
        self.hidden = nn.Linear(64 * 4 * 4, 512)
        self.out = nn.Linear(512, 10)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = x.view(-1, 64 * 4 * 4)
        return self.out(F.relu(self.hidden(x)))
"""
STEPS = """
model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = F.cross_entropy(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
SEQUENTIAL = """
Net = None
model = nn.Sequential(
    nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.AvgPool2d(2),
    nn.Flatten(),
    nn.Linear(32 * 8 * 8, 10),
)
"""


def side_of(text: str) -> float:
    script = script_of(text + STEPS)
    (step,) = find_steps(script)
    return flattened_side(script, step)


def test_by_the_calls_of_forward() -> None:
    assert side_of(NET) == 28


def test_by_the_order_of_a_sequence() -> None:
    text = SEQUENTIAL + STEPS.replace("Net()", "model")
    script = script_of(text)
    (step,) = find_steps(script)
    assert flattened_side(script, step) == 31


@pytest.mark.parametrize(
    "old, new, side",
    [
        ("self.pool(F.relu(self.conv2(x)))", "F.max_pool2d(self.conv2(x), 2)", 28),
        ("self.pool(F.relu(self.conv2(x)))", "self.conv2(x)", 20),
        ("F.relu(self.conv2(x))", "self.block(self.conv2(x))", inf),
        ("F.relu(self.conv2(x))", "F.interpolate(self.conv2(x), 99)", inf),
        ("x = x.view(", "if deep:\n            x = grown(x)\n        x = x.view(", inf),
        ("nn.MaxPool2d(2)", "nn.AdaptiveAvgPool2d(4)", inf),
        ("nn.MaxPool2d(2)", "nn.MaxPool2d(size)", inf),
        ("nn.Linear(64 * 4 * 4, 512)", "nn.Linear(64 * 2 * 4, 512)", inf),
        ("nn.Linear(64 * 4 * 4, 512)", "nn.Linear(features, 512)", inf),
        ("nn.Conv2d(32, 64, 5)", "nn.Conv2d(32, 64, (5, 1))", inf),
    ],
)
def test_other_networks(old: str, new: str, side: float) -> None:
    assert side_of(NET.replace(old, new)) == side
