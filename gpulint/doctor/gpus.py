"""Ask NVIDIA's management library, or `nvidia-smi` without it, about every GPU."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

from gpulint.doctor.probes import Facts, shorten
from gpulint.nvml.library import (
    IMPORTING,
    NO_DRIVER,
    STARTING,
    as_text,
    ask,
    is_divided,
    library,
    reason,
    slices,
    slowed_by,
    watts,
)

SMI_FIELDS = {
    "name": "name",
    "uuid": "uuid",
    "capability": "compute_cap",
    "memory_total": "memory.total",
    "memory_used": "memory.used",
    "driver": "driver_version",
}
MIB = 1024**2


def probe_gpus(_: Facts) -> Iterator[str | Facts]:
    """Yield what opens (`source`, `driver`, `error`) and `gpus`."""
    yield IMPORTING
    nvml = library()
    if nvml is None:
        yield from _ask_smi()
        return
    yield STARTING
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        yield {"source": "NVML", "error": shorten(reason(nvml, error)), "gpus": []}
        return
    # One GPU may take the connection down with it: each is reported when it is read.
    gpus: list[Facts] = []
    yield {"source": "NVML", "driver": as_text(ask(nvml, "SystemGetDriverVersion"))}
    yield {"cuda_driver": ask(nvml, "SystemGetCudaDriverVersion_v2")}
    for index in range(ask(nvml, "DeviceGetCount") or 0):
        yield f"reading GPU {index}"
        gpus.append(_gpu(nvml, index))
        yield {"gpus": list(gpus)}
    yield {"gpus": gpus}
    with contextlib.suppress(nvml.NVMLError):
        nvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> Facts:
    handle = ask(nvml, "DeviceGetHandleByIndex", index)
    if handle is None:
        return {"index": index, "name": None, "lost": True}

    def of(call: str, *arguments: Any) -> Any:
        return ask(nvml, f"DeviceGet{call}", handle, *arguments)

    memory = of("MemoryInfo")
    capability = of("CudaComputeCapability")
    utilisation = of("UtilizationRates")
    celsius = getattr(nvml, "NVML_TEMPERATURE_GPU", 0)
    return {
        "index": index,
        "name": as_text(of("Name")),
        "uuid": as_text(of("UUID")),
        "capability": list(capability) if capability else None,
        "memory_total": memory and int(memory.total),
        "memory_used": memory and int(memory.used),
        **_slices(nvml, handle),
        "pcie_generation": of("CurrPcieLinkGeneration"),
        "pcie_generation_max": of("MaxPcieLinkGeneration"),
        "pcie_width": of("CurrPcieLinkWidth"),
        "pcie_width_max": of("MaxPcieLinkWidth"),
        "numa_node": of("NumaNodeId"),
        "power_limit_watts": watts(of("EnforcedPowerLimit")),
        "power_default_watts": watts(of("PowerManagementDefaultLimit")),
        "temperature": of("Temperature", celsius),
        "utilisation": utilisation and int(utilisation.gpu),
        "slowed_by": slowed_by(nvml, handle),
        "processes": _processes(nvml, handle),
    }


def _slices(nvml: Any, handle: Any) -> Facts:
    """`mig`: None where a GPU cannot be divided; `mig_slices`: those there are."""
    mig = is_divided(nvml, handle)
    found = []
    for part in slices(nvml, handle) if mig else ():
        memory = ask(nvml, "DeviceGetMemoryInfo", part)
        name = as_text(ask(nvml, "DeviceGetName", part))
        found.append({"name": name, "memory_total": memory and int(memory.total)})
    return {"mig": mig, "mig_slices": found}


def _processes(nvml: Any, handle: Any) -> int | None:
    """How many processes compute on a GPU; a container does not see the others'."""
    found = ask(nvml, "DeviceGetComputeRunningProcesses", handle)
    return None if found is None else len(found)


def _ask_smi() -> Iterator[str | Facts]:
    program = shutil.which("nvidia-smi")
    if program is None:
        yield {"source": None, "error": NO_DRIVER, "gpus": []}
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
