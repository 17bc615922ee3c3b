"""What readings of NVML beside a run come to."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from gpulint.bench.compare import compare
from gpulint.bench.gpus import GpuUse, gpu_use, middle
from gpulint.bench.runs import Run
from gpulint.nvml.figures import GpuFigures
from gpulint.nvml.sampler import Reading

Bench = Callable[..., Result]
Write = Callable[..., Path]
DRIVERS = Path(__file__).parent.parent / "monitor" / "fake"

FIRST, SECOND = "GPU-first", "GPU-second"


def readings(*uuids: str, count: int = 100, **figures: Any) -> list[Reading]:
    """Ten seconds from 100 on; the energy counters run at 300 W."""
    return [
        Reading(
            100 + i / 10,
            tuple(
                GpuFigures(n, uuid=uuid, **{"energy_joules": 30.0 * i, **figures})
                for n, uuid in enumerate(uuids)
            ),
        )
        for i in range(count)
    ]


def use(found: Sequence[Reading], *uuids: str, began: float = 101.0) -> GpuUse:
    its = gpu_use(found, began, began + 5, uuids)
    assert its is not None
    return its


def test_one_gpu() -> None:
    figures: dict[str, Any] = {
        "utilisation": 40.0,
        "sm_active": 20.0,
        "power_watts": 310.0,
        "memory_used": 7,
        "sm_clock": 1500,
        "slowed_by": ("temperature",),
        "pcie_received": 1e9,
    }
    its = use(readings(FIRST, **figures), FIRST)
    assert (its.utilisation, its.sm_active, its.sm_clock) == (40, 20, 1500)
    assert its.power_watts == pytest.approx(310)
    assert its.energy_joules == pytest.approx(1500)
    assert (its.memory_peak, its.pcie_received) == (7, 1e9)
    assert its.slowed_by == ("temperature",)
    assert its.tensor_active is None


def test_only_the_measured_part_counts() -> None:
    found = readings(FIRST, utilisation=10.0, slowed_by=())
    busy = readings(FIRST, utilisation=90.0, slowed_by=("power cap",))
    found[30:80] = busy[30:80]
    found[35] = readings(FIRST, utilisation=90.0, slowed_by=("temperature",))[35]
    its = use(found, FIRST, began=103.0)
    assert its.utilisation == pytest.approx(88, abs=3)
    assert its.slowed_by == ("power cap",)


def test_several_gpus() -> None:
    figures = {"utilisation": 40.0, "power_watts": 300.0}
    its = use(readings(FIRST, SECOND, "GPU-idle", **figures), SECOND, FIRST)
    assert its.utilisation == 40
    assert its.power_watts == pytest.approx(600)
    assert its.energy_joules == pytest.approx(3000)


def test_energy_without_a_counter() -> None:
    figures: dict[str, Any] = {"energy_joules": None}
    assert use(readings(FIRST, **figures)).energy_joules is None
    its = use(readings(FIRST, power_watts=200.0, **figures))
    assert its.energy_joules == pytest.approx(1000)


def test_a_single_gpu_needs_no_name() -> None:
    assert use(readings(FIRST, utilisation=5.0)).utilisation == 5


@pytest.mark.parametrize(
    "found,uuids,seconds",
    [
        (readings(FIRST, SECOND), (), 5),  # which of them?
        (readings(FIRST), (SECOND,), 5),  # a MIG slice, or another numbering
        (readings(FIRST), (FIRST, SECOND), 5),
        (readings(FIRST), (FIRST,), 0.5),
        (readings(FIRST, count=11), (FIRST,), 5),
        ([], (FIRST,), 5),
        (readings(), (), 5),
    ],
)
def test_what_is_not_certain_is_not_known(
    found: list[Reading], uuids: tuple[str, ...], seconds: float
) -> None:
    assert gpu_use(found, 101.0, 101.0 + seconds, uuids) is None


def test_the_median_of_runs() -> None:
    assert middle([10.0, 90.0, 40.0]) == 40
    assert middle([10.0, None, 40.0]) is None
    assert middle([]) is None


ON_A_GPU = """
import time, torch
from types import SimpleNamespace as Names
from torch.utils.data import DataLoader
torch.cuda = Names(
    is_available=lambda: True,
    is_initialized=lambda: True,
    synchronize=lambda: None,
    device_count=lambda: 2,
    max_memory_reserved=lambda i: 0 if i else 2**30,
    memory_reserved=lambda i: 2**30,
    mem_get_info=lambda i: (2**30, 2**31),
    get_device_name=lambda: "NVIDIA H100",
    get_device_properties=lambda i: Names(uuid="0a1b2c3d-0000-1111-2222-333344445555"),
)
optimizer = torch.optim.SGD()
for batch in DataLoader(list(range(100)), batch_size=8):
    time.sleep(0.08)
    torch.Tensor(1.0).backward()
    optimizer.step()
"""
QUICK = ("--steps", "6", "--warmup", "2", "--repeats", "4", "--no-sync-check")
ROWS = ("GPU utilisation", "SM activity", "GPU power", "energy of 1000 samples")


def shown(table: str) -> dict[str, str]:
    """What stands in the first variant's column."""
    found = {}
    for line in table.splitlines():
        for name in ROWS:
            if line.startswith(name) and "known" not in line:
                found[name] = " ".join(line.removeprefix(name).split())
    return found


@pytest.fixture
def _briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second is long enough to be measured."""
    monkeypatch.setattr("gpulint.bench.gpus.LEAST_SECONDS", 0.3)


@pytest.mark.usefixtures("_briefly")
def test_a_run_on_a_gpu(
    bench: Bench, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = os.pathsep.join([str(DRIVERS / "card"), os.environ["PYTHONPATH"]])
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("FAKE_NVML", json.dumps({"CurrentClocksEventReasons": 0x24}))
    write(ON_A_GPU, "old.py")
    write(ON_A_GPU, "new.py")
    result = bench("old.py", "new.py", *QUICK, "--energy", "--json", "out.json")
    assert result.exit_code in (0, 1), result.output
    found = shown(result.stdout)
    assert found["GPU utilisation"] == "34 % 34 %"
    assert found["SM activity"] == "19 % 19 %"
    assert found["GPU power"] == "310 W 310 W"
    joules = float(found["energy of 1000 samples"].split()[0].replace(" ", ""))
    assert joules > 1
    assert "old.py: the GPU was slowed down in some runs by: temperature." in (
        result.stdout
    )
    facts = json.loads((tmp_path / "out.json").read_text())
    its = facts["sides"][0]["gpus"]
    assert len(its) == 4
    # the made-up counter runs at 310 W
    assert its[0]["energy_joules"] == pytest.approx(310 * its[0]["seconds"], rel=0.2)
    assert its[0]["memory_peak"] == 6 * 1024**3
    assert its[0]["slowed_by"] == ["power cap", "temperature"]


@pytest.mark.usefixtures("_briefly")
def test_a_gpu_without_a_driver_that_answers(
    bench: Bench, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = os.pathsep.join([str(DRIVERS / "none"), os.environ["PYTHONPATH"]])
    monkeypatch.setenv("PYTHONPATH", path)
    write(ON_A_GPU.replace("0.08", "0.01"))
    write(ON_A_GPU.replace("0.08", "0.01"), "new.py")
    result = bench("train.py", "new.py", *QUICK)
    assert shown(result.stdout) == {
        "GPU utilisation": "n/a n/a",
        "SM activity": "n/a n/a",
    }
    assert "GPU utilisation is not known: nvidia-ml-py is not installed" in (
        result.stdout
    )


def test_a_cpu_machine(bench: Bench, write: Write) -> None:
    text = ON_A_GPU[: ON_A_GPU.index("torch.cuda")]
    text += ON_A_GPU[ON_A_GPU.index("optimizer") :].replace("0.08", "0.01")
    write(text)
    write(text, "new.py")
    result = bench("train.py", "new.py", *QUICK, "--energy")
    assert set(shown(result.stdout)) == set(ROWS)
    assert set(shown(result.stdout).values()) == {"n/a n/a"}
    assert "not known" not in result.stdout


def test_energy_of_steps() -> None:
    runs = [
        Run([1.0] * 5, [0.0] * 5, sizes, [False] * 5, [], 0, None, None, None, gpus=its)
        for sizes, its in (
            ([4] * 5, use(readings(FIRST))),
            ([None] * 5, use(readings(FIRST))),
        )
    ]
    side = compare(("old", "new"), ([runs[0]] * 3, [runs[1]] * 3), None, None).sides[0]
    assert side.joules("samples/s") == pytest.approx(1500 * 1000 / 20)
    assert side.joules("steps/s") == pytest.approx(1500 * 1000 / 5)
