"""Scripts that list their packages themselves get no import of one they do not list."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, fix_source
from gpulint.finding import Effect
from gpulint.inline_metadata import leaves_out
from gpulint.registry import select_rules
from gpulint.source import Source

BLOCK = """\
# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "torch>=2.6",
#     {more}
# ]
# ///
"""
SCRIPT = """\
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return torch.tensor(list(Image.open(self.paths[index]).getdata()))


def train(model, optimizer, paths):
    device = torch.device("cuda")
    loader = DataLoader(Photos(paths), batch_size=8, pin_memory=True)
    for x in loader:
        loss = model(x.to(device)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    "text, left_out",
    [
        ("", False),
        ("# dependencies = []\n", False),
        ("# /// script\n# dependencies = []\n", False),
        ("# /// pyproject\n# dependencies = []\n# ///\n", False),
        ("# /// script\n# ///\n", False),
        ("# /// script\n#\n# ///\n", True),
        ("# /// script\n# dependencies = [\n# ///\n", True),
        (BLOCK.format(more='"pillow"'), True),
        (BLOCK.format(more='"gpulint-extras"'), True),
        (BLOCK.format(more='"pillow"').replace("\n", "\r\n"), True),
        (BLOCK.format(more='"gpulint"').replace("\n", "\r\n"), False),
        (BLOCK.format(more='"gpulint[runtime]>=1"'), False),
        (BLOCK.format(more='"Gpulint"'), False),
    ],
)
def test_what_a_block_lists(text: str, left_out: bool) -> None:
    assert leaves_out(text, "gpulint") is left_out


def test_its_releases_bound_what_is_written() -> None:
    block = BLOCK.format(more="\"accelerate == 1.0 ; python_version > '3.8'\"")
    installed = Source(Path("train.py"), block + SCRIPT).installed
    assert installed["torch"].lowest == (2, 6)
    assert installed["accelerate"].highest == (1, 0)
    assert Source(Path("train.py"), SCRIPT).installed == {}


@pytest.mark.parametrize(
    "block, vendor, wanted",
    [
        ("", False, "from gpulint import runtime"),
        (BLOCK.format(more='"pillow"'), False, None),
        (BLOCK.format(more='"gpulint"'), False, "from gpulint import runtime"),
        (BLOCK.format(more='"pillow"'), True, "import _gpulint_runtime as runtime"),
    ],
)
def test_rewrites_with_the_runtime(
    block: str, vendor: bool, wanted: str | None
) -> None:
    source = Source(Path("train.py"), block + SCRIPT)
    effects = frozenset(Effect)
    options = Options(select_rules(("GPU201",)), effects, vendor=vendor)
    fixed = fix_source(source, options)
    if wanted is None:
        (found,) = fixed.remaining
        assert fixed.text == source.text
        assert "in its own metadata" in (found.fix_withheld or "")
    else:
        assert wanted in fixed.text
