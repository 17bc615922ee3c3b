"""What the checks say of machines that were made up."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from doctor_helpers import GIB, driver, gpu, host, torch, whole

from gpulint.doctor.check import Check, Status
from gpulint.doctor.document import document, judge, worst
from gpulint.doctor.gpu_checks import kernels_for
from gpulint.doctor.gpus import probe_gpus
from gpulint.doctor.host import _on_network, host_facts
from gpulint.doctor.probes import Answer
from gpulint.doctor.view import show


def found(answers: dict[str, Answer]) -> dict[str, Check]:
    """Whatever is not fine, by name."""
    return {c.id: c for c in judge(answers) if c.status is not Status.OK}


def facts_of(probe: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for part in probe:
        facts |= part if isinstance(part, dict) else {}
    return facts


def shown(report: dict[str, Any]) -> str:
    stream = io.StringIO()
    show(report, stream)
    return stream.getvalue()


def test_a_machine_that_lacks_nothing() -> None:
    assert found(whole()) == {}
    text = shown(document(whole(), redacted=True))
    assert "Nothing to change." in text
    assert "cc 9.0, 80.0 GiB, PCIe gen5 x16, MIG off, in use 0 %" in text.replace(
        "\n" + " " * 21, " "
    )
    assert "loader: 8 workers (16 usable CPUs), pinned" in text


def test_a_container_with_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a fake root tells it: 2 CPUs, 8 GiB of memory, 64 MiB shared."""
    for name, text in {
        ".dockerenv": "",
        "proc/self/cgroup": "0::/",
        "proc/cpuinfo": "model name\t: A processor\n",
        "proc/meminfo": f"MemAvailable: {30 * 1024**2} kB\n",
        "sys/fs/cgroup/cpu.max": "200000 100000",
        "sys/fs/cgroup/memory.max": str(8 * GIB),
    }.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.delattr("os.process_cpu_count", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(64)))
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr("gpulint.runtime._limits._physical_memory", lambda: 256 * GIB)
    facts = facts_of(host_facts(tmp_path, {}))
    assert facts["shm"] is None
    facts["shm"] = {"total": 64 * 1024**2, "free": 60 * 1024**2}
    checks = found(whole(host=Answer(facts)))
    assert set(checks) >= {"cpus", "ram", "shm-size"}
    assert checks["cpus"].text.startswith(
        "2 usable of 64 (the control group's quota of 2), A processor"
    )
    assert "limit of the control group" in checks["ram"].text
    assert "--shm-size" in str(checks["shm-size"].advice)
    assert facts["system"]["container"] == "docker"
    assert facts["environment"]["label"] == "container"


@pytest.mark.parametrize(
    "changes,id,status",
    [
        ({"cpus": {**host().facts["cpus"], "usable": 2, "slurm": 2}}, "cpus", "warn"),
        ({"memory": {"usable": 8 * GIB, "limit": None, "free": None}}, "ram", "warn"),
        ({"disk": {"path": "/", "total": GIB, "free": GIB}}, "disk", "warn"),
        (
            {
                "environment": {
                    "kind": None,
                    "label": None,
                    "evidence": "GPULINT_ENV='x'",
                }
            },
            "environment",
            "error",
        ),
        (
            {
                "system": {
                    **host().facts["system"],
                    "conda": "mindspore-gpu",
                    "conda_is_used": False,
                }
            },
            "python",
            "warn",
        ),
        ({"packages": {"pynvml": "11.5.3"}}, "nvml-package", "warn"),
        ({"packages": {"mindspore": "2.10.0", "numpy": "2.4.6"}}, "numpy-2", "note"),
    ],
)
def test_machines_that_lack_one_thing(
    changes: dict[str, Any], id: str, status: str
) -> None:
    checks = found(whole(host=host(**changes)))
    assert {name: c.status.value for name, c in checks.items()} == {id: status}
    assert checks[id].advice


def test_what_is_not_known_is_no_finding() -> None:
    missing = {
        "memory": {"usable": None, "limit": None, "free": None},
        "shm": None,
        "disk": None,
        "limits": {"locked_memory": None},
    }
    answers = whole(host=host(**missing), gpus=driver({"index": 0, "name": "T4"}))
    assert found(answers) == {}
    text = shown(document(answers, redacted=True))
    assert "n/a" in text
    assert " 0 bytes" not in text


def test_locked_memory_counts_where_there_are_several_gpus() -> None:
    small = host(limits={"locked_memory": 64 * 1024})
    assert found(whole(host=small)) == {}
    both = driver(gpu(), gpu(index=1))
    checks = found(whole(host=small, gpus=both, torch=torch(device_count=2)))
    assert set(checks) == {"memlock"}
    fine = judge(whole(gpus=both, torch=torch(device_count=2)))
    assert "unlimited (ulimit -l)" in {check.text for check in fine}


def test_a_host_that_hangs_half_way() -> None:
    half = Answer({"variables": {}}, "no answer within 60 s", "looking at the disk")
    checks = found(whole(host=half))
    assert checks["host"].text == "looking at the disk: no answer within 60 s"


@pytest.mark.parametrize(
    "answer,status",
    [
        (Answer({"exists": True, "disk": None, "network": False}), "ok"),
        (Answer({"exists": True, "disk": None, "network": True}), "note"),
        (Answer({"exists": False}), "error"),
        (Answer({}, "no answer within 60 s", "looking at the data"), "error"),
    ],
)
def test_data(answer: Answer, status: str) -> None:
    [check] = [c for c in judge(whole(data=answer)) if c.id == "data"]
    assert check.status.value == status


def test_network_disks(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    mounts = "/dev/sda1 / ext4 rw 0 0\nserver:/x /data nfs4 rw 0 0\n"
    (tmp_path / "proc/mounts").write_text(mounts)
    assert _on_network(Path("/data/photos"), tmp_path)
    assert not _on_network(Path("/database"), tmp_path)
    assert _on_network(Path("/data"), tmp_path / "nothing") is None


@pytest.mark.parametrize(
    "answer,status",
    [
        (driver(error="no driver", driver=None), "warn"),
        (driver(error="mismatch"), "error"),
        (driver(error="Unknown Error"), "error"),
        (driver(driver="450.80.02"), "warn"),
        (Answer({}, "no answer within 60 s", "starting NVML"), "error"),
        (Answer({}, "AttributeError: x", "importing pynvml"), "error"),
    ],
)
def test_drivers(answer: Answer, status: str) -> None:
    cpu = torch(
        cuda=None,
        device_count=0,
        devices=[],
        accelerator=None,
        arch_list=[],
        runtime={},
    )
    checks = found(whole(gpus=answer, torch=cpu))
    assert {name: c.status.value for name, c in checks.items()} == {"driver": status}


def test_a_container_that_may_not_look() -> None:
    checks = found(whole(gpus=driver(error="no driver")))
    assert {name: c.status.value for name, c in checks.items()} == {"driver": "note"}


def test_an_old_gpu_that_torch_does_not_see() -> None:
    old = gpu(index=1, name="Quadro K620", capability=[5, 0])
    assert set(found(whole(gpus=driver(gpu(), old)))) == {"torch-cuda"}


@pytest.mark.parametrize("changes", [{"accelerator": "mps"}, {"hip": "6.2"}])
def test_no_nvidia_driver_is_wanted_elsewhere(changes: dict[str, Any]) -> None:
    other = torch(cuda=None, device_count=0, devices=[], arch_list=[], **changes)
    assert found(whole(gpus=driver(error="no driver"), torch=other)) == {}


@pytest.mark.parametrize(
    "changes,id,status",
    [
        ({"lost": True}, "gpu0", "error"),
        ({"memory_total": 4 * GIB}, "gpu0-memory", "warn"),
        ({"memory_used": 60 * GIB, "processes": 1}, "gpu0-busy", "warn"),
        ({"memory_used": 60 * GIB, "processes": 0}, "gpu0-busy", "warn"),
        ({"pcie_width": 4}, "gpu0-pcie", "note"),
        ({"power_limit_watts": 350.0}, "gpu0-power", "note"),
        ({"slowed_by": ["power cap"]}, "gpu0-slowed", "note"),
        ({"slowed_by": ["power cap", "temperature"]}, "gpu0-slowed", "warn"),
        ({"temperature": 83}, "gpu0-hot", "note"),
        ({"mig": True, "mig_slices": []}, "gpu0-mig", "error"),
        ({"mig": True, "mig_slices": [{}, {}]}, "gpu0-mig", "note"),
    ],
)
def test_gpus(changes: dict[str, Any], id: str, status: str) -> None:
    checks = found(whole(gpus=driver(gpu(**changes))))
    assert {name: c.status.value for name, c in checks.items()} == {id: status}
    assert checks[id].advice


NO_GPU = {"device_count": 0, "devices": [], "arch_list": [], "runtime": {}}


@pytest.mark.parametrize(
    "changes,variables,id,status",
    [
        ({"cuda": None, **NO_GPU}, {}, "torch-cuda", "error"),
        (NO_GPU, {}, "torch-cuda", "error"),
        (NO_GPU, {"CUDA_VISIBLE_DEVICES": ""}, "torch-cuda", "error"),
        ({"device_count": 2}, {}, "torch-cuda", "note"),
        ({"arch_list": ["sm_70", "compute_80"]}, {}, "torch-arch", "warn"),
        ({"arch_list": ["sm_70", "sm_80"]}, {}, "torch-arch", "error"),
        ({"matmul_precision": "highest"}, {}, "tf32", "note"),
        ({"version": "2.2.1"}, {}, "torch", "warn"),
        ({"compute": {"device": "cuda", "error": "E: x"}}, {}, "compute", "error"),
        ({"runtime": {"error": "GPULINT_AMP='x'"}}, {}, "settings", "error"),
    ],
)
def test_torch(
    changes: dict[str, Any], variables: dict[str, str], id: str, status: str
) -> None:
    answers = whole(host=host(variables=variables), torch=torch(**changes))
    checks = found(answers)
    assert {name: c.status.value for name, c in checks.items()} == {id: status}


@pytest.mark.parametrize(
    "answer,status,says",
    [
        (Answer({}, "OSError: no libcudnn", "importing torch"), "error", "libcudnn"),
        (Answer({}, "no answer within 60 s", "importing torch"), "error", "60 s"),
        (
            Answer({}, "the process was killed by SIGSEGV", "importing torch"),
            "error",
            "",
        ),
    ],
)
def test_broken_torches(answer: Answer, status: str, says: str) -> None:
    checks = found(whole(torch=answer))
    assert set(checks) == {"torch"}
    assert checks["torch"].status.value == status
    assert says in checks["torch"].text


def test_no_torch_is_a_warning() -> None:
    missing = Answer(
        {}, "ModuleNotFoundError: No module named 'torch'", "importing torch"
    )
    checks = found(whole(torch=missing, host=host(packages={})))
    assert checks["torch"].status is Status.WARN
    assert worst(document(whole(torch=missing), redacted=True)) is Status.ERROR


def test_a_torch_that_hangs_later_has_said_something() -> None:
    known = {k: v for k, v in torch().facts.items() if k in ("version", "cuda")}
    late = Answer(known, "no answer within 60 s", "computing on the device")
    checks = {c.id: c for c in judge(whole(torch=late))}
    assert checks["torch"].status is Status.OK
    assert checks["torch-probe"].status is Status.ERROR


@pytest.mark.parametrize(
    "capability,built,how",
    [
        ((9, 0), ["sm_90"], "binary"),
        ((8, 9), ["sm_80", "sm_90"], "binary"),
        ((8, 0), ["sm_86"], None),
        ((9, 0), ["sm_80"], None),
        ((9, 0), ["compute_80"], "ptx"),
        ((8, 0), ["compute_90"], None),
        ((9, 0), ["sm_90a"], "binary"),
        ((10, 3), ["sm_100a"], None),
        ((10, 3), ["sm_100f"], "binary"),
        ((10, 3), ["sm_100"], "binary"),
        ((12, 0), ["sm_100", "gfx942"], None),
        ((12, 0), ["compute_100a"], None),
    ],
)
def test_kernels(capability: tuple[int, int], built: list[str], how: str) -> None:
    assert kernels_for(capability, built) == how


def test_nothing_answers() -> None:
    lost = Answer({}, "no answer within 1 s")
    report = document({"host": lost, "gpus": lost, "torch": lost}, redacted=True)
    assert worst(report) is Status.ERROR
    assert "3 errors." in shown(report)


def test_redaction() -> None:
    stories = Answer(
        {},
        "OSError: /home/jo/venv/lib/libc10.so: bad, of jo on node17, GPU "
        "GPU-0a1b2c3d-0000-1111-2222-333344445555, in /dev/shm/torch_1",
        "importing torch",
    )
    variables = {"CUDA_VISIBLE_DEVICES": "MIG-0a1b2c3d-0000-1111-2222-333344445555"}
    answers = whole(torch=stories, host=host(variables=variables))
    hidden = str(document(answers, redacted=True))
    for secret in ("/home", "jo ", "'jo'", "node17", "0a1b2c3d-0000"):
        assert secret not in hidden
    assert "/dev/shm/torch_1" in hidden
    plain = str(document(answers, redacted=False))
    for secret in ("/home/jo/venv/bin/python", "'jo'", "node17", "0a1b2c3d-0000"):
        assert secret in plain


def test_redaction_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    identity = {"hostname": "", "user": "cuda", "folder": "/", "python": "python"}
    report = document(whole(host=host(identity=identity)), redacted=True)
    assert report["torch"]["accelerator"] == "cuda"  # though a user is called that
    assert report["host"]["disk"]["path"] == "<path>"
    monkeypatch.setattr(Path, "home", lambda: Path("/"))
    assert document(whole(host=host(identity=identity)), redacted=True) == report


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """No nvidia-ml-py; `nvidia-smi` prints what it is given."""
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def write(text: str, code: int = 0) -> dict[str, Any]:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {code}\n")
        program.chmod(0o755)
        return facts_of(probe_gpus({}))

    return write


def test_nvidia_smi_stands_in(smi: Any) -> None:
    facts = smi(
        "Tesla T4, GPU-x, 7.5, 15360, 10, 550.54.14\n"
        "Tesla K80, GPU-y, [N/A], [N/A], [N/A], 550.54.14"
    )
    assert facts["driver"] == "550.54.14"
    first, second = facts["gpus"]
    assert (first["capability"], first["memory_total"]) == ([7, 5], 15 * GIB)
    assert (second["capability"], second["memory_used"]) == (None, None)


def test_nvidia_smi_that_fails(smi: Any) -> None:
    assert "couldn't communicate" in smi("it couldn't communicate", 9)["error"]


def test_neither_library_nor_program(smi: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert facts_of(probe_gpus({}))["error"] == "no driver"


def test_width_of_the_page() -> None:
    answers = whole(host=host(shm={"total": 64 * 1024**2, "free": 0}))
    text = shown(document(answers, redacted=True))
    assert max(map(len, text.splitlines())) <= 80
    assert "WARN  shared memory" in text
    assert "1 warning." in text
    assert "\x1b" not in text
