"""What the helpers make of `gpulint.tuned.json`, and what they tell the tuner."""

from __future__ import annotations

import json
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gpulint import runtime
from gpulint.runtime import _compiled
from gpulint.runtime._limits import ram_available

GIB = 1024**3
GPU = {"name": "NVIDIA Test GPU", "memory": 24 * GIB, "cpus": 8}
Tuned = Callable[..., Path]
Cuda = Callable[..., list[torch.device]]
Machine = Callable[..., None]


@pytest.fixture
def tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tuned:
    """Write a file of tuned values beside the script that runs."""
    main = types.SimpleNamespace(__file__=str(tmp_path / "train.py"))
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr("gpulint.runtime._main_guard.start_method", lambda _: "fork")
    monkeypatch.setattr("gpulint.runtime._hardware.available_cpus", lambda: 8)

    def write(*entries: dict[str, Any]) -> Path:
        content = {
            "schema": 1,
            "script": "train.py",
            "entries": [{"hardware": GPU, **entry} for entry in entries],
        }
        file = tmp_path / "gpulint.tuned.json"
        file.write_text(json.dumps(content))
        return file

    return write


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """Listen as `gpulint tune` does."""
    heard: list[tuple[str, dict[str, Any]]] = []
    tuner = types.SimpleNamespace(
        asked=lambda helper, facts: heard.append((helper, facts))
    )
    monkeypatch.setitem(sys.modules, "gpulint_tuner", tuner)
    return heard


def test_workers(tuned: Tuned, cuda: Cuda, machine: Machine) -> None:
    cuda()
    machine(8)
    tuned({"workers": 6, "prefetch_factor": 4})
    expected = {"num_workers": 6, "pin_memory": True, "prefetch_factor": 4}
    assert runtime.loader_kwargs("cuda") == expected
    line = "6 workers (tuned for NVIDIA Test GPU), pinned, 4 batches ahead each"
    assert f"loader: {line}" in runtime.explain()


def test_no_workers(tuned: Tuned, cuda: Cuda, machine: Machine) -> None:
    cuda()
    machine(8)
    tuned({"workers": 0, "prefetch_factor": 4})
    expected = {"num_workers": 0, "pin_memory": True}
    assert runtime.loader_kwargs("cuda", was={"num_workers": 2}) == expected
    assert runtime.loader_kwargs("cuda", train=False) == expected


@pytest.mark.parametrize(
    "options,workers",
    [({"train": False}, 3), ({"light": True}, 6), ({"num_workers": 1}, 1)],
)
def test_other_loaders(
    options: dict[str, Any],
    workers: int,
    tuned: Tuned,
    cuda: Cuda,
    machine: Machine,
) -> None:
    cuda()
    machine(4)
    tuned({"workers": 6})
    assert runtime.loader_kwargs("cuda", **options)["num_workers"] == workers


def test_several_ranks_share_the_cpus(
    tuned: Tuned, cuda: Cuda, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda()
    machine(8)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    tuned({"workers": 6})
    assert runtime.loader_kwargs("cuda")["num_workers"] == 3
    tuned({"workers": 2})
    assert runtime.loader_kwargs("cuda")["num_workers"] == 2


def test_fewer_cpus_than_it_was_tuned_with(
    tuned: Tuned, cuda: Cuda, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda()
    machine(4)
    monkeypatch.setattr("gpulint.runtime._hardware.available_cpus", lambda: 4)
    tuned({"workers": 6, "prefetch_factor": 4})
    assert runtime.loader_kwargs("cuda") == {"num_workers": 3, "pin_memory": True}
    assert "3 workers (4 usable CPUs, it was tuned with 8)" in runtime.explain()


@pytest.mark.parametrize(
    "entry",
    [{}, {"workers": "6"}, {"workers": -1}, {"workers": True}, {"hardware": {}}],
    ids=str,
)
def test_entries_that_say_nothing(
    entry: dict[str, Any], tuned: Tuned, cuda: Cuda, machine: Machine
) -> None:
    cuda()
    machine(4)
    tuned(entry)
    assert runtime.loader_kwargs("cuda")["num_workers"] == 3


@pytest.mark.parametrize(
    "variables,workers,ahead",
    [
        ({"GPULINT_NUM_WORKERS": "2"}, 2, None),
        ({"GPULINT_PREFETCH_FACTOR": "8"}, 6, 8),
        ({"GPULINT_TUNED": "off"}, 7, None),
        ({"GPULINT_TUNED": "off", "GPULINT_PREFETCH_FACTOR": "8"}, 7, 8),
        ({"GPULINT_NUM_WORKERS": "0", "GPULINT_PREFETCH_FACTOR": "8"}, 0, None),
        ({"GPULINT_DEBUG": "1", "GPULINT_PREFETCH_FACTOR": "8"}, 0, None),
    ],
    ids=str,
)
def test_variables_come_first(
    variables: dict[str, str],
    workers: int,
    ahead: int | None,
    tuned: Tuned,
    cuda: Cuda,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda()
    machine(8)
    tuned({"workers": 6, "prefetch_factor": 4})
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    options = runtime.loader_kwargs("cuda")
    assert options["num_workers"] == workers
    expected = 4 if workers == 6 and ahead is None else ahead
    assert options.get("prefetch_factor") == expected


def test_the_scripts_own_prefetch_comes_first(
    tuned: Tuned, cuda: Cuda, machine: Machine
) -> None:
    cuda()
    machine(8)
    tuned({"workers": 6, "prefetch_factor": 4})
    assert runtime.loader_kwargs("cuda", prefetch_factor=3)["prefetch_factor"] == 3


def test_a_prefetch_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPULINT_PREFETCH_FACTOR", "0")
    with pytest.raises(ValueError, match="GPULINT_PREFETCH_FACTOR='0' is not a number"):
        runtime.device()


@pytest.mark.parametrize(
    "amp,dtype",
    [
        ("off", None),
        ("fp16", torch.float16),
        ("bf16", torch.bfloat16),
        ("fp8", torch.bfloat16),
        (None, torch.bfloat16),
    ],
)
def test_precision(
    amp: str | None, dtype: torch.dtype | None, tuned: Tuned, cuda: Cuda
) -> None:
    cuda()
    tuned({"amp": amp})
    assert runtime.amp_dtype("cuda") is dtype
    assert runtime.amp_dtype("cuda", "fp16") is torch.float16  # the script's own


def test_the_variable_for_precision_comes_first(
    tuned: Tuned, cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda()
    tuned({"amp": "off"})
    monkeypatch.setenv("GPULINT_AMP", "fp16")
    assert runtime.amp_dtype("cuda") is torch.float16


@pytest.mark.parametrize(
    "entry,variable,why",
    [
        ({"compile": False}, "", "off for Linear (tuned)"),
        ({"compile": True}, "GPULINT_COMPILE=off", "off for Linear (GPULINT_COMPILE)"),
        ({"compile": False}, "GPULINT_TUNED=off", "Linear, when it first runs"),
        ({}, "", "Linear, when it first runs"),
    ],
)
def test_compiling(
    entry: dict[str, Any],
    variable: str,
    why: str,
    tuned: Tuned,
    cuda: Cuda,
    told: list[tuple[str, dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda()
    monkeypatch.setattr(_compiled, "_device", lambda model: torch.device("cuda"))
    monkeypatch.setattr(_compiled, "find_spec", lambda name: object())
    monkeypatch.setattr(_compiled, "_why_it_fails", lambda device: None)
    tuned(entry)
    if variable:
        monkeypatch.setenv(*variable.split("="))
    runtime.maybe_compile(nn.Linear(2, 2), backend="eager")
    assert f"compile: {why}" in runtime.explain()
    assert told == [("maybe_compile", {"possible": True})]


def test_scripts_of_their_own_in_one_file(tuned: Tuned, cuda: Cuda) -> None:
    cuda()
    other = {"script": "other.py", "batch_size": {"train": 512}}
    tuned(other, {"batch_size": {"train": 64}})
    assert runtime.batch_size(32) == 64


def test_a_file_above_counts_where_that_beside_has_nothing(
    tuned: Tuned, cuda: Cuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda()
    script = tmp_path / "jobs" / "train.py"
    script.parent.mkdir()
    main = types.SimpleNamespace(__file__=str(script))
    monkeypatch.setitem(sys.modules, "__main__", main)
    beside = {"schema": 1, "script": "train.py", "entries": []}
    (script.parent / "gpulint.tuned.json").write_text(json.dumps(beside))
    tuned({"script": "jobs/train.py", "batch_size": {"train": 64}})
    assert runtime.batch_size(32) == 64


def test_rows_that_failed_are_no_way_out(
    tuned: Tuned, cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda(free=7 * GIB)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 0)
    rows = [
        {"batch_size": {"train": 192}, "peak_bytes": 6 * GIB, "outcome": "crash"},
        {"batch_size": {"train": 128}, "peak_bytes": 6 * GIB, "outcome": "ok"},
    ]
    tuned({"batch_size": {"train": 256}, "peak_bytes": 10 * GIB, "table": rows})
    assert runtime.batch_size(32) == 128


@pytest.mark.parametrize("free,size", [(9, 256), (5, 128), (1, 32)])
def test_memory_of_a_cpu(
    free: int, size: int, tuned: Tuned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpulint.runtime._batch_size.ram_available", lambda: free * GIB)
    here = {"name": runtime.hardware().name, "memory": None, "cpus": 2}
    row = {"batch_size": {"train": 128}, "peak_bytes": 4 * GIB}
    best = {"batch_size": {"train": 256}, "peak_bytes": 8 * GIB}
    tuned({"hardware": here, **best, "table": [row]})
    assert runtime.batch_size(32) == size


def test_memory_that_is_available(tmp_path: Path) -> None:
    assert ram_available(root=tmp_path) is None
    own = tmp_path / "proc" / "self"
    own.mkdir(parents=True)
    (own / "statm").write_text("900 3 1 0 0 0 0")
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 7 kB\n")
    held = 3 * os.sysconf("SC_PAGE_SIZE")
    assert ram_available(root=tmp_path) == 7 * 1024 + held
    (own / "cgroup").write_text("0::/job")
    group = tmp_path / "sys/fs/cgroup/job"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("5000")
    assert ram_available(root=tmp_path) == 5000
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 9 kB\n")
    assert ram_available(root=tmp_path) is None
    if sys.platform == "linux":
        assert (ram_available() or 0) > 0


def test_what_the_tuner_is_told(
    cuda: Cuda, machine: Machine, told: list[tuple[str, dict[str, Any]]]
) -> None:
    cuda()
    machine(8)
    runtime.batch_size(32)
    runtime.batch_size(32)
    runtime.batch_size(64, train=False)
    runtime.scaled_lr(0.1, batch_size=32, base_batch_size=32, rule="sqrt")
    runtime.scaled_lr(0.1, batch_size=128, base_batch_size=32, rule="sqrt")
    runtime.loader_kwargs("cuda", num_workers=2, prefetch_factor=3)
    runtime.amp_dtype("cuda")
    runtime.amp_dtype("cuda", "fp16")
    runtime.amp_dtype("cpu")
    runtime.maybe_compile(nn.Linear(2, 2))
    loader = {"train": True, "workers": 2, "fixed": True, "prefetch_fixed": True}
    assert told == [
        ("batch_size", {"name": "train", "default": 32, "size": 32}),
        ("batch_size", {"name": "eval", "default": 64, "size": 64}),
        ("scaled_lr", {"lr": 0.1, "scaled": 0.2, "rule": "sqrt"}),
        ("loader_kwargs", loader),
        ("amp_dtype", {"choice": "bf16", "choices": ["off", "bf16", "fp16"]}),
        ("amp_dtype", {"choice": "fp16", "choices": []}),
        ("amp_dtype", {"choice": "off", "choices": []}),
        ("maybe_compile", {"possible": False}),
    ]
    json.dumps(told)


def test_nothing_is_told_when_off(
    told: list[tuple[str, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPULINT_RUNTIME", "off")
    runtime.batch_size(32)
    runtime.loader_kwargs("cpu")
    runtime.amp_dtype("cpu")
    runtime.maybe_compile(nn.Linear(2, 2))
    assert told == []
