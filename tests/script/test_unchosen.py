"""Classes of a registry that nobody asks for by their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_path
from gpulint.finding import Confidence
from gpulint.index import Projects
from gpulint.registry import select_rules

REGISTRY = """\
class Registry:
    def __init__(self):
        self.held = {}

    def register(self, name=None):
        def keep(cls):
            self.held[name or cls.__name__] = cls
            return cls
        return keep

    def get(self, name):
        return self.held[name]


MODELS = Registry()
"""
MODEL = """\
import torch

from registry import MODELS


{}class Plain:
    def __init__(self, net):
        self.net = net.cuda()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def fit(self, loader):
        for x, y in loader:
            x, y = x.cuda(), y.cuda()
            loss = (self.net(x) - y).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            print(loss.item())
"""
OTHER = """\
from plain import Plain
from registry import MODELS


@MODELS.register()
class Other(Plain):
{}


@MODELS.register()
class Third:
    def fit(self, loader):
        raise RuntimeError(loader)
"""
OWN = "    def fit(self, loader):\n        return len(loader)"
TRAIN = """\
import yaml

import others
import plain
from registry import MODELS

settings = yaml.safe_load(open("base.yaml"))
MODELS.get(settings["model"])(make_net()).fit(make_loader())
"""


@pytest.mark.parametrize(
    "mark, heir, settings, more, sure",
    [
        ("@MODELS.register()\n", OWN, "model: Third\n", {}, Confidence.LOW),
        ("@MODELS.register()\n", OWN, "model: NoPlain\n", {}, Confidence.HIGH),
        ("@MODELS.register()\n", OWN, "model: Other  # Plain\n", {}, Confidence.HIGH),
        ("@MODELS.register('one')\n", OWN, "model: Third\n", {}, Confidence.LOW),
        ("@MODELS.register('one')\n", OWN, "model: one\n", {}, Confidence.HIGH),
        ("@MODELS.register(NAME)\n", OWN, "model: Third\n", {}, Confidence.HIGH),
        (
            "@MODELS.register()\n",
            "    steps = 3",
            "model: Other\n",
            {},
            Confidence.HIGH,
        ),
        ("", "    steps = 3", "model: Third\n", {}, Confidence.LOW),
        ("", "    steps = 3", "model: Other\n", {}, Confidence.HIGH),
        (
            "@MODELS.register()\n",
            OWN,
            "model: Third\n",
            {"try.py": "import plain\nplain.Plain(net).fit(loader)\n"},
            Confidence.HIGH,
        ),
        (
            "@MODELS.register()\n",
            OWN,
            "model: Third\n",
            {"README.md": "# Models\n\nThere are Plain and Third.\n"},
            Confidence.HIGH,
        ),
        (
            "@MODELS.register()\n",
            OWN,
            "model: Third\n",
            {"all.py": "from plain import Plain\n\n__all__ = [\n    'Plain',\n]\n"},
            Confidence.LOW,
        ),
        (
            "@MODELS.register()\n",
            OWN,
            "model: Third\n",
            {"config.py": "model = dict(type='Plain')\n"},
            Confidence.HIGH,
        ),
    ],
)
def test_registered_classes_that_nobody_names(
    tmp_path: Path,
    mark: str,
    heir: str,
    settings: str,
    more: dict[str, str],
    sure: Confidence,
) -> None:
    (tmp_path / ".git").mkdir()
    files = {
        "registry.py": REGISTRY,
        "plain.py": MODEL.format(mark),
        "others.py": OTHER.format(heir),
        "train.py": TRAIN,
        "base.yaml": settings,
        **more,
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    projects = Projects(lambda root: sorted(p for p in root.rglob("*.*")))
    options = Options(select_rules(("GPU106",)), projects=projects)
    found = check_path(tmp_path / "plain.py", options).findings
    assert [f.confidence for f in found] == [sure]
