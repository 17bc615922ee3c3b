"""Factories that load a file by its path, of a folder that has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.finding import Confidence
from tests.script.test_doubts import LOOP, confidences

LOW, HIGH = Confidence.LOW, Confidence.HIGH

MAKE = """\
import imp
import importlib.util
import os


def make_task(args):
    path = {path}
    return {load}(args.task, path)
"""
MAIN = """\
import argparse

from engine import assess
from lib.tasks import make_task
from parts import loader, model

args = argparse.ArgumentParser().parse_args()
task = make_task(args)
assess(model, loader)
"""
JOINED = 'os.path.join("lib/tasks", args.task + ".py")'
LOAD = "imp.load_source"


@pytest.mark.parametrize(
    "path, load, others, sure",
    [
        (JOINED, LOAD, [], LOW),
        (JOINED, "importlib.util.spec_from_file_location", [], LOW),
        ('f"lib/tasks/{args.task}.py"', LOAD, [], LOW),
        ('"lib/tasks/%s.py" % args.task', LOAD, [], LOW),
        (JOINED, LOAD, ["lib/tasks/pose.py"], HIGH),
        (JOINED, LOAD, ["lib/tasks/more/pose.py"], HIGH),
        (JOINED, LOAD, ["lib/tasks/more/__init__.py"], LOW),
        ('os.path.join("others", args.task + ".py")', LOAD, [], HIGH),
        ('os.path.join(args.folder, args.task + ".py")', LOAD, [], HIGH),
        ("args.task", LOAD, [], HIGH),
        (JOINED, "load", [], HIGH),
    ],
)
def test_files_that_are_loaded(
    tmp_path: Path, path: str, load: str, others: list[str], sure: Confidence
) -> None:
    files = {
        ".git/HEAD": "",
        "engine.py": LOOP,
        "main.py": MAIN,
        "lib/__init__.py": "",
        "lib/tasks/__init__.py": "from .make import make_task\n",
        "lib/tasks/make.py": MAKE.format(path=path, load=load),
    }
    files |= dict.fromkeys(others, "")
    assert confidences(tmp_path, files)[19] is sure
