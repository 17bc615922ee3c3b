"""Samples that come back to the device from which another program saved them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_source
from gpulint.index import Projects
from gpulint.registry import find_rule
from gpulint.source import Source

TRAINED = """
import torch
from torch.utils.data import DataLoader, Dataset


class Latents(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return torch.load(self.paths[index])


def train(model, optimizer, paths, workers):
    loader = DataLoader(Latents(paths), batch_size=12, num_workers=workers)
    model.cuda()
    for latents in loader:
        loss = model(latents.to("cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
ENCODED = """
import torch


def encode(encoder, pictures, device):
    for path, picture in pictures.items():
        latent = encoder(picture.to(device))
        torch.save({}, path)
"""


@pytest.mark.parametrize(
    "saved, pinned",
    [
        ("latent", False),
        ("latent[0]", False),
        ("latent.cpu()", True),
        ("encoder.state_dict()", True),
        ("{'latent': latent}", True),
    ],
)
def test_what_another_file_saves(tmp_path: Path, saved: str, pinned: bool) -> None:
    (tmp_path / "encode.py").write_text(ENCODED.replace("{}", saved), "utf-8")
    path = tmp_path / "train.py"
    path.write_text(TRAINED, "utf-8")
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options((find_rule("GPU202"),), projects=projects)
    assert len(check_source(Source(path, TRAINED), options).findings) == pinned
