"""Scripts to profile, and processes in which they find a small torch."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import gpulint
from gpulint.cli import main

REPO = Path(gpulint.__file__).resolve().parent.parent
FAKE = Path(__file__).parent.parent / "fake_torch"


@pytest.fixture(autouse=True)
def _fake_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Children import the small torch."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FAKE), str(REPO)]))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a script into the test's folder, which is the current one."""

    def make(text: str, name: str = "train.py") -> Path:
        script = tmp_path / name
        script.write_text(text, encoding="utf-8")
        return script

    return make


@pytest.fixture
def profile(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Call the command; a tenth of a second of steps is enough."""
    monkeypatch.setattr("gpulint.profiling.runs.LEAST_SECONDS", 0.1)

    def call(*words: str) -> Result:
        return CliRunner().invoke(main, ["profile", *words])

    return call
