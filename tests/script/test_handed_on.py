"""Functions that are handed to what calls them with other parameters than theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.finding import Confidence
from tests.script.test_doubts import LOOP, confidences

LOW, HIGH = Confidence.LOW, Confidence.HIGH

MAIN = """\
import sys

from engine import assess
from parts import model

{receiver}


if __name__ == "__main__":
    Runner({given})
"""
RUNNER = """\
class Runner:
    def __init__(self, judge, rows):
        {body}
"""


@pytest.mark.parametrize(
    "body, given, sure",
    [
        ("judge()", "assess, sys.argv", LOW),
        ("judge(model)", "assess, sys.argv", LOW),
        ("judge(model, rows, 3)", "assess, sys.argv", LOW),
        ("judge(model, rows)", "assess, sys.argv", HIGH),
        ("judge(model, loader=rows)", "assess, sys.argv", HIGH),
        ("judge(*rows)", "assess, sys.argv", HIGH),
        ("judge()\n        self.judge = judge", "assess, sys.argv", HIGH),
        ("rows()", "assess, sys.argv", HIGH),
        ("judge()", "sys.argv, assess", HIGH),
        ("judge()", "*sys.argv, assess", HIGH),
        ("judge()", "assess, assess(model, sys.argv)", HIGH),
        ("judge()", "rows=sys.argv, judge=assess", HIGH),
    ],
)
def test_what_a_class_calls(
    tmp_path: Path, body: str, given: str, sure: Confidence
) -> None:
    main = MAIN.format(receiver=RUNNER.format(body=body), given=given)
    files = {"engine.py": LOOP, "main.py": main}
    assert confidences(tmp_path, files)[19] is sure


def test_a_class_that_is_not_seen(tmp_path: Path) -> None:
    main = MAIN.format(receiver="from others import Runner", given="assess, sys.argv")
    assert confidences(tmp_path, {"engine.py": LOOP, "main.py": main})[19] is HIGH


def test_arguments_that_a_decorator_gives(tmp_path: Path) -> None:
    """`@hydra.main(…)` and its kin call a function with what they read."""
    text = LOOP.replace("def assess(", "@filled()\ndef assess(")
    main = MAIN.format(receiver=RUNNER.format(body="judge()"), given="assess, sys.argv")
    found = confidences(tmp_path, {"engine.py": text, "main.py": main})
    assert found[20] is HIGH
