"""runtime.ms: what a training with MindSpore asks of the machine."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from gpulint import runtime
from gpulint.runtime._nvml import NvmlFacts

GIB = 1024**3
MODULE = "gpulint.runtime._ms"
Fake = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def mindspore(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """A MindSpore with these devices; gives the calls that set one."""

    def give(
        *devices: str, old: bool = False, oldest: bool = False
    ) -> list[tuple[Any, ...]]:
        calls: list[tuple[Any, ...]] = []
        fake = types.ModuleType("mindspore")
        context = {"device_target": devices[0], "device_id": 0}

        def set_device(target: str, device_id: int | None = None) -> None:
            calls.append((target, device_id))
            if target not in devices:
                raise RuntimeError(f"Unsupported device target {target}.\nA long story")
            context["device_target"] = target

        def set_context(device_target: str, device_id: int | None = None) -> None:
            set_device(device_target, device_id)
            calls.append(("set_context",))

        name, function = ("set_context", set_context)
        if not (old or oldest):
            name, function = ("set_device", set_device)
        inner = types.ModuleType("mindspore.context")
        holder = inner if oldest else fake
        setattr(holder, name, function)
        holder.get_context = context.__getitem__  # type: ignore[attr-defined]
        nn = types.ModuleType("mindspore.nn")
        nn.WarmUpLR = lambda rate, steps: ("warm-up", rate, steps)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "mindspore", fake)
        monkeypatch.setitem(sys.modules, "mindspore.nn", nn)
        monkeypatch.setitem(sys.modules, "mindspore.context", inner)
        return calls

    return give


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Usable CPUs, those of the whole machine, memory of the GPU in GiB, and so on."""

    def give(
        cpus: int = 8,
        *,
        most: int = 64,
        memory: float | None = None,
        shm: int | None = 16 * GIB,
    ) -> None:
        facts = None
        if memory is not None:
            facts = NvmlFacts("NVIDIA Test GPU", (8, 0), int(memory * GIB), 0)
        monkeypatch.setattr(f"{MODULE}.available_cpus", lambda: cpus)
        monkeypatch.setattr(f"{MODULE}.os.cpu_count", lambda: most)
        monkeypatch.setattr(f"{MODULE}.shm_free", lambda: shm)
        monkeypatch.setattr(f"{MODULE}.nvml_facts", lambda index: facts)
        monkeypatch.setattr(f"{MODULE}.debugger_attached", lambda: False)

    return give


# The device


def test_the_device_of_the_script_comes_first(mindspore: Fake) -> None:
    calls = mindspore("Ascend", "CPU", "GPU")
    assert runtime.ms.setup("Ascend", 3) == "Ascend"
    assert calls == [("Ascend", 3)]
    assert "MindSpore device: Ascend" in runtime.explain()


def test_the_others_follow_and_each_refusal_is_told(mindspore: Fake) -> None:
    calls = mindspore("CPU")
    assert runtime.ms.setup("GPU", 1) == "CPU"
    assert calls == [("GPU", 1), ("Ascend", None), ("CPU", None)]
    told = "CPU (GPU: Unsupported device target GPU; Ascend: Unsupported"
    assert told in runtime.explain()


def test_a_device_can_be_set_when_something_was_computed(
    mindspore: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    mindspore("GPU")
    fake, calls = sys.modules["mindspore"], []

    def refuse(*given: object) -> None:
        raise RuntimeError("The runtime has been initialized, set it before")

    def set_context(**given: object) -> None:
        calls.append(given)

    monkeypatch.setattr(fake, "set_device", refuse)
    monkeypatch.setattr(fake, "set_context", set_context, raising=False)
    assert runtime.ms.setup("GPU", 1) == "GPU"
    assert calls == [{"device_target": "GPU", "device_id": 1}]


def test_where_nothing_can_be_set_the_device_stays(
    mindspore: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    mindspore("CPU")
    fake = sys.modules["mindspore"]

    def refuse(*given: object) -> None:
        raise RuntimeError("set already")

    monkeypatch.setattr(fake, "set_device", refuse)
    assert runtime.ms.setup("GPU") == "CPU"
    assert "CPU stays (GPU: set already" in runtime.explain()


@pytest.mark.parametrize("kind", ["old", "oldest"])
def test_older_releases_set_it_in_the_context(mindspore: Fake, kind: str) -> None:
    calls = mindspore("GPU", "CPU", **{kind: True})
    assert runtime.ms.setup("GPU", 2) == "GPU"
    assert runtime.ms.setup() == "GPU"
    assert calls == [("GPU", 2), ("set_context",), ("GPU", None), ("set_context",)]


def test_off_sets_what_the_script_did(
    mindspore: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPULINT_RUNTIME", "off")
    calls = mindspore("CPU")
    with pytest.raises(RuntimeError, match="Unsupported device target GPU"):
        runtime.ms.setup("GPU", 0)
    assert runtime.ms.setup("CPU") == "CPU"
    assert calls == [("GPU", 0), ("CPU", None)]


# The batch


@pytest.mark.parametrize(
    "memory, default, size",
    [
        *[(5.8, 2, 2), (7.6, 2, 4), (8.0, 2, 4), (11.6, 2, 6), (12.0, 2, 6)],
        *[(15.6, 2, 8), (16.0, 2, 8), (24.0, 2, 8), (80.0, 2, 8)],
        *[(8.0, 6, 6), (24.0, 16, 16), (12.0, 4, 6)],
    ],
)
def test_the_batch_follows_the_memory(
    mindspore: Fake,
    machine: Callable[..., None],
    memory: float,
    default: int,
    size: int,
) -> None:
    mindspore("GPU")
    machine(memory=memory)
    assert runtime.ms.batch_size(default) == size


def test_the_batch_stays_without_a_known_gpu(
    mindspore: Fake, machine: Callable[..., None]
) -> None:
    mindspore("CPU")
    machine(memory=24)
    assert runtime.ms.batch_size(2) == 2
    mindspore("GPU")
    machine(memory=None)
    assert runtime.ms.batch_size(2) == 2
    assert "batch size: 2 (as written for CPU)" in runtime.explain()
    assert "batch size: 2 (the GPU's memory is not known)" in runtime.explain()


@pytest.mark.parametrize(
    "name, value, size",
    [
        *[("GPULINT_BATCH_SIZE", "5", 5), ("GPULINT_RUNTIME", "off", 2)],
        *[("GPULINT_DEBUG", "1", 2), ("RANK_SIZE", "4", 2), ("RANK_SIZE", "1", 8)],
    ],
)
def test_what_is_asked_for_comes_before_the_memory(
    mindspore: Fake,
    machine: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    size: int,
) -> None:
    monkeypatch.setenv(name, value)
    mindspore("GPU")
    machine(memory=24)
    assert runtime.ms.batch_size(2) == size


# Workers


@pytest.mark.parametrize(
    "target, cpus, threads, processes",
    [
        *[("GPU", 1, 1, 1), ("GPU", 2, 2, 2), ("GPU", 3, 2, 3), ("GPU", 4, 2, 4)],
        *[("GPU", 5, 4, 5), ("GPU", 6, 4, 6), ("GPU", 8, 4, 6), ("GPU", 9, 4, 6)],
        *[("GPU", 15, 4, 6), ("GPU", 16, 6, 8), ("Ascend", 64, 6, 8)],
        *[("CPU", 1, 1, 1), ("CPU", 2, 2, 1), ("CPU", 4, 2, 3), ("CPU", 6, 4, 5)],
        *[("CPU", 8, 4, 6), ("CPU", 64, 6, 8)],
    ],
)
def test_workers_follow_the_cpus_and_leave_one_to_a_training_there(
    machine: Callable[..., None],
    mindspore: Fake,
    target: str,
    cpus: int,
    threads: int,
    processes: int,
) -> None:
    mindspore(target)
    machine(cpus)
    assert runtime.ms.workers() == threads
    assert runtime.ms.workers(python=True) == processes
    said = "one for the training" in runtime.explain()
    assert said == (target == "CPU" and processes == cpus - 1)


def test_a_training_on_cpus_keeps_the_workers_that_were_written(
    machine: Callable[..., None], mindspore: Fake
) -> None:
    mindspore("CPU")
    machine(2)
    assert runtime.ms.workers(2, python=True) == 2


def test_workers_are_never_more_than_mindspore_accepts(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(2, most=2)
    assert runtime.ms.workers(8) == 2
    monkeypatch.setenv("GPULINT_NUM_WORKERS", "6")
    runtime._reset()
    assert runtime.ms.workers(1) == 2


def test_workers_are_not_fewer_than_written(machine: Callable[..., None]) -> None:
    machine(8)
    assert runtime.ms.workers(7) == 7


def test_ranks_share_the_cpus_and_little_shared_memory_the_processes(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(16, shm=640 * 1024**2)
    assert runtime.ms.workers(python=True) == 2
    assert runtime.ms.workers() == 6
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert runtime.ms.workers() == 2


@pytest.mark.parametrize(
    "name, value, count",
    [("GPULINT_RUNTIME", "off", 3), ("GPULINT_DEBUG", "1", 3)],
)
def test_workers_as_written(
    machine: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    count: int,
) -> None:
    monkeypatch.setenv(name, value)
    machine(16)
    assert runtime.ms.workers(3, python=True) == count


def test_a_debugger_keeps_python_work_where_it_was(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(16)
    monkeypatch.setattr(f"{MODULE}.debugger_attached", lambda: True)
    assert runtime.ms.workers(python=True) == 1
    assert runtime.ms.workers() == 6


# Precision and sink


def test_levels_and_sinks_follow_the_device(mindspore: Fake) -> None:
    mindspore("GPU")
    assert (runtime.ms.amp_level(), runtime.ms.sink()) == ("O2", True)
    mindspore("Ascend")
    assert (runtime.ms.amp_level(), runtime.ms.sink()) == ("O2", True)
    mindspore("CPU")
    assert (runtime.ms.amp_level(), runtime.ms.sink()) == ("O0", False)
    assert (runtime.ms.amp_level("O1"), runtime.ms.sink(True)) == ("O1", True)


@pytest.mark.parametrize("name, value", [("RUNTIME", "off"), ("DEBUG", "1")])
def test_neither_changes_anything_when_switched_off(
    mindspore: Fake, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"GPULINT_{name}", value)
    mindspore("GPU")
    assert (runtime.ms.amp_level(), runtime.ms.sink()) == ("O0", False)


def test_mixed_precision_can_be_refused(
    mindspore: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPULINT_AMP", "off")
    mindspore("GPU")
    assert runtime.ms.amp_level("O1") == "O0"


# Learning rates


def test_four_times_the_batch_doubles_the_rate_after_a_warm_up(mindspore: Fake) -> None:
    mindspore("GPU")
    sizes = {"batch_size": 8, "base_batch_size": 2}
    assert runtime.ms.scaled_lr(1e-3, **sizes) == ("warm-up", 2e-3, 100)
    assert runtime.ms.scaled_lr(1e-3, **sizes, warmup_steps=0) == 2e-3
    linear = runtime.ms.scaled_lr(1e-3, **sizes, rule="linear", warmup_steps=7)
    assert linear == ("warm-up", 4e-3, 7)


def test_a_rate_for_each_step_is_scaled_and_begins_low() -> None:
    sizes = {"batch_size": 8, "base_batch_size": 2}
    rates = runtime.ms.scaled_lr([0.1] * 4, **sizes, warmup_steps=3)
    assert rates == pytest.approx([0.05, 0.1, 0.15, 0.2])


def test_the_same_batch_changes_no_rate() -> None:
    rates, schedule = [0.1, 0.2], object()
    sizes = {"batch_size": 2, "base_batch_size": 2}
    assert runtime.ms.scaled_lr(rates, **sizes) is rates
    assert runtime.ms.scaled_lr(1e-3, **sizes) == 1e-3
    assert runtime.ms.scaled_lr(schedule, **sizes) is schedule


def test_a_schedule_stays_and_that_is_told() -> None:
    schedule = object()
    sizes = {"batch_size": 4, "base_batch_size": 2}
    assert runtime.ms.scaled_lr(schedule, **sizes) is schedule
    assert "learning rate: as written: a object" in runtime.explain()
    with pytest.raises(ValueError, match="rule='cube' is not one of"):
        runtime.ms.scaled_lr(1e-3, **sizes, rule="cube")


def test_decisions_are_explained_without_torch(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(8)
    runtime.ms.workers()

    def missing() -> None:
        raise ModuleNotFoundError("No module named 'torch'")

    monkeypatch.setattr("gpulint.runtime._explain.hardware", missing)
    lines = runtime.explain().splitlines()
    assert lines[-1] == "  pipeline: 4 workers (8 usable CPUs)"
    assert lines[-2].startswith("  usable CPUs: ")
    assert not any("hardware" in line for line in lines)
