"""Whether functions that no program uses are left alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpulint.engine import Options, check_path
from gpulint.finding import Confidence
from gpulint.index import Projects
from gpulint.registry import find_rule

MODEL = """
import torch
from torch import nn


class Matcher(nn.Module):
    def forward(self, image):
        return self.head(image + torch.ones(8, 16).to(image.device))


class Older(nn.Module):
    def forward(self, image):
        return self.head(image + torch.ones(8, 16).to(image.device))
"""
TRAIN = """
import torch

from matcher import Matcher


def train(loader, optimizer):
    model = Matcher().cuda()
    for image in loader:
        model(image.cuda()).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    train(loader, optimizer)
"""


def confidences(folder: Path, code: str) -> dict[int, Confidence]:
    """How sure what a rule finds in each line of the module is."""
    rule = find_rule(code)
    assert rule is not None
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options((rule,), projects=projects)
    found = check_path(folder / "matcher.py", options).findings
    return {f.place.start.row: f.confidence for f in found}


def rows(folder: Path) -> list[int]:
    """The lines of the module in which something is found."""
    return list(confidences(folder, "GPU104"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "matcher.py").write_text(MODEL)
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def test_a_class_that_no_file_names_is_left_alone(folder: Path) -> None:
    assert rows(folder) == [8]


@pytest.mark.parametrize(
    "added",
    [
        "from matcher import Older\n",
        "import matcher\nprint(matcher.Older)\n",
        "from matcher import *\nmodel = Older()\n",
        "import matcher\nmodel = getattr(matcher, name)()\n",
        "import matcher\nmodel = matcher.__dict__[name]()\n",
        "from matcher import *\nmodel = eval(name)()\n",
        "from matcher import *\nclass A:\n    def eval(self):\n        eval(name)()\n",
        "import importlib\nmodel = importlib.import_module(name)\n",
        "NAMES = ['Older']\n",
        "import matcher\nmodel = {'a': matcher}[name].Older()\n",
    ],
)
def test_what_another_file_may_use_is_looked_at(folder: Path, added: str) -> None:
    (folder / "other.py").write_text(added)
    assert rows(folder) == [8, 13]


@pytest.mark.parametrize(
    "added",
    [
        "from matcher import Matcher\nmodel = eval(name)()\n",
        "from matcher import Matcher\nvalue = getattr(options, name)\n",
        "import matcher\nvalue = getattr(matcher, 'Matcher')\n",
        "from matcher import *\ndef eval(net):\n    net()\neval(Matcher())\n",
    ],
)
def test_what_another_file_cannot_name_is_left_alone(folder: Path, added: str) -> None:
    (folder / "other.py").write_text(added)
    assert rows(folder) == [8]


@pytest.mark.parametrize(
    "added",
    [
        "\nMODELS = [Matcher, Older]\n",
        "\n__all__ = ['Older']\n",
        "\nmodel = globals()[name]\n",
    ],
)
def test_what_its_own_file_may_use_is_looked_at(folder: Path, added: str) -> None:
    (folder / "matcher.py").write_text(MODEL + added)
    assert rows(folder) == [8, 13]


@pytest.mark.parametrize(
    "name, text",
    [
        ("setup.py", "setup(name='matcher', packages=find_packages())"),
        ("setup.cfg", "[metadata]\nname = matcher\n"),
        ("pyproject.toml", "[project]\nname = 'matcher'\n"),
        ("pyproject.toml", "[tool.poetry]\nname = 'matcher'\n"),
        ("try.ipynb", "from matcher import Older"),
    ],
)
def test_libraries_and_notebooks_may_use_all(
    folder: Path, name: str, text: str
) -> None:
    (folder / name).write_text(text)
    assert rows(folder) == [8, 13]


@pytest.mark.parametrize(
    "include, found", [("lib.*", [8, 13]), ("lib", [8, 13]), ("other.*", [8])]
)
def test_packages_without_a_file_of_their_own(
    tmp_path: Path, include: str, found: list[int]
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "matcher.py").write_text(MODEL)
    (tmp_path / "train.py").write_text(TRAIN.replace("from ", "from lib."))
    packages = f"find_namespace_packages(include={include!r})"
    (tmp_path / "setup.py").write_text(f"setup(packages={packages})")
    assert rows(tmp_path / "lib") == found


@pytest.mark.parametrize(
    "name, text",
    [
        ("setup.py", "setup(ext_modules=[CUDAExtension('ops', ['ops.cu'])])"),
        ("setup.cfg", "[flake8]\nmax-line-length = 120\n"),
        ("pyproject.toml", "[tool.black]\nline-length = 120\n"),
        ("try.ipynb", "from other import Older"),
    ],
)
def test_what_sets_tools_or_builds_extensions_makes_no_library(
    folder: Path, name: str, text: str
) -> None:
    (folder / name).write_text(text)
    assert rows(folder) == [8]


def test_a_module_that_no_file_imports_is_looked_at(folder: Path) -> None:
    (folder / "train.py").write_text("print()\n")
    assert 13 in rows(folder)


def test_what_settings_name_is_looked_at(folder: Path) -> None:
    (folder / "model.yaml").write_text("model:\n  _target_: matcher.Older\n")
    assert rows(folder) == [8, 13]
    (folder / "model.yaml").write_text("model:\n  _target_: matcher.Matcher\n")
    assert rows(folder) == [8]


def test_decorated_functions_are_looked_at(folder: Path) -> None:
    text = MODEL.replace("class Older", "@register\nclass Older")
    (folder / "matcher.py").write_text(text)
    assert rows(folder) == [8, 14]


@pytest.mark.parametrize(
    "decorator, seen",
    [("@torch.no_grad()", False), ("@torch.inference_mode()", False), ("@tool", True)],
)
def test_decorators_that_tell_nobody(folder: Path, decorator: str, seen: bool) -> None:
    marked = f"{MODEL}\n\n{decorator}\ndef rate(model, loader):\n    model.eval()\n"
    marked += "    for image, label in loader:\n        hits = model(image.cuda())\n"
    marked += "        print(hits.sum().item(), hits.max().item())\n"
    (folder / "matcher.py").write_text(marked)
    (folder / "train.py").write_text(f"from matcher import rate\n{TRAIN}")
    found = confidences(folder, "GPU106")
    assert [c is Confidence.LOW for c in found.values()] == [not seen]


def test_what_a_package_passes_on_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    package = tmp_path / "package"
    package.mkdir()
    (package / "matcher.py").write_text(MODEL)
    (package / "__init__.py").write_text("from .matcher import *\n")
    (tmp_path / "train.py").write_text(TRAIN.replace("from matcher", "from package"))
    assert rows(package) == [8, 13]


METHODS = (
    MODEL
    + """

    def older(self, image):
        return self.head(image + torch.ones(8, 16).to(image.device)).sum().backward()
"""
)


def found_in_method(folder: Path, added: str = "") -> bool:
    """Whether something is found in a method of a class that a program uses."""
    (folder / "matcher.py").write_text(METHODS)
    used = "from matcher import Older\nmodel = Older()\n"
    (folder / "other.py").write_text(used + added)
    return METHODS.count("\n") in rows(folder)


def test_a_method_that_nothing_names_is_left_alone(folder: Path) -> None:
    assert not found_in_method(folder)
    assert not found_in_method(folder, "import torch\nmake = getattr(torch, name)\n")
    assert not found_in_method(folder, "class A:\n    def older(self, a):\n        0\n")
    handed = "class A:\n    def __getattr__(self, name):\n"
    handed += "        return getattr(self.__dict__['inner'], name)\n"
    assert not found_in_method(folder, handed)
    assert not found_in_method(
        folder, "if batch is None:\n    # model.older(batch)\n    pass\n"
    )


@pytest.mark.parametrize(
    "added",
    [
        "for batch in loader:\n    model.older(batch.cuda())\n",
        "run = getattr(model, name)\n",
        "STEPS = ['older']\n",
    ],
)
def test_methods_that_may_be_called_are_looked_at(folder: Path, added: str) -> None:
    assert found_in_method(folder, added)


@pytest.mark.parametrize(
    "old, new",
    [
        ("class Older(nn.Module)", "class Older(pl.LightningModule)"),
        ("    def older(", "    @hook\n    def older("),
        ("def older(", "def _older("),
    ],
)
def test_methods_that_a_framework_may_call_are_looked_at(
    old: str, new: str, folder: Path
) -> None:
    text = METHODS.replace(old, new)
    line = text.splitlines().index(METHODS.splitlines()[-1]) + 1
    (folder / "matcher.py").write_text(text)
    (folder / "other.py").write_text("from matcher import Older\nmodel = Older()\n")
    assert line in rows(folder)


LOSSES = """
import torch
from torch import nn


def rate(model, loader):
    model.eval()
    for image, label in loader:
        print((made := model(image.cuda())).sum().item(), made.max().item())


def rate_all(model, loaders):
    for loader in loaders:
        rate(model, loader)


class Rater:
    def __call__(self, model, loaders):
        rate_all(model, loaders)


def fit(*rates):
    print("nothing to rate")
"""


@pytest.mark.parametrize(
    "train, seen",
    [
        ("from losses import fit\n\nfit()\n", False),
        ("from losses import Rater, fit\n\nfit()\n", False),
        ("from losses import Rater, fit\n\nfit(Rater())\n", True),
        ("from losses import fit, rate_all\n\nfit(rate_all)\n", True),
        ("from losses import Rater, fit\n\nrater: Rater = fit()\n", False),
        ("from losses import Rater, fit\n\n\ndef f(r: Rater):\n    fit(r)\n", False),
        ("from losses import Rater, fit\n\nrater: fit = Rater()\n", True),
        ("from losses import Rater, fit\n\n__all__ = ['Rater', 'fit']\nfit()\n", False),
        ("from losses import Rater, fit\n\nfit(['Rater'])\n", True),
        ("import tyro\nfrom losses import Rater\n\nrate: Rater = tyro.cli()\n", True),
        ("from losses import fit, rate_all\n\n\ndef a():\n    rate_all()\n", False),
        ("from losses import fit, rate_all as r\n\nfit(r)\n", True),
        ("import losses\n\nlosses.fit(losses.rate_all)\n", True),
        ("import losses\n\nfit(losses, 'Rater')\n", True),
        ("from torch import fit, rate\n\nfit(rate)\n", False),
        ("from losses import Rater\n\n\nclass TestRater:\n    Rater()\n", False),
    ],
)
def test_what_only_unused_code_uses(tmp_path: Path, train: str, seen: bool) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "matcher.py").write_text(LOSSES)
    train = (
        f"{train.replace('losses', 'matcher')}\nif __name__ == '__main__':\n    run()\n"
    )
    if "matcher" not in train:
        (tmp_path / "other.py").write_text("import matcher\n\nmatcher.fit()\n")
    (tmp_path / "train.py").write_text(train)
    found = confidences(tmp_path, "GPU106")
    assert [c is Confidence.LOW for c in found.values()] == [not seen]


@pytest.mark.parametrize(
    "name, seen", [("test_rate.py", True), ("rate_test.py", True), ("other.py", False)]
)
def test_what_tests_use(tmp_path: Path, name: str, seen: bool) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "matcher.py").write_text(LOSSES)
    text = "from matcher import Rater\n\n\nclass TestRater:\n    Rater()(1, [])\n"
    (tmp_path / name).write_text(f"{text}\n\nif __name__ == '__main__':\n    run()\n")
    found = confidences(tmp_path, "GPU106")
    assert [c is Confidence.LOW for c in found.values()] == [not seen]


CALLS = "from matcher import rate\n\n\ndef f():\n    rate(print, print)\n"


@pytest.mark.parametrize(
    "files, seen",
    [
        ({"train.py": TRAIN}, False),
        ({"train.py": TRAIN, "a.py": "from matcher import rate\n"}, False),
        ({"train.py": f"import matcher\nmatcher.rate(print, print)\n{TRAIN}"}, True),
        (
            {"train.py": f"from a import f\n\nf()\n{TRAIN}", "a.py": CALLS},
            True,
        ),
        (
            {
                "train.py": TRAIN,
                "a.py": "from matcher import rate\n\nrate(print, print)\n",
            },
            True,
        ),
        (
            {
                "train.py": TRAIN,
                "a.py": CALLS,
                "b.py": "from a import f\n\n\nclass A:\n    def g(self):\n        f()\n",
            },
            False,
        ),
    ],
)
def test_files_that_only_unused_files_import(
    tmp_path: Path, files: dict[str, str], seen: bool
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "matcher.py").write_text(LOSSES)
    for name, text in files.items():
        lines = text.replace("from matcher import Matcher\n", "Matcher = print\n")
        (tmp_path / name).write_text(lines)
    found = confidences(tmp_path, "GPU106")
    assert [c is Confidence.LOW for c in found.values()] == [not seen]


CELLS = """
import torch


class Trainer:
    def train(self, model, loader, optimizer):
        for image in loader:
            model(image.to("cuda") * torch.ones(8, 16).to("cuda")).sum().backward()
            optimizer.step()
"""


@pytest.mark.parametrize(
    "more, found",
    [
        ("", False),
        ("# Trainer().train(model, loader, optimizer)\n", False),
        ("Trainer().train(model, loader, optimizer)\n", True),
        ("%time Trainer().train(model, loader, optimizer)\n", True),
    ],
)
def test_classes_of_a_notebook_that_nothing_makes(
    tmp_path: Path, more: str, found: bool
) -> None:
    cells = [CELLS, f"model, loader, optimizer = start()\n{more}"]
    made = [
        {"cell_type": "code", "source": text, "metadata": {}, "outputs": []}
        for text in cells
    ]
    path = tmp_path / "guide.ipynb"
    path.write_text(json.dumps({"cells": made, "metadata": {}, "nbformat": 4}))
    rule = find_rule("GPU104")
    assert rule is not None
    assert bool(check_path(path, Options((rule,))).findings) is found
