"""Real children: this machine, a made-up driver, and torches that fail in each way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpulint.cli import main
from gpulint.doctor.probes import Answer, ask

PathWith = Callable[..., None]
GIB = 1024**3


def run_doctor(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpulint", "doctor", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def torch_answer(timeout: float = 60) -> Answer:
    return ask({"torch": {}}, timeout)["torch"]


def test_this_machine(path_with: PathWith, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPULINT_NUM_WORKERS", "3")
    # torch in the parent would be an error: the child alone may import it
    code = (
        "import sys; sys.modules['torch'] = None; sys.argv[1:] = ['doctor', '--json']\n"
        "from gpulint.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    checks = {check["id"]: check for check in report["checks"]}
    assert checks["torch"]["status"] == "ok"
    assert checks["compute"]["status"] == "ok"
    assert checks["cpus"]["value"] == report["host"]["cpus"]["usable"] >= 1
    assert report["torch"]["runtime"]["loader"]["num_workers"] == 3
    assert any(
        "GPULINT_NUM_WORKERS" in x for x in report["torch"]["runtime"]["decisions"]
    )
    assert "identity" not in report["host"]


def test_tuned_values_of_a_script(path_with: PathWith, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("from gpulint import runtime\n")
    first = ask({"torch": {"script": str(tmp_path / "train.py")}}, 60)["torch"].facts
    hardware = first["runtime"]["hardware"]
    entry = {
        "hardware": {"name": hardware["name"], "memory": None, "cpus": 1},
        "workers": 5,
    }
    if hardware["memory_total"] is not None:
        entry["hardware"]["memory"] = hardware["memory_total"]
    tuned = {"schema": 1, "script": "train.py", "entries": [entry]}
    (tmp_path / "gpulint.tuned.json").write_text(json.dumps(tuned))
    second = ask({"torch": {"script": str(tmp_path / "train.py")}}, 60)["torch"].facts
    assert second["runtime"]["loader"]["num_workers"] == 5


def test_a_setting_that_is_not_understood(
    path_with: PathWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPULINT_NUM_WORKERS", "many")
    answer = torch_answer()
    assert answer.trouble is None
    assert "GPULINT_NUM_WORKERS='many'" in answer.facts["runtime"]["error"]


def test_a_torch_that_raises(path_with: PathWith) -> None:
    path_with("raises")
    answer = torch_answer()
    assert answer.facts == {}
    assert answer.story.startswith("importing torch: OSError: ")


def test_a_torch_that_hangs(path_with: PathWith) -> None:
    path_with("hangs")
    began = time.monotonic()
    answer = torch_answer(timeout=5)
    assert (answer.facts, answer.trouble) == ({}, "no answer within 5 s")
    assert time.monotonic() - began < 60  # it sleeps for ten minutes


def test_a_torch_that_kills_its_process(path_with: PathWith) -> None:
    path_with("dies")
    assert torch_answer().story == "importing torch: the process was killed by SIGSEGV"


def test_the_command_survives_a_torch_that_dies(path_with: PathWith) -> None:
    path_with("dies", "mig")
    done = run_doctor()
    assert (done.returncode, done.stderr) == (0, "")
    assert "ERROR torch" in done.stdout
    assert "SIGSEGV" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "gpulint.runtime would get" not in done.stdout
    assert run_doctor("--strict").returncode == 1


def test_a_driver_with_mig(path_with: PathWith) -> None:
    path_with("mig")
    answer = ask({"gpus": {}}, 60)["gpus"]
    assert answer.trouble is None
    assert answer.facts["driver"] == "550.54.14"
    divided, silent = answer.facts["gpus"]
    assert divided["capability"] == [8, 0]
    assert divided["mig_slices"] == [{"name": "MIG 3g.40gb", "memory_total": 40 * GIB}]
    assert divided["slowed_by"] == ["temperature (hardware)"]
    assert divided["power_limit_watts"] == 250.0
    assert divided["utilisation"] is None
    # not supported is unknown, and never 0
    assert silent["name"] == "NVIDIA A100-SXM4-80GB"
    kept = {"index", "name", "mig_slices"}
    assert all(v is None for k, v in silent.items() if k not in kept)


def test_a_child_that_cannot_start(
    path_with: PathWith, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "nothing"))
    monkeypatch.setattr("gpulint.doctor.probes.CHILD", "gpulint_has_no_such_module")
    answer = torch_answer()
    assert "the process ended with exit code 1: " in answer.story
    assert "gpulint_has_no_such_module" in answer.story


def test_half_a_line_is_no_answer(path_with: PathWith, tmp_path: Path) -> None:
    from gpulint.doctor.probes import _events

    report = tmp_path / "report"
    report.write_text('{"stage": "importing torch"}\n{"facts": {"ver')
    assert _events(report) == [{"stage": "importing torch"}]


def test_data(path_with: PathWith, tmp_path: Path) -> None:
    answers = ask({"data": {"data": str(tmp_path)}}, 60)
    assert answers["data"].facts["exists"]
    assert answers["data"].facts["disk"]["free"] >= 0


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command gets instead of asking children."""
    from doctor_helpers import whole

    asked: dict[str, Any] = {"answers": whole()}

    def give(questions: dict[str, Any], timeout: float) -> dict[str, Answer]:
        asked.update(questions=questions, timeout=timeout)
        return asked["answers"]

    monkeypatch.setattr("gpulint.doctor.probes.ask", give)
    return asked


def test_options(answers: dict[str, Any], tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    target = tmp_path / "h100.json"
    words = ["--script", str(script), "--data", "photos", "--timeout", "7"]
    done = CliRunner().invoke(main, ["doctor", *words, "--save-target", str(target)])
    assert done.exit_code == 0
    assert answers["timeout"] == 7
    assert answers["questions"] == {
        "host": {},
        "gpus": {},
        "torch": {"script": str(script)},
        "data": {"data": "photos"},
    }
    saved = json.loads(target.read_text())
    assert (saved["name"], saved["cpus"]) == ("NVIDIA H100 80GB HBM3", 16)
    assert saved["mig"] is False


@pytest.mark.parametrize(
    "words",
    [["--save-target", "nowhere/x.json"], ["--script", "no.py"], ["--timeout", "0"]],
)
def test_bad_calls(words: list[str], answers: dict[str, Any]) -> None:
    done = CliRunner().invoke(main, ["doctor", *words])
    assert done.exit_code == 2
    assert done.stderr.startswith("gpulint: error: ")
    assert len(done.stderr.splitlines()) == 1


def test_strict_lets_notes_pass(answers: dict[str, Any]) -> None:
    from doctor_helpers import driver, gpu, whole

    def code(*words: str) -> int:
        return CliRunner().invoke(main, ["doctor", *words]).exit_code

    assert code("--strict") == 0
    answers["answers"] = whole(gpus=driver(gpu(pcie_width=8)))
    assert code("--strict") == 0
    answers["answers"] = whole(gpus=driver(gpu(slowed_by=["temperature"])))
    assert (code(), code("--strict")) == (0, 1)


def test_an_output_that_lacks_a_character(path_with: PathWith) -> None:
    path_with("dies", "mig")
    words = [sys.executable, "-m", "gpulint", "doctor"]
    done = subprocess.run(
        words,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "at 84 ?C" in done.stdout


def test_names_are_shown_if_asked_for(answers: dict[str, Any]) -> None:
    done = CliRunner().invoke(main, ["doctor", "--json", "--no-redact"])
    assert json.loads(done.stdout)["host"]["identity"]["user"] == "jo"
