"""What `gpulint rules` and `gpulint explain` print."""

from __future__ import annotations

import json

import pytest
from fakes import Run

EXPLAINED = """\
# GPU101 slow-copy

severity: warning · effect: exact

A copy that waits.
It waits long.

## Why
It | waits.
"""
FIRST_ROW = (
    "| GPU101 | slow-copy | exact | warning | pytorch "
    "| A copy that waits. It waits long. |"
)


def test_list(run: Run) -> None:
    lines = run("rules").stdout.splitlines()
    assert lines[1] == (
        "GPU101  slow-copy     exact        warning  pytorch  "
        "A copy that waits. It waits long."
    )
    assert lines[3] == "GPU303  broken-api    none         error    pytorch"


def test_json(run: Run) -> None:
    listed = json.loads(run("rules", "--json", "--select", "slow-math").stdout)
    assert listed == [
        {
            "code": "GPU301",
            "name": "slow-math",
            "effect": "numerics",
            "severity": "warning",
            "framework": "pytorch",
            "summary": "Math in float32.",
        }
    ]


def test_markdown(run: Run) -> None:
    lines = run("rules", "--markdown", "--select", "GPU1,GPU3").stdout.splitlines()
    assert lines[:2] == ["# Rules", ""]
    assert lines[2:7] == [
        "| Code | Name | Effect | Severity | Framework | Summary |",
        "| --- | --- | --- | --- | --- | --- |",
        FIRST_ROW,
        "| GPU301 | slow-math | numerics | warning | pytorch | Math in float32. |",
        "| GPU303 | broken-api | none | error | pytorch |  |",
    ]


@pytest.mark.parametrize("word", ["GPU101", "gpu101", "slow-copy", "Slow-Copy"])
def test_explain(run: Run, word: str) -> None:
    assert run("explain", word).stdout == EXPLAINED


def test_explain_on_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpulint.cli.rules._is_terminal", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    shown = run("explain", "GPU101").stdout
    assert "\x1b[" in shown
    assert "##" not in shown
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in run("explain", "GPU101").stdout


def test_explain_as_json(run: Run) -> None:
    told = json.loads(run("explain", "GPU101", "--json").stdout)
    assert told["documentation"].startswith("A copy that waits.")
    assert (told["confidence"], told["torch"]) == ("high", "1.6")
