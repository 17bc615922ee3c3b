"""Loops whose batches have another number of parts, or are none: something raises."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gpulint.engine import Options, check_source
from gpulint.finding import Confidence
from gpulint.registry import select_rules
from gpulint.source import Source

LOW, HIGH = Confidence.LOW, Confidence.HIGH

PROGRAM = """\
import torch
from torch.utils.data import DataLoader, Dataset, Subset


class Photos(Dataset):
    def __len__(self):
        return 9

    def __getitem__(self, index):
        return torch.ones(4), index


class More(Photos):
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x, y, x.mean()


class Broken(Photos):
    def __getitem__(self, index):
        return collate()


def stops(samples):
    for x, y in samples:
        pdb.set_trace()
    return samples


class Stops:
    def __call__(self, samples):
        for x, y in samples:
            pdb.set_trace()
        return samples


class Net(torch.nn.Module):
    def forward(self, x, scale=1.0):
        return x * scale


def collate(samples):
    return torch.stack([s[0] for s in samples]), samples, len(samples)


def unknown(samples):
    return [torch.stack(s) for s in zip(*samples)]


def stream(samples):
    yield samples, 1


model = torch.nn.Linear(4, 4).cuda()
net = Net().cuda()
wrapped = torch.nn.DataParallel(net).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = {loader}
for {loop}:
    {start}
    loss = model(x.cuda()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
LOADER = "DataLoader(Photos(), batch_size=4, num_workers=2)"


def confidence(loader: str, loop: str, start: str = "") -> Confidence:
    """Of the wait in the training loop."""
    text = PROGRAM.format(loader=loader, loop=loop, start=start)
    options = Options(select_rules(("GPU106",)))
    (found,) = check_source(Source(Path("a.py"), text), options).findings
    return found.confidence


@pytest.mark.parametrize(
    "loader, loop, start",
    [
        (LOADER, "x, y, z in loader", ""),
        (LOADER, "n, (x, y, z) in enumerate(loader)", ""),
        (LOADER, "n, batch in enumerate(loader)", "x, y, z = batch"),
        (LOADER.replace("Photos", "More"), "x, y in loader", ""),
        (LOADER.replace("2)", "2, collate_fn=collate)"), "x, y in loader", ""),
        (LOADER, "x, y in loader", "x = net(x, y, 1)"),
        (LOADER, "x, y in loader", "x = net(x, factor=2.0)"),
        (LOADER, "x, y in loader", "x = torch.nn.DataParallel(net)(x, y, 1)"),
        (LOADER, "x, y in loader", "x = wrapped(x, factor=2.0)"),
        (LOADER.replace("Photos", "Broken"), "x, y in loader", ""),
        (LOADER.replace("2)", "2, collate_fn=stops)"), "x, y in loader", ""),
        (LOADER.replace("2)", "2, collate_fn=Stops())"), "x, y in loader", ""),
    ],
)
def test_batches_of_other_parts(loader: str, loop: str, start: str) -> None:
    assert confidence(loader, loop, start) is LOW


@pytest.mark.parametrize(
    "loader, loop, start",
    [
        (LOADER, "x, y in loader", ""),
        (LOADER, "x, *y in loader", ""),
        (LOADER, "n, (x, y) in enumerate(loader)", ""),
        (LOADER, "batch in loader", "x, y = batch"),
        (LOADER, "batch in loader", "x, y, z = (*batch, 1)"),
        (LOADER.replace("Photos()", "Subset(a, b)"), "x, y, z in loader", ""),
        (LOADER.replace("2)", "2, collate_fn=collate)"), "x, y, z in loader", ""),
        (LOADER.replace("2)", "2, collate_fn=unknown)"), "x, y, z in loader", ""),
        (LOADER.replace("2)", "2, collate_fn=stream)"), "x, y, z in loader", ""),
        (LOADER, "x, y in loader", "x = net(x, scale=2.0)"),
        (LOADER, "x, y in loader", "x = wrapped(x, scale=2.0)"),
    ],
)
def test_batches_of_so_many_parts(loader: str, loop: str, start: str) -> None:
    assert confidence(loader, loop, start) is HIGH


def test_what_is_pinned_gets_the_layout_of_an_expanded_tensor() -> None:
    expanded = torch.ones(3).expand(4, 3)
    pinned = torch.empty_strided(expanded.size(), expanded.stride())
    with pytest.raises(RuntimeError, match="more than one element"):
        pinned.copy_(expanded)
