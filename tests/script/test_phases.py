"""Sines of what a layer computes, and those that encode places and times."""

from __future__ import annotations

import pytest

from gpulint.script.modelling.networks import has_phases

from .code import script_of

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
  def __init__(self, omega):
    super().__init__()
    self.omega, self.linear = omega, nn.Linear(2, 64)
    self.encode = Encoding()

  def forward(self, x):
    {}

model = Net(30).cuda()
optimizer = torch.optim.Adam(model.parameters())
for x, y in loader:
  loss = ((model(x.cuda()) - y.cuda()) ** 2).mean()
  loss.backward()
  optimizer.step()
"""


@pytest.mark.parametrize(
    "forward, phases",
    [
        ("return torch.sin(self.omega * self.linear(x))", True),
        ("return self.linear(x).mul(self.omega).sin()", True),
        ("turns = self.linear(x)\n    return torch.cos(turns * 30)", True),
        ("return self.linear(torch.sin(x))", False),
        ("return self.linear(x) + torch.sin(self.encode(x))", False),
        ("return self.linear(x) + torch.sin(x.float() / 64)", False),
        ("return torch.tanh(self.linear(x))", False),
    ],
)
def test_sines_for_activations(forward: str, phases: bool) -> None:
    assert has_phases(script_of(MODEL.format(forward))) is phases
