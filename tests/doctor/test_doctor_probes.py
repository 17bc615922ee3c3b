"""What the probes read, in this process, of things that are made up."""

from __future__ import annotations

import importlib.metadata
import io
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpulint.cli.doctor import _waiting
from gpulint.doctor import child, training
from gpulint.doctor.gpus import probe_gpus
from gpulint.doctor.host import _identity, _plugins, _system, host_facts, probe_data


def facts_of(probe: Iterator[Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for part in probe:
        facts |= part if isinstance(part, dict) else {}
    return facts


@pytest.mark.parametrize(
    "variables,container",
    [
        ({}, None),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({"APPTAINER_CONTAINER": "/x.sif"}, "apptainer"),
        ({"container": "lxc"}, "lxc"),
    ],
)
def test_containers(
    variables: dict[str, str], container: str | None, tmp_path: Path
) -> None:
    assert _system(tmp_path, variables)["container"] == container


def test_conda(tmp_path: Path) -> None:
    active = {"CONDA_DEFAULT_ENV": "ms", "CONDA_PREFIX": sys.prefix}
    assert _system(tmp_path, active)["conda_is_used"]
    other = {"CONDA_DEFAULT_ENV": "ms", "CONDA_PREFIX": str(tmp_path)}
    assert _system(tmp_path, other)["conda_is_used"] is False


def test_launchers_and_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {
        "TORCHELASTIC_RUN_ID": "none",
        "GPULINT_AMP": "off",
        "CUDA_VISIBLE_DEVICES": "1",
        "SECRET": "x",
    }
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.setenv("WORLD_SIZE", "8")
    facts = facts_of(host_facts(tmp_path, variables))
    launcher = {"name": "torchrun", "world_size": 8, "local_world_size": 4}
    assert facts["launcher"] == launcher
    assert set(facts["variables"]) == {"GPULINT_AMP", "CUDA_VISIBLE_DEVICES"}
    wrong = facts_of(host_facts(tmp_path, {"FORCE_ENV_TYPE": "moon"}))["environment"]
    assert wrong["kind"] is None
    assert "FORCE_ENV_TYPE='moon'" in wrong["evidence"]


def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> str:
        raise KeyError("getpwuid(): uid not found: 1000")

    monkeypatch.setattr("getpass.getuser", unknown)
    assert _identity()["user"] == ""


def test_a_folder_that_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    facts = facts_of(host_facts(tmp_path, {}))
    assert (facts["disk"], facts["identity"]["folder"]) == (None, "")
    assert facts["cpus"]["usable"] >= 1


def test_plugins_of_mindspore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _plugins() is None
    (tmp_path / "mindspore/lib/plugin/gpu11.6").mkdir(parents=True)
    package = types.SimpleNamespace(locate_file=lambda name: tmp_path / name)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: package)
    assert _plugins() == ["gpu11.6"]


def test_data_that_is_not_there(tmp_path: Path) -> None:
    assert facts_of(probe_data({"data": str(tmp_path / "x")})) == {"exists": False}


class NVMLError(Exception):
    value = 0


@pytest.mark.parametrize(
    "value,error", [(12, "no driver"), (9, "no driver"), (18, "mismatch"), (999, "bad")]
)
def test_drivers_that_do_not_start(
    value: int, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        failure = NVMLError("bad")
        failure.value = value
        raise failure

    fake = types.ModuleType("pynvml")
    monkeypatch.setattr(fake, "NVMLError", NVMLError, raising=False)
    monkeypatch.setattr(fake, "nvmlInit", fail, raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    facts = facts_of(probe_gpus({}))
    assert (facts["error"], facts["gpus"]) == (error, [])


def test_a_gpu_that_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = types.ModuleType("pynvml")
    calls = {
        "NVMLError": NVMLError,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 1,
    }
    for name, call in calls.items():
        monkeypatch.setattr(fake, name, call, raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    facts = facts_of(probe_gpus({}))
    assert facts["gpus"] == [{"index": 0, "name": None, "lost": True}]


def fake_torch(**parts: Any) -> Any:
    never = types.SimpleNamespace(is_available=lambda: False)
    rest = {"cuda": never, "backends": types.SimpleNamespace(mps=never)}
    return types.SimpleNamespace(**rest | parts)


def test_accelerators() -> None:
    there = types.SimpleNamespace(is_available=lambda: True)
    current = types.SimpleNamespace(
        is_available=lambda: True,
        current_accelerator=lambda: types.SimpleNamespace(type="npu"),
    )
    assert training._accelerator(fake_torch()) is None
    assert training._accelerator(fake_torch(accelerator=current)) == "npu"
    assert training._accelerator(fake_torch(cuda=there)) == "cuda"
    mps = types.SimpleNamespace(mps=there)
    assert training._accelerator(fake_torch(backends=mps)) == "mps"


def test_devices_and_those_that_do_not_answer() -> None:
    def properties(index: int) -> Any:
        if index:
            raise RuntimeError("CUDA error: unknown error")
        return types.SimpleNamespace(name="T4", major=7, minor=5, total_memory=5)

    cuda = types.SimpleNamespace(
        device_count=lambda: 2, get_device_properties=properties
    )
    assert training._devices(fake_torch(cuda=cuda)) == [
        {"index": 0, "name": "T4", "capability": [7, 5], "memory_total": 5}
    ]


@pytest.mark.parametrize("works", [True, False])
def test_a_device_that_computes_nothing_or_wrongly(works: bool) -> None:
    class Wrong:
        def __matmul__(self, other: object) -> Wrong:
            if not works:
                raise RuntimeError("CUDA error: no kernel image is available")
            return self

        def sum(self) -> Wrong:
            return self

        def item(self) -> int:
            return 0

    found = training._compute(fake_torch(ones=lambda *_, **__: Wrong()))
    assert found["device"] == "cpu"
    assert ("a wrong result" if works else "no kernel image") in found["error"]


def test_a_child_reports_what_it_was_doing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def probe(_: object) -> Iterator[Any]:
        yield "doing this"
        yield {"found": 1}
        sys.exit("stop")

    monkeypatch.setitem(child.PROBES, "host", probe)
    monkeypatch.setattr("faulthandler.dump_traceback_later", lambda *_, **__: None)
    report = tmp_path / "report"
    assert child.main(["host", json.dumps({"report": str(report), "timeout": 5})]) == 0
    events = [json.loads(line) for line in report.read_text().splitlines()]
    assert events == [
        {"stage": "doing this"},
        {"facts": {"found": 1}},
        {"error": "SystemExit: stop"},
    ]


def test_a_terminal_shows_that_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with _waiting():
        pass
    assert "asking torch" in stream.getvalue()
