"""What is said of a window of samples, case by case."""

from __future__ import annotations

from dataclasses import replace

import pytest
from monitor_helpers import GIB, ROOT, gpu, host, trainer, window, workers

from gpulint.monitor.diagnosis import Symptom, diagnose
from gpulint.monitor.watch import Sample
from gpulint.nvml.figures import GpuFigures, GpuProcess
from gpulint.registry import all_rules


def only(samples: list[Sample]) -> Symptom:
    (symptom,) = diagnose(samples) or []
    return symptom


def kinds(samples: list[Sample]) -> list[str]:
    return [symptom.kind for symptom in diagnose(samples) or []]


def starved(**changes: object) -> GpuFigures:
    """Full of data, with little to compute."""
    return gpu(utilisation=34.0, sm_active=19.0, **changes)


def test_nothing_is_wrong() -> None:
    assert diagnose(window(gpu())) == []


def test_too_few_samples_say_nothing() -> None:
    assert diagnose(window(starved(), count=4)) is None
    assert diagnose([]) is None


def test_workers_that_never_rest() -> None:
    load = host(trainer(20), *workers(99, 98, 100, 97))
    its = only(window(starved(), on=load))
    assert (its.kind, its.gpus) == ("input-bound", (0,))
    assert "34 % of the time, and 4 workers of its loader never rest" in its.text
    assert "there are 16 CPUs" in its.advice
    assert its.rules[0] == "GPU207"


def test_one_worker_that_never_rests() -> None:
    its = only(window(starved(), on=host(trainer(20), *workers(99))))
    assert "1 worker of its loader never rests" in its.text


def test_idle_workers_do_not_count() -> None:
    load = host(trainer(99), *workers(3, 2, 4, 1))
    assert only(window(starved(), on=load)).kind == "launch-bound"


def test_all_cpus_are_busy() -> None:
    load = host(trainer(30), *workers(90, 85), cpus=2)
    its = only(window(starved(), on=load))
    assert its.kind == "input-bound"
    assert "all 2 CPUs are busy" in its.text
    assert "more workers" not in its.advice


def test_others_keep_the_cpus_busy() -> None:
    its = only(window(starved(), on=host(trainer(30), *workers(60), cpu=99.0)))
    assert its.kind == "input-bound"
    assert "other processes" in its.text


def test_loading_between_bursts_in_the_training_process() -> None:
    samples = window(starved(), on=host(trainer(100)))
    for place, sample in enumerate(samples):
        busy = 100.0 if place % 3 == 0 else 2.0
        samples[place] = replace(sample, gpus=(replace(starved(), utilisation=busy),))
    its = only(samples)
    assert its.kind == "input-bound"
    assert "in bursts" in its.text
    assert its.rules[0] == "GPU201"


def test_one_core_keeps_the_gpu_waiting() -> None:
    its = only(window(starved(), on=host(trainer(99))))
    assert its.kind == "launch-bound"
    assert "keeps one core busy" in its.text
    assert {"GPU501", "GPU106"} <= set(its.rules)


def test_small_kernels_one_after_the_other() -> None:
    its = only(window(gpu(utilisation=97.0, sm_active=21.0)))
    assert its.kind == "launch-bound"
    assert "97 % of the time and keep 21 % of the multiprocessors busy" in its.text


def test_waiting_for_a_disk() -> None:
    its = only(window(starved(), on=host(trainer(10, waits=True))))
    assert its.kind == "input-bound"
    assert "a disk or the network" in its.text
    assert its.rules[0] == "GPU603"


def test_nobody_works() -> None:
    its = only(window(starved(), on=host(trainer(10))))
    assert its.kind == "waiting"
    assert "GPU804" in its.rules


def test_a_training_whose_processes_are_not_known() -> None:
    its = only(window(starved(processes=None), on=host()))
    assert its.kind == "underused"
    assert "--pid" in its.advice


@pytest.mark.parametrize("utilisation", [None, 90.0])
def test_memory_unused(utilisation: float | None) -> None:
    figures = gpu(utilisation=utilisation, sm_active=None, memory_used=30 * GIB)
    its = only(window(figures))
    assert its.kind == "memory-unused"
    assert its.text == "at most 38 % of 80 GiB of memory are in use"
    assert its.rules[0] == "GPU401"


def test_memory_does_not_matter_where_all_multiprocessors_work() -> None:
    assert diagnose(window(gpu(memory_used=4 * GIB))) == []


def test_throttled() -> None:
    figures = gpu(slowed_by=("power cap", "temperature"), temperature=88, sm_clock=1200)
    its = only(window(figures))
    assert its.kind == "throttled"
    assert its.text == "slowed by: power cap, temperature, 88 °C, 1200 of 1980 MHz"
    assert its.rules == ()


def test_a_power_cap_alone_is_usual() -> None:
    figures = gpu(slowed_by=("power cap",), sm_clock=None, temperature=None)
    its = only(window(figures))
    assert (its.kind, its.text) == ("power-capped", "slowed by its power cap")


def test_slowed_down_once_is_nothing() -> None:
    samples = window(gpu())
    samples[3] = replace(samples[3], gpus=(gpu(slowed_by=("temperature",)),))
    assert diagnose(samples) == []


def test_hot() -> None:
    assert only(window(gpu(temperature=80))).kind == "hot"


def test_another_process_on_the_card() -> None:
    both = GpuProcess(ROOT, 60 * GIB), GpuProcess(99, 4 * GIB)
    its = only(window(gpu(processes=both)))
    assert its.kind == "shared"
    assert its.text == "1 other process on the card, with 4.0 GiB of its memory"


def test_two_trainings_on_one_card() -> None:
    second = trainer(pid=6000, root=6000)
    both = GpuProcess(ROOT, None), GpuProcess(6000, None)
    its = only(window(gpu(processes=both), on=host(trainer(), second)))
    assert its.text == "1 other process on the card"


def test_workers_of_one_training_share_nothing() -> None:
    its = GpuProcess(ROOT, GIB), GpuProcess(5000, GIB)
    load = host(trainer(), *workers(50))
    assert diagnose(window(gpu(processes=its), on=load)) == []


def test_a_driver_in_a_container_does_not_know_our_numbers() -> None:
    figures = gpu(processes=(GpuProcess(1_234_567, GIB), GpuProcess(7_654_321, GIB)))
    assert diagnose(window(figures)) == []


def test_a_card_that_others_use_is_not_judged() -> None:
    other = starved(processes=(GpuProcess(99, GIB),))
    assert kinds(window(gpu(), replace(other, index=1))) == []


def test_a_card_that_nobody_uses_is_not_judged() -> None:
    idle = gpu(index=1, utilisation=0.0, sm_active=0.0, memory_used=0, processes=())
    assert kinds(window(gpu(), idle)) == []


def test_a_training_that_leaves_its_only_card_alone() -> None:
    idle = gpu(utilisation=0.0, sm_active=None, processes=())
    its = only(window(idle))
    assert its.kind == "unused"
    assert "gpulint doctor" in its.advice


def test_what_is_not_told_is_no_symptom() -> None:
    silent = GpuFigures(0, "NVIDIA A100", mig=True)
    assert diagnose(window(silent)) == []
    assert diagnose(window(trouble="no NVIDIA driver")) == []


def test_the_start_does_not_count() -> None:
    idle = replace(gpu(), utilisation=0.0, sm_active=0.0)
    samples = [*window(idle, count=60), *window(gpu(), count=10)]
    assert diagnose(samples) == []
    # too short a rest says nothing, so the whole is judged
    assert kinds([*window(idle, count=60), *window(gpu(), count=2)]) == ["waiting"]


def test_cards_with_the_same_symptom_are_named_together() -> None:
    figures = gpu(temperature=84)
    its = only(window(figures, replace(figures, index=1)))
    assert its.gpus == (0, 1)


def test_all_named_rules_exist() -> None:
    cases = [
        host(trainer(20), *workers(99)),
        host(trainer(30), *workers(90, 85), cpus=2),
        host(trainer(100)),
        host(trainer(10, waits=True)),
        host(trainer(10)),
        host(),
    ]
    low = starved(memory_used=GIB, processes=None)
    named = {
        code
        for load in cases
        for symptom in diagnose(window(low, on=load)) or []
        for code in symptom.rules
    }
    assert len(named) > 8
    assert named <= {rule.code for rule in all_rules()}
