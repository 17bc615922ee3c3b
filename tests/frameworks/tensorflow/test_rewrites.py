"""What the fixes write runs: pipelines give the same elements, models train."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest
import tensorflow as tf

from gpulint.engine import Options, fix_source
from gpulint.finding import Effect
from gpulint.registry import select_rules
from gpulint.source import Source

EVERYTHING = frozenset(Effect)


def fixed(code: str, *rules: str) -> str:
    """The code after some rules' fixes; each must have done something."""
    done = fix_source(
        Source(Path("script.py"), code), Options(select_rules(rules), EVERYTHING)
    )
    assert {f.code for f in done.applied} == set(rules)
    return done.text


def run(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(code, "script.py", "exec"), names)
    return names


PIPELINE = """
import tensorflow as tf


def scale(x):
    return tf.cast(x, tf.float32) / 7.0


def read(start):
    return tf.data.Dataset.range(start, start + 5)


numbers = tf.data.Dataset.range(0, 60, 5).interleave(read, cycle_length=4)
numbers = numbers.map(scale).batch(7)
seen = []
for batch in numbers:
    seen += batch.numpy().tolist()
"""


def test_a_faster_pipeline_gives_the_same() -> None:
    rules = ("GPU271", "GPU272", "GPU273")
    code = fixed(PIPELINE, *rules)
    assert code.count("num_parallel_calls=tf.data.AUTOTUNE") == 2
    assert run(code)["seen"] == run(PIPELINE)["seen"]


MODEL = """
import numpy as np
import tensorflow as tf

tf.keras.utils.set_random_seed(0)
BATCH = 8
x = np.random.rand(64, 8, 8, 1).astype("float32")
y = (x.mean((1, 2, 3)) > 0.5).astype("int32")
model = tf.keras.Sequential([
    tf.keras.layers.Conv2D(4, 3),
    tf.keras.layers.Flatten(),
    tf.keras.layers.Dense(2, activation="softmax"),
])
optimizer = tf.keras.optimizers.Adam(1e-3)
model.compile(loss="sparse_categorical_crossentropy", optimizer=optimizer)
losses = model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0).history["loss"]
"""


def test_a_model_trains_with_the_batch_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = fixed(MODEL, "GPU471")
    assert run(code)["losses"] == run(MODEL)["losses"]
    monkeypatch.setenv("GPULINT_BATCH_SIZE", "32")
    from gpulint import runtime

    runtime._reset()
    found = run(code)
    runtime._reset()
    assert found["BATCH"] == 32
    assert np.isclose(float(found["optimizer"].learning_rate), 2e-3)


def test_mixed_precision_keeps_outputs_in_float32() -> None:
    code = fixed(MODEL, "GPU371")
    on_cpu = code.replace('if tf.config.list_physical_devices("GPU"):', "if True:")
    try:
        model = run(on_cpu)["model"]
        outputs = model(np.zeros((1, 8, 8, 1), "float32"))
        assert outputs.dtype == tf.float32
        assert model.layers[0].compute_dtype == "float16"
        assert type(model.optimizer).__name__ == "LossScaleOptimizer"
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")


REMOVED = """
import numpy as np
import tensorflow as tf


class Rows(tf.keras.utils.Sequence):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return np.ones((8, 2)), np.ones((8, 1))


model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile(loss="mse", optimizer=tf.keras.optimizers.SGD(lr=0.1))
model.fit_generator(Rows(), 4, 2, verbose=0, workers=2, use_multiprocessing=False)
scores = model.predict_generator(Rows(), 4, max_queue_size=5)
"""


def test_calls_that_failed_run() -> None:
    with pytest.raises(ValueError, match="lr"):
        run(REMOVED)
    assert run(fixed(REMOVED, "GPU573", "GPU274"))["scores"].shape == (32, 1)
