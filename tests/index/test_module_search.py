"""Which modules of a project have a name, by their texts alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.index.project import Project

LAYERS = """\
from torch import nn

WIDTH = 8
OTHER == 3
class Block(nn.Module):
    def forward(self, x):
        return x

async def serve():
    pass
"""


@pytest.mark.parametrize(
    "module, names, binds",
    [
        (".layers", ["Block", "WIDTH", "serve"], True),
        (".layers", ["*"], True),
        (".layers", ["nn"], False),  # perhaps; who asks looks into the file
        (".layers", ["forward"], False),
        (".layers", ["OTHER"], False),
        (".layers", ["Block", "Gone"], False),
        ("..package.layers", ["Block"], True),
        ("package.layers", ["Block"], False),  # there may be another
        (".inner", ["Block"], False),
        (".gone", ["*"], False),
        (".", ["layers"], False),
    ],
)
def test_what_a_module_plainly_binds(
    tmp_path: Path, module: str, names: list[str], binds: bool
) -> None:
    package = tmp_path / "package"
    (package / "inner").mkdir(parents=True)
    for name in ("__init__.py", "inner/__init__.py"):
        (package / name).write_text("Block = 3\n")
    (package / "layers.py").write_text(LAYERS)
    (package / "net.py").write_text("import torch\n")
    project = Project(tmp_path, lambda root: sorted(root.rglob("*.py")))
    near = project.index(package / "net.py")
    assert near is not None
    assert project.modules.plainly_binds(near, module, names) == binds
    assert not project.is_loaded(package / "layers.py")
