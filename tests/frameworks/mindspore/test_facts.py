"""What the rules and the runtime say of MindSpore is so here."""

from __future__ import annotations

import inspect
import os

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
from mindspore import nn

from gpulint import runtime

REFUSED = (
    "enable_mem_reuse enable_dump save_dump_path enable_task_sink enable_ir_fusion "
    "enable_hccl enable_gpu_summary enable_loop_sink enable_dynamic_memory "
    "save_compile_cache load_compile_cache precompile_only grad_for_scalar"
).split()


class Numbers:
    """Numbers, and which process gave them."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return np.array([index], np.float32), np.array([os.getpid()])


def taken(**options: int) -> tuple[list[float], int]:
    """What a shuffled dataset gives in two epochs, and how many processes gave it."""
    ds.config.set_seed(3)
    data = ds.GeneratorDataset(
        Numbers(), ["number", "process"], shuffle=True, **options
    )
    numbers, processes = [], set()
    for _ in range(2):
        for number, process in data.create_tuple_iterator(
            num_epochs=1, output_numpy=True
        ):
            numbers.append(float(number[0]))
            processes.add(int(process[0]))
    return numbers, len(processes)


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one CPU")
def test_workers_give_the_same_samples_in_the_same_order() -> None:
    numbers, processes = taken()
    assert processes == 1
    assert taken(num_parallel_workers=2)[0] == numbers
    assert taken(num_parallel_workers=2)[1] > 1


def test_a_generator_has_one_worker_and_more_than_the_cpus_raise() -> None:
    options = inspect.signature(ds.GeneratorDataset.__init__).parameters
    assert options["num_parallel_workers"].default == 1
    many = (os.cpu_count() or 1) + 1
    with pytest.raises(ValueError, match="exceeds the boundary"):
        ds.GeneratorDataset(Numbers(), ["a", "b"], num_parallel_workers=many)
    chosen = runtime.ms.workers(many, python=True)
    ds.GeneratorDataset(Numbers(), ["a", "b"], num_parallel_workers=chosen)


def test_queues_have_sixteen_elements() -> None:
    assert ds.config.get_prefetch_size() == 16


@pytest.mark.parametrize("key", REFUSED)
def test_dead_keys_raise(key: str) -> None:
    with pytest.raises(ValueError, match=key):
        ms.set_context(**{key: True})


@pytest.mark.parametrize(
    "key, value",
    [
        *[("enable_auto_mixed_precision", True), ("enable_sparse", True)],
        *[("auto_tune_mode", "RL"), ("enable_graph_kernel", True)],
        ("jit_config", {"jit_level": "O1"}),
    ],
)
def test_these_keys_are_taken(key: str, value: object) -> None:
    ms.set_context(**{key: value})
    if key == "enable_graph_kernel":  # fuses on a CPU as well, with another package
        ms.set_context(**{key: False})


def test_setup_takes_what_there_is() -> None:
    if ms.get_context("device_target") != "CPU":
        pytest.skip("not a MindSpore for the CPU alone")
    with pytest.raises(RuntimeError, match="device target GPU"):
        ms.set_device("GPU")
    assert runtime.ms.setup("GPU", 0) == "CPU"
    assert "CPU (GPU: Unsupported device target GPU; Ascend" in runtime.explain()


def model(level: str) -> ms.Model:
    network = nn.Dense(2, 1)
    optimizer = nn.SGD(network.trainable_params(), 0.1)
    return ms.Model(network, nn.MSELoss(), optimizer, amp_level=level)


def test_levels_on_the_device_at_hand() -> None:
    model(runtime.ms.amp_level())
    if ms.get_context("device_target") == "CPU":
        assert runtime.ms.amp_level() == "O0"
        with pytest.raises(ValueError, match="CPU"):
            model("O2")


def test_a_model_trains_with_the_chosen_sink() -> None:
    ds.config.set_seed(1)
    pairs = [(np.ones(2, np.float32), np.ones(1, np.float32))] * 4
    data = ds.GeneratorDataset(pairs, ["x", "y"]).batch(2)
    model("O0").train(1, data, dataset_sink_mode=runtime.ms.sink())


def test_a_scaled_rate_rises_to_its_value() -> None:
    rate = runtime.ms.scaled_lr(1e-3, batch_size=8, base_batch_size=2)
    steps = [float(rate(ms.Tensor(n, ms.int32))) for n in (0, 50, 100, 5000)]
    assert steps == pytest.approx([0.0, 1e-3, 2e-3, 2e-3], rel=1e-4)
