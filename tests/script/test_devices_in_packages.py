"""How a device is asked for its type where others may import the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_path
from gpulint.index import Projects
from gpulint.registry import select_rules

TRAINER = """\
import torch


class Trainer:
    def __init__(self, model, device):
        self.device = device
        self.model = model.to(device)

    def train(self, loader, optimizer):
        for x, y in loader:
            x, y = x.to(self.device), y.to(self.device)
            loss = (self.model(x) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def main(model, loader, optimizer):
    Trainer(model, torch.device("cuda:0" if model else "cpu")).train(loader, optimizer)
"""


@pytest.mark.parametrize(
    "file, asks",
    [
        ("__init__.py", 'torch.device(self.device).type == "cuda"'),
        ("notes.txt", 'self.device.type == "cuda"'),
    ],
)
def test_a_device_that_others_may_give(tmp_path: Path, file: str, asks: str) -> None:
    (tmp_path / "trainer.py").write_text(TRAINER)
    (tmp_path / file).write_text("")
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(select_rules(("GPU102",)), projects=projects)
    (finding,) = check_path(tmp_path / "trainer.py", options).findings
    assert finding.fix is not None
    assert any(f"pin = {asks}" in edit.content for edit in finding.fix.edits)
