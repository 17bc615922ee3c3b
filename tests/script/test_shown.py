"""Networks that nothing makes but the main guard of their own module, to show them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_path
from gpulint.finding import Confidence
from gpulint.index import Projects
from gpulint.registry import select_rules

LOW, HIGH = Confidence.LOW, Confidence.HIGH

NETS = """\
import torch
from torch import nn


class Shifted(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        shift = torch.ones(x.size(0), 1).to(x.device)
        return self.layer(x) + shift


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return self.layer(x)


def shifted(pretrained=False):
    return Shifted()


if __name__ == "__main__":
    {shown}
"""
SHOWN = """\
net = shifted().cuda()
    net.eval()
    with torch.no_grad():
        print("out", net(torch.randn(2, 8)).size(), sum(net.parameters()))
"""
TRAIN = """\
from nets import Small
from parts import loader, optimizer

net = Small().cuda()
for x, y in loader:
    loss = (net(x.cuda()) - y.cuda()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
EITHER = """\
if args.shifted:
    from nets import Shifted as Net
else:
    from nets import Small as Net\
"""


def confidence(folder: Path, shown: str, train: str) -> Confidence:
    (folder / ".git").mkdir()
    (folder / "nets.py").write_text(NETS.replace("{shown}", shown))
    (folder / "train.py").write_text(train)
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(select_rules(("GPU104",)), projects=projects)
    (found,) = check_path(folder / "nets.py", options).findings
    return found.confidence


@pytest.mark.parametrize(
    "shown, sure",
    [
        (SHOWN, LOW),
        ("print(Shifted()(torch.randn(2, 8)).size())", LOW),
        ("net = Shifted()\n    out = net(torch.randn(2, 8))", LOW),
        ("for x in torch.randn(9, 2, 8):\n        Shifted()(x.cuda())", HIGH),
        ("from parts import fit\n    fit(Shifted())", HIGH),
        ("shifted()", HIGH),
        ("net = Shifted()\n    Runner(net).run()", HIGH),
        ("net = Shifted()\n    lightning.Trainer().fit(net)", HIGH),
        ("def run():\n        return Shifted()\n    net = run()", HIGH),
    ],
    ids=[
        "of a function",
        "at once",
        "by a name",
        "loop",
        "another file's",
        "a main function",
        "runs",
        "fits",
        "own function",
    ],
)
def test_what_a_main_guard_does(tmp_path: Path, shown: str, sure: Confidence) -> None:
    assert confidence(tmp_path, shown, TRAIN) is sure


@pytest.mark.parametrize(
    "imports, made",
    [
        ("from nets import Shifted as Small", "Small()"),
        (EITHER, "Net()"),
        (EITHER.replace("if args", "if not args"), "Net()"),
        (EITHER.replace(" as Net", ""), "Shifted()"),
        ("import nets", "nets.shifted()"),
        ("import nets", "getattr(nets, args.net)()"),
    ],
)
def test_networks_that_others_train(tmp_path: Path, imports: str, made: str) -> None:
    train = TRAIN.replace("from nets import Small", imports)
    train = train.replace("Small()", made)
    assert confidence(tmp_path, SHOWN, train) is HIGH
