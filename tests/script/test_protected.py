"""Functions that no autocast is put around: steps in them and with them are left."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import gpulint
from gpulint.cli import main
from gpulint.engine import Options, fix_source
from gpulint.finding import Effect, Finding, Severity
from gpulint.index import Projects
from gpulint.registry import find_rule
from gpulint.source import read_source

FIXTURES = Path(gpulint.__file__).resolve().parent.parent / "fixtures"
PHYSICS = """\
import torch
from torch import nn


class Solver:
    def residual(self, field):
        return field.square().mean()

    def total(self, field):
        return self.residual(field) + 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 9))

    def forward(self, x):
        return self.layers(x)


def smooth(field):
    return field.abs().mean()


def apply(function, field):
    return function(field)
"""
TRAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader

import physics
from physics import Net, Solver, apply, smooth

solver = Solver()


class Trainer:
    def fit(self, epochs):
        device = torch.device("cuda")
        loader = DataLoader(samples, batch_size=64)
        model = Net().to(device)
        criterion = nn.MSELoss()
        optimizer = torch.optim.Adam(model.parameters())
        for epoch in range(epochs):
            for x, y in loader:
                x, y = x.to(device), y.to(device)
                optimizer.zero_grad()
                field = model(x)
                loss = criterion(field, y)
                loss.backward()
                optimizer.step()


def evaluate(field):
    return smooth(field)


Trainer().fit(3)
"""
STEP = """\
def step(model, criterion, optimizer, x, y):
    optimizer.zero_grad()
    field = model(x)
    loss = criterion(field, y)
    loss.backward()
    optimizer.step()
    print(solver.total(loss.item()))


def train(model, loader):
    criterion = nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in loader:
        step(model, criterion, optimizer, x.cuda(), y.cuda())


train(Net().cuda(), DataLoader(samples, batch_size=64))
"""
IN_FUNCTION = TRAIN[: TRAIN.index("class Trainer")] + STEP
LOSS = "loss = criterion(field, y)"


def found(folder: Path, text: str, *protect: str, code: str = "GPU301") -> Finding:
    """The finding in a script beside `physics.py`."""
    rule = find_rule(code)
    assert rule is not None
    (folder / "physics.py").write_text(PHYSICS)
    path = folder / "train.py"
    path.write_text(text)
    projects = Projects(lambda root: root.rglob("*.py"))
    options = Options(
        (rule,), frozenset({Effect.EXACT}), projects=projects, protect=protect
    )
    [finding] = fix_source(read_source(path), options).remaining
    return finding


def reports(logged: str) -> str:
    """The script with one more line in each step."""
    return TRAIN.replace(LOSS, f"{LOSS}\n                {logged}")


@pytest.mark.parametrize(
    "text, protect, name",
    [
        (TRAIN, "Trainer.fit", "Trainer.fit"),
        (TRAIN, "Trainer", "Trainer.fit"),
        (TRAIN, "train.*", "Trainer.fit"),
        (TRAIN, "?rainer.f*", "Trainer.fit"),
        (TRAIN, "Net", "Net"),
        (IN_FUNCTION, "step", "step"),
        (IN_FUNCTION, "train.train", "train"),
        (IN_FUNCTION, "residual", "Solver.residual"),
        (TRAIN, "physics.Net.forward", "Net"),
        (TRAIN, "physics", "Net"),
        (reports("log(solver.total(field))"), "Solver.total", "Solver.total"),
        (reports("log(solver.total(field))"), "*.residual", "Solver.residual"),
        (reports("log(Solver().residual(field))"), "residual", "Solver.residual"),
        (reports("log(smooth(field))"), "physics.smooth", "smooth"),
        (reports("log(physics.smooth(field))"), "smooth", "smooth"),
        (reports("log(evaluate(field))"), "smooth", "smooth"),
        (reports("log(apply(smooth, field))"), "smooth", "physics.smooth"),
        (reports("log((lambda f: smooth(f))(loss.item()))"), "smooth", "smooth"),
        # What is not of the project, or cannot be followed.
        (reports("plasma.losses.energy(loss.item())"), "losses.energy", "plasma.loss"),
        (reports("self.solver.residual(loss.item())"), "Solver.residual", "self.solv"),
    ],
)
def test_steps_that_are_left(
    tmp_path: Path, text: str, protect: str, name: str
) -> None:
    text = text.replace("import physics\n", "import physics\nimport plasma.losses\n")
    finding = found(tmp_path, text, "other", protect)
    assert finding.fix is None
    assert finding.severity is Severity.NOTE
    assert (finding.fix_withheld or "").startswith(f"`{name}")
    assert (finding.fix_withheld or "").endswith("is protected by the settings")
    assert found(tmp_path, text).fix is not None


@pytest.mark.parametrize(
    "text, protect",
    [
        (TRAIN, "evaluate"),
        (IN_FUNCTION, "train.evaluate"),
        (TRAIN, "smooth"),
        (TRAIN, "Solver.*"),
        (TRAIN, "fit.Trainer"),
        (TRAIN, "rainer"),
        (TRAIN, "trainer.fit"),
        (TRAIN, "Solver.backward"),
        (TRAIN, "losses.mean"),
        (reports("log(field.mean())"), "Solver.mean"),
        (reports("log(loss.item())"), "losses.*"),
        (reports("log(torch.log(loss))"), "Solver.log"),
    ],
)
def test_steps_without_them_are_rewritten(
    tmp_path: Path, text: str, protect: str
) -> None:
    assert found(tmp_path, text, protect).fix is not None


def test_a_model_that_may_be_protected(tmp_path: Path) -> None:
    text = TRAIN.replace("self, epochs", "self, epochs, model").replace(
        "        model = Net().to(device)\n", ""
    )
    text = text.replace("Trainer().fit(3)", "")
    assert found(tmp_path, text, "Net").fix_withheld is not None
    assert "protected" in str(found(tmp_path, text, "Net.forward").fix_withheld)


def test_flags_stay_off(tmp_path: Path) -> None:
    text = (FIXTURES / "gpu306_amp_switched_off" / "bad.py").read_text("utf-8")
    assert found(tmp_path, text, code="GPU306").fix is not None
    assert found(tmp_path, text, "main", code="GPU306").fix is None
    assert found(tmp_path, text, "data.Net", code="GPU306").fix is None


@pytest.mark.parametrize(
    "rule, own",
    [
        ("gpu351_lightning_precision", "train.compute"),
        ("gpu361_hf_precision", "compute"),
        ("gpu365_accelerate_precision", "compute"),
        ("gpu381_ms_amp", "compute"),
    ],
)
def test_trainers_keep_their_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str, own: str
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (FIXTURES / rule / "bad.py").read_text("utf-8")
    Path("train.py").write_text(f"{text}\n\ndef compute(x):\n    return x\n", "utf-8")
    code = rule[:6].upper()

    def fixes() -> list[bool]:
        words = ["check", "--select", code, "--output-format", "json", "train.py"]
        done = CliRunner().invoke(main, words)
        return [finding["fix"] is not None for finding in json.loads(done.stdout)]

    assert any(fixes())
    Path("gpulint.toml").write_text(f'protect = ["{own}"]')
    assert fixes()
    assert not any(fixes())
    Path("gpulint.toml").write_text('[[per-path]]\npath="x.py"\nprotect = ["compute"]')
    assert any(fixes())


def test_what_was_kept_is_not_of_other_protection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPULINT_NO_CACHE")
    monkeypatch.setattr("gpulint.cache.stamps.MARGIN", 0)
    monkeypatch.chdir(tmp_path)
    shutil.copy(FIXTURES / "gpu301_missing_amp" / "bad.py", "train.py")
    Path("pyproject.toml").touch()

    def fixable() -> bool:
        words = ["check", "--select", "GPU301", "--output-format", "json"]
        [finding] = json.loads(CliRunner().invoke(main, words).stdout)
        return finding["fix"] is not None

    assert fixable()
    assert fixable()
    Path("gpulint.toml").write_text('protect = ["main"]')
    assert not fixable()


def test_too_much_to_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpulint.script.numerics.protected.MAX_REACHED", 1)
    assert found(tmp_path, TRAIN).fix is not None
    finding = found(tmp_path, TRAIN, "other")
    assert finding.fix_withheld == "it calls too much to tell what of it is protected"


def test_scripts_without_functions(tmp_path: Path) -> None:
    body = TRAIN[TRAIN.index("        device") : TRAIN.index("\n\ndef evaluate")]
    lines = [line[8:] for line in body.splitlines()]
    head = TRAIN[: TRAIN.index("class Trainer")]
    text = head + "\n".join(lines).replace("epochs", "9") + "\n"
    assert found(tmp_path, text, "trainer").fix is not None
    withheld = found(tmp_path, text, "train").fix_withheld
    assert withheld == "`train` is protected by the settings"
