"""How much faster `runtime.TensorLoader` makes batches than DataLoader does.

Both pass over the same tensors in turn, several times; the shortest pass of each
counts. Prints one JSON object a line: rows of a batch, numbers in a row, milliseconds a
batch, and their ratio.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from gpulint import runtime


def seconds(loader: Iterable[Any]) -> float:
    """The time of one pass."""
    started = time.perf_counter()
    for _ in loader:
        pass
    return time.perf_counter() - started


def compare(rows: int, width: int, batches: int, passes: int) -> dict[str, float]:
    """Both loaders on `rows` a batch of `width` numbers and a label."""
    count = rows * batches
    dataset = TensorDataset(torch.randn(count, width), torch.arange(count))
    before = DataLoader(dataset, batch_size=rows, shuffle=True)
    after = runtime.TensorLoader(dataset, batch_size=rows, shuffle=True)
    times = [(seconds(before), seconds(after)) for _ in range(passes)]
    slow, fast = (min(each) / batches * 1000 for each in zip(*times, strict=True))
    return {
        "rows": rows,
        "width": width,
        "before_ms": round(slow, 4),
        "after_ms": round(fast, 4),
        "ratio": round(slow / fast, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--passes", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for rows in (32, 128, 512, 2048):
        for width in (16, 256, 3072):
            print(json.dumps(compare(rows, width, args.batches, args.passes)))


if __name__ == "__main__":
    main()
