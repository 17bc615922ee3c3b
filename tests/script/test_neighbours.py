"""Which files of a project run together with a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.index import Projects
from gpulint.script import Script
from gpulint.script.neighbours import imported


@pytest.mark.parametrize(
    "chosen, found",
    [
        ('"models." + name', True),
        ('f"models.{name}"', True),
        ('"models.%s" % name', True),
        ('"models.{}".format(name)', True),
        ("name", False),
        ('name + ".models"', False),
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
    project = Projects(lambda root: root.rglob("*.py")).of(path)
    index = project.index(path)
    assert index is not None
    script = Script(index.source, index)
    names = {home.source.path.stem for home in imported(script, index)}
    assert names >= {"small", "large"} if found else not names
