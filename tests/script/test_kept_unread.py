"""Objects that others keep and never ask for again."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.finding import Confidence
from tests.script.test_doubts import LOOP, confidences

LOW, HIGH = Confidence.LOW, Confidence.HIGH

PENALTY = """\
from engine import assess


class Penalty:
    def __init__(self, loader):
        self.loader = loader

    def of(self, model):
        assess(model, self.loader)
"""
LOSS = """\
from penalties import Penalty


class Loss:
    def __init__(self, loader):
        self.penalty = Penalty(loader)

    def __call__(self, model):
        return model.loss()
"""
USED = (
    "from losses import Loss\nfrom parts import loader, model\n\nLoss(loader)(model)\n"
)
# Somebody calls methods of these names, of what is not known.
NAMED = "\n\ndef ask(found):\n    found.of(found.train())\n"


@pytest.mark.parametrize(
    "old, new, sure",
    [
        ("", "", LOW),
        ("model.loss()", "self.penalty.of(model)", HIGH),
        ("model.loss()", "check(self.penalty)", HIGH),
        ("model.loss()", "getattr(self, 'penalty').of(model)", HIGH),
        ("model.loss()", "[x(model) for x in self.children()]", HIGH),
        ("self.penalty = ", "penalty = ", HIGH),
        ("self.penalty = ", "self.penalty = penalty = ", HIGH),
        ("self.penalty = Penalty(loader)", "self.penalty = [Penalty(loader)]", HIGH),
        ("return model", "print(Penalty)\n        return model", HIGH),
        ("return model", "# self.penalty\n        return model", LOW),
        ("model.loss()", "self.penalty.loader(model)", LOW),
        ("model.loss()", "list(self.penalty.parameters())", LOW),
        ("model.loss()", "self.penalty.eval()(model)", HIGH),
        ("model.loss()", "self.penalty.others(model)", HIGH),
        ("model.loss()", "vars(model)", HIGH),
    ],
    ids=[
        "kept",
        "asked",
        "handed on",
        "by name",
        "as a part",
        "a variable",
        "also a variable",
        "in a list",
        "class handed on",
        "a comment",
        "what it holds",
        "its parameters",
        "itself",
        "what it may hold",
        "all of an object",
    ],
)
def test_objects_that_are_kept_and_never_asked(
    tmp_path: Path, old: str, new: str, sure: Confidence
) -> None:
    assert old in LOSS
    loss = LOSS.replace(old, new) if old else LOSS
    files = {"penalties.py": PENALTY, "losses.py": loss, "main.py": USED + NAMED}
    assert confidences(tmp_path, {"engine.py": LOOP, **files})[19] is sure


@pytest.mark.parametrize(
    "old, new, sure",
    [
        ("self.loader = loader", "self.loader = loader\n        self.of(loader)", HIGH),
        ("self.loader = loader", "self.loader = start(loader, self)", HIGH),
        ("self.loader = loader", "self.loader = start(loader, self.of)", HIGH),
        ("self.loader = loader", "super().__init__()\n        self.loader = 1", LOW),
        ("Penalty:", "Penalty(torch.nn.Module):", LOW),
        ("Penalty:", "Penalty(threading.Thread):", HIGH),
        ("def of", "def train", HIGH),
        ("def of", "def __del__", HIGH),
    ],
    ids=[
        "calls itself",
        "hands itself on",
        "hands a method on",
        "plain",
        "module",
        "thread",
        "part of a module",
        "end",
    ],
)
def test_objects_that_act_by_themselves(
    tmp_path: Path, old: str, new: str, sure: Confidence
) -> None:
    assert old in PENALTY
    penalty = f"import threading\n\nimport torch\n\n{PENALTY.replace(old, new)}"
    files = {"penalties.py": penalty, "losses.py": LOSS, "main.py": USED + NAMED}
    assert confidences(tmp_path, {"engine.py": LOOP, **files})[19] is sure


def test_objects_that_another_file_asks(tmp_path: Path) -> None:
    files = {"penalties.py": PENALTY, "losses.py": LOSS, "main.py": USED}
    files["main.py"] += "Loss(loader).penalty.of(model)\n"
    assert confidences(tmp_path, {"engine.py": LOOP, **files})[19] is HIGH


OTHER = """\
import argparse

from losses import Loss


class Other:
    def __init__(self, penalty):
        self.penalty = penalty

    def of(self, model):
        return self.penalty(model)


args = argparse.ArgumentParser().parse_args()
print(vars(args))
"""


@pytest.mark.parametrize(
    "old, new, sure",
    [
        ("", "", LOW),
        ("class Other:", "class Other(Loss):", HIGH),
        ("self.penalty = penalty", "super().__init__(penalty)", HIGH),
        ("self.penalty(model)", "model.penalty(model)", HIGH),
        ("(vars(args))", "(vars(Other))", HIGH),
        ("print(vars(args))", "print(list(map(vars, [args])))", HIGH),
    ],
)
def test_what_other_classes_have_under_the_name(
    tmp_path: Path, old: str, new: str, sure: Confidence
) -> None:
    assert old in OTHER
    other = OTHER.replace(old, new) if old else OTHER
    files = {"penalties.py": PENALTY, "losses.py": LOSS, "main.py": USED + NAMED}
    files["other.py"] = other
    assert confidences(tmp_path, {"engine.py": LOOP, **files})[19] is sure
