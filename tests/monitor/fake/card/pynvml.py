"""A driver with an H100 that trains in bursts and an older GPU that does nothing.

What differs from that stands in the variable FAKE_NVML as JSON, by the name of the call
behind `nvmlDeviceGet`, for GPU 0.
"""

from __future__ import annotations

import json
import os
import time
import types
from typing import Any

GIB = 1024**3
NVML_GPM_METRICS_GET_VERSION = 1
CHANGES = json.loads(os.environ.get("FAKE_NVML", "{}"))
SMALL = types.SimpleNamespace
GPM = {2: 19.0, 3: 8.5, 5: 3.25, 10: 12.0, 20: 100.0, 21: 2048.0}
ANSWERS: dict[str, Any] = {
    "Name": b"NVIDIA H100 80GB HBM3",
    "UUID": "GPU-0a1b2c3d-0000-1111-2222-333344445555",
    "UtilizationRates": SMALL(gpu=34, memory=11),
    "MemoryInfo": SMALL(total=80 * GIB, used=6 * GIB),
    "Temperature": 61,
    "PowerUsage": 310_250,
    "EnforcedPowerLimit": 700_000,
    "ClockInfo": 1410,
    "MaxClockInfo": 1980,
    "CurrentClocksEventReasons": 0,
    "MigMode": (0, 0),
    "ComputeRunningProcesses": [SMALL(pid=4711, usedGpuMemory=6 * GIB)],
}
IDLE: dict[str, Any] = {
    **ANSWERS,
    "Name": "NVIDIA GeForce RTX 3090",
    "UUID": "GPU-9f8e7d6c-0000-1111-2222-333344445555",
    "UtilizationRates": SMALL(gpu=0, memory=0),
    "MemoryInfo": SMALL(total=24 * GIB, used=0),
    "PcieThroughput": 5000,
    "ComputeRunningProcesses": [],
}


class NVMLError(Exception):
    def __init__(self, value: int = 3) -> None:
        super().__init__("Not Supported")
        self.value = value


class c_nvmlGpmMetricsGet_t:
    def __init__(self) -> None:
        self.metrics = [SMALL(metricId=0, nvmlReturn=1, value=0.0) for _ in range(200)]


def nvmlInit() -> None:
    pass


def nvmlSystemGetDriverVersion() -> str:
    return "580.65.06"


def nvmlDeviceGetCount() -> int:
    return 2


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetTotalEnergyConsumption(handle: int) -> int:
    if handle:
        raise NVMLError
    return int(time.monotonic() * 310_000)  # mJ of 310 W


def nvmlGpmQueryDeviceSupport(handle: int) -> Any:
    return SMALL(isSupportedDevice=int(handle == 0))


def nvmlGpmSampleAlloc() -> Any:
    return SMALL(at=None)


def nvmlGpmSampleGet(handle: int, sample: Any) -> Any:
    if CHANGES.get("Gpm") == "refused":
        raise NVMLError
    sample.at = time.monotonic()
    return sample


def nvmlGpmMetricsGet(question: Any) -> Any:
    assert question.version == NVML_GPM_METRICS_GET_VERSION
    assert question.sample2.at - question.sample1.at > 0.1
    for metric in question.metrics[: question.numMetrics]:
        metric.value, metric.nvmlReturn = GPM[metric.metricId], 0
    return question


def __getattr__(call: str) -> Any:
    if not call.startswith("nvmlDeviceGet"):
        raise AttributeError(call)
    what = call.removeprefix("nvmlDeviceGet")

    def answer(handle: int, *_: object) -> Any:
        answers = IDLE if handle else {**ANSWERS, **CHANGES}
        if answers.get(what) is None:
            raise NVMLError
        found = answers[what]
        if what == "ComputeRunningProcesses":
            return [SMALL(**its) if isinstance(its, dict) else its for its in found]
        return SMALL(**found) if isinstance(found, dict) else found

    return answer
