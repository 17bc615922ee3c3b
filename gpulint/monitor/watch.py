"""Bring the GPUs and the host together, at each moment that is asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpulint.monitor.host import Host, HostFigures
from gpulint.nvml.figures import GpuFigures
from gpulint.nvml.sampler import Sampler

POLL_SECONDS = 0.1  # for the end of what is watched


@dataclass(frozen=True)
class Sample:
    """All figures of one moment, in seconds since 1970.

    `trouble` says why nothing is known of the GPUs.
    """

    time: float
    gpus: tuple[GpuFigures, ...]
    host: HostFigures
    trouble: str | None = None


def samples(
    sampler: Sampler, host: Host, interval: float, runs: Callable[[], bool]
) -> Iterator[Sample]:
    """Yield a sample every `interval` seconds as long as the training runs.

    The first comes after one interval: shares of time need two looks.
    """
    host.read()
    due = time.monotonic() + interval
    while _wait_until(due, runs):
        latest = sampler.latest()
        yield Sample(time.time(), latest.gpus, host.read(), latest.trouble)
        due = max(due + interval, time.monotonic())


def _wait_until(due: float, runs: Callable[[], bool]) -> bool:
    """Whether it still runs then."""
    while runs():
        left = due - time.monotonic()
        if left <= 0:
            return True
        time.sleep(min(left, POLL_SECONDS))
    return False
