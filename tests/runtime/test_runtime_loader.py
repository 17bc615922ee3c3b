"""loader_kwargs(): the number of workers, and only legal combinations."""

from __future__ import annotations

import multiprocessing
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from gpulint import runtime

Machine = Callable[..., None]
Cuda = Callable[..., list[torch.device]]
MIB = 1024**2


def load(options: dict[str, Any]) -> DataLoader[Any]:
    """Build a loader, which raises for an illegal combination."""
    return DataLoader(range(4), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "cpus,ranks,workers",
    [(1, 1, 0), (2, 1, 1), (4, 1, 3), (64, 1, 8), (64, 8, 7), (8, 8, 0), (16, 4, 3)],
)
def test_cpus_and_ranks(
    cpus: int,
    ranks: int,
    workers: int,
    machine: Machine,
    cuda: Cuda,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine(cpus)
    cuda(count=8)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    assert runtime.loader_kwargs("cuda") == {"num_workers": workers, "pin_memory": True}


@pytest.mark.parametrize(
    "options,workers",
    [
        ({}, 8),
        ({"train": False}, 4),
        ({"light": True}, 4),
        ({"light": True, "train": False}, 4),
    ],
)
def test_most_workers(
    options: dict[str, Any], workers: int, machine: Machine, cuda: Cuda
) -> None:
    machine(64)
    cuda()
    assert runtime.loader_kwargs("cuda", **options)["num_workers"] == workers


def test_cpu(machine: Machine) -> None:
    machine(64)
    expected = {"num_workers": 2, "pin_memory": False}
    assert runtime.loader_kwargs() == expected
    assert runtime.loader_kwargs("cpu") == expected
    assert runtime.loader_kwargs("cuda:1") == expected  # no such device here
    assert runtime.loader_kwargs(0) == expected


@pytest.mark.usefixtures("mps")
def test_mps(machine: Machine) -> None:
    machine(64)
    assert runtime.loader_kwargs() == {"num_workers": 4, "pin_memory": False}


@pytest.mark.usefixtures("xpu")
def test_xpu(machine: Machine) -> None:
    machine(64)
    assert runtime.loader_kwargs() == {"num_workers": 8, "pin_memory": True}


@pytest.mark.parametrize(
    "shm,ranks,workers",
    [
        (None, 1, 8),
        (2048 * MIB, 1, 8),
        (1024 * MIB, 1, 4),
        (1024 * MIB, 2, 1),
        (384 * MIB, 1, 1),
        (256 * MIB, 1, 0),
        (64 * MIB, 1, 0),
    ],
)
def test_shared_memory(
    shm: int | None,
    ranks: int,
    workers: int,
    machine: Machine,
    cuda: Cuda,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine(64, shm)
    cuda()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    assert runtime.loader_kwargs("cuda")["num_workers"] == workers
    assert ("little room in /dev/shm" in runtime.explain()) == (workers < 8)


@pytest.mark.parametrize(
    "cpus, workers", [(1, 0), (2, 0), (3, 0), (4, 1), (5, 1), (6, 2), (16, 2)]
)
def test_a_training_on_cpus_keeps_more_than_half(
    cpus: int, workers: int, machine: Machine
) -> None:
    machine(cpus)
    assert runtime.loader_kwargs("cpu")["num_workers"] == workers
    was = {"num_workers": 3}  # written by hand: stays where there is nothing better
    kept = runtime.loader_kwargs("cpu", was=was)["num_workers"]
    assert kept == (workers or 3)


def test_everything_else_passes_through(machine: Machine) -> None:
    machine(6)
    dataset = [1, 2, 3]
    collate: Callable[[Any], Any] = lambda batch: batch  # noqa: E731
    options = runtime.loader_kwargs(
        "cpu",
        dataset=dataset,
        batch_size=2,
        shuffle=True,
        collate_fn=collate,
        drop_last=False,
        worker_init_fn=None,
    )
    assert options["dataset"] is dataset
    assert options["collate_fn"] is collate
    assert options["num_workers"] == 2
    assert len(options) == 8


@pytest.mark.parametrize(
    "given",
    [
        {"num_workers": 16},
        {"num_workers": 0},
        {"pin_memory": True},
        {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 4},
        {"prefetch_factor": 4, "timeout": 30, "multiprocessing_context": "fork"},
        {"persistent_workers": False},
        {"num_workers": 0, "prefetch_factor": None, "timeout": 0},
    ],
)
def test_options_as_written_stay(given: dict[str, Any], machine: Machine) -> None:
    machine(6)
    options = runtime.loader_kwargs("cpu", persistent=False, **given)
    assert options == {"num_workers": 2, "pin_memory": False} | given


def test_arguments_win_over_the_environment(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(4)
    monkeypatch.setenv("GPULINT_NUM_WORKERS", "7")
    assert runtime.loader_kwargs("cpu")["num_workers"] == 7
    assert runtime.loader_kwargs("cpu", num_workers=1)["num_workers"] == 1
    assert "loader: 7 workers (GPULINT_NUM_WORKERS)" in runtime.explain()
    assert "loader: 1 worker (as written)" in runtime.explain()


def test_persistent_workers_only_where_asked(machine: Machine, cuda: Cuda) -> None:
    machine(3)
    cuda()
    assert "persistent_workers" not in runtime.loader_kwargs("cuda")
    assert runtime.loader_kwargs("cuda", persistent=True)["persistent_workers"] is True
    written = runtime.loader_kwargs("cuda", persistent=True, persistent_workers=False)
    assert written["persistent_workers"] is False
    none = runtime.loader_kwargs("cuda", persistent=True, num_workers=0)
    assert "persistent_workers" not in none
    last = "loader: 2 workers (3 usable CPUs), pinned, persistent"
    assert last in runtime.explain()


@pytest.mark.parametrize(
    "key,value",
    [
        ("persistent_workers", True),
        ("prefetch_factor", 4),
        ("multiprocessing_context", "fork"),
        ("timeout", 10),
    ],
)
@pytest.mark.parametrize("written", [{}, {"num_workers": 0}])
def test_what_needs_workers_is_left_out_without_them(
    key: str, value: Any, written: dict[str, Any], machine: Machine
) -> None:
    machine(1)
    with pytest.raises((ValueError, AssertionError)):
        list(load({"num_workers": 0, key: value}))
    options = runtime.loader_kwargs("cpu", **written, **{key: value})
    assert options == {"num_workers": 0, "pin_memory": False}
    assert len(list(load(options))) == 4
    told = f"loader: {key}={value!r} left out, it needs workers and there are 0"
    assert told in runtime.explain()


def test_prefetching_nothing_is_left_out(machine: Machine) -> None:
    machine(6)
    options = runtime.loader_kwargs("cpu", prefetch_factor=0)
    assert options == {"num_workers": 2, "pin_memory": False}
    assert "prefetch_factor=0 left out" in runtime.explain()


WAS = {
    "num_workers": 3,
    "prefetch_factor": 4,
    "persistent_workers": True,
    "pin_memory": True,
}


def test_options_before_the_rewriting_yield_to_a_better_machine(
    machine: Machine, cuda: Cuda
) -> None:
    machine(64)
    cuda()
    options = runtime.loader_kwargs("cuda", was={**WAS, "pin_memory": False})
    assert options == {"num_workers": 8, "pin_memory": True}


@pytest.mark.parametrize("cpus,shm", [(1, None), (64, 64 * MIB)])
def test_options_before_the_rewriting_stay_on_a_poor_machine(
    cpus: int, shm: int | None, machine: Machine
) -> None:
    machine(cpus, shm)
    options = runtime.loader_kwargs("cpu", was=WAS, batch_size=2)
    assert options == {**WAS, "pin_memory": False, "batch_size": 2}
    assert runtime.loader_kwargs("cpu")["num_workers"] == 0


def test_debug_means_no_workers(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(64)
    monkeypatch.setenv("GPULINT_DEBUG", "1")
    monkeypatch.setenv("GPULINT_NUM_WORKERS", "3")
    assert runtime.loader_kwargs("cpu") == {"num_workers": 0, "pin_memory": False}
    before = runtime.loader_kwargs("cpu", was=WAS)
    assert before == {"num_workers": 0, "pin_memory": True}
    assert runtime.loader_kwargs("cpu", num_workers=2)["num_workers"] == 2


def test_off_gives_back_the_original(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(64)
    monkeypatch.setenv("GPULINT_RUNTIME", "off")
    assert runtime.loader_kwargs("cuda", persistent=True, light=True) == {}
    given: dict[str, Any] = {"batch_size": 2, "num_workers": 5}
    assert runtime.loader_kwargs(was=WAS, **given) == {**WAS, **given}
    illegal: dict[str, Any] = {"num_workers": 0, "timeout": 3}
    assert runtime.loader_kwargs(**illegal) == illegal


def test_a_debugger(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(64)
    monkeypatch.setattr(sys, "gettrace", lambda: test_a_debugger)
    assert runtime.loader_kwargs("cpu", was={"num_workers": 2})["num_workers"] == 0
    assert "0 workers (a debugger is attached)" in runtime.explain()


@pytest.mark.parametrize(
    "modules,workers",
    [
        ({"pydevd": {}}, 0),
        ({"pydevd": {}, "ipykernel": {}}, 2),
        ({"pydevd": {}, "debugpy": {"is_client_connected": lambda: True}}, 0),
        ({"pydevd": {}, "debugpy": {"is_client_connected": lambda: False}}, 2),
    ],
)
def test_debuggers_of_editors(
    modules: dict[str, dict[str, Any]],
    workers: int,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine(64)
    for name, members in modules.items():
        monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(**members))
    assert runtime.loader_kwargs("cpu")["num_workers"] == workers


def test_measuring_coverage_is_no_debugging(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(64)
    tracer = types.SimpleNamespace(__module__="coverage.pytracer")
    monkeypatch.setattr(sys, "gettrace", lambda: tracer)
    assert runtime.loader_kwargs("cpu")["num_workers"] == 2


@pytest.mark.parametrize(
    "process,reason",
    [
        ({"daemon": True}, "this process may not have children"),
        ({"daemon": False, "_inheriting": True}, "a child process is importing"),
    ],
)
def test_processes_that_cannot_start_workers(
    process: dict[str, bool],
    reason: str,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine(64)
    monkeypatch.setenv("GPULINT_NUM_WORKERS", "3")
    current = types.SimpleNamespace(**process)
    monkeypatch.setattr(multiprocessing, "current_process", lambda: current)
    options = runtime.loader_kwargs("cpu", was={"num_workers": 2})
    assert options["num_workers"] == 0
    assert reason in runtime.explain()
