"""Who says how cuDNN chooses its algorithms, in programs of more files than are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_path
from gpulint.index.projects import Projects
from gpulint.registry import select_rules
from gpulint.script.modelling import autotuning

TRAIN = Path(__file__).parents[2] / "fixtures/gpu502_cudnn_autotune_off/bad.py"
SETS = "import torch\n\ntorch.backends.cudnn.benchmark = True\n"


@pytest.mark.parametrize(
    "files, found",
    [
        ({}, 1),
        ({"other.py": SETS}, 1),
        ({"fast.py": SETS, "deep.py": "import fast\n"}, 0),
        ({"fast.py": SETS, "deep.py": "import faster\n"}, 1),
    ],
    ids=["nobody", "another script", "a module", "of a similar name"],
)
def test_who_times_convolutions(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, str],
    found: int,
) -> None:
    monkeypatch.setattr(autotuning, "MAX_FILES", 1)  # not all files are seen
    given = {"train.py": TRAIN.read_text(), ".git/HEAD": "", **files}
    for name, text in given.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(select_rules(("GPU502",)), projects=projects)
    assert len(check_path(tmp_path / "train.py", options).findings) == found
