"""The scenario of MindSpore trains before and after its fixes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

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


def test_the_expert_trains_as_the_script_does() -> None:
    """With a quarter of the steps, and in another order."""
    found = losses("expert.py")
    assert found == pytest.approx(losses("before.py"), rel=0.1)
    assert found[-1] < found[0]


SAME = """
import json, tempfile
from pathlib import Path
import mindspore as ms
import numpy as np
import before, expert
ms.set_context(mode=ms.PYNATIVE_MODE)
before.LEARNING_RATE = expert.LEARNING_RATE * (8 / 2) ** 0.5
folder = Path(tempfile.mkdtemp())
glosses = before.write_videos(folder, 32, seed=3)
rows = expert.read_videos(folder, glosses)
plain = before.create_dataset(folder, glosses, 8, shuffle=False)
networks = [before.TFNet(16), before.TFNet(16)]
for its, other in zip(*(network.get_parameters() for network in networks)):
    other.set_data(ms.Tensor(its.asnumpy().copy()))  # no memory in common
slow = before.Trainer({}, networks[0])
fast = expert.Trainer({}, networks[1])
found = [slow.evaluate(plain), fast.evaluate(rows)]
batches = plain.create_tuple_iterator(num_epochs=1)
steps = [float(slow.train_step(*b).asnumpy()) for b in batches]
order = ms.Tensor(np.arange(32, dtype=np.int32).reshape(4, 8))
found += [float(np.mean(steps)), float(fast.train_epoch(*rows, order).asnumpy())]
weights = [n.head.weight.asnumpy().astype(float) for n in networks]
found += [float(abs(its).sum()) for its in weights]
found += [slow.evaluate(plain), fast.evaluate(rows)]
print(json.dumps(found))
"""


def said(*words: str) -> Any:
    """The JSON that ends what a Python beside the scripts prints."""
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": str(FOLDER)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_expert_computes_the_same(tmp_path: Path) -> None:
    program = tmp_path / "same.py"  # MindSpore reads the text of what it compiles
    program.write_text(SAME, "utf-8")
    found = said(str(program))
    assert found[::2] == pytest.approx(found[1::2], rel=1e-4)


@pytest.mark.parametrize("file, steps", [("before.py", 16), ("expert.py", 4)])
def test_the_benchmark_sees_passes_begin(file: str, steps: int) -> None:
    child = str(FOLDER.parents[2] / "benchmarks" / "seeds_child.py")
    found = said(child, "mindspore", str(FOLDER / file), "Trainer.evaluate")
    assert [so_far for _, so_far in found["marks"]] == [steps, 2 * steps, 3 * steps]
    seconds = [second for second, _ in found["marks"]]
    assert seconds == sorted(seconds)
    assert set(found["versions"]) == {"mindspore", "numpy", "python"}
