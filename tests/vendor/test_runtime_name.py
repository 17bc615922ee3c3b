"""Which modules and files are the runtime, by their names and first words."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.runtime_name import FIRST_WORDS, canonical, is_vendored, is_vendored_file


@pytest.mark.parametrize(
    "name,same",
    [
        ("_gpulint_runtime", "gpulint.runtime"),
        ("tools._my_gpulint_runtime.device", "gpulint.runtime.device"),
        ("gpulint.runtime.device", "gpulint.runtime.device"),
        ("torch.device", "torch.device"),
    ],
)
def test_a_vendored_module_is_the_package(name: str, same: str) -> None:
    assert canonical(name) == same
    assert is_vendored("tools._gpulint_runtime")
    assert not is_vendored("gpulint_runtime.device")


@pytest.mark.parametrize(
    "name,text,written",
    [
        ("_gpulint_runtime.py", f"{FIRST_WORDS}0.1\n", True),
        ("_gpulint_runtime.py", "import torch\n", False),
        ("_gpulint_runtime.py", "", False),
        ("train.py", f"{FIRST_WORDS}0.1\n", False),
    ],
)
def test_a_file_that_gpulint_wrote(
    name: str, text: str, written: bool, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    assert is_vendored_file(tmp_path / name) == written


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert not is_vendored_file(tmp_path / "_gpulint_runtime.py")
    (tmp_path / "gpulint_runtime.py").mkdir()
    assert not is_vendored_file(tmp_path / "gpulint_runtime.py")
