"""Which files of a project run together with a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.index import Projects
from gpulint.script import Script
from gpulint.script.neighbours import imported


def beside(path: Path) -> set[str]:
    """The files that a script imports, by name."""
    project = Projects(lambda root: root.rglob("*.py")).of(path)
    index = project.index(path)
    assert index is not None
    return {
        home.source.path.stem for home in imported(Script(index.source, index), index)
    }


@pytest.mark.parametrize(
    "chosen, found",
    [
        ('"models." + name', True),
        ('f"models.{name}"', True),
        ('"models.%s" % name', True),
        ('"models.{}".format(name)', True),
        ('{"a": "models." + name}.get("a")', False),
        ("name", False),
        ('name + ".models"', False),
        ('f""', False),
        ('"no module, " + f""', False),
    ],
)
def test_modules_of_a_package_chosen_by_name(
    tmp_path: Path, chosen: str, found: bool
) -> None:
    package = tmp_path / "models"
    package.mkdir()
    for name in ("__init__", "small", "large"):
        (package / f"{name}.py").write_text("WIDTH = 1\n")
    path = tmp_path / "train.py"
    path.write_text(
        f"import sys, importlib\nname = sys.argv[1]\nimportlib.import_module({chosen})\n"
    )
    assert beside(path) >= {"small", "large"} if found else not beside(path)


def test_names_of_modules_that_are_kept_before_they_are_imported(
    tmp_path: Path,
) -> None:
    package = tmp_path / "networks"
    package.mkdir()
    (package / "small.py").write_text("WIDTH = 1\n")
    path = tmp_path / "train.py"
    path.write_text(
        "import importlib, os\nfolder = 'networks'\n"
        "names = {f[:-3]: f'{folder}.{f[:-3]}' for f in os.listdir(folder)}\n"
        "def load(key):\n  name = names[key]\n  return importlib.import_module(name)\n"
    )
    assert beside(path) == {"small"}


@pytest.mark.parametrize(
    "default, found",
    [
        ("small", True),
        ("nets.small", True),
        ("", False),
        ("a b", False),
        (".small", False),
    ],
)
def test_a_module_that_an_option_names(
    tmp_path: Path, default: str, found: bool
) -> None:
    for folder in (tmp_path, tmp_path / "nets"):
        folder.mkdir(exist_ok=True)
        (folder / "small.py").write_text("WIDTH = 1\n")
    path = tmp_path / "train.py"
    path.write_text(
        "import argparse\nfrom importlib import import_module\n"
        "parser = argparse.ArgumentParser()\n"
        f"parser.add_argument('--model', default='{default}')\n"
        "import_module(parser.parse_args().model)\n"
    )
    assert beside(path) == ({"small"} if found else set())
