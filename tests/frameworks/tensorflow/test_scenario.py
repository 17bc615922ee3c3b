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


def test_the_expert_trains_as_the_script_does() -> None:
    """With half the steps, in another order, and with noise of its own."""
    found = losses("import expert\nexpert.main()", PYTHONPATH=str(FOLDER))
    assert found == pytest.approx(losses(before()), rel=0.1)
    assert found == sorted(found, reverse=True)


SAME = """
import json
import numpy as np, tensorflow as tf
import before, expert
tf.keras.utils.set_random_seed(5)
trainer = expert.Trainer(before.make_model())
rows = expert.make_rows(0)
plain = before.make_dataset(0, False)
model = tf.keras.models.clone_model(trainer.model)
model.set_weights(trainer.model.get_weights())
rate = expert.LEARNING_RATE
model.compile("adam", "categorical_crossentropy")
model.optimizer.learning_rate = rate
losses = [model.evaluate(plain, verbose=0), float(trainer.validate(*rows))]
batches = plain.unbatch().batch(expert.BATCH_SIZE)
losses += model.fit(batches, verbose=0).history["loss"]
order = tf.range(before.SAMPLES)
losses += [float(trainer.train_epoch(*rows, order, expert.BATCH_SIZE))]
losses += [model.evaluate(plain, verbose=0), float(trainer.validate(*rows))]
print(json.dumps(losses))
"""


def test_the_expert_computes_the_same_losses() -> None:
    done = run(SAME, PYTHONPATH=str(FOLDER))
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found[::2] == pytest.approx(found[1::2], rel=1e-4)


@pytest.mark.parametrize(
    "file, where, steps",
    [("after.all.py", "fit", 20), ("expert.py", "Trainer.train_epoch", 10)],
)
def test_the_benchmark_sees_passes_begin(file: str, where: str, steps: int) -> None:
    """Three of the first training, two of the second with five steps each."""
    child = str(FOLDER.parents[2] / "benchmarks" / "seeds_child.py")
    done = subprocess.run(
        [sys.executable, child, "tensorflow", str(FOLDER / file), where],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=True,
    )
    said = json.loads(done.stdout.splitlines()[-1])
    begun = [0, steps, 2 * steps, 3 * steps, 3 * steps + 5]
    assert [so_far for _, so_far in said["marks"]] == begun
    seconds = [second for second, _ in said["marks"]]
    assert seconds == sorted(seconds)
    assert said["device"] in {"CPU", "GPU"}
    assert set(said["versions"]) == {"tensorflow", "keras", "python"}
