"""Which old torch is the newest that can run a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_source
from gpulint.index import build_index
from gpulint.registry import select_rules
from gpulint.script import Script
from gpulint.script.old_torch import runs_only_before
from gpulint.source import Source

ROOT = Path(__file__).resolve().parent.parent.parent


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


@pytest.mark.parametrize("newest, codes", [((1, 2), []), ((1, 13), ["GPU306"])])
def test_a_switch_is_off_for_good_where_torch_has_no_autocast(
    newest: tuple[int, int], codes: list[str]
) -> None:
    path = Path("fixtures/gpu306_amp_switched_off/bad.py")
    options = Options(select_rules(("GPU306",)), newest_torch=newest)
    found = check_source(Source(path, (ROOT / path).read_text("utf-8")), options)
    assert [finding.code for finding in found.findings] == codes
