"""What was run in the environments of frameworks is what the rules are now."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

RUN = Path(__file__).parent / "frameworks" / "run.py"
PARTS = runpy.run_path(str(RUN))


@pytest.mark.parametrize("name", [framework.name for framework in PARTS["FRAMEWORKS"]])
def test_results_are_of_these_rules(name: str) -> None:
    result = json.loads(PARTS["RESULTS"].read_text("utf-8"))[name]
    assert result["ran"] > 0
    assert "failed" not in result
    why = f"run `make test-frameworks FRAMEWORKS={name}`"
    assert result["rules"] == PARTS["state"](name), why
