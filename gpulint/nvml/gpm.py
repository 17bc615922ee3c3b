"""How busy the multiprocessors of a GPU are, on Hopper and later.

NVML's utilisation says that a kernel ran, one thread being enough for 100 %. Its GPU
performance monitoring (GPM) counts active multiprocessors; a figure is the difference
of two samples of its counters, which must lie more than 100 ms apart.
"""

from __future__ import annotations

from typing import Any

from gpulint.nvml.library import ask

LEAST_SECONDS = 0.2  # between two samples
MIB = 1024**2
# NVML_GPM_METRIC_…, percent; those of PCIe are MiB a second.
METRICS = {
    "sm_active": 2,
    "sm_occupancy": 3,
    "tensor_active": 5,
    "dram_active": 10,
    "pcie_sent": 20,
    "pcie_received": 21,
}
BYTES = ("pcie_sent", "pcie_received")


class Gpm:
    """The counters of one GPU; on others than Hopper and later nothing is known."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self.nvml, self.handle = nvml, handle
        self.samples: list[Any] = []
        self.known: dict[str, float | None] = dict.fromkeys(METRICS)
        self._read_at: float | None = None
        support = ask(nvml, "GpmQueryDeviceSupport", handle)
        if support is not None and support.isSupportedDevice:
            pair = [ask(nvml, "GpmSampleAlloc") for _ in range(2)]
            self.samples = [] if None in pair else pair

    def read(self, now: float) -> dict[str, float | None]:
        """The figures by name, percent and bytes a second, None where unknown.

        The first call only starts the count.
        """
        too_soon = self._read_at is not None and now - self._read_at < LEAST_SECONDS
        if not self.samples or too_soon:
            return self.known
        old, new = self.samples
        if ask(self.nvml, "GpmSampleGet", self.handle, new) is None:
            self.samples = []  # a divided GPU: its slices have counters, not the whole
            self.known = dict.fromkeys(METRICS)
        else:
            if self._read_at is not None:
                self.known = self._between(old, new)
            self.samples, self._read_at = [new, old], now
        return self.known

    def _between(self, old: Any, new: Any) -> dict[str, float | None]:
        question = self.nvml.c_nvmlGpmMetricsGet_t()
        question.version = self.nvml.NVML_GPM_METRICS_GET_VERSION
        question.numMetrics = len(METRICS)
        question.sample1, question.sample2 = old, new
        for place, number in enumerate(METRICS.values()):
            question.metrics[place].metricId = number
        answer = ask(self.nvml, "GpmMetricsGet", question)
        found: dict[str, float | None] = dict.fromkeys(METRICS)
        if answer is not None:
            for place, name in enumerate(METRICS):
                metric = answer.metrics[place]
                if metric.nvmlReturn == 0:
                    found[name] = metric.value * (MIB if name in BYTES else 1)
        return found
