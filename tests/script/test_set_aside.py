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
        ("_legacy", Confidence.LOW),
        ("archived/runs", Confidence.LOW),
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


def test_code_of_others_that_the_program_uses(tmp_path: Path) -> None:
    main = MAIN.replace("from engine", "from external.engine")
    files = {".git/HEAD": "", "external/engine.py": LOOP, "main.py": main}
    found = confidences(tmp_path, files, "external/engine.py")
    assert found[11] is Confidence.HIGH


@pytest.mark.parametrize(
    "files, sure",
    [
        (["old/run.py"], Confidence.LOW),
        (["old/run.py", "legacy/run.py"], Confidence.LOW),
        (["old/run.py", "run.py"], Confidence.HIGH),
    ],
)
def test_functions_that_old_programs_call(
    tmp_path: Path, files: list[str], sure: Confidence
) -> None:
    main = MAIN.replace("assess(model, loader)", "print(args)")
    run = "from engine import assess\nfrom parts import loader, model\n\n"
    given = dict.fromkeys(files, f"{run}assess(model, loader)\n")
    given |= {".git/HEAD": "", "engine.py": LOOP, "main.py": main}
    assert confidences(tmp_path, given)[19] is sure
