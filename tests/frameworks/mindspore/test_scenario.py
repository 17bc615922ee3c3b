"""The scenario of MindSpore trains before and after its fixes."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "fixtures" / "scripts" / "tfnet"


@cache
def losses(name: str, *settings: str) -> tuple[float, ...]:
    """The loss of each epoch, with variables such as `GPULINT_BATCH_SIZE=8`."""
    variables = dict(setting.split("=") for setting in settings)
    done = subprocess.run(
        [sys.executable, str(FOLDER / name)],
        env={**os.environ, **variables},
        cwd=FOLDER.parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    return tuple(float(n.split()[1]) for n in lines if n.startswith("loss "))


def test_the_script_trains() -> None:
    found = losses("before.py")
    assert len(found) == 3
    assert found[-1] < found[0]


def test_exact_fixes_give_the_same_losses() -> None:
    assert losses("after.exact.py") == losses("before.py")


@pytest.mark.parametrize("settings", [(), ("GPULINT_RUNTIME=off",)])
def test_all_fixes_give_the_same_losses_on_a_cpu(settings: tuple[str, ...]) -> None:
    assert losses("after.all.py", *settings) == losses("before.py")


def test_a_larger_batch_trains_at_its_own_rate() -> None:
    found = losses("after.all.py", "GPULINT_BATCH_SIZE=8")
    assert len(found) == 3
    assert found != losses("before.py")
