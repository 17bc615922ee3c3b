"""A script that only says which device there is does not use it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.index import build_index
from gpulint.script import Script
from gpulint.source import Source


@pytest.mark.parametrize(
    "text, used",
    [
        ('device = "cuda" if torch.cuda.is_available() else "cpu"', False),
        ("print(torch.cuda.is_available())", False),
        ("cuda = torch.cuda.is_available()\nname = str(cuda)\nprint(name)", False),
        ("torch.cuda.manual_seed(0)", False),
        ("has = torch.cuda.is_available()\nif has:\n    model = place(model)", True),
        ("if torch.cuda.is_available():\n    model = place(model)", True),
        ("device = torch.cuda.current_device()", True),
        ("cuda = torch.cuda.is_available()\nfit(model, cuda=cuda)", True),
        ("fit(model, gpus=torch.cuda.device_count())", True),
        ("self.cuda = torch.cuda.is_available()", True),
        ("torch.cuda.synchronize()", True),
    ],
)
def test_what_is_done_with_the_answer(text: str, used: bool) -> None:
    source = Source(Path("train.py"), f"import torch\n{text}\n")
    assert Script(source, build_index(source)).uses_gpu is used
