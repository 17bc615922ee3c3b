"""Whether a loader's samples are surely made by one process, with work for each."""

from __future__ import annotations

from gpulint.script.datasets import Work
from gpulint.script.loaders import Loader


def is_serial(loader: Loader) -> bool:
    """Whether 0 or 1 workers are certain and each sample takes work.

    Not for datasets that workers must not touch: open handles, samples on the device.
    """
    if loader.decided_by_runtime:
        return False
    workers = loader.argument("num_workers")
    values = loader.values("num_workers")
    few = workers.absent or (workers.given and values.all_in(0, 1))
    dataset = loader.dataset
    usable = dataset.handle is None and dataset.device is None
    return few and usable and dataset.work is Work.SOME
