"""Modes for looking for errors, in programs that may train or only evaluate."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_path
from gpulint.index import Projects
from gpulint.registry import select_rules

STEPS = """\
import torch


def fit_model(model, loader, optimizer):
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()


def validate(model, loader):
    with torch.no_grad():
        return [model(x.cuda()).argmax(1) for x, _ in loader]


class TrainOptions:
    def parsed(self):
        return vars(self)


class Fitter(TrainOptions):
    def train(self, *given):
        fit_model(*given)


class Launcher(Fitter):
    def go(self, *given):
        self.train(*given)

    def shown(self):
        return type(self).__name__


class TrainHooks(Unknown):
    pass
"""
PROGRAM = """\
import torch
from steps import *

from parts import loader, model, optimizer

torch.autograd.set_detect_anomaly(True)
{guard}
    {call}
"""
PARSED = "options = parser.parse_args()\nfor model in models(options):"


@pytest.mark.parametrize(
    "call, found",
    [
        ("fit_model(model.cuda(), loader, optimizer)", True),
        ("validate(model.cuda(), loader)", False),
        ("model.cuda().launch(loader)", True),
        ("validate(model.cuda(), loader.clip(9))", False),
        ("validate(model.cuda(), TrainOptions().parsed())", False),
        ("Launcher().go(model.cuda())", True),
        ("Launcher().shown()", False),
        ("Launcher()", True),
        ("TrainHooks().go(model.cuda())", True),
        ("LightningCLI(model, loader)", True),
    ],
)
@pytest.mark.parametrize("guard", ['if __name__ == "__main__":', PARSED])
def test_a_program_that_only_evaluates(
    tmp_path: Path, guard: str, call: str, found: bool
) -> None:
    (tmp_path / "steps.py").write_text(STEPS)
    (tmp_path / "program.py").write_text(PROGRAM.format(guard=guard, call=call))
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(select_rules(("GPU507",)), projects=projects)
    assert bool(check_path(tmp_path / "program.py", options).findings) is found
