"""Copies in another file than their loop's, and who may change what they copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_source
from gpulint.index import Projects
from gpulint.registry import find_rule
from gpulint.source import Source

STEPS = """
def step(model, x):
    return model(x.cuda()).sum()
"""
TRAIN = """
import functools
import torch
from torch.utils.data import DataLoader
from steps import step


def cycle(loader):
    while True:
        for x in loader:
            yield x
            {behind}


def main(dataset, model, optimizer, keep, run):
    model.cuda()
    loader = DataLoader(dataset, batch_size=32, num_workers=4, pin_memory=True)
    {before}
    for x in {over}:
        loss = step(model, x)
        {after}
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    "changed, fixed",
    [
        ({}, True),
        ({"after": "x.zero_()"}, False),
        ({"after": "keep(x)"}, False),
        ({"after": "print(len(x), x.shape)"}, True),
        ({"before": "again = functools.partial(step, model)"}, False),
        ({"before": "run(step, model)"}, False),
        ({"over": "cycle(loader)"}, True),
        ({"over": "cycle(loader)", "behind": "x.zero_()"}, False),
        ({"over": "cycle(loader)", "behind": "print(loader)"}, True),
    ],
    ids=str,
)
def test_a_copy_that_waits_where_others_may_change_its_source(
    changed: dict[str, str], fixed: bool, tmp_path: Path
) -> None:
    parts = {"before": "", "after": "", "behind": "", "over": "loader"} | changed
    (tmp_path / "train.py").write_text(TRAIN.format(**parts), "utf-8")
    path = tmp_path / "steps.py"
    path.write_text(STEPS, "utf-8")
    (tmp_path / "pyproject.toml").touch()
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options((find_rule("GPU102"),), projects=projects)
    (found,) = check_source(Source(path, STEPS), options).findings
    assert (found.fix is not None) is fixed
