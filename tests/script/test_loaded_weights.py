"""Programs that ask what they load to be the model whose weights it holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.finding import Confidence
from tests.script.test_doubts import LOOP, confidences

LOW, HIGH = Confidence.LOW, Confidence.HIGH
SAVES = """\
import torch


def save(model, optimizer, path):
    torch.save({saved}, path)
"""
MAIN = """\
import sys

import torch
from engine import assess
from parts import loader, Model

{loaded}
assess(model, loader)
"""
EVAL = "model = torch.load(sys.argv[1])\nmodel.eval()"


@pytest.mark.parametrize(
    "saved, loaded, sure",
    [
        ("model.state_dict()", EVAL, LOW),
        ("{'model': model.state_dict()}", EVAL, LOW),
        ("model.state_dict()", "model = torch.load(sys.argv[1]).cuda()", LOW),
        ("model.state_dict()", "model = torch.load(sys.argv[1])\nmodel(loader)", LOW),
        ("model", EVAL, HIGH),
        ("weights_of(model)", EVAL, HIGH),
        ("model.state_dict()", EVAL.replace("sys.argv[1]", "'vgg19.pt'"), HIGH),
        ("model.state_dict()", "model = Model()\nmodel.eval()", HIGH),
        (
            "model.state_dict()",
            EVAL.replace("eval()", "keys()"),
            LOW,
        ),  # `assess` asks it
    ],
)
def test_what_is_loaded(
    tmp_path: Path, saved: str, loaded: str, sure: Confidence
) -> None:
    files = {
        ".git/HEAD": "",
        "engine.py": LOOP,
        "saves.py": SAVES.format(saved=saved),
        "main.py": MAIN.format(loaded=loaded),
    }
    assert confidences(tmp_path, files)[19] is sure
