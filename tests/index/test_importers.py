"""Who may use what a file defines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpulint.engine import Options, check_path
from gpulint.index import FileIndex, Resolver
from gpulint.index.build import build_index
from gpulint.index.project import MAX_IMPORTERS
from gpulint.index.projects import Projects
from gpulint.registry import select_rules
from gpulint.source import parse, read_source


def index_of(path: Path) -> FileIndex:
    source = read_source(path)
    project = Projects(lambda root: sorted(root.rglob("*.py"))).enter(path)
    return project.adopt(build_index(source, parse(source)))


@pytest.mark.parametrize("name, users", [("ae.py", ["train.py"]), ("ae.ipynb", [])])
def test_nobody_imports_a_notebook(tmp_path: Path, name: str, users: list[str]) -> None:
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    book = {"cells": [cell | {"source": ["size = 3"]}], "metadata": {}, "nbformat": 4}
    (tmp_path / ".git").mkdir()
    (tmp_path / "ae.ipynb").write_text(json.dumps(book | {"nbformat_minor": 5}))
    (tmp_path / "ae.py").write_text("size = 3\n")
    (tmp_path / "train.py").write_text("from ae import size\n")
    index = index_of(tmp_path / name)
    assert index.project is not None
    found = index.project.importers(index, "size", "size")
    assert [its.source.path.name for its in found or ()] == users


def test_many_projects_with_modules_of_one_name(tmp_path: Path) -> None:
    """Each `train.py` imports the `utils.py` beside it, or the package around it."""
    (tmp_path / ".git").mkdir()
    for number in range(MAX_IMPORTERS + 5):
        folder = tmp_path / f"project_{number}"
        (folder / "tools").mkdir(parents=True)
        (folder / "tools" / "__init__.py").write_text("from .fitting import fit\n")
        (folder / "tools" / "fitting.py").write_text("def fit():\n    pass\n")
        (folder / "train.py").write_text("from tools import fit\n\nfit()\n")
    (tmp_path / "all.py").write_text("from project_7.tools import fit\n\nfit()\n")
    added = "import sys\nsys.path.append('project_7')\nfrom tools import fit\n\nfit()\n"
    (tmp_path / "added.py").write_text(added)
    index = index_of(tmp_path / "project_7" / "tools" / "fitting.py")
    assert index.project is not None
    found = index.project.importers(index, "fit", "fit(")
    names = {its.source.path.relative_to(tmp_path).as_posix() for its in found or ()}
    assert names == {"project_7/train.py", "all.py", "added.py"}


@pytest.mark.parametrize(
    "text, found",
    [
        ("def accuracy():\n    pass\n", "utils/metrics.py"),
        ("def metrics():\n    pass\n", None),  # of this module, if started there
        ("from metrics_of_old import *\n", None),
    ],
)
def test_a_module_of_the_name_of_its_folder(
    tmp_path: Path, text: str, found: str | None
) -> None:
    """A program in the folder around starts what imports `utils.metrics`."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "utils").mkdir()
    (tmp_path / "utils" / "utils.py").write_text(text)
    (tmp_path / "utils" / "metrics.py").write_text("def mean():\n    pass\n")
    (tmp_path / "utils" / "steps.py").write_text("from utils.metrics import mean\n")
    (tmp_path / "train.py").write_text("from utils.steps import mean\n")
    member = index_of(tmp_path / "utils" / "steps.py").member("utils.metrics")
    home = member and member[0].source.path.relative_to(tmp_path).as_posix()
    assert home == found


@pytest.mark.parametrize("inner", ["net/src/net", "net/net"])
@pytest.mark.parametrize("init", [True, False], ids=["package", "folder"])
@pytest.mark.parametrize("line", ["import net.models", "from net import models"])
def test_a_folder_around_a_package_of_its_name(
    tmp_path: Path, inner: str, init: bool, line: str
) -> None:
    """What is installed from `net` is found in it, not the folder itself."""
    (tmp_path / ".git").mkdir()
    package = tmp_path / inner
    package.mkdir(parents=True)
    (package / "models.py").write_text("def make():\n    pass\n")
    (package / "train.py").write_text(f"{line}\n")
    if init:
        (package / "__init__.py").touch()
    member = index_of(package / "train.py").member("net.models.make")
    assert member is not None
    home, rest = member
    assert (home.source.path, rest) == (package / "models.py", ("make",))


def test_two_folders_of_one_name_say_nothing(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for folder in ("net", "net/net"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "models.py").write_text("def make():\n    pass\n")
    (tmp_path / "net" / "net" / "train.py").write_text("import net.models\n")
    assert index_of(tmp_path / "net/net/train.py").member("net.models.make") is None


@pytest.mark.parametrize(
    "text, derives",
    [
        ("from trainer import Trainer\nclass Mine(Trainer): pass\n", True),
        ("from trainer import Trainer as Base\nclass Mine(Base): pass\n", True),
        ("from trainer import Trainer\nB = Trainer\nclass Mine(B): pass\n", True),
        ("from trainer import Trainer as  B\nclass Mine(B): pass\n", True),
        ("from trainer import Trainer\nclass Mine(x('y'), Trainer): pass\n", True),
        ("from trainer import Trainer\nclass Mine(Trainer[int]): pass\n", True),
        (
            (
                "from importlib import import_module\n"
                "trainer = import_module('trainer')\nclass Mine(trainer.Trainer): pass\n"
            ),
            True,
        ),
        (
            (
                "import importlib\nTrainer = importlib.import_module('trainer').Trainer\n"
                "class Mine(Trainer): pass\n"
            ),
            True,
        ),
        (
            (
                "from importlib import import_module\n"
                "Base = getattr(import_module('trainer'), 'Trainer')\n"
                "class Mine(Base): pass\n"
            ),
            True,
        ),
        (
            (
                "import importlib\nmodule = importlib.import_module(\n    'trainer',\n)\n"
                "Base = getattr(\n    module,\n    'Trainer',\n)\n"
                "class Mine(Base): pass\n"
            ),
            True,
        ),
        (
            (
                "import trainer\ntry:\n    import apex\n    Base = trainer.Trainer\n"
                "except ImportError:\n    Base = trainer.Trainer\n"
                "class Mine(Base): pass\n"
            ),
            True,
        ),
        (
            (
                "from trainer import Trainer\nBASES = {\n    'plain': Trainer,\n}\n"
                "class Mine(BASES['plain']): pass\n"
            ),
            True,
        ),
        (
            (
                "from trainer import Trainer\ndef main():\n    Base = Trainer\n"
                "    class Mine(Base): pass\n"
            ),
            True,
        ),
        (
            (
                "from trainer import Trainer\nfrom mixins import averaged\n"
                "class Mine(averaged(Trainer)): pass\n"
            ),
            True,
        ),
        ("from trainer import Trainer, Other\nclass Mine(Other): pass\n", False),
        (
            (
                "from trainer import Trainer, Other\nBASES = {'plain': Other}\n"
                "class Mine(BASES['plain']): pass\n"
            ),
            False,
        ),
        ("from trainer import Trainer\nclass Mine(Trainer.Config): pass\n", False),
        (
            (
                "from torch import nn\nfrom trainer import Trainer\n"
                "class Mine(nn.Module): pass\n"
            ),
            False,
        ),
    ],
)
def test_classes_that_derive_from_one_in_other_files(
    tmp_path: Path, text: str, derives: bool
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "trainer.py").write_text(
        "class Trainer:\n class Config: pass\nclass Other: pass\n"
    )
    (tmp_path / "mine.py").write_text(text)
    index = index_of(tmp_path / "trainer.py")
    heirs = Resolver(index).outside.subclasses(index.classes["Trainer"])
    assert [heir.name for heir in heirs] == ["Mine"] * derives


@pytest.mark.parametrize(
    "package, mine, derives",
    [
        (
            "from .base import Trainer as BaseTrainer\n",
            "from core import BaseTrainer\nclass Mine(BaseTrainer): pass\n",
            True,
        ),
        (
            "from .base import Trainer as BaseTrainer\n",
            "import core\nclass Mine(core.BaseTrainer): pass\n",
            True,
        ),
        (
            "from .base import Trainer\nEngine = Trainer\n",
            "from core import Engine\nclass Mine(Engine): pass\n",
            True,
        ),
        (
            "from . import base\nEngine = base.Trainer\n",
            "from core import Engine\nclass Mine(Engine): pass\n",
            True,
        ),
        (
            "",
            "from core import base\nP = base\nclass Mine(P.Trainer): pass\n",
            True,
        ),
        (
            "",
            (
                "try:\n    from core.base import Trainer as Base\n"
                "except ImportError:\n    from other import Base\n"
                "class Mine(Base): pass\n"
            ),
            True,
        ),
        (
            "",
            (
                "try:\n    from fast import Engine as Base\n"
                "except ImportError:\n    from core.base import Trainer as Base\n"
                "class Mine(Base): pass\n"
            ),
            True,
        ),
        (
            "",
            (
                "from core.base import Trainer\n"
                "def made(base):\n    class Mine(base): pass\n    return Mine\n"
                "Fast = made(Trainer)\n"
            ),
            True,
        ),
        (
            "from .base import Trainer as BaseTrainer\n",
            "from other import BaseTrainer\nclass Mine(BaseTrainer): pass\n",
            False,
        ),
        (
            "from .base import Trainer as BaseTrainer\nfrom .base import Other\n",
            "from core import Other\nclass Mine(Other): pass\n",
            False,
        ),
        (
            "from .base import Trainer\n",
            (
                "from core import Trainer\nfrom core.base import Other\n"
                "def made(base):\n    class Mine(base): pass\n    return Mine\n"
                "Fast = made(Other)\n"
            ),
            False,
        ),
    ],
)
def test_classes_that_derive_from_one_through_its_package(
    tmp_path: Path, package: str, mine: str, derives: bool
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "base.py").write_text(
        "class Trainer: pass\nclass Other: pass\n"
    )
    (tmp_path / "core" / "__init__.py").write_text(package)
    (tmp_path / "other.py").write_text("class BaseTrainer: pass\nclass Base: pass\n")
    (tmp_path / "mine.py").write_text(mine)
    index = index_of(tmp_path / "core" / "base.py")
    heirs = Resolver(index).outside.subclasses(index.classes["Trainer"])
    assert [heir.name for heir in heirs] == ["Mine"] * derives


def test_a_file_in_which_async_is_a_name_is_looked_into(tmp_path: Path) -> None:
    """Python 3.7 and later refuse it; what it holds is as it was."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "old.py").write_text(
        "class Net:\n    def to(self, x):\n        return x.cuda(async=True)\n"
    )
    (tmp_path / "train.py").write_text("from old import Net\n")
    (tmp_path / "older.py").write_text("class Net:\n    print 'old'\n")
    index = index_of(tmp_path / "train.py")
    member = index.member("old.Net")
    assert member is not None
    assert list(member[0].classes) == ["Net"]
    assert index.member("older.Net") is None


def test_a_name_that_several_imports_bind(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "if small:\n    from nets import Small as Net\nelse:\n    from nets import Net\n"
    )
    index = index_of(tmp_path / "train.py")
    assert set(index.imported) == {"nets.Small", "nets.Net"}


def test_a_file_that_only_an_old_python_takes_is_not_checked(tmp_path: Path) -> None:
    """Though another file has been told what it holds."""
    (tmp_path / ".git").mkdir()
    old = tmp_path / "old.py"
    old.write_text(
        "import torch\n\ndef train(net, loader, optimizer):\n    for x, y in loader:\n"
        "        loss = net(x.cuda(async=True)).sum()\n        loss.backward()\n"
        "        optimizer.step()\n        print(loss.item())\n"
    )
    new = tmp_path / "new.py"
    new.write_text("from old import train\n\ntrain(net, loader, optimizer)\n")
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(select_rules(("GPU106",)), projects=projects)
    assert projects.enter(new).index(old) is not None
    assert check_path(old, options).findings == ()
    old.write_text(old.read_text().replace("async", "non_blocking"))
    assert [f.code for f in check_path(old, options).findings] == ["GPU106"]
