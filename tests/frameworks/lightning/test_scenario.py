"""The scenario of Lightning trains before and after its fixes."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("lightning")

FOLDER = Path(__file__).resolve().parents[3] / "fixtures" / "scripts" / "shapes"
EPOCHS = 3


@cache
def figures(name: str, *settings: str) -> tuple[float, ...]:
    """The losses of all epochs, then the accuracies of their validations."""
    variables = dict(setting.split("=") for setting in settings)
    done = subprocess.run(
        [sys.executable, str(FOLDER / name)],
        env={**os.environ, **variables},
        cwd=FOLDER.parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    pairs = [line.split() for line in done.stdout.splitlines()]
    found = [
        float(pair[1])
        for word in ("loss", "accuracy")
        for pair in pairs
        if pair[:1] == [word]
    ]
    assert len(found) == 2 * EPOCHS
    assert all(map(math.isfinite, found))
    return tuple(found)


def test_the_script_trains() -> None:
    found = figures("before.py")
    assert found[EPOCHS - 1] < found[0]


def test_exact_fixes_give_the_same_figures() -> None:
    assert figures("after.exact.py") == figures("before.py")


def test_all_fixes_give_the_same_figures_with_the_runtime_off() -> None:
    assert figures("after.all.py", "GPULINT_RUNTIME=off") == figures("before.py")


def test_the_fixed_script_trains_with_workers() -> None:
    found = figures("after.all.py")
    assert found[EPOCHS - 1] < found[0]
