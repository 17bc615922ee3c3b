"""The scenario of TensorFlow, run before and after its fixes."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "fixtures" / "scripts" / "emsc"
REFUSED = (
    "        workers=1,\n"
    "        use_multiprocessing=False,\n"
    '        max_queue_size=2 if environment == "local" else 10,\n'
)


@functools.cache
def run(text: str, **variables: str) -> subprocess.CompletedProcess[str]:
    own = {"TF_CPP_MIN_LOG_LEVEL": "3", "FORCE_ENV_TYPE": "local", **variables}
    return subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        check=False,
    )


def losses(text: str, **variables: str) -> list[float]:
    """Three epochs, and two with noise that is drawn once."""
    done = run(text, **variables)
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[float] = json.loads(done.stdout)
    assert len(found) == 5
    return found


def script(name: str) -> str:
    return (FOLDER / name).read_text("utf-8")


def before() -> str:
    """The script without what Keras 3 refuses."""
    text = script("before.py")
    assert REFUSED in text
    return text.replace(REFUSED, "")


def test_the_script_fails_as_it_is() -> None:
    done = run(script("before.py"))
    assert done.returncode
    assert "unexpected keyword argument 'workers'" in done.stderr


def test_exact_fixes_give_the_same_losses() -> None:
    assert losses(script("after.exact.py")) == losses(before())


@pytest.mark.parametrize("switch", ["on", "off"])
def test_all_fixes_give_the_same_losses_but_for_the_random_part(switch: str) -> None:
    """Nothing asks for another batch, and there is no GPU."""
    found = losses(script("after.all.py"), GPULINT_RUNTIME=switch)
    assert found[:3] == losses(before())[:3]


def test_the_fixed_script_takes_the_batch_that_is_asked_for() -> None:
    found = losses(script("after.all.py"), GPULINT_BATCH_SIZE="32")
    assert found != losses(before())
    assert found[2] < found[0]
