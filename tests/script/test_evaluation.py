"""Whether an evaluation loop builds a graph that nothing needs."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from gpulint.engine import Options, check_path, check_source
from gpulint.index import Projects
from gpulint.registry import find_rule, select_rules
from gpulint.script.training.evaluation import graph_builder
from gpulint.source import Source

from .code import script_of

MODEL = "model = nn.Linear(8, 2).cuda()\n"
LOOP = """
    total = 0
    for x, y in loader:
        found = model(x.cuda())
        total += (found.argmax(1) == y.cuda()).sum()
"""
STEP = "opt.zero_grad()\nloss.backward()\nopt.step()\n"


def builds(text: str) -> bool:
    """Whether the evaluation loop of a text is reported."""
    script = script_of(MODEL + text)
    loops = [x for x in script.loops if x.eval]
    return any(graph_builder(script, loop) is not None for loop in loops)


def run(
    before: str = "", inside: str = "", after: str = "", name: str = "score"
) -> str:
    """A function with an evaluation loop, and lines around and in it."""
    lines = f"def {name}(loader):\n" + textwrap.indent(before, "    ") + LOOP
    return lines + textwrap.indent(inside, " " * 8) + textwrap.indent(after, "    ")


@pytest.mark.parametrize(
    "text",
    [
        run(name="validate"),
        run().replace("loader", "val_loader"),
        run("model.eval()\n"),
        run("model.train()\nmodel.eval()\n"),
        run("model.eval()\nmodel.train(False)\n"),
        run("model.eval()\n", "loss = F.cross_entropy(found, y)\n"),
        run("model.eval()\n").replace("model(x", "model.forward(x"),
        run("model.eval()\n") + "def other(x):\n  torch.set_grad_enabled(False)\n",
        run("model.eval()\n") + "def other():\n  score(test_loader)\nother()\n",
        "def track(f):\n  return f\n@track\n" + run(name="validate"),
    ],
)
def test_builds_a_graph(text: str) -> None:
    assert builds(text)


@pytest.mark.parametrize(
    "text",
    [
        run(),
        run("model.eval()\nmodel.train()\n"),
        run("log.eval()\n"),
        run("model.eval()\n", "(found - 1).sum().backward()\n"),
        run("model.eval()\n", "model.requires_grad_(True)\n"),
        run("model.eval()\n", "x.requires_grad = True\n"),
        run("model.eval()\n", "x = torch.tensor(x, requires_grad=True)\n"),
        run("model.eval()\n", "print(x.grad)\n"),
        run("model.eval()\n", "x = fgsm_attack(x)\n"),
        run("model.eval()\n", after="total.backward()\n"),
        run("model.eval()\n", after="opt.step()\n"),
        run("model.eval()\ntorch.set_grad_enabled(False)\n"),
        run("model.eval()\n") + "torch.set_grad_enabled(False)\n",
        "@inference\n" + run("model.eval()\n"),
        run("model.eval()\n") + "with torch.no_grad():\n  score(test_loader)\n",
        run("model.eval()\n")
        + "def all_of_it():\n  return score(loader)\n"
        + "with torch.no_grad():\n  all_of_it()\n",
        run("model.eval()\n").replace("model(x", "criterion(x"),
        "criterion = nn.MSELoss()\nmodel = criterion\n" + run("model.eval()\n"),
        run("model.eval()\n").replace("found = model(x.cuda())", "found = model(3)"),
    ],
)
def test_builds_none_or_needs_it(text: str) -> None:
    assert not builds(text)


@pytest.mark.parametrize(
    "helper, reported",
    [
        ("def look(x):\n  return model(x)\n", True),
        ("@torch.no_grad()\ndef look(x):\n  return model(x)\n", False),
        ("@no_gradients\ndef look(x):\n  return model(x)\n", False),
        ("def look(x):\n  model(x).sum().backward()\n  return x\n", False),
        ("def look(x):\n  return deeper(x)\ndef deeper(x):\n  x.requires_grad_()\n  return model(x)\n", False),
    ],
)  # fmt: skip
def test_model_is_called_in_a_helper(helper: str, reported: bool) -> None:
    text = helper + run("model.eval()\n").replace("model(x.cuda())", "look(x.cuda())")
    assert builds(text) is reported


def test_loss_object_of_the_file_that_differentiates_needs_the_graph() -> None:
    loss = (
        "class Penalty:\n  def __call__(self, out, x):\n"
        "    return torch.autograd.grad(out.sum(), x)[0].norm()\n"
        "penalty = Penalty()\n"
    )
    assert not builds(loss + run("model.eval()\n", "total += penalty(found, x)\n"))
    assert builds(run("model.eval()\n", "total += penalty(found, x)\n"))


EVALUATED = """import torch


def predict(dataset, loader):
    dataset.model.eval()
    found = []
    for batch in loader:
        found.append(dataset.model(batch.to("cuda")).argmax(-1))
    return found
"""


@pytest.mark.parametrize("name, masked", [("padding_mask", True), ("weights", False)])
def test_a_padding_mask_of_a_model_elsewhere(
    tmp_path: Path, name: str, masked: bool
) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "models.py").write_text(f"def forward(self, x, {name}):\n    pass\n")
    path = tmp_path / "runner.py"
    path.write_text(EVALUATED)
    projects = Projects(lambda folder: folder.rglob("*.py"))
    rule = find_rule("GPU403")
    assert rule is not None
    (finding,) = check_path(path, Options((rule,), projects=projects)).findings
    assert (finding.fix is None) is masked


FORCES = """\
import torch
from torch import nn

{line}


class Potential(nn.Module):
    def __init__(self):
        super().__init__()
        self.energy = nn.Linear(64, 1)

    def forward(self, batch):
        return derive(self.energy(batch), batch)
"""
WAYS = (
    "torch.autograd.grad(energy.sum(), positions)[0]",
    "grad(energy.sum(), positions)[0]",
    "torch.func.grad(energy)(positions)",
    "torch.autograd.functional.jacobian(energy, positions)",
)
DERIVES = """\
import torch
from torch.autograd import Variable, grad


def derive(energy, positions):
    return {way}
"""
EVALUATES = """\
import torch

{line}


def evaluate(model, loader):
    model.eval()
    {made}
    total = 0.0
    for x, y in loader:
        total += (model(x.cuda()) - y.cuda()).abs().sum()
    return total
"""


@pytest.mark.parametrize(
    "files, line, made, number",
    [
        ({"net.py": FORCES, "parts.py": DERIVES}, "", "", 0),
        (
            {"net.py": FORCES, "parts.py": DERIVES},
            "from net import Potential",
            "model = Potential().cuda()",
            0,
        ),
        (
            {"parts.py": DERIVES},
            "from torchvision.models import resnet50",
            "model = resnet50().cuda()",
            1,
        ),
        ({"net.py": FORCES}, "", "", 1),
    ],
    ids=["unknown", "known", "of a package", "nothing derives"],
)
def test_models_that_take_derivatives_themselves(
    tmp_path: Path, files: dict[str, str], line: str, made: str, number: int
) -> None:
    (tmp_path / ".git").mkdir()
    for name, text in files.items():
        text = text.replace("{way}", WAYS[0])
        (tmp_path / name).write_text(text.replace("{line}", "from parts import derive"))
    path = tmp_path / "evaluate.py"
    path.write_text(EVALUATES.format(line=line, made=made))
    projects = Projects(lambda root: tuple(sorted(root.rglob("*.py"))))
    options = Options(select_rules(("GPU403",)), projects=projects)
    assert len(check_path(path, options).findings) == number


@pytest.mark.parametrize("way", WAYS)
def test_ways_to_take_derivatives(tmp_path: Path, way: str) -> None:
    (tmp_path / ".git").mkdir()
    text = DERIVES.replace("{way}", way)
    if way is not WAYS[1]:
        text = text.replace("from torch.autograd import Variable, grad\n", "")
    (tmp_path / "parts.py").write_text(text)
    path = tmp_path / "evaluate.py"
    path.write_text(EVALUATES.format(line="", made=""))
    projects = Projects(lambda root: tuple(sorted(root.rglob("*.py"))))
    options = Options(select_rules(("GPU403",)), projects=projects)
    assert not check_path(path, options).findings


def test_models_of_forces_from_packages(tmp_path: Path) -> None:
    path = tmp_path / "evaluate.py"
    projects = Projects(lambda root: tuple(sorted(root.rglob("*.py"))))
    options = Options(select_rules(("GPU403",)), projects=projects)
    for line, number in (("import schnetpack", 0), ("import numpy", 1)):
        path.write_text(EVALUATES.format(line=line, made=""))
        assert len(check_path(path, options).findings) == number


@pytest.mark.parametrize(
    "oldest, reported", [((0, 3), False), ((0, 4), True), (None, True)]
)
def test_volatile_variables_build_no_graph_in_torch_0_3(
    oldest: tuple[int, int] | None, reported: bool
) -> None:
    text = MODEL + run(name="validate").replace("x.cuda()", "V(x, volatile=True)")
    text = (
        "import torch\nfrom torch import nn\nfrom torch.autograd import Variable as V\n"
        + text
    )
    options = Options(select_rules(("GPU403",)), torch_version=oldest)
    found = check_source(Source(Path("a.py"), text), options).findings
    assert bool(found) is reported
