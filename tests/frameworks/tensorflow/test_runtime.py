"""`runtime.tf` with a real TensorFlow, each time in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

AFTER = """
import json, sys
c = tf.config
print(json.dumps({
    "threads": c.threading.get_intra_op_parallelism_threads(),
    "interop": c.threading.get_inter_op_parallelism_threads(),
    "tf32": c.experimental.tensor_float_32_execution_enabled(),
    "torch": "torch" in sys.modules,
}))
"""
IMPORTS = "import tensorflow as tf\nfrom gpulint import runtime\n"


def run(code: str, **variables: str) -> tuple[dict[str, object], str]:
    """What TensorFlow has after some code, and what the user has read."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS + code + AFTER],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout), done.stderr


def place(kind: str) -> dict[str, str]:
    return {"GPULINT_POLICY": "local-cloud", "GPULINT_ENV": kind}


def test_measured_changes_nothing() -> None:
    found, said = run("runtime.tf.configure(was={'threads': 3})")
    wanted = {"threads": 0, "interop": 0, "tf32": True, "torch": False}
    assert found == wanted
    assert "gpulint: memory: as it was (no GPU)" in said


def test_a_cloud_gets_few_threads_and_no_tf32() -> None:
    found, _ = run("runtime.tf.configure()", **place("cloud"))
    cpus = len(os.sched_getaffinity(0))
    assert found["tf32"] is False
    assert 1 <= int(str(found["threads"])) <= min(8, cpus)
    assert 1 <= int(str(found["interop"])) <= min(4, cpus)


def test_off_is_what_the_script_had() -> None:
    code = "runtime.tf.configure(was={'threads': 3, 'interop_threads': 2})"
    found, _ = run(code, GPULINT_RUNTIME="off")
    assert (found["threads"], found["interop"]) == (3, 2)


def test_after_the_start_threads_are_skipped() -> None:
    code = "tf.constant(1) + 1\nruntime.tf.configure()"
    found, said = run(code, **place("cloud"))
    assert found["threads"] == 0
    assert "threads: skipped (TensorFlow had started before)" in said


@pytest.mark.parametrize("kind", ["local", "cloud"])
def test_numbers_that_datasets_and_pydatasets_take(kind: str) -> None:
    code = """
import keras, numpy as np
runtime.tf.configure()
size = runtime.tf.batch_size(8, samples=320)
data = tf.data.Dataset.range(320).map(lambda x: x * 2, runtime.tf.parallel_calls())
data = data.batch(size).prefetch(runtime.tf.prefetch(size))
assert sum(len(b) for b in data) == 320
class Rows(keras.utils.PyDataset):
    def __len__(self): return 4
    def __getitem__(self, i): return np.ones((8, 2)), np.ones((8, 1))
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(Rows(**runtime.tf.pydataset_args()), verbose=0)
"""
    found, said = run(code, **place(kind))
    assert found["torch"] is False
    assert f"({kind}, 320 samples)" in said
