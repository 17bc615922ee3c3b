"""The scenario of the Trainer trains before and after its fixes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from math import isfinite
from pathlib import Path

import pytest

pytest.importorskip("transformers")

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "fixtures" / "scripts" / "reviews"


@cache
def losses(name: str, *settings: str) -> tuple[float, ...]:
    """Twelve losses of the training, and three of the validation."""
    variables = dict(setting.split("=") for setting in settings)
    own = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        [sys.executable, str(FOLDER / name)],
        env={**os.environ, **own, **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found, accuracy = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 15
    assert accuracy > 0.9
    return tuple(found)


def test_the_script_trains() -> None:
    found = losses("before.py")
    assert all(map(isfinite, found))
    assert found[11] < found[0]


def test_exact_fixes_give_the_same_losses() -> None:
    assert losses("after.exact.py") == losses("before.py")


@pytest.mark.parametrize("settings", [(), ("GPULINT_RUNTIME=off",)])
def test_all_fixes_give_the_same_losses_up_to_rounding(
    settings: tuple[str, ...],
) -> None:
    """The model has no dropout, whose numbers would be others without the padding."""
    found = losses("after.all.py", *settings)
    assert all(map(isfinite, found))
    assert found == pytest.approx(losses("before.py"), rel=1e-4)
