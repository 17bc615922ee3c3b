"""Which old torch is the newest that can run a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.index import build_index
from gpulint.script import Script
from gpulint.script.old_torch import runs_only_before
from gpulint.source import Source


def script(text: str, newest: tuple[int, int] | None = None) -> Script:
    source = Source(Path("train.py"), text)
    made = Script(source, build_index(source))
    made.newest_torch = newest
    return made


@pytest.mark.parametrize(
    "newest, old", [((1, 10), True), ((2, 3), True), ((2, 4), False), (None, False)]
)
def test_declared_release(newest: tuple[int, int] | None, old: bool) -> None:
    assert runs_only_before(script("import torch\n", newest), (2, 4)) is old


@pytest.mark.parametrize(
    "line, old",
    [
        ("from torch._six import inf", True),
        ("from torch import _six", True),
        ("import torch._six as six", True),
        ("import torch.utils.ffi", True),
        ("from torchtext.legacy.data import Field", True),
        ("from torchvision.models.utils import load_state_dict_from_url", True),
        ("from torchvision.transforms import functional_tensor", True),
        ("def f():\n    import torch._six", False),
        ("if OLD:\n    import torch._six", False),
        ("from ._six import inf", False),
        ("from torch import inf  # not torch._six", False),
        ("from torch._sixth import inf", False),
    ],
)
def test_modules_that_are_gone(line: str, old: bool) -> None:
    assert runs_only_before(script(f"{line}\n"), (2, 4)) is old


def test_modules_that_are_gone_later() -> None:
    text = "from torchvision.transforms import functional_tensor\n"
    assert not runs_only_before(script(text), (2, 0))
