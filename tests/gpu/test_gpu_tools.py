"""The commands that run a training, where it runs on a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_scenarios import EVERYTHING, SCRIPTS, fixed

REPO = Path(__file__).resolve().parent.parent.parent

# More than a second of steps, so that NVML's mean of a second is of them alone.
BUSY = """
import torch

weight = torch.rand(4096, 4096, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=1e-6)
for _ in range(500):
    optimizer.zero_grad()
    (weight @ weight).mean().backward()
    optimizer.step()
"""


def gpulint(folder: Path, *words: str, status: int = 0) -> str:
    """What a command prints that ends as it should."""
    path = os.pathsep.join([str(REPO), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "gpulint", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """A scenario before and after."""
    text = (SCRIPTS / "pm25" / "before.py").read_text("utf-8")
    (tmp_path / "before.py").write_text(text, "utf-8")
    (tmp_path / "after.py").write_text(fixed("pm25", EVERYTHING).text, "utf-8")
    return tmp_path


def test_doctor_sees_the_gpu(tmp_path: Path) -> None:
    import torch

    found: dict[str, Any] = json.loads(gpulint(tmp_path, "doctor", "--json"))
    assert torch.cuda.get_device_name() in json.dumps(found)
    assert not [each for each in found["checks"] if each["status"] == "error"]
    assert found["target"]["kind"] == "cuda"


def test_doctor_saves_the_machine_as_a_target(tmp_path: Path, scripts: Path) -> None:
    gpulint(tmp_path, "doctor", "--save-target", "here.json")
    gpulint(scripts, "check", "--target", "here.json", "before.py", status=1)


def test_monitor_sees_the_gpu(tmp_path: Path) -> None:
    found = json.loads(gpulint(tmp_path, "monitor", "--once", "--json"))
    (gpu,) = found["gpus"]
    assert gpu["memory_total"] > 2**30


def test_bench_counts_the_waits(scripts: Path) -> None:
    words = ("--steps", "40", "--repeats", "4", "--json", "out.json")
    gpulint(scripts, "bench", "before.py", "after.py", *words)
    found = json.loads((scripts / "out.json").read_text())
    before, after = found["sides"]
    assert before["host_syncs_per_step"] >= 1
    assert after["host_syncs_per_step"] < before["host_syncs_per_step"]
    assert before["device_peak_bytes"] > 0


def test_bench_sees_how_busy_the_gpu_is(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BUSY, "utf-8")
    words = ("--steps", "400", "--repeats", "4", "--json", "out.json")
    gpulint(tmp_path, "bench", "train.py", "train.py", *words)
    found = json.loads((tmp_path / "out.json").read_text())
    uses = [use for side in found["sides"] for use in side["gpus"]]
    assert len(uses) == 8
    assert all(use["utilisation"] > 50 for use in uses)


def test_profile_names_what_costs(scripts: Path) -> None:
    found = json.loads(gpulint(scripts, "profile", "before.py", "--json"))
    assert found["gpu"]["busy"] > 0
    assert "GPU106" in {each["code"] for each in found["findings"]}


def test_tune_keeps_what_it_finds(scripts: Path) -> None:
    words = ("--batch", "32:64", "--workers", "0,2")
    gpulint(scripts, "tune", "after.py", *words, "--", "--epochs", "40")
    kept = json.loads((scripts / "gpulint.tuned.json").read_text())
    assert kept["entries"]
