"""Branches that no settings file of a project takes, where files are merged."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_path
from gpulint.finding import Confidence
from gpulint.index import Projects
from gpulint.registry import select_rules

DEFAULTS = """\
from yacs.config import CfgNode

_C = CfgNode()
_C.DATA = CfgNode()
_C.DATA.SAMPLER = "plain"
_C.DATA.SHUFFLED = False
cfg = _C.clone()
"""
TRAIN = """\
import argparse

import torch

from defaults import cfg
from model import model, optimizer

parser = argparse.ArgumentParser()
parser.add_argument("--config")
parser.add_argument("opts", nargs="*")
args = parser.parse_args()
cfg.merge_from_file(args.config)
cfg.merge_from_list(args.opts)
for x, y in torch.load("batches.pt"):
    loss = (model(x.cuda()) - y.cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if {test}:
        print(loss.item())
"""
TRIPLET = "DATA:\n  SAMPLER: triplet\n  SHUFFLED: true\nSEED: 3\n"
LOW, HIGH = Confidence.LOW, Confidence.HIGH


def sure(folder: Path, test: str, files: dict[str, str]) -> Confidence:
    (folder / ".git").mkdir()
    texts = {
        "defaults.py": DEFAULTS,
        "model.py": "import torch\nmodel = torch.nn.Linear(8, 8).cuda()\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n",
        "train.py": TRAIN.format(test=test),
        **files,
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    projects = Projects(
        lambda root: sorted(p for p in root.rglob("*.*") if p.is_file())
    )
    options = Options(select_rules(("GPU106",)), projects=projects)
    (its,) = check_path(folder / "train.py", options).findings
    return its.confidence


@pytest.mark.parametrize(
    "test, its",
    [
        ("cfg.DATA.SAMPLER == 'plain'", LOW),
        ("cfg.DATA.SAMPLER != 'triplet'", LOW),
        ("cfg.DATA.SAMPLER == 'triplet'", HIGH),
        ("not cfg.DATA.SHUFFLED", LOW),
        ("cfg.DATA.SHUFFLED", HIGH),
        ("cfg.DATA.SAMPLER in ('plain', 'mixed')", HIGH),  # not looked at
    ],
)
def test_what_all_files_decide(tmp_path: Path, test: str, its: Confidence) -> None:
    files = {"configs/a.yaml": TRIPLET, "configs/b.yaml": TRIPLET}
    assert sure(tmp_path, test, files) is its


@pytest.mark.parametrize(
    "files",
    [
        {"configs/b.yaml": "DATA:\n  SAMPLER: plain\n"},
        {"configs/b.yaml": "DATA:\n  SHUFFLED: true\n"},  # the default is left
        {"configs/b.yaml": "SEED: 3\n"},
        {"README.md": "```\npython train.py --config a.yaml DATA.SAMPLER plain\n```\n"},
        {"other.py": "from defaults import cfg\ncfg.DATA.SAMPLER = 'plain'\n"},
    ],
)
def test_what_another_file_may_choose(tmp_path: Path, files: dict[str, str]) -> None:
    files = {"configs/a.yaml": TRIPLET, **files}
    assert sure(tmp_path, "cfg.DATA.SAMPLER == 'plain'", files) is HIGH


def test_settings_that_nothing_merges(tmp_path: Path) -> None:
    files = {"configs/a.yaml": TRIPLET}
    files["train.py"] = TRAIN.replace("cfg.merge_from_file(args.config)\n", "").format(
        test="cfg.DATA.SAMPLER == 'plain'"
    )
    assert sure(tmp_path, "", files) is HIGH
