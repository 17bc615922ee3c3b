"""Ask NVIDIA's management library about a GPU without opening a CUDA context."""

from __future__ import annotations

import contextlib
import importlib
import os
import warnings
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class NvmlFacts:
    """What NVML says about one GPU or MIG slice; memory is in bytes."""

    name: str
    capability: tuple[int, int]
    memory_total: int
    memory_free: int


def nvml_facts(index: int) -> NvmlFacts | None:
    """Return the facts of CUDA's device `index`.

    None without the library or a driver, on any NVML error, and where it is not
    certain which of NVML's devices CUDA means.
    """
    nvml = _started()
    if nvml is None:
        return None
    # Shut down at once: a forked worker must not inherit the connection.
    try:
        handle = _handle(nvml, index)
        return None if handle is None else _facts(nvml, handle)
    except nvml.NVMLError:
        return None
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


class OpenGpu:
    """A connection to NVML about one GPU, of the process that opened it."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle

    def utilisation(self) -> int | None:
        """Return the percent of time a kernel ran lately, None where not supported."""
        try:
            return int(self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu)
        except self._nvml.NVMLError:  # a MIG slice, a container without rights
            return None

    def close(self) -> None:
        """End the connection."""
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()


def open_gpu(uuid: str | None, index: int) -> OpenGpu | None:
    """Return a connection about CUDA's device with an identifier, or `index`.

    None as for `nvml_facts`.
    """
    nvml = _started()
    if nvml is None:
        return None
    handle = None
    with contextlib.suppress(nvml.NVMLError):
        handle = _handle(nvml, index) if uuid is None else _identified(nvml, uuid)
    gpu = OpenGpu(nvml, handle)
    if handle is not None:
        return gpu
    gpu.close()
    return None


def _identified(nvml: Any, uuid: str) -> Any:
    try:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except nvml.NVMLError:  # PyTorch leaves the prefix out
        return nvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")


def _started() -> Any:
    """The library, connected to the driver; None where either is missing."""
    nvml = _library()
    if nvml is None:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml


def _library() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an old package of that name warns
            return importlib.import_module("pynvml")
    except (ImportError, OSError):
        return None


def _handle(nvml: Any, index: int) -> Any:
    # NVML numbers the GPUs by bus and knows nothing of CUDA_VISIBLE_DEVICES; CUDA puts
    # the fastest first. Only an identifier, or GPUs all alike, leave no doubt.
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        tokens = [token.strip() for token in visible.split(",")]
        if index >= len(tokens):
            return None
        if not tokens[index].isdecimal():
            return nvml.nvmlDeviceGetHandleByUUID(tokens[index])
        index = int(tokens[index])
    if not _numbered_alike(nvml):
        return None
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    return None if _is_divided(nvml, handle) else handle


def _numbered_alike(nvml: Any) -> bool:
    if os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return True
    count = nvml.nvmlDeviceGetCount()
    handles = map(nvml.nvmlDeviceGetHandleByIndex, range(count))
    return len({_as_text(nvml.nvmlDeviceGetName(handle)) for handle in handles}) == 1


def _is_divided(nvml: Any, handle: Any) -> bool:
    """Say whether a GPU is cut into MIG slices: CUDA then uses one of these."""
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError:  # most GPUs cannot be divided
        return False


def _facts(nvml: Any, handle: Any) -> NvmlFacts:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return NvmlFacts(
        name=_as_text(nvml.nvmlDeviceGetName(handle)),
        capability=_capability(nvml, handle),
        memory_total=int(memory.total),
        memory_free=int(memory.free),
    )


def _capability(nvml: Any, handle: Any) -> tuple[int, int]:
    try:
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    except nvml.NVMLError:  # a slice may leave this to the GPU it is part of
        parent = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(parent)
    return int(major), int(minor)


def _as_text(name: str | bytes) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else name
