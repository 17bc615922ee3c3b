"""Calls of one of several functions or classes, of which one does not take them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.finding import Confidence
from tests.script.test_doubts import LOOP, confidences

LOW, HIGH = Confidence.LOW, Confidence.HIGH

SMALL = """\
class Trainer:
    def __init__(self, width, depth=1):
        self.width = width * depth

    def fit(self, model, loader, optimizer):
        pass


def assess(model, loader, width=1):
    pass
"""
MAIN = """\
import argparse

from parts import loader, model, optimizer

parser = argparse.ArgumentParser()
parser.add_argument("--kind")
args = parser.parse_args()
{imports}
trainer = {made}
trainer.fit(model, loader, optimizer)
"""
RENAMED = """\
if args.kind == "large":
    from engine import Trainer as Runner, assess as judge
else:
    from small import Trainer as Runner, assess as judge
"""
PLAIN = """\
if args.kind == "large":
    from engine import Trainer, assess
else:
    from small import Trainer, assess
"""
KEPT = """\
from engine import Trainer
from small import Trainer as Small
if args.kind == "large":
    Runner = Trainer
else:
    Runner = Small
"""
WITH_INIT = LOOP.replace(
    "class Trainer:\n",
    "class Trainer:\n    def __init__(self, width):\n        self.width = width\n\n",
)


@pytest.mark.parametrize(
    "imports, made, sure",
    [
        (RENAMED, "Runner(3, depth=2)", LOW),
        (RENAMED, "Runner(3)", HIGH),
        (RENAMED, "Runner(3, **vars(args))", HIGH),
        (RENAMED, "Runner(3, depth=2) if args else Runner(3)", HIGH),
        (PLAIN, "Trainer(3, depth=2)", LOW),
        (PLAIN, "Trainer(3)", HIGH),
        (KEPT, "Runner(3, depth=2)", LOW),
        (KEPT, "Runner(3)", HIGH),
    ],
)
def test_a_class_that_takes_less_than_the_others(
    tmp_path: Path, imports: str, made: str, sure: Confidence
) -> None:
    main = MAIN.format(imports=imports, made=made)
    files = {"engine.py": WITH_INIT, "small.py": SMALL, "main.py": main}
    assert confidences(tmp_path, files)[14] is sure


@pytest.mark.parametrize(
    "before, sure",
    [
        ("class Trainer:\n    pass\n\n\n@made\n", HIGH),
        ("", LOW),
    ],
)
def test_a_class_that_a_decorator_makes(
    tmp_path: Path, before: str, sure: Confidence
) -> None:
    engine = WITH_INIT.replace("class Trainer:\n", f"{before}class Trainer:\n")
    main = MAIN.format(imports=RENAMED, made="Runner(3, depth=2)")
    files = {"engine.py": engine, "small.py": SMALL, "main.py": main}
    assert confidences(tmp_path, files)[14 + before.count("\n")] is sure


@pytest.mark.parametrize(
    "given, sure", [("model, loader, width=3", LOW), ("model, loader", HIGH)]
)
def test_a_function_that_takes_less_than_the_other(
    tmp_path: Path, given: str, sure: Confidence
) -> None:
    main = MAIN.format(imports=RENAMED, made=f"judge({given})")
    files = {"engine.py": LOOP, "small.py": SMALL, "main.py": main}
    assert confidences(tmp_path, files)[19] is sure
