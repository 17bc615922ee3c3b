"""Functions that a program hands on to be run, by processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.finding import Confidence
from tests.script.test_doubts import LOOP, confidences

LOW, HIGH = Confidence.LOW, Confidence.HIGH

MAIN = """\
import argparse

import torch.multiprocessing as mp

from engine import Trainer
from parts import loader, model, optimizer

parser = argparse.ArgumentParser()
parser.add_argument("--spawn", type=bool, default=True)
args = parser.parse_args()


def work(rank):
    Trainer().fit(model, loader, optimizer)


if args.spawn:
    {spawned}
else:
    work(0)
"""


@pytest.mark.parametrize(
    "spawned, sure",
    [
        ("mp.spawn(work, nprocs=2)", HIGH),
        ("mp.Process(target=work, args=(0,)).start()", HIGH),
        ("print(0)", LOW),
    ],
)
def test_a_function_that_processes_run(
    tmp_path: Path, spawned: str, sure: Confidence
) -> None:
    files = {"engine.py": LOOP, "main.py": MAIN.format(spawned=spawned)}
    assert confidences(tmp_path, files)[11] is sure
