"""A driver whose one GPU is cut into MIG slices and answers hardly anything."""

from __future__ import annotations

import types
from typing import Any

GIB = 1024**3


class NVMLError(Exception):
    def __init__(self, value: int = 3) -> None:
        super().__init__("Not Supported")
        self.value = value


def nvmlInit() -> None:
    print("a library that prints what nobody has asked for")


def nvmlDeviceGetCount() -> int:
    return 1


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetMigMode(handle: object) -> tuple[int, int]:
    return 1, 1


def nvmlDeviceGetMaxMigDeviceCount(handle: object) -> int:
    return 2


def nvmlDeviceGetMigDeviceHandleByIndex(handle: object, number: int) -> str:
    if number:
        raise NVMLError
    return "slice"


def nvmlDeviceGetName(handle: object) -> str:
    return "MIG 3g.40gb" if handle == "slice" else "NVIDIA A100-SXM4-80GB"


def nvmlDeviceGetMemoryInfo(handle: object) -> Any:
    if handle != "slice":
        raise NVMLError
    return types.SimpleNamespace(total=40 * GIB, used=10 * GIB)


def __getattr__(call: str) -> Any:
    if not call.startswith("nvml"):
        raise AttributeError(call)

    def refuse(*_: object) -> None:
        raise NVMLError

    return refuse
