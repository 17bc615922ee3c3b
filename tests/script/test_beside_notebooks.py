"""Functions of a file that notebooks beside it use, and those that they leave out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpulint.finding import Confidence
from tests.script.test_doubts import LOOP, confidences

LOW, HIGH = Confidence.LOW, Confidence.HIGH
PAD = "#" * 300_000  # as much as pictures take


def notebook(*lines: str) -> str:
    """A notebook of one cell."""
    cell = {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": [f"{line}\n" for line in lines],
    }
    return json.dumps(
        {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    )


@pytest.mark.parametrize(
    "more, sure",
    [
        ({"a.ipynb": notebook("from engine import Trainer", "Trainer().fit()")}, LOW),
        ({"a.ipynb": notebook("from engine import assess", "assess(1, 2)")}, HIGH),
        ({"a.ipynb": notebook("import engine", "engine.assess(1, 2)")}, HIGH),
        ({"a.ipynb": notebook("from other import Trainer")}, HIGH),
        ({"a.ipynb": notebook("from engine import Trainer", PAD)}, LOW),
        ({"a.ipynb": notebook("from engine import *", PAD, "assess(1, 2)")}, HIGH),
        ({}, HIGH),
    ],
)
def test_what_notebooks_leave_out(
    tmp_path: Path, more: dict[str, str], sure: Confidence
) -> None:
    files = {"engine.py": LOOP, ".git/HEAD": "", **more}
    assert confidences(tmp_path, files)[19] is sure


def test_notebooks_that_are_too_large_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpulint.script.reaching.unused.MAX_NOTEBOOKS", 1000)
    text = notebook("from engine import Trainer", PAD)
    files = {"engine.py": LOOP, ".git/HEAD": "", "a.ipynb": text}
    assert confidences(tmp_path, files)[19] is HIGH
