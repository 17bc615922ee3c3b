"""A process without launchers, platforms or decisions, and machines made up."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gpulint import runtime

LAUNCHERS = ("SLURM_", "OMPI_", "PMI_", "MPI_", "LOCAL_", "CUDA_", "FORCE_ENV")
GIB = 1024**3


@pytest.fixture(autouse=True)
def fresh_runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in list(os.environ):
        if name.startswith(LAUNCHERS) or name == "RANK":
            monkeypatch.delenv(name)
    runtime._reset()
    yield
    runtime._reset()


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    """What the user has seen on standard error since the last call, and no output."""

    def read() -> list[str]:
        captured = capfd.readouterr()
        assert captured.out == ""
        return captured.err.splitlines()

    return read


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give the machine a number of CPUs and an amount of shared memory."""

    def give(cpus: int = 8, shm: int | None = 16 * GIB) -> None:
        monkeypatch.setattr("gpulint.runtime._workers.available_cpus", lambda: cpus)
        monkeypatch.setattr("gpulint.runtime._workers.shm_free", lambda: shm)
        # pytest under a debugger or a tracing coverage still tests the policy
        monkeypatch.setattr(sys, "gettrace", lambda: None)

    return give


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[torch.device]]:
    """Give torch CUDA devices; returns the list of those made current."""

    def give(
        capability: tuple[int, int] = (9, 0),
        *,
        count: int = 1,
        name: str = "NVIDIA Test GPU",
        free: int = 20 * GIB,
        total: int = 24 * GIB,
        architecture: str | None = None,
    ) -> list[torch.device]:
        major, minor = capability
        properties = types.SimpleNamespace(
            name=name,
            major=major,
            minor=minor,
            total_memory=total,
            gcnArchName=architecture,
        )
        current: list[torch.device] = []
        stand_ins: dict[str, Callable[..., Any]] = {
            "is_available": lambda: True,
            "is_initialized": lambda: True,
            "device_count": lambda: count,
            "current_device": lambda: 0,
            "get_device_properties": lambda index: properties,
            "mem_get_info": lambda index: (free, total),
            "set_device": current.append,
        }
        for attribute, stand_in in stand_ins.items():
            monkeypatch.setattr(torch.cuda, attribute, stand_in)
        monkeypatch.setattr(torch.version, "cuda", None if architecture else "12.4")
        monkeypatch.setattr(torch.version, "hip", "6.2" if architecture else None)
        return current

    return give


@pytest.fixture
def xpu(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = types.SimpleNamespace(name="Intel Test GPU", total_memory=16 * GIB)
    monkeypatch.setattr(torch.xpu, "is_available", lambda: True)
    monkeypatch.setattr(torch.xpu, "device_count", lambda: 2)
    monkeypatch.setattr(torch.xpu, "current_device", lambda: 0)
    monkeypatch.setattr(torch.xpu, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(
        torch.xpu, "mem_get_info", lambda index: (8 * GIB, 16 * GIB), raising=False
    )


@pytest.fixture
def mps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(
        torch.mps, "recommended_max_memory", lambda: 12 * GIB, raising=False
    )
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 2 * GIB)


@pytest.fixture
def files(tmp_path: Path) -> Callable[[dict[str, str]], Path]:
    """Write a tree of files that stands for `/`."""

    def write(tree: dict[str, str]) -> Path:
        for name, text in tree.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return tmp_path

    return write
