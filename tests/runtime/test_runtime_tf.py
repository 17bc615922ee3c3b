"""The helpers for TensorFlow, with a TensorFlow that is made up."""

from __future__ import annotations

import logging
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from gpulint import runtime

Said = Callable[[], list[str]]
LIMITS = "gpulint.runtime._tf.available_cpus", "gpulint.runtime._policy.available_cpus"


class FakeTensorFlow(types.ModuleType):
    """Notes what is set; once started it refuses threads and memory."""

    def __init__(self, gpus: int, started: bool) -> None:
        super().__init__("tensorflow")
        self.set: dict[str, Any] = {}
        self.started = started
        names = types.SimpleNamespace
        self.data = names(AUTOTUNE=-1)
        self.config = names(
            list_physical_devices=lambda kind: [f"{kind}:{n}" for n in range(gpus)],
            experimental=names(
                set_memory_growth=self.note("memory"),
                enable_tensor_float_32_execution=lambda on: self.set.update(tf32=on),
            ),
            threading=names(
                set_intra_op_parallelism_threads=self.note("threads"),
                set_inter_op_parallelism_threads=self.note("interop"),
            ),
        )

    def note(self, name: str) -> Callable[..., None]:
        def act(*values: Any) -> None:
            if self.started:
                raise RuntimeError("cannot be modified after initialization")
            self.set[name] = values[-1]

        return act


Give = Callable[..., FakeTensorFlow]


@pytest.fixture(autouse=True)
def plain_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide pytest's own log handlers."""
    monkeypatch.setattr(logging.getLogger("gpulint"), "hasHandlers", lambda: False)


@pytest.fixture
def tensorflow(monkeypatch: pytest.MonkeyPatch) -> Give:
    def give(
        kind: str | None = None, *, cpus: int = 16, gpus: int = 1, started: bool = False
    ) -> FakeTensorFlow:
        fake = FakeTensorFlow(gpus, started)
        monkeypatch.setitem(sys.modules, "tensorflow", fake)
        for limit in LIMITS:
            monkeypatch.setattr(limit, lambda: cpus)
        if kind is not None:
            monkeypatch.setenv("GPULINT_POLICY", "local-cloud")
            monkeypatch.setenv("GPULINT_ENV", kind)
        return fake

    return give


# For n samples: a local machine, and a cloud's.
BATCHES = [
    (1, 1, 1),
    (10, 10, 10),
    (49, 16, 49),
    (50, 16, 50),
    (100, 16, 64),
    (1600, 16, 64),
    (3200, 32, 64),
    (5000, 50, 100),
    (6400, 64, 128),
    (100_000, 64, 128),
]


@pytest.mark.parametrize("samples, local, cloud", BATCHES)
def test_batch_size_by_the_place(
    samples: int, local: int, cloud: int, tensorflow: Give
) -> None:
    tensorflow("local")
    assert runtime.tf.batch_size(8, samples=samples) == local
    runtime._reset()
    tensorflow("cloud")
    assert runtime.tf.batch_size(8, samples=samples) == cloud


def test_batch_size_is_the_scripts_own_unless_asked(
    tensorflow: Give, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensorflow()
    assert runtime.tf.batch_size(8, samples=10_000) == 8
    runtime._reset()
    monkeypatch.setenv("GPULINT_BATCH_SIZE", "48")
    assert runtime.tf.batch_size(8, samples=10_000) == 48


def test_what_a_local_machine_gets(tensorflow: Give, said: Said) -> None:
    fake = tensorflow("local")
    runtime.tf.configure()
    size = runtime.tf.batch_size(16, samples=3200)
    assert runtime.tf.parallel_calls() == 4
    assert runtime.tf.prefetch(size) == 4
    options = {"workers": 1, "use_multiprocessing": False, "max_queue_size": 2}
    assert runtime.tf.pydataset_args() == options
    assert fake.set == {"memory": True, "tf32": True}
    assert said() == [
        "gpulint: memory: grows as it is needed",
        "gpulint: TF32: on (local)",
        "gpulint: threads: TensorFlow's own (local)",
        "gpulint: batch size: 32 (local, 3200 samples)",
        "gpulint: parallel calls: 4 (local)",
        "gpulint: prefetch: 4 batches (local)",
        "gpulint: workers of a PyDataset: 1, a queue of 2 (local)",
    ]


def test_what_a_cloud_gets(tensorflow: Give, said: Said) -> None:
    fake = tensorflow("cloud")
    runtime.tf.configure()
    assert runtime.tf.batch_size(16, samples=3200) == 64
    assert runtime.tf.parallel_calls() == -1
    assert runtime.tf.prefetch(64) == -1
    assert runtime.tf.pydataset_args()["max_queue_size"] == 10
    assert fake.set == {"memory": True, "tf32": False, "threads": 8, "interop": 4}
    assert "gpulint: parallel calls: AUTOTUNE (cloud)" in said()


def test_a_small_machine_gets_no_more_threads_than_cpus(tensorflow: Give) -> None:
    fake = tensorflow("cloud", cpus=2)
    runtime.tf.configure()
    assert (fake.set["threads"], fake.set["interop"]) == (2, 2)
    runtime._reset()
    tensorflow("local", cpus=2)
    assert runtime.tf.parallel_calls() == 2
    assert runtime.tf.prefetch() == 2


def test_measured_leaves_tensorflow_alone(tensorflow: Give, said: Said) -> None:
    fake = tensorflow(gpus=0)
    runtime.tf.configure(was={"threads": 8})
    assert fake.set == {}
    assert runtime.tf.parallel_calls() == runtime.tf.prefetch(64) == -1
    assert runtime.tf.pydataset_args() == {"workers": 8, "use_multiprocessing": False}
    assert said()[0] == "gpulint: memory: as it was (no GPU)"


def test_arguments_win_over_the_policy(tensorflow: Give) -> None:
    fake = tensorflow("local")
    runtime.tf.configure(tf32=False, threads=3)
    assert (fake.set["tf32"], fake.set["threads"]) == (False, 3)


def test_after_the_start_nothing_fails(tensorflow: Give, said: Said) -> None:
    fake = tensorflow("cloud", started=True)
    runtime.tf.configure()
    assert fake.set == {"tf32": False}
    assert "gpulint: threads: skipped (TensorFlow had started before)" in said()


@pytest.mark.parametrize("switch", [("GPULINT_RUNTIME", "off"), ("GPULINT_DEBUG", "1")])
def test_switched_off_all_is_as_it_was(
    switch: tuple[str, str], tensorflow: Give, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tensorflow("cloud")
    monkeypatch.setenv(*switch)
    runtime.tf.configure(was={"threads": 6, "interop_threads": 2})
    assert fake.set == {"threads": 6, "interop": 2}
    assert runtime.tf.batch_size(8, samples=10_000) == 8
    assert runtime.tf.parallel_calls() is None
    assert runtime.tf.prefetch(64, was=1) == 1
    assert runtime.tf.pydataset_args(workers=3) == {"workers": 3}


def test_another_policy_is_an_error(tensorflow: Give) -> None:
    tensorflow()
    with pytest.raises(ValueError, match="policy='fast' is not one of"):
        runtime.tf.configure("fast")
    runtime.tf.configure("local-cloud")
    assert runtime.tf.prefetch(80) in (10, -1)
