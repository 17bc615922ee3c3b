"""`python -m equivalence --scripts 500`: checks generated scripts, two at a time.

With `--real-gpu` they train on the GPU of this machine in place of a pretended one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed

from .examine import examine


def main() -> int:
    """Check the scripts of consecutive seeds; 1 if one of them fails."""
    parser = argparse.ArgumentParser(prog="equivalence", description=__doc__)
    parser.add_argument("--scripts", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--real-gpu", action="store_true", help="on the GPU of this machine"
    )
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.scripts)
    started = time.monotonic()
    verdicts: Counter[str] = Counter()
    rules: Counter[str] = Counter()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(given.jobs, context) as pool:
        jobs = [pool.submit(examine, seed, real_gpu=given.real_gpu) for seed in seeds]
        for job in as_completed(jobs):
            try:
                seed, verdict, text, codes = job.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            verdicts[verdict] += 1
            rules.update(codes)
            if verdicts.total() % 25 == 0:
                print(f"{verdicts.total()} scripts", dict(verdicts), flush=True)
            if verdict != "equal":
                print(f"--- seed {seed}: {verdict}\n{text}\n", flush=True)
    print(f"seeds {seeds[0]} to {seeds[-1]}:", dict(verdicts))
    print("scripts changed by each rule:", dict(sorted(rules.items())))
    print(f"{time.monotonic() - started:.0f} s")
    return 1 if verdicts["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
