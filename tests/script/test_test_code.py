"""Which files are tests: by their folder in the project and by what stands in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.index import Project, build_index
from gpulint.script.reaching.test_code import is_test_code
from gpulint.source import Source

PLAIN = "import torch\ndef test(model, loader):\n  return model\n"
CASE = "import unittest\nclass StepTest(unittest.TestCase):\n  pass\n"
PYTEST = "import pytest\ndef test_step(model):\n  pass\n"
ASSERTS = "def test_step(model):\n  assert model\n"
EVALUATES = "import torch\ndef test_loop(model, loader):\n  return model(loader)\n"


def is_test(root: Path, path: str, text: str) -> bool:
    index = build_index(Source(root / path, text))
    Project(root, lambda folder: folder.rglob("*.py")).adopt(index)
    return is_test_code(index)


@pytest.mark.parametrize(
    "path, text",
    [
        ("tests/helpers/boring.py", PLAIN),
        ("package/tests/boring.py", PLAIN),
        ("tests_gpu/boring.py", PLAIN),
        ("unit_tests/boring.py", PLAIN),
        ("check.py", CASE),
        ("check.py", PYTEST),
        ("test_model.py", ASSERTS),
        ("model_test.py", ASSERTS),
        ("conftest.py", "import pytest\n"),
        ("package/test_utils.py", PLAIN),
        ("package/testing_util.py", PLAIN),
    ],
)
def test_tests(tmp_path: Path, path: str, text: str) -> None:
    assert is_test(tmp_path, path, text)


@pytest.mark.parametrize(
    "path, text",
    [
        ("train.py", PLAIN),
        ("test.py", PLAIN),
        ("train_test.py", EVALUATES),
        ("test_kitti.py", EVALUATES),
        ("test/evaluate.py", PLAIN),
        ("Test5_resnet/train.py", PLAIN),
        ("latest/train.py", PLAIN),
        ("train.py", ASSERTS),
    ],
)
def test_programs(tmp_path: Path, path: str, text: str) -> None:
    assert not is_test(tmp_path / "tests" / "repository", path, text)


@pytest.mark.parametrize("text, expected", [(CASE, True), (EVALUATES, False)])
def test_folder_is_what_its_files_are(
    tmp_path: Path, text: str, expected: bool
) -> None:
    folder = tmp_path / "test"
    folder.mkdir()
    (folder / "test_step.py").write_text(text, "utf-8")
    assert is_test(tmp_path, "test/models/boring.py", PLAIN) is expected
    assert not is_test(tmp_path, "train.py", PLAIN)


def test_a_file_of_no_project_has_no_folders() -> None:
    assert not is_test_code(build_index(Source(Path("/tests/train.py"), PLAIN)))
