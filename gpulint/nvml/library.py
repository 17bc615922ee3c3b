"""Open NVIDIA's management library, ask it, and bear what it refuses."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

IMPORTING = "importing pynvml"
STARTING = "starting NVML"
NO_LIBRARY = "no library"
NO_DRIVER = "no driver"
MISMATCH = "mismatch"
POWER_CAP = "power cap"
# The bits of nvmlDeviceGetCurrentClocksEventReasons that slow a GPU down.
SLOWED_BY = {
    0x04: POWER_CAP,
    0x08: "hardware slowdown",
    0x20: "temperature",
    0x40: "temperature (hardware)",
    0x80: "power brake (hardware)",
}


def library() -> Any:
    """The module `pynvml`, imported now; None where it is not there."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an old package of that name warns
            return importlib.import_module("pynvml")
    except (ImportError, OSError):
        return None


def reason(nvml: Any, error: Any) -> str:
    """Why NVML does not start: NO_DRIVER, MISMATCH, or what it says itself."""
    code = getattr(error, "value", None)
    names = {
        getattr(nvml, "NVML_ERROR_LIBRARY_NOT_FOUND", 12): NO_DRIVER,
        getattr(nvml, "NVML_ERROR_DRIVER_NOT_LOADED", 9): NO_DRIVER,
        getattr(nvml, "NVML_ERROR_LIB_RM_VERSION_MISMATCH", 18): MISMATCH,
    }
    return names.get(code) or str(error)


def ask(nvml: Any, call: str, *arguments: Any) -> Any:
    """What a call of NVML returns, None where it is not supported or not there."""
    function = getattr(nvml, f"nvml{call}", None)
    if function is None:
        return None
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return None


def slowed_by(nvml: Any, handle: Any) -> list[str] | None:
    """What keeps a GPU below the clocks it would have, None where that is unknown."""
    bits = ask(nvml, "DeviceGetCurrentClocksEventReasons", handle)
    if bits is None:  # its name in older drivers and packages
        bits = ask(nvml, "DeviceGetCurrentClocksThrottleReasons", handle)
    if bits is None:
        return None
    return [name for bit, name in SLOWED_BY.items() if bits & bit]


def slices(nvml: Any, handle: Any) -> list[Any]:
    """The handles of the MIG slices of a GPU, as far as this process sees them."""
    numbers = range(ask(nvml, "DeviceGetMaxMigDeviceCount", handle) or 0)
    parts = (ask(nvml, "DeviceGetMigDeviceHandleByIndex", handle, n) for n in numbers)
    return [part for part in parts if part is not None]


def is_divided(nvml: Any, handle: Any) -> bool | None:
    """Whether a GPU is cut into MIG slices, None where it cannot be."""
    mode = ask(nvml, "DeviceGetMigMode", handle)
    return bool(mode[0]) if mode else None


def watts(milliwatts: int | None) -> float | None:
    """The same in watts."""
    return None if milliwatts is None else milliwatts / 1000


def as_text(name: str | bytes | None) -> str | None:
    """What older versions of the package give as bytes."""
    return name.decode(errors="replace") if isinstance(name, bytes) else name
