"""Ask NVML in a thread, again and again, how busy a GPU is."""

from __future__ import annotations

import os
import threading
from typing import Any

from ._nvml import open_gpu

# A process that is forked in the middle of a question would inherit NVML's locks.
_asking = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_asking.acquire,
        after_in_parent=_asking.release,
        after_in_child=_asking.release,
    )


class Sampler:
    """Collects the utilisation of one GPU; without NVML there is none."""

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._percents: list[int] = []

    def start(self, device: int) -> None:
        """Begin to ask about CUDA's device, if that is not done yet."""
        if self._thread is not None or not _is_nvidia():
            return
        uuid = _uuid(device)
        self._thread = threading.Thread(
            target=self._ask, args=(uuid, device), name="gpulint-monitor", daemon=True
        )
        self._thread.start()

    def mean(self) -> float | None:
        """Return the mean in percent since the last call, None where none is known."""
        percents, self._percents = self._percents, []
        return sum(percents) / len(percents) if percents else None

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(timeout=1.0)

    def _ask(self, uuid: str | None, device: int) -> None:
        with _asking:
            gpu = open_gpu(uuid, device)
        if gpu is None:
            return
        while not self._stopped.wait(self.interval):
            with _asking:
                percent = gpu.utilisation()
            if percent is None:  # not supported here, or no longer
                break
            self._percents.append(percent)
        with _asking:
            gpu.close()


def _is_nvidia() -> bool:
    import torch

    return torch.version.hip is None


def _uuid(device: int) -> str | None:
    """Return CUDA's identifier of a device as PyTorch gives it (2.4 and later)."""
    import torch

    properties: Any = torch.cuda.get_device_properties(device)
    uuid = getattr(properties, "uuid", None)
    return None if uuid is None else str(uuid)
