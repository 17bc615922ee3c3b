"""Whether a collate function gives NumPy's arrays alone, which nothing pins."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_source
from gpulint.registry import select_rules
from gpulint.source import Source

PROGRAM = """
import numpy as np
import torch
from torch.utils.data import DataLoader
from torchvision.models import resnet18

from data import Rows


def collate(rows):
    {body}


def main():
    device = torch.device("cuda")
    model = resnet18().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in DataLoader(Rows("train"), 64, num_workers=8, collate_fn=collate):
        loss = model(batch["x"].to(device)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    "body, pins",
    [
        ("return {'x': np.stack(rows)}", False),
        ("batch = {}; batch['x'] = np.stack(rows); return batch", False),
        ("batch: dict = {}; batch['x'] = np.stack(rows); return batch", False),
        ("batch = {'x': np.stack(rows)}; batch['y'] = batch['x']; return batch", True),
        ("return {'x': torch.stack(rows)}", True),
        ("batch = {}; batch['x'] = torch.stack(rows); return batch", True),
        ("batch: dict = {}; batch['x'] = torch.stack(rows); return batch", True),
        ("batch = {'y': np.ones(3)}; batch.update(x=torch.stack(rows)); return batch", True),
        ("batch = {'y': np.ones(3)}; batch.setdefault('x', rows); return batch", True),
        ("batch = {}; batch['x'], batch['y'] = torch.ones(3), np.ones(3); return batch", True),
        ("return {'x': [row for row in rows], 'y': np.ones(3)}", True),
    ],
)  # fmt: skip
def test_arrays_alone_have_nothing_to_pin(body: str, pins: bool) -> None:
    text = PROGRAM.format(body=body)
    options = Options(select_rules(("GPU202",)))
    found = check_source(Source(Path("/a/train.py"), text), options).findings
    assert bool(found) is pins
