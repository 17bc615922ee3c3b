"""Reading GPUs in a child: one that answers, one that refuses, hangs, dies, is not there."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from monitor_helpers import FAKE, GIB

from gpulint.nvml.figures import Gpu, GpuFigures, GpuProcess, Slice
from gpulint.nvml.sampler import Latest, Sampler

Driver = Callable[..., None]


def first(timeout: float = 30, **options: Any) -> Latest:
    with Sampler(0.1, timeout, **options) as sampler:
        return sampler.wait()


def test_a_driver_that_tells_all(driver: Driver) -> None:
    driver("card")
    with Sampler(0.1, 30, kept=100) as sampler:
        sampler.wait()
        readings: list[Any] = []
        while len(readings) < 8:
            time.sleep(0.05)
            readings += sampler.take()
        latest = sampler.latest()
    assert (latest.trouble, latest.count) == (None, 2)
    hopper, older = latest.gpus
    assert hopper.name == "NVIDIA H100 80GB HBM3"
    assert (hopper.utilisation, hopper.memory_utilisation) == (34.0, 11.0)
    # two samples of its counters lie between the first reading and this one
    assert (hopper.sm_active, hopper.tensor_active) == (19.0, 3.25)
    assert readings[0].gpus[0].sm_active is None
    assert (hopper.pcie_received, hopper.pcie_sent) == (2 * GIB, 100 * 1024**2)
    assert (hopper.memory_used, hopper.memory_share) == (6 * GIB, 7.5)
    assert (hopper.power_watts, hopper.power_limit_watts) == (310.25, 700.0)
    assert (hopper.sm_clock, hopper.sm_clock_max) == (1410, 1980)
    assert (hopper.slowed_by, hopper.mig) == ((), False)
    assert hopper.processes == (GpuProcess(4711, 6 * GIB),)
    assert older.sm_active is None  # no counters before Hopper: n/a, not 0
    assert older.energy_joules is None
    assert (older.pcie_sent, older.utilisation) == (5e6, 0.0)
    times = [reading.at for reading in readings]
    assert times == sorted(times)
    energies = [reading.gpus[0].energy_joules for reading in readings]
    assert energies[-1] > energies[0] > 0


def test_chosen_gpus(driver: Driver) -> None:
    driver("card")
    latest = first(gpus=(1,))
    assert [gpu.index for gpu in latest.gpus] == [1]
    assert latest.count == 2


def test_a_divided_gpu_has_no_zeros(driver: Driver) -> None:
    driver("refuses")
    latest = first()
    (gpu,) = latest.gpus
    assert gpu == GpuFigures(
        0,
        "NVIDIA A100-SXM4-80GB",
        mig=True,
        slices=(Slice("MIG 3g.40gb", 10 * GIB, 40 * GIB),),
    )
    assert gpu.memory_share is None


def test_a_driver_that_hangs(driver: Driver) -> None:
    driver("hangs")
    latest = first(timeout=1)
    assert latest == Latest((), "starting NVML: no answer within 1 s")


def test_no_library(driver: Driver) -> None:
    driver("none")
    trouble = first().trouble or ""
    assert trouble.startswith("nvidia-ml-py is not installed: pip install ")


def test_a_library_that_breaks(driver: Driver, tmp_path: Path) -> None:
    driver("card")
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "pynvml.py").write_text("raise SystemExit('half an installation')")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("PYTHONPATH", f"{folder}:{FAKE.parent.parent.parent}")
        assert first().trouble == "SystemExit: half an installation"


def test_a_child_that_is_killed(driver: Driver, tmp_path: Path) -> None:
    driver("card")
    folder = tmp_path / "dies"
    folder.mkdir()
    code = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"
    (folder / "pynvml.py").write_text(code)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{folder}:{FAKE.parent.parent.parent}")
        said = first().trouble
    assert said == "importing pynvml: the process was killed by SIGSEGV"


def test_a_child_that_cannot_start(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver("card")
    monkeypatch.setattr("gpulint.nvml.sampler.CHILD", "gpulint_has_no_such_module")
    assert first().trouble == "starting Python: the process ended with exit code 1"


def test_a_driver_that_is_not_there(driver: Driver, tmp_path: Path) -> None:
    driver("card")
    folder = tmp_path / "away"
    folder.mkdir()
    code = (
        "class NVMLError(Exception):\n    value = 12\n"
        "def nvmlInit():\n    raise NVMLError('Library Not Found')\n"
    )
    (folder / "pynvml.py").write_text(code)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{folder}:{FAKE.parent.parent.parent}")
        assert (first().trouble or "").startswith("no NVIDIA driver")


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The made-up driver in this process."""
    monkeypatch.syspath_prepend(str(FAKE / "card"))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.delenv("FAKE_NVML", raising=False)
    import pynvml

    yield pynvml
    sys.modules.pop("pynvml")


def test_counters_are_not_read_too_often(card: Any) -> None:
    gpu = Gpu(card, 0)
    assert gpu.read(100.0).sm_active is None
    assert gpu.read(100.1).sm_active is None  # too soon for a difference
    time.sleep(0.11)  # the made-up driver looks at the real clock
    assert gpu.read(100.3).sm_active == 19.0
    assert gpu.read(100.4).sm_active == 19.0


def test_counters_that_are_refused(card: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(card, 0)
    gpu.read(100.0)
    monkeypatch.setitem(card.CHANGES, "Gpm", "refused")
    monkeypatch.setitem(card.CHANGES, "PcieThroughput", 7000)
    figures = gpu.read(101.0)
    assert figures.sm_active is None
    assert figures.pcie_sent == 7e6  # asked for otherwise


def test_a_counter_without_a_value(card: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(question: Any) -> Any:
        question.metrics[0].nvmlReturn = 3
        return question

    gpu = Gpu(card, 0)
    gpu.read(100.0)
    monkeypatch.setattr(card, "nvmlGpmMetricsGet", refuse)
    assert gpu.read(101.0).sm_active is None


def test_pcie_is_asked_for_once_a_second(
    card: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Gpu(card, 1)
    assert gpu.read(100.0).pcie_sent == 5e6
    monkeypatch.setitem(card.IDLE, "PcieThroughput", 9000)
    assert gpu.read(100.5).pcie_sent == 5e6
    assert gpu.read(101.0).pcie_sent == 9e6


def test_a_gpu_that_is_lost(card: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(index: int) -> int:
        raise card.NVMLError

    monkeypatch.setattr(card, "nvmlDeviceGetHandleByIndex", lost)
    assert Gpu(card, 3).read(0.0) == GpuFigures(3)
