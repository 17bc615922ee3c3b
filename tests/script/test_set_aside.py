"""Folders of other people's code, and of what a project has left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.finding import Confidence
from tests.script.test_doubts import LOOP, MAIN, confidences


@pytest.mark.parametrize(
    "folder, sure",
    [
        ("third_party/net", Confidence.LOW),
        ("net/External", Confidence.LOW),
        ("submodules/GAN", Confidence.LOW),
        ("old", Confidence.LOW),
        ("net", Confidence.HIGH),
        ("threshold", Confidence.HIGH),
    ],
)
def test_folders_that_nobody_looks_after(
    tmp_path: Path, folder: str, sure: Confidence
) -> None:
    """As they are called in the project: it may lie in a folder of such a name."""
    project = tmp_path / "old" / "third_party"
    files = {".git/HEAD": "", f"{folder}/engine.py": LOOP, f"{folder}/main.py": MAIN}
    found = confidences(project, files, f"{folder}/engine.py")
    assert found[11] is sure
