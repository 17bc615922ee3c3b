"""What the probes of machines that were made up answer."""

from __future__ import annotations

from typing import Any

from gpulint.doctor.probes import Answer

GIB = 1024**3


def host(**changes: Any) -> Answer:
    """What a good machine answers; `changes` take the place of whole parts."""
    facts: dict[str, Any] = {
        "system": {
            "name": "Linux",
            "release": "6.1",
            "architecture": "x86_64",
            "python": "3.11.9",
            "container": None,
            "wsl": False,
            "conda": None,
            "conda_is_used": None,
        },
        "identity": {
            "hostname": "node17",
            "user": "jo",
            "folder": "/home/jo/project",
            "python": "/home/jo/venv/bin/python",
        },
        "cpus": {
            "name": "A processor",
            "usable": 16,
            "machine": 16,
            "quota": None,
            "slurm": None,
        },
        "memory": {"usable": 64 * GIB, "limit": None, "free": 60 * GIB},
        "shm": {"total": 32 * GIB, "free": 32 * GIB},
        "limits": {"locked_memory": "unlimited"},
        "launcher": {"name": None, "world_size": None, "local_world_size": 1},
        "environment": {
            "kind": "local",
            "label": "workstation",
            "evidence": "no sign of a platform",
        },
        "variables": {},
        "packages": {"torch": "2.13.0+cu130", "numpy": "2.4.6"},
        "mindspore_plugins": None,
        "disk": {"path": "/home/jo/project", "total": 500 * GIB, "free": 400 * GIB},
    }
    return Answer(facts | changes)


def gpu(**changes: Any) -> dict[str, Any]:
    """An H100 that does nothing."""
    facts: dict[str, Any] = {
        "index": 0,
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": "GPU-0a1b2c3d-0000-1111-2222-333344445555",
        "capability": [9, 0],
        "memory_total": 80 * GIB,
        "memory_used": 0,
        "mig": False,
        "mig_slices": [],
        "pcie_generation": 5,
        "pcie_generation_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "numa_node": 0,
        "power_limit_watts": 700.0,
        "power_default_watts": 700.0,
        "temperature": 31,
        "utilisation": 0,
        "slowed_by": [],
        "processes": 0,
    }
    return facts | changes


def driver(*gpus: dict[str, Any], **changes: Any) -> Answer:
    """What a driver with these GPUs answers."""
    facts = {
        "source": "NVML",
        "driver": "580.65.06",
        "cuda_driver": 13000,
        "gpus": list(gpus),
    }
    return Answer(facts | changes)


def torch(**changes: Any) -> Answer:
    """What torch answers beside one H100."""
    facts: dict[str, Any] = {
        "version": "2.13.0+cu130",
        "cuda": "13.0",
        "hip": None,
        "cudnn": 91300,
        "arch_list": ["sm_80", "sm_90", "sm_100"],
        "matmul_precision": "high",
        "cudnn_tf32": True,
        "attention": ["flash", "math"],
        "threads": 16,
        "accelerator": "cuda",
        "device_count": 1,
        "runtime": {
            "hardware": {
                "kind": "cuda",
                "name": "NVIDIA H100 80GB HBM3",
                "capability": [9, 0],
                "memory_total": 80 * GIB,
                "bf16": True,
                "tf32": True,
                "mig": False,
                "cpus": 16,
            },
            "device": "cuda",
            "loader": {"num_workers": 8, "pin_memory": True},
            "eval_loader": {"num_workers": 4, "pin_memory": True},
            "amp": "bfloat16",
            "decisions": ["loader: 8 workers (16 usable CPUs), pinned"],
        },
        "compute": {"device": "cuda", "error": None},
        "devices": [
            {
                "index": 0,
                "name": "NVIDIA H100 80GB HBM3",
                "capability": [9, 0],
                "memory_total": 80 * GIB,
            }
        ],
    }
    return Answer(facts | changes)


def whole(**changes: Answer) -> dict[str, Answer]:
    """The answers of a machine that lacks nothing."""
    return {"host": host(), "gpus": driver(gpu()), "torch": torch(), **changes}
