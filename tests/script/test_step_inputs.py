"""How many rows and positions a training step takes at most."""

from __future__ import annotations

from math import inf

import pytest

from gpulint.script.modelling.step_inputs import most_positions, most_rows
from gpulint.script.training.training_step import find_steps
from tests.script.code import script_of

STEP = """
from torch.utils.data import DataLoader, Dataset

class loader(Dataset):
    pass

model = nn.Linear(20, 30).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def train(model, batches_of_loader):
    for x, y in batches_of_loader:
        loss = F.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

loaders = [DataLoader(loader(d), batch_size=128) for d in data]
test_loader = DataLoader(loader(test_data))
train(model, loaders[0])
"""
TAKEN = """
model = nn.Linear(20, 30).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(0, len(data), 64):
    x = data[i : i + 64].float().cuda()
    loss = F.cross_entropy(model(x), target[i : i + 64])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "old, new, rows",
    [
        ("", "", 128),
        ("(test_data)", "(test_data), batch_size=1000", 1000),
        ("(test_data)", "(test_data), batch_size=size", inf),
        ("(test_data)", "(test_data), batch_sampler=sampler", inf),
        ("DataLoader(loader(test_data))", "FastLoader(test_data)", inf),
        ("batches_of_loader", "batches", inf),
    ],
)
def test_rows_of_one_of_several_loaders(old: str, new: str, rows: float) -> None:
    script = script_of(STEP.replace(old, new) if old else STEP)
    (step,) = find_steps(script)
    assert most_rows(script, step) == rows


@pytest.mark.parametrize(
    "old, new, rows",
    [
        ("", "", 64),
        ("data[i : i + 64]", "data[:64]", 64),
        ("data[i : i + 64]", "data[order[i : i + 64]]", 64),
        ("data[i : i + 64]", "data[i : i + 64, :20]", 64),
        ("data[i : i + 64]", "data[i:end]", inf),
        ("data[i : i + 64]", "data[start : i + 64]", inf),
        ("data[i : i + 64]", "data[i:]", inf),
        (".float()", ".repeat(99, 1)", inf),
    ],
)
def test_rows_that_a_step_takes(old: str, new: str, rows: float) -> None:
    script = script_of(TAKEN.replace(old, new) if old else TAKEN)
    (step,) = find_steps(script)
    assert most_rows(script, step) == rows


@pytest.mark.parametrize(
    "shape, positions",
    [
        ("view(-1, 9, 1, 128)", 128),
        ("reshape((-1, 3, 32, 32))", 1024),
        ("view(-1, 9, 128)", 128),
        ("view(-1, 9, 1, length)", inf),
        ("view(-1, 3, 32, -1)", inf),
        ("view(-1, 20)", inf),
    ],
)
def test_positions_of_a_shape(shape: str, positions: float) -> None:
    script = script_of(
        TAKEN.replace("float()", shape).replace(".cuda()\n    l", "\n    l")
    )
    (step,) = find_steps(script)
    assert most_positions(script, step) == positions
