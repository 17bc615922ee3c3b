"""Branches that no value which the code gives comes to."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.finding import Confidence
from tests.script.test_doubts import LOOP, confidences

LOW, HIGH = Confidence.LOW, Confidence.HIGH

MAIN = """\
import argparse

from engine import assess
from parts import loader, model

parser = argparse.ArgumentParser()
parser.add_argument("--mode", type=int, default=0)
args = parser.parse_args()
OUTER = 3


def run(step, every):
{body}

for step in range(9000):
    run(step, args.mode)
"""


def sure_of(folder: Path, body: str) -> Confidence:
    """How sure it is of the call that a body ends with."""
    text = "".join(f"    {line}\n" for line in body.splitlines())
    main = MAIN.format(body=text)
    return confidences(folder, {"engine.py": LOOP, "main.py": main})[19]


ASSESS = "assess(model, loader)"
SET = "if step > 9:\n    mode = 3\nelse:\n    mode = {}\n"


@pytest.mark.parametrize(
    "body, sure",
    [
        (SET.format(0) + f"if mode == 2:\n    {ASSESS}", LOW),
        (SET.format(0) + f"if mode != 2:\n    {ASSESS}", HIGH),
        (SET.format(0) + f"if mode != 2:\n    pass\nelse:\n    {ASSESS}", LOW),
        (SET.format(0) + f"if mode == 3:\n    {ASSESS}", HIGH),
        (SET.format(2) + f"if mode == 2:\n    {ASSESS}", HIGH),
        (SET.format("args.mode") + f"if mode == 2:\n    {ASSESS}", HIGH),
        (SET.format("choose()") + f"if mode == 2:\n    {ASSESS}", HIGH),
        (SET.format(0) + f"mode += 1\nif mode == 2:\n    {ASSESS}", HIGH),
        (f"if OUTER == 2:\n    {ASSESS}", HIGH),
        (SET.format(0) + f"if step > 2 and mode == 2:\n    {ASSESS}", LOW),
        (SET.format(0) + f"if step > 2 or mode == 2:\n    {ASSESS}", HIGH),
        (SET.format("None") + f"if mode is None:\n    {ASSESS}", HIGH),
        (SET.format("1") + f"if mode is None:\n    {ASSESS}", LOW),
    ],
    ids=[
        "excluded",
        "not it",
        "else of not it",
        "one of them",
        "the other",
        "an option",
        "a call",
        "changed",
        "for users to edit",
        "and",
        "or",
        "none",
        "never none",
    ],
)
def test_values_that_a_function_never_sets(
    tmp_path: Path, body: str, sure: Confidence
) -> None:
    assert sure_of(tmp_path, body) is sure


@pytest.mark.parametrize(
    "outer, inner, sure",
    [
        ("step % every == 0", "(step + 1) % every == 0", LOW),
        ("step % every == 0", "(step - 1) % (10 * every) == 0", LOW),
        ("step % every == 0", "(step + 2) % every == 0", HIGH),
        ("step % every == 0", "(step + 1) % args.mode == 0", HIGH),
        ("step % every == 0", "step % (10 * every) == 0", HIGH),
        ("step % every == 0", "(args.mode + 1) % every == 0", HIGH),
        ("step % 100 == 0", "step % 50 == 1", LOW),
        ("step % 100 == 0", "(step + 100) % 50 == 0", HIGH),
        ("step % 100 == 0", "(step + 1) % 3 == 0", HIGH),
        ("step % every != 0", "(step + 1) % every == 0", HIGH),
    ],
)
def test_intervals_that_never_meet(
    tmp_path: Path, outer: str, inner: str, sure: Confidence
) -> None:
    nested = f"if {outer}:\n    if args.mode and {inner}:\n        {ASSESS}"
    body = nested.replace("args.mode and ", "loader and ")
    assert sure_of(tmp_path, body) is sure
    if sure is LOW:
        changed = body.replace(f"{outer}:\n", f"{outer}:\n    step += 1\n")
        assert sure_of(tmp_path / "changed", changed) is HIGH
        several = body.replace("    if loader", "    while step < 9:\n      if loader")
        several = f"{several}\n      step += 1"
        assert sure_of(tmp_path / "several", several) is HIGH


HANDED = """\
from engine import assess
from parts import loader, model


def look(count):
    if {test}:
        assess(model, loader)


for step in range(9000):
    {calls}
"""


@pytest.mark.parametrize(
    "test, calls, sure",
    [
        ("count > 0", "look(-1)", LOW),
        ("count > 0", "look(1)", HIGH),
        ("count > 0", "look(-1)\n    look(3)", HIGH),
        ("count >= 2", "look(0)\n    look(1.5)", LOW),
        ("count == 2", "look(3)", LOW),
        ("count != 2", "look(2)", LOW),
        ("count < 0", "look(step)", HIGH),
        ("count > 0", "look(True)", HIGH),
        ("count > step", "look(-1)", HIGH),
        ("0 < count < 5", "look(-1)", HIGH),
    ],
)
def test_numbers_that_all_calls_write_out(
    tmp_path: Path, test: str, calls: str, sure: Confidence
) -> None:
    main = HANDED.format(test=test, calls=calls)
    files = {"engine.py": LOOP, "main.py": main}
    assert confidences(tmp_path, files)[19] is sure


@pytest.mark.parametrize(
    "started, sure",
    [
        ("mp.spawn(look, nprocs=4, args=(4,))", HIGH),
        ("Process(target=look, args=(4,)).start()", HIGH),
        ("pool.submit(look, 4)", HIGH),
        ("print(model)", LOW),
    ],
)
def test_numbers_of_what_others_start(
    tmp_path: Path, started: str, sure: Confidence
) -> None:
    main = HANDED.format(test="count > 1", calls="look(1)") + f"{started}\n"
    assert confidences(tmp_path, {"engine.py": LOOP, "main.py": main})[19] is sure


def test_numbers_of_an_option(tmp_path: Path) -> None:
    """Users give others, and so do callers of a library."""
    start = "import argparse\nparser = argparse.ArgumentParser()\n"
    option = 'parser.add_argument("--count", type=int, default=-1)\n'
    main = start + option + HANDED.format(test="count > 0", calls="look(args.count)")
    main = main.replace("for step", "args = parser.parse_args()\nfor step")
    assert confidences(tmp_path, {"engine.py": LOOP, "main.py": main})[19] is HIGH
    files = {"engine.py": LOOP, "pyproject.toml": "[project]\nname = 'looks'\n"}
    files["main.py"] = HANDED.format(test="count > 0", calls="look(-1)")
    assert confidences(tmp_path / "library", files)[19] is HIGH


WRAP = """\
import argparse

from torch.nn import DataParallel as _Wrap

from engine import assess


def DataParallel(model, loader, sizes=None):
    if sizes is None:
        assess(model, loader)
    return _Wrap(model)


class Runner:
    def wrap(self, loader, sizes):
        self.model = DataParallel(self.model, loader, sizes=sizes)
"""
START = """\
import torch
from options import parse
from parts import complete, loader, make
from wrapping import Runner

args = complete(parse())
torch.nn.DataParallel(make)
runner = make(Runner)
runner.wrap(loader, args.sizes)
"""
OPTIONS = """\
import argparse


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=0)
    args = parser.parse_args()
    args.sizes = [args.size]
    return args
"""


@pytest.mark.parametrize(
    "start, options, sure",
    [
        ("", "", LOW),
        ("", "args.sizes = args.size", HIGH),
        ("", "args.sizes = [1]\n    if args.size:\n        args.sizes = None", HIGH),
        ("", "args.sizes = [1]\n    parser.add_argument('--sizes')", HIGH),
        ("", "args.sizes = [1]\n    setattr(args, 'sizes', parser)", HIGH),
        ("", "args.sizes = [1]\n    # of self.sizes", LOW),
        ("", "args.other = [1]", HIGH),
        ("print(runner)", "", LOW),
        ("runner.wrap(loader, args.sizes)\nrunner.wrap(loader, None)", "", HIGH),
        ("runner.wrap(loader, args.sizes)\nrunner.wrap()", "", LOW),
    ],
    ids=[
        "a list",
        "a number",
        "none as well",
        "an option",
        "by name",
        "a comment",
        "not set",
        "not called",
        "also none",
        "another method",
    ],
)
def test_what_all_that_hand_it_on_give(
    tmp_path: Path, start: str, options: str, sure: Confidence
) -> None:
    call, setting = "runner.wrap(loader, args.sizes)", "args.sizes = [args.size]"
    main = START.replace(call, start or call)
    files = {"wrapping.py": WRAP, "main.py": main, "engine.py": LOOP}
    files["options.py"] = OPTIONS.replace(setting, options or setting)
    assert confidences(tmp_path, files)[19] is sure


def test_none_that_a_forward_is_given(tmp_path: Path) -> None:
    """Not all who call a `forward` are seen."""
    text = WRAP.replace("def DataParallel(", "def forward(")
    text = text.replace("DataParallel(self", "forward(self")
    files = {"engine.py": LOOP, "wrapping.py": text, "main.py": START}
    assert confidences(tmp_path, {**files, "options.py": OPTIONS})[19] is HIGH


KEPT = """\
from engine import assess


class Evaluation:
    def __init__(self, model, loader):
        self.model, self.loader = model, loader
        self.mode = "all"

    def run(self):
        if self.mode == "few":
            assess(self.model, self.loader)
"""


@pytest.mark.parametrize(
    "more, sure",
    [
        ({}, LOW),
        ({"other.py": "x.mode = 'few'\n"}, HIGH),
        ({"other.py": "x.mode == 'few'\n"}, LOW),
        ({"setup.py": "setup(packages=['kept'])\n"}, HIGH),
    ],
)
def test_attributes_that_others_may_set(
    tmp_path: Path, more: dict[str, str], sure: Confidence
) -> None:
    start = "from kept import Evaluation\n\nEvaluation(1, 2).run()\n"
    files = {"engine.py": LOOP, "kept.py": KEPT, "main.py": start, **more}
    assert confidences(tmp_path, files)[19] is sure


BATCHES = """\
from engine import assess


class Batches:
    def __init__(self, model, loader, checked=True):
        self.model, self.loader = model, loader
        self.checked = checked

    def run(self):
        if self.checked:
            assess(self.model, self.loader)


class Others(Batches):
    def __init__(self, model, loader, checked=True):
        super().__init__(model, loader, checked=checked)
"""
CONVERT = """\
from batches import Batches, Others
from parts import loader, model

Batches(model, loader, checked=False).run()
"""


@pytest.mark.parametrize(
    "more, sure",
    [
        ("", LOW),
        ("Others(model, loader).run()\n", HIGH),
        ("Others(model, loader, False).run()\n", LOW),
        ("Batches(model, loader).run()\n", HIGH),
        ("print(Others)\n", HIGH),
    ],
)
def test_defaults_of_what_nothing_makes(
    tmp_path: Path, more: str, sure: Confidence
) -> None:
    files = {"batches.py": BATCHES, "main.py": CONVERT + more}
    assert confidences(tmp_path, {"engine.py": LOOP, **files})[19] is sure
