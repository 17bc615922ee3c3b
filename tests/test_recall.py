"""The list of what readers would want reported, and how findings are held against it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from gpulint.registry import all_rules

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from recall import Found, Place, finds  # noqa: E402

LABELS = [
    json.loads(line)
    for line in (BENCHMARKS / "recall.jsonl").read_text("utf-8").splitlines()
]


def test_each_place_names_a_rule_and_a_commit() -> None:
    codes = {rule.code for rule in all_rules()}
    assert len(LABELS) > 600
    for label in LABELS:
        assert label["code"] in codes
        assert re.fullmatch(r"[0-9a-f]{40}", label["commit"])
        assert label["row"] > 0
        assert label["sure"] >= 0.6
        assert not label["path"].startswith("/")
        assert label["why"]


@pytest.mark.parametrize(
    "code, place, wanted",
    [
        ("GPU106", Place("train.py", 40), True),
        ("GPU106", Place("train.py", 52), True),
        ("GPU106", Place("train.py", 53), None),
        ("GPU109", Place("loss.py", 7), True),  # another place of the same finding
        ("GPU106", Place("other.py", 40), None),
        ("GPU104", Place("train.py", 40), None),
        ("GPU102", Place("train.py", 40), False),
    ],
)
def test_places_near_findings(code: str, place: Place, wanted: bool | None) -> None:
    findings = [
        Found("GPU106", True, (Place("train.py", 40), Place("loss.py", 7))),
        Found("GPU102", False, (Place("train.py", 38),)),
    ]
    assert finds(code, place, findings) is wanted
