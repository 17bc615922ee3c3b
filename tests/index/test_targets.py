"""Arguments that settings files give to classes they name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from gpulint.index import Projects
from gpulint.index.project import Project
from gpulint.index.targets import (
    is_given_beside,
    qualified_name,
    settings_arguments,
)
from gpulint.index.words import MAX_SETTINGS


def arguments(root: Path, owner: str, parameter: str) -> list[object]:
    (root / "pyproject.toml").touch()
    project = Projects(lambda folder: sorted(folder.rglob("*.py"))).of(root / "main.py")
    found = settings_arguments(project, owner, parameter)
    assert all(project.holder(node) is not None for node in found)
    return [n.value if isinstance(n, ast.Constant) else "?" for n in found]


@pytest.mark.parametrize(
    "text",
    [
        "_target_: src.data.Images\nworkers: 3\n",
        "data:\n  _target_: data.Images\n  workers: 3\n",
        "data: {target: src.data.Images, params: {workers: 3}}\n",
        "parts:\n  - target: 'src.data.Images'\n    params:\n      workers: 3\n",
        "data:\n  class_path: src.data.Images\n  init_args:\n    workers: 3\n",
        "class_path: Images\ninit_args: {workers: 3}\n",
    ],
)
def test_ways_to_name_a_class(tmp_path: Path, text: str) -> None:
    (tmp_path / "settings.yaml").write_text(text)
    assert arguments(tmp_path, "src.data.Images", "workers") == [3]


@pytest.mark.parametrize(
    "text",
    [
        "_target_: src.data.Videos\nworkers: 3\n",
        "_target_: other.data.Images\nworkers: 3\n",
        "_target_: src.data.Images\nbatch: 3\n",
        "_target_: Images\nworkers: 3\n",
        "target: src.data.Images\nworkers: 3\n",
        "class_path: src.data.Images\nworkers: 3\n",
        "class_path: src.data.Videos\ninit_args: {workers: 3}\n",
        "_target_: src.data.Images\nworkers: [3\n",
        "# _target_: src.data.Images\nworkers: 3\n",
    ],
)
def test_what_names_another(tmp_path: Path, text: str) -> None:
    (tmp_path / "settings.yaml").write_text(text)
    assert arguments(tmp_path, "src.data.Images", "workers") == []


@pytest.mark.parametrize(
    "package, found",
    [
        ("from .images import Images\n", [3]),
        ("from src.data.images import Images\n", [3]),
        ("from .images import *\n", [3]),
        ("from .others import Images\n", []),
        ("from . import images\n", []),
    ],
)
def test_packages_that_hand_a_class_on(
    tmp_path: Path, package: str, found: list[object]
) -> None:
    (tmp_path / "src" / "data").mkdir(parents=True)
    (tmp_path / "src" / "data" / "__init__.py").write_text(package)
    text = "class_path: data.Images\ninit_args: {workers: 3}\n"
    (tmp_path / "settings.yaml").write_text(text)
    assert arguments(tmp_path, "src.data.images.Images", "workers") == found


@pytest.mark.parametrize(
    "call, text, found",
    [
        ("LightningCLI(Net, Images)", "data: {workers: 3}", [3]),
        ("cli.LightningCLI(datamodule_class=Images)", "data: {workers: 3}", [3]),
        ("PhotosCLI(Net, parts.Images)", "fit: {data: {workers: 3}}", [3]),
        ("LightningCLI(Net, Images)", "model: {workers: 3}", []),
        ("LightningCLI(Images, Photos)", "data: {workers: 3}", []),
        ("LightningCLI(Net)", "data: {workers: 3}", []),
        ("LightningCLI(Net, Images)", "data: {class_path: Faces, workers: 3}", []),
        ("LightningCLI(Net, Words)", "data: {workers: 3}", [3]),
        ("LightningCLI(Net, Words)", "data: {workers: 3, path: a.txt}", []),
    ],
)
def test_classes_of_a_command_line(
    tmp_path: Path, call: str, text: str, found: list[object]
) -> None:
    (tmp_path / "main.py").write_text(
        "from lightning.cli import LightningCLI\n"
        f"class Words:\n    def __init__(self, workers=0): ...\n{call}"
    )
    (tmp_path / "settings.yaml").write_text(f"{text}\n")
    owner = "main.Words" if "Words" in call else "data.Images"
    assert arguments(tmp_path, owner, "workers") == found


def test_all_files_of_a_project_but_hidden_ones(tmp_path: Path) -> None:
    for name in ("a/one.yaml", "b/two.yml", ".git/three.yaml", "venv/four.yaml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text(f"_target_: data.Images\nworkers: {len(name)}\n")
    assert arguments(tmp_path, "data.Images", "workers") == [10, 9]


def test_a_value_of_the_running_program(tmp_path: Path) -> None:
    text = "_target_: data.Images\nworkers: ${machine.workers}\n"
    (tmp_path / "settings.yaml").write_text(text)
    assert arguments(tmp_path, "data.Images", "workers") == ["?"]


def test_too_many_files(tmp_path: Path) -> None:
    for number in range(MAX_SETTINGS + 1):
        (tmp_path / f"{number}.yaml").write_text("_target_: data.Images\nworkers: 3\n")
    assert arguments(tmp_path, "data.Images", "workers") == []


def test_qualified_name(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    for name in ("src/data.py", "pkg/__init__.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("class Images: pass\n")
    project = Projects().of(tmp_path / "main.py")
    names = []
    for name in ("src/data.py", "pkg/__init__.py"):
        index = project.index(tmp_path / name)
        assert index is not None
        names.append(qualified_name(index, index.classes["Images"]))
    assert names == ["src.data.Images", "pkg.Images"]


@pytest.mark.parametrize(
    "call, given",
    [
        ("instantiate(cfg.trainer, pin_memory=True)", True),
        ("instantiate(config=cfg.trainer, pin_memory=True)", True),
        ("instantiate(cfg['trainer'], **more)", True),
        ("instantiate(cfg.trainers[0], pin_memory=True)", True),
        ("instantiate(settings, pin_memory=True)", True),
        ("instantiate(cfg.named_elsewhere, pin_memory=True)", True),
        ("instantiate(cfg.trainer, model=net)", False),
        ("instantiate(cfg.reader, pin_memory=True)", False),
    ],
)
def test_keywords_beside_settings(tmp_path: Path, call: str, given: bool) -> None:
    settings = "trainer:\n  _target_: parts.Trainer\nreader:\n  rows: 64\n"
    (tmp_path / "train.yaml").write_text(settings)
    (tmp_path / "main.py").write_text(f"from hydra.utils import instantiate\n{call}\n")
    project = Project(tmp_path, lambda root: sorted(root.rglob("*.py")))
    assert is_given_beside(project, "parts.Trainer", "pin_memory") is given
