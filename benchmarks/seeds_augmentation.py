"""How long a batch of augmented faces takes: in worker processes, and on the device.

    cd FOLDER; python seeds_augmentation.py cuda

FOLDER holds the scenario's `before.py` and, as `train.py`, its `expert.py`. The workers
run what `before.py` does to a sample; on the device runs `runtime.augmentation` with
the same operations, and what the expert wrote. Images are made, then augmented several
times; prints the shortest milliseconds a batch as JSON.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from gpulint import runtime
from gpulint.runtime._limits import available_cpus

MOST_WORKERS = 16  # of which the write-up of the faces speaks


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def shortest(batches: int, passes: int, run: Callable[[], Any]) -> float:
    """Milliseconds a batch, of the fastest pass; the first one only warms up."""
    times = []
    for _ in range(passes + 1):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return round(min(times[1:]) / batches * 1000, 3)


def in_workers(before: Any, images: Any, masks: Any, passes: int) -> dict[str, float]:
    """As before.py does it, by the number of worker processes."""
    found = {}
    config = before.CONFIG
    dataset = before.FacePartsDataset(images, masks, config, augment=True)
    most = min(MOST_WORKERS, available_cpus())
    for workers in sorted({count for count in (1, 4, 8, 16) if count <= most}):
        loader = DataLoader(
            dataset,
            batch_size=config["batch_size"],
            num_workers=workers,
            persistent_workers=True,
        )

        def run(loader: DataLoader[Any] = loader) -> None:
            for _ in loader:
                pass

        found[str(workers)] = shortest(len(loader), passes, run)
    return found


def on_device(
    before: Any, expert: Any, images: Any, masks: Any, device: torch.device, passes: int
) -> dict[str, float]:
    """By gpulint's helper and as the expert does it, for batches on the device."""
    config = before.CONFIG
    rows = expert.make_rows(images, masks, device)
    batches = list(
        zip(*(its.split(config["batch_size"]) for its in rows.tensors), strict=True)
    )
    augment = runtime.augmentation(
        horizontal_flip=0.5,
        rotation_degrees=config["rotation_degrees"],
        brightness=config["brightness"],
        contrast=config["contrast"],
        p=dict.fromkeys(("rotation_degrees", "brightness", "contrast"), 0.5),
        interpolation="nearest",
    )
    preparation = expert.Preparation(config, device)

    def by_runtime() -> None:
        for part, mask in batches:
            augment(part.float() / 255.0, mask.long())
        wait(device)

    def by_expert() -> None:
        for part, mask in batches:
            preparation.augmented(part, mask)
        wait(device)

    return {
        "runtime": shortest(len(batches), passes, by_runtime),
        "expert": shortest(len(batches), passes, by_expert),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("device")
    parser.add_argument("--passes", type=int, default=5)
    args = parser.parse_args()
    sys.path.insert(0, str(Path.cwd()))
    before, expert = map(importlib.import_module, ("before", "train"))
    device = torch.device(args.device)
    rng = np.random.default_rng(0)
    size, count = before.CONFIG["image_size"], 4 * before.CONFIG["batch_size"]
    images, masks, _ = before.draw_faces(count, size, rng)
    result = {
        "batch_size": before.CONFIG["batch_size"],
        "image_size": size,
        "workers_ms": in_workers(before, images, masks, args.passes),
        "device_ms": on_device(before, expert, images, masks, device, args.passes),
    }
    fastest = min(result["workers_ms"].values())
    result["ratio"] = round(fastest / result["device_ms"]["runtime"], 2)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
