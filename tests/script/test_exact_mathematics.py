"""Mathematics that needs all of float32, in the file of the model that is trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_path
from gpulint.finding import Finding
from gpulint.index import Projects
from gpulint.registry import find_rule

TRAIN = """
import torch
from models import Net

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = Net(512).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in torch.load("batches.pt"):
    x, y = x.to(device), y.to(device)
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
MODEL = """
import torch
from torch import nn

def mix(x):
    return {product}

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, width)

    def forward(self, x):
        return mix(self.first(x))
"""


def finding(folder: Path, code: str, product: str, trained: str = "model") -> Finding:
    """What a rule says of the script, with a model that computes a product."""
    (folder / "pyproject.toml").touch()
    (folder / "models.py").write_text(MODEL.format(product=product))
    script = folder / "train.py"
    script.write_text(TRAIN.replace("model.parameters", f"{trained}.parameters"))
    rule = find_rule(code)
    assert rule is not None
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    (found,) = check_path(script, Options((rule,), projects=projects)).findings
    return found


@pytest.mark.parametrize("code", ["GPU301", "GPU302"])
@pytest.mark.parametrize(
    "product", ["torch.fft.irfft(torch.fft.rfft(x))", "torch.linalg.inv(x)"]
)
def test_a_model_of_another_file_keeps_its_format(
    tmp_path: Path, code: str, product: str
) -> None:
    found = finding(tmp_path, code, product)
    assert found.fix is None
    assert product[:9] in (found.fix_withheld or "")


def test_a_model_that_is_only_run_keeps_its_format(tmp_path: Path) -> None:
    found = finding(tmp_path, "GPU302", "torch.fft.rfft(x).abs()", "inputs")
    assert found.fix is None
    assert "torch.fft" in (found.fix_withheld or "")


def test_complex_weights_keep_their_format(tmp_path: Path) -> None:
    product = "torch.mul(x, torch.ones(64, 64, dtype=torch.cfloat)).abs()"
    found = finding(tmp_path, "GPU302", product)
    assert found.fix_withheld == "`torch.cfloat` may need full float32"


@pytest.mark.parametrize("code", ["GPU301", "GPU302"])
def test_an_adaptive_solver_keeps_its_format(
    tmp_path: Path, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    imports = "import torch\nfrom torchdiffeq import odeint\n"
    monkeypatch.setitem(globals(), "MODEL", MODEL.replace("import torch\n", imports, 1))
    found = finding(tmp_path, code, "odeint(lambda t, y: y.tanh(), x, x[0])[-1]")
    assert found.fix is None
    assert "odeint" in (found.fix_withheld or "")


@pytest.mark.parametrize("code", ["GPU301", "GPU302"])
def test_a_plain_model_may_change(tmp_path: Path, code: str) -> None:
    assert finding(tmp_path, code, "torch.relu(x)").fix is not None


TRAINER = """
from transformers import Trainer, TrainingArguments
from data import train_set
from models import Net

model = Net.from_pretrained("waves")
Trainer(model, TrainingArguments("out"), train_dataset=train_set).train()
"""


@pytest.mark.parametrize(
    "code, product",
    [
        ("GPU361", "torch.complex(x, x).abs()"),
        ("GPU361", "torch.relu(x)"),
        ("GPU362", "torch.complex(x, x).abs()"),
    ],
)
def test_a_trainer_of_the_projects_own_model(
    tmp_path: Path, code: str, product: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That a Trainer is given by its class, which is in another file."""
    monkeypatch.setitem(globals(), "TRAIN", TRAINER)
    found = finding(tmp_path, code, product)
    assert (found.fix is None) is ("complex" in product)
    assert ("complex" in (found.fix_withheld or "")) is ("complex" in product)
