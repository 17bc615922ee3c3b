"""Batches of PyG, as the release that a project pins has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.dependencies import find_versions, forget
from gpulint.engine import Options, check_path
from gpulint.finding import Confidence, Finding
from gpulint.index import Projects
from gpulint.registry import select_rules

TRAIN = """\
import torch
from torch_geometric.datasets import TUDataset
from torch_geometric.data import DataLoader
from torch_geometric.nn import GCNConv

loader = DataLoader(TUDataset("data", "ENZYMES"), batch_size=64, num_workers=4{})
device = torch.device("cuda")
model = GCNConv(3, 8).to(device)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(100):
    for batch in loader:
        batch = batch.to(device)
        loss = model(batch.x, batch.edge_index).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def found(folder: Path, code: str, pinned: str, more: str = "") -> list[Finding]:
    forget()
    (folder / ".git").mkdir()
    (folder / "requirements.txt").write_text(f"{pinned}\n")
    (folder / "train.py").write_text(TRAIN.format(more))
    projects = Projects(lambda root: sorted(p for p in root.rglob("*.*")))
    options = Options(
        select_rules((code,)),
        projects=projects,
        packages=tuple(find_versions(folder).items()),
    )
    return list(check_path(folder / "train.py", options).findings)


@pytest.mark.parametrize(
    "pinned, withheld, sure",
    [
        ("torch-geometric==1.0.3", True, Confidence.LOW),
        ("torch_geometric==1.4.3", True, Confidence.LOW),
        ("torch-geometric==1.5.0", True, Confidence.LOW),
        ("torch-geometric>=1.5", False, Confidence.HIGH),
        ("torch-geometric==1.7.2", False, Confidence.HIGH),
        ("torch-geometric>=2.0", False, Confidence.HIGH),
        ("numpy", False, Confidence.HIGH),
    ],
)
def test_the_first_graphs_take_no_options_and_are_not_pinned(
    tmp_path: Path, pinned: str, withheld: bool, sure: Confidence
) -> None:
    (its,) = found(tmp_path, "GPU102", pinned, ", pin_memory=True")
    assert (its.fix is None, its.confidence) == (withheld, sure)
