"""Ask NVIDIA's management library, or `nvidia-smi` without it, about every GPU."""

from __future__ import annotations

import contextlib
import importlib
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from typing import Any

from gpulint.doctor.probes import Facts, shorten

# The bits of nvmlDeviceGetCurrentClocksEventReasons that slow a GPU down.
SLOWED_BY = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "temperature",
    0x40: "temperature (hardware)",
    0x80: "power brake (hardware)",
}
SMI_FIELDS = {
    "name": "name",
    "uuid": "uuid",
    "capability": "compute_cap",
    "memory_total": "memory.total",
    "memory_used": "memory.used",
    "driver": "driver_version",
}
MIB = 1024**2
IMPORTING = "importing pynvml"


def probe_gpus(_: Facts) -> Iterator[str | Facts]:
    """Yield what opens (`source`, `driver`, `error`) and `gpus`."""
    yield IMPORTING
    nvml = _library()
    if nvml is None:
        yield from _ask_smi()
        return
    yield "starting NVML"
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        yield {"source": "NVML", "error": _reason(nvml, error), "gpus": []}
        return
    # One GPU may take the connection down with it: each is reported when it is read.
    gpus: list[Facts] = []
    yield {"source": "NVML", "driver": _text(_ask(nvml, "SystemGetDriverVersion"))}
    yield {"cuda_driver": _ask(nvml, "SystemGetCudaDriverVersion_v2")}
    for index in range(_ask(nvml, "DeviceGetCount") or 0):
        yield f"reading GPU {index}"
        gpus.append(_gpu(nvml, index))
        yield {"gpus": list(gpus)}
    yield {"gpus": gpus}
    with contextlib.suppress(nvml.NVMLError):
        nvml.nvmlShutdown()


def _library() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an old package of that name warns
            return importlib.import_module("pynvml")
    except (ImportError, OSError):
        return None


def _reason(nvml: Any, error: Any) -> str:
    code = getattr(error, "value", None)
    names = {
        getattr(nvml, "NVML_ERROR_LIBRARY_NOT_FOUND", 12): "no driver",
        getattr(nvml, "NVML_ERROR_DRIVER_NOT_LOADED", 9): "no driver",
        getattr(nvml, "NVML_ERROR_LIB_RM_VERSION_MISMATCH", 18): "mismatch",
    }
    return names.get(code) or shorten(str(error))


def _ask(nvml: Any, call: str, *arguments: Any) -> Any:
    """What a call of NVML returns, None where it is not supported or not there."""
    function = getattr(nvml, f"nvml{call}", None)
    if function is None:
        return None
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return None


def _gpu(nvml: Any, index: int) -> Facts:
    handle = _ask(nvml, "DeviceGetHandleByIndex", index)
    if handle is None:
        return {"index": index, "name": None, "lost": True}

    def of(call: str, *arguments: Any) -> Any:
        return _ask(nvml, f"DeviceGet{call}", handle, *arguments)

    memory = of("MemoryInfo")
    capability = of("CudaComputeCapability")
    utilisation = of("UtilizationRates")
    celsius = getattr(nvml, "NVML_TEMPERATURE_GPU", 0)
    return {
        "index": index,
        "name": _text(of("Name")),
        "uuid": _text(of("UUID")),
        "capability": list(capability) if capability else None,
        "memory_total": memory and int(memory.total),
        "memory_used": memory and int(memory.used),
        **_slices(nvml, handle),
        "pcie_generation": of("CurrPcieLinkGeneration"),
        "pcie_generation_max": of("MaxPcieLinkGeneration"),
        "pcie_width": of("CurrPcieLinkWidth"),
        "pcie_width_max": of("MaxPcieLinkWidth"),
        "numa_node": of("NumaNodeId"),
        "power_limit_watts": _watts(of("EnforcedPowerLimit")),
        "power_default_watts": _watts(of("PowerManagementDefaultLimit")),
        "temperature": of("Temperature", celsius),
        "utilisation": utilisation and int(utilisation.gpu),
        "slowed_by": _slowed_by(nvml, handle),
        "processes": _processes(nvml, handle),
    }


def _slices(nvml: Any, handle: Any) -> Facts:
    """`mig`: None where a GPU cannot be divided; `mig_slices`: those there are."""
    mode = _ask(nvml, "DeviceGetMigMode", handle)
    if not mode or not mode[0]:
        return {"mig": bool(mode[0]) if mode else None, "mig_slices": []}
    slices = []
    for number in range(_ask(nvml, "DeviceGetMaxMigDeviceCount", handle) or 0):
        part = _ask(nvml, "DeviceGetMigDeviceHandleByIndex", handle, number)
        if part is None:
            continue
        memory = _ask(nvml, "DeviceGetMemoryInfo", part)
        name = _text(_ask(nvml, "DeviceGetName", part))
        slices.append({"name": name, "memory_total": memory and int(memory.total)})
    return {"mig": True, "mig_slices": slices}


def _slowed_by(nvml: Any, handle: Any) -> list[str] | None:
    bits = _ask(nvml, "DeviceGetCurrentClocksEventReasons", handle)
    if bits is None:  # its name in older drivers and packages
        bits = _ask(nvml, "DeviceGetCurrentClocksThrottleReasons", handle)
    if bits is None:
        return None
    return [reason for bit, reason in SLOWED_BY.items() if bits & bit]


def _processes(nvml: Any, handle: Any) -> int | None:
    """How many processes compute on a GPU; a container does not see the others'."""
    found = _ask(nvml, "DeviceGetComputeRunningProcesses", handle)
    return None if found is None else len(found)


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _text(name: Any) -> str | None:
    return name.decode(errors="replace") if isinstance(name, bytes) else name


def _ask_smi() -> Iterator[str | Facts]:
    program = shutil.which("nvidia-smi")
    if program is None:
        yield {"source": None, "error": "no driver", "gpus": []}
        return
    yield "running nvidia-smi"
    query = ",".join(SMI_FIELDS.values())
    done = subprocess.run(
        [program, f"--query-gpu={query}", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        said = (done.stdout + done.stderr).strip() or f"exit code {done.returncode}"
        yield {"source": "nvidia-smi", "error": shorten(said), "gpus": []}
        return
    rows = [_row(line) for line in done.stdout.splitlines() if line.strip()]
    gpus = [_from_smi(index, row) for index, row in enumerate(rows)]
    driver = next((row["driver"] for row in rows), None)
    yield {"source": "nvidia-smi", "driver": driver, "gpus": gpus}


def _row(line: str) -> dict[str, str | None]:
    words = [word.strip() for word in line.split(",")]
    known = [None if word.startswith(("[", "N/A")) else word for word in words]
    return dict.fromkeys(SMI_FIELDS) | dict(zip(SMI_FIELDS, known, strict=False))


def _from_smi(index: int, row: dict[str, str | None]) -> Facts:
    numbers = (row["capability"] or "").split(".")
    capability = [int(n) for n in numbers] if all(map(str.isdecimal, numbers)) else None
    return {
        "index": index,
        "name": row["name"],
        "uuid": row["uuid"],
        "capability": capability,
        "memory_total": _mebibytes(row["memory_total"]),
        "memory_used": _mebibytes(row["memory_used"]),
    }


def _mebibytes(text: str | None) -> int | None:
    return int(text) * MIB if text and text.isdecimal() else None
