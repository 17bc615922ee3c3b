"""A sample as a row of a CSV file, with the names that Weights & Biases uses.

The columns are those of the first sample's GPUs. What is not known is an empty field.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from typing import TextIO

from gpulint.monitor.document import training_cpu
from gpulint.monitor.watch import Sample
from gpulint.nvml.figures import GpuFigures

Value = float | int | str | None
NAMES: dict[str, Callable[[GpuFigures], Value]] = {
    "gpu": lambda g: g.utilisation,
    "memory": lambda g: g.memory_utilisation,
    "memoryAllocated": lambda g: _short(g.memory_share),
    "memoryAllocatedBytes": lambda g: g.memory_used,
    "memoryTotal": lambda g: g.memory_total,
    "temp": lambda g: g.temperature,
    "powerWatts": lambda g: _short(g.power_watts),
    "enforcedPowerLimitWatts": lambda g: _short(g.power_limit_watts),
    "energyJoules": lambda g: _short(g.energy_joules),
    "smClock": lambda g: g.sm_clock,
    "memoryClock": lambda g: g.memory_clock,
    "smActive": lambda g: _short(g.sm_active),
    "smOccupancy": lambda g: _short(g.sm_occupancy),
    "pipeTensorActive": lambda g: _short(g.tensor_active),
    "dramActive": lambda g: _short(g.dram_active),
    "pcieTxBytes": lambda g: _short(g.pcie_sent),
    "pcieRxBytes": lambda g: _short(g.pcie_received),
    "slowedBy": lambda g: None if g.slowed_by is None else " + ".join(g.slowed_by),
}

# Of all CPUs, of one core by the training, in use on the host.
HOST = ("cpu.percent", "proc.cpu.percent", "memory.usedBytes")


class Rows:
    """Writes samples to a file, each as soon as it is there."""

    def __init__(self, file: TextIO) -> None:
        self.file = file
        self._writer = csv.writer(file, lineterminator="\n")
        self._gpus: list[int] | None = None
        self._began = 0.0

    def write(self, sample: Sample) -> None:
        """One row, and before the first one the names of the columns."""
        if self._gpus is None:
            self._gpus = [gpu.index for gpu in sample.gpus]
            self._began = sample.time
            names = [f"gpu.{i}.{name}" for i in self._gpus for name in NAMES]
            self._writer.writerow(["_timestamp", "_runtime", *names, *HOST])
        found = {gpu.index: gpu for gpu in sample.gpus}
        row: list[Value] = [round(sample.time, 3), round(sample.time - self._began, 3)]
        for index in self._gpus:
            gpu = found.get(index, GpuFigures(index))
            row += [read(gpu) for read in NAMES.values()]
        host = sample.host
        row += [_short(host.cpu), training_cpu(host), host.memory_used]
        self._writer.writerow(["" if value is None else value for value in row])
        self.file.flush()


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
