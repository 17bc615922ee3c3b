"""A driver with two GPUs: one cut into slices, one that answers hardly anything."""

from __future__ import annotations

import types
from typing import Any

GIB = 1024**3
UUID = "GPU-0a1b2c3d-0000-1111-2222-333344445555"
NVML_TEMPERATURE_GPU = 0


class NVMLError(Exception):
    def __init__(self, value: int = 3) -> None:
        super().__init__("Not Supported")
        self.value = value


ANSWERS: dict[str, Any] = {
    "Name": b"NVIDIA A100-SXM4-80GB",
    "UUID": UUID,
    "CudaComputeCapability": (8, 0),
    "MemoryInfo": types.SimpleNamespace(total=80 * GIB, used=1 * GIB),
    "MigMode": (1, 1),
    "MaxMigDeviceCount": 2,
    "CurrPcieLinkGeneration": 1,
    "MaxPcieLinkGeneration": 4,
    "CurrPcieLinkWidth": 8,
    "MaxPcieLinkWidth": 16,
    "EnforcedPowerLimit": 250_000,
    "PowerManagementDefaultLimit": 400_000,
    "Temperature": 84,
    "CurrentClocksEventReasons": 0x41,
    "ComputeRunningProcesses": [types.SimpleNamespace(pid=1, usedGpuMemory=None)],
}


def nvmlInit() -> None:
    pass


def nvmlShutdown() -> None:
    pass


def nvmlSystemGetDriverVersion() -> str:
    return "550.54.14"


def nvmlDeviceGetCount() -> int:
    return 2


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetMigDeviceHandleByIndex(handle: int, number: int) -> str:
    if number:
        raise NVMLError  # a place where no slice was made
    return "slice"


def __getattr__(call: str) -> Any:
    if not call.startswith("nvmlDeviceGet"):
        raise AttributeError(call)

    def answer(handle: object, *_: object) -> Any:
        what = call.removeprefix("nvmlDeviceGet")
        if handle == "slice":
            names = {"Name": "MIG 3g.40gb"}
            memory = {"MemoryInfo": types.SimpleNamespace(total=40 * GIB, used=0)}
            return {**names, **memory}[what]
        if (handle == 1 and what != "Name") or what not in ANSWERS:
            raise NVMLError
        return ANSWERS[what]

    return answer
