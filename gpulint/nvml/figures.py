"""What NVML says of one GPU at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpulint.nvml.gpm import Gpm
from gpulint.nvml.library import (
    as_text,
    ask,
    is_divided,
    slices,
    slowed_by,
    watts,
)

PCIE_SECONDS = 1.0  # NVML counts for 20 ms to answer: too long for every question
CLOCK_SM, CLOCK_MEMORY = 1, 2  # NVML_CLOCK_…
SENT, RECEIVED = 0, 1  # NVML_PCIE_UTIL_…, as the GPU sees it
KB = 1000


@dataclass(frozen=True)
class GpuProcess:
    """A process that computes on a GPU, by the number that the driver knows."""

    pid: int
    memory: int | None  # bytes


@dataclass(frozen=True)
class Slice:
    """A MIG slice of a GPU."""

    name: str | None
    memory_used: int | None  # bytes
    memory_total: int | None


@dataclass(frozen=True)
class GpuFigures:
    """One GPU; None is what it does not tell, and never 0.

    Shares are in percent, memory in bytes, clocks in MHz, PCIe in bytes a second.
    `utilisation` is the part of the time in which a kernel ran, however small it was;
    `sm_active` the part of the multiprocessors that were busy.
    """

    index: int
    name: str | None = None
    uuid: str | None = None
    utilisation: float | None = None
    memory_utilisation: float | None = None
    sm_active: float | None = None
    sm_occupancy: float | None = None
    tensor_active: float | None = None
    dram_active: float | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    temperature: int | None = None  # degrees Celsius
    power_watts: float | None = None
    power_limit_watts: float | None = None
    energy_joules: float | None = None  # since the driver was loaded
    sm_clock: int | None = None
    sm_clock_max: int | None = None
    memory_clock: int | None = None
    pcie_sent: float | None = None  # by the GPU
    pcie_received: float | None = None
    slowed_by: tuple[str, ...] | None = None
    mig: bool | None = None
    slices: tuple[Slice, ...] = ()
    processes: tuple[GpuProcess, ...] | None = None

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> GpuFigures:
        """The figures that `dataclasses.asdict` and JSON have made plain."""
        slowed, found = facts["slowed_by"], facts["processes"]
        made = {
            "slowed_by": None if slowed is None else tuple(slowed),
            "slices": tuple(Slice(**its) for its in facts["slices"]),
            "processes": None
            if found is None
            else tuple(GpuProcess(**its) for its in found),
        }
        return cls(**{**facts, **made})

    @property
    def memory_share(self) -> float | None:
        """How much of the memory is in use, in percent."""
        if self.memory_used is None or not self.memory_total:
            return None
        return 100 * self.memory_used / self.memory_total


class Gpu:
    """A GPU that is read again and again."""

    def __init__(self, nvml: Any, index: int) -> None:
        self.nvml, self.index = nvml, index
        self.handle = ask(nvml, "DeviceGetHandleByIndex", index)
        self.gpm = Gpm(nvml, self.handle)
        self.name, self.uuid = as_text(self._of("Name")), as_text(self._of("UUID"))
        self._pcie: tuple[float | None, float | None] = None, None
        self._pcie_at: float | None = None

    def read(self, now: float) -> GpuFigures:
        """Its figures; `now` is the time in seconds by a clock that never goes back."""
        if self.handle is None:  # fallen off the bus
            return GpuFigures(self.index)
        memory, energy = self._of("MemoryInfo"), self._of("TotalEnergyConsumption")
        rates = self._of("UtilizationRates")
        counted: dict[str, Any] = dict(self.gpm.read(now))
        sent, received = counted.pop("pcie_sent"), counted.pop("pcie_received")
        if sent is None and received is None:
            sent, received = self._bus(now)
        slowed = slowed_by(self.nvml, self.handle)
        return GpuFigures(
            self.index,
            self.name,
            self.uuid,
            utilisation=None if rates is None else float(rates.gpu),
            memory_utilisation=None if rates is None else float(rates.memory),
            **counted,
            memory_used=None if memory is None else int(memory.used),
            memory_total=None if memory is None else int(memory.total),
            temperature=self._of("Temperature", 0),
            power_watts=watts(self._of("PowerUsage")),
            power_limit_watts=watts(self._of("EnforcedPowerLimit")),
            energy_joules=None if energy is None else energy / 1000,
            sm_clock=self._of("ClockInfo", CLOCK_SM),
            sm_clock_max=self._of("MaxClockInfo", CLOCK_SM),
            memory_clock=self._of("ClockInfo", CLOCK_MEMORY),
            pcie_sent=sent,
            pcie_received=received,
            slowed_by=None if slowed is None else tuple(slowed),
            **self._divided(),
            processes=self._processes(),
        )

    def _of(self, call: str, *arguments: Any) -> Any:
        if self.handle is None:
            return None
        return ask(self.nvml, f"DeviceGet{call}", self.handle, *arguments)

    def _bus(self, now: float) -> tuple[float | None, float | None]:
        if self._pcie_at is None or now - self._pcie_at >= PCIE_SECONDS:
            rates = [self._of("PcieThroughput", way) for way in (SENT, RECEIVED)]
            sent, received = (None if n is None else float(n * KB) for n in rates)
            self._pcie, self._pcie_at = (sent, received), now
        return self._pcie

    def _divided(self) -> dict[str, Any]:
        mig = is_divided(self.nvml, self.handle)
        found = []
        for part in slices(self.nvml, self.handle) if mig else ():
            name = as_text(ask(self.nvml, "DeviceGetName", part))
            memory = ask(self.nvml, "DeviceGetMemoryInfo", part)
            sizes = (None, None) if memory is None else (memory.used, memory.total)
            found.append(Slice(name, *sizes))
        return {"mig": mig, "slices": tuple(found)}

    def _processes(self) -> tuple[GpuProcess, ...] | None:
        found = self._of("ComputeRunningProcesses")
        if found is None:
            return None
        return tuple(GpuProcess(its.pid, its.usedGpuMemory) for its in found)
