"""Which classes of a project an object can be of."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from gpulint.index import Evaluator, Project, Resolver, Where, build_index
from gpulint.index.tensors import Tensors
from gpulint.source import Source

NET = "from torch import nn\nclass Net(nn.Module):\n    size = 1\n"


@pytest.mark.parametrize(
    "text, known",
    [
        ("net = Net().to(device)\nuse(net)\n", ["Net"]),
        ("net = Net()\nnet = net.to(device).eval()\nuse(net)\n", ["Net"]),
        ("net = Net()\nfor x in y:\n    net = net.to(x)\nuse(net)\n", ["Net"]),
        ("x = y\nwhile y:\n    x = x.to(device)\n    x.run()\nuse(x)\n", []),
        ("net = other().to(device)\nuse(net)\n", []),
    ],
)  # fmt: skip
def test_a_module_that_is_moved_keeps_its_class(text: str, known: list[str]) -> None:
    index = build_index(Source(Path("a.py"), NET + text))
    (call,) = index.calls["use"]
    owners = Resolver(index).classes.of(call.args[0])
    assert [owner.name for owner in owners] == known


def test_packages_that_import_each_other_do_not_multiply(tmp_path: Path) -> None:
    names = [f"m{number}" for number in range(24)]
    stars = "".join(f"from .{name} import *\n" for name in names)
    package = tmp_path / "models"
    package.mkdir()
    (package / "__init__.py").write_text(f"from .base import *\n{stars}")
    (package / "base.py").write_text("class Base:\n    pass\n")
    for name in names:
        text = f"from models import Base\nclass {name.upper()}(Base):\n    pass\n"
        (package / f"{name}.py").write_text(text)
    project = Project(tmp_path, lambda folder: folder.rglob("*.py"))
    index = project.index(package / "m0.py")
    assert index is not None
    (owner,) = index.all(ast.ClassDef)
    bases = Resolver(index).classes.bases(owner)
    assert [base.name for base in bases] == ["M0", "Base"]


@pytest.mark.parametrize(
    "text", ["from models import nets\n", "from . import nets\n", ""]
)
def test_a_package_that_imports_its_own_module(tmp_path: Path, text: str) -> None:
    package = tmp_path / "models"
    package.mkdir()
    (package / "__init__.py").write_text(text)
    (package / "nets.py").write_text("class Net:\n    pass\n")
    (tmp_path / "main.py").write_text("from models import nets\nuse(nets.Net())\n")
    project = Project(tmp_path, lambda folder: folder.rglob("*.py"))
    index = project.index(tmp_path / "main.py")
    assert index is not None
    (call,) = index.calls["use"]
    (owner,) = Resolver(index).classes.of(call.args[0])
    assert owner.name == "Net"


@pytest.mark.parametrize(
    "last, named",
    [
        ("class Net:\n    pass\n", "zoo"),
        ("from .deep import *\n", "deep"),
        ("from .deep import \\\n    *\n", "deep"),
    ],
)
def test_modules_behind_stars_without_a_name_are_not_parsed(
    tmp_path: Path, last: str, named: str
) -> None:
    package = tmp_path / "models"
    package.mkdir()
    stars = "".join(f"from .{name} import *\n" for name in ("first", "zoo"))
    (package / "__init__.py").write_text(stars)
    (package / "first.py").write_text("class Other:\n    pass\n")
    (package / "deep.py").write_text("class Net:\n    pass\n")
    (package / "zoo.py").write_text(last)
    (tmp_path / "main.py").write_text("from models import Net\nuse(Net())\n")
    project = Project(tmp_path, lambda folder: folder.rglob("*.py"))
    index = project.index(tmp_path / "main.py")
    assert index is not None
    (call,) = index.calls["use"]
    (owner,) = Resolver(index).classes.of(call.args[0])
    assert index.home(owner).source.path == package / f"{named}.py"
    assert (
        package / "first.py"
        in project.noted.files | project.around[index.source.path].files
    )
    loaded = {its.source.path.name for its in project.numbered.values()}
    assert "first.py" not in loaded


def test_stars_that_lead_in_a_circle(tmp_path: Path) -> None:
    package = tmp_path / "models"
    package.mkdir()
    (package / "__init__.py").write_text("from .net import *\nfrom .last import *\n")
    (package / "net.py").write_text("from models import *\nuse(Net())\n")
    (package / "last.py").write_text("class Net:\n    pass\n")
    project = Project(tmp_path, lambda folder: folder.rglob("*.py"))
    index = project.index(package / "net.py")
    assert index is not None
    (call,) = index.calls["use"]
    (owner,) = Resolver(index).classes.of(call.args[0])
    assert index.home(owner).source.path == package / "last.py"


KEPT = """\
from state import State
class Case:
    def begin(self):
        self.kept = State.backends.copy()
    def end(self):
        State.backends = self.kept
"""
STATE = """\
class State:
    backends = {}
    @classmethod
    def get(cls, name):
        return cls.backends[name]
"""


def test_an_attribute_that_a_copy_of_itself_is_put_back_into(tmp_path: Path) -> None:
    user = "from state import State\nbackend = State.get(1)\nuse(backend.report(x))\n"
    texts = {"state.py": STATE, "case.py": KEPT, "train.py": user}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    project = Project(tmp_path, lambda folder: folder.rglob("*.py"))
    index = project.index(tmp_path / "train.py")
    assert index is not None
    (call,) = index.calls["use"]
    resolver = Resolver(index)
    tensors = Tensors(resolver, Evaluator(resolver))
    assert Where.DEVICE not in tensors.where(call.args[0])


@pytest.mark.parametrize(
    "text, known",
    [
        ("from base import Data\nclass Data(Data):\n    pass\n", ["Data"]),
        ("class Data:\n    pass\nfrom base import Data\n", []),
        ("from base import Data\nif old:\n    class Data(Data):\n        pass\n", []),
    ],
    ids=["taken", "imported later", "perhaps"],
)
def test_a_class_that_takes_the_name_of_an_import(
    tmp_path: Path, text: str, known: list[str]
) -> None:
    (tmp_path / "data.py").write_text(text)
    path = tmp_path / "main.py"
    path.write_text("from data import Data\nuse(Data())\n")
    index = Project(tmp_path, lambda folder: folder.rglob("*.py")).index(path)
    assert index is not None
    (call,) = index.calls["use"]
    owners = Resolver(index).classes.of(call.args[0])
    assert [owner.name for owner in owners] == known
