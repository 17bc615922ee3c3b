"""The program of a child of `gpulint bench`: runs a script for some optimizer steps.

    python -m gpulint.bench.child '{"report": …, "steps": 60, …}' SCRIPT ARGUMENTS

The script runs as it would alone and imports torch itself. Nothing waits for the device
between the steps that are measured. Of several ranks that a launcher starts, each has a
report of its own, numbered.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpulint.bench.losses import Losses
from gpulint.bench.syncs import HostSyncs
from gpulint.running import child
from gpulint.running.device import (
    device_name,
    device_peak,
    gpu_ids,
    host_peak,
    synchronize,
    uses_cuda,
)
from gpulint.running.reports import read
from gpulint.running.steps import Recorder

POLL_SECONDS = 0.02
LAST = ("measured", "raised", "ended")  # after these a rank says nothing more
NUMPY_SEEDS = 2**32


class Child(child.Child):
    """One run: its steps and losses, and the report about them."""

    def __init__(self, options: dict[str, Any]) -> None:
        warmup, steps = options["warmup"], options["steps"]
        self.seed: int | None = options.get("seed")
        self.syncs = HostSyncs() if options.get("syncs") else None
        report, self.ranks = Path(options["report"]), 1
        if options.get("launched"):
            rank, self.ranks = _place_among_ranks()
            report = report.with_suffix(f".{rank}")
        recorder = Recorder(warmup, steps, time.perf_counter, self.synchronize)
        super().__init__(str(report), recorder)
        self.losses = Losses(self.at_home)

    def synchronize(self) -> None:
        """Wait for the device, where it is the time that is measured."""
        if self.syncs is None:
            synchronize()

    def actions(self) -> dict[str, Callable[[Any], None]]:
        """What to do after the import of modules of torch."""

        def scalers(module: Any) -> None:
            self.losses.watch_scalers(module, lambda: self.recorder.seen)

        found = {
            **super().actions(),
            "torch._tensor": self.losses.watch_tensors,
            "torch.amp.grad_scaler": scalers,
        }
        if self.syncs is not None:
            found["torch.cuda"] = self.syncs.watch_cuda
        if self.seed is not None:
            seed = self.seed
            found["torch"] = lambda torch: torch.manual_seed(seed)
            found["numpy"] = lambda numpy: numpy.random.seed(seed % NUMPY_SEEDS)
        return found

    def step(self) -> bool:
        """An optimizer has done a step; says whether there are enough."""
        done = super().step()
        if self.syncs is not None and self.recorder.seen >= self.recorder.warmup:
            self.syncs.listen()
        return done

    def finish(self) -> None:
        """Say what was measured."""
        ended = time.monotonic()
        taken = self.recorder.taken
        syncs = self.syncs.per_step(len(taken)) if self.syncs is not None else None
        self.say(
            "measured",
            ranks=self.ranks,
            host_syncs=syncs,
            ended=ended,
            gpu_ids=gpu_ids(),
            steps=self.recorder.seen,
            seconds=[step.seconds for step in taken],
            waits=[step.wait for step in taken],
            samples=[step.samples for step in taken],
            between=[step.between for step in taken],
            losses=self.losses.fetch(),
            skipped=self.losses.skipped,
            device=device_name(),
            cuda=uses_cuda(),
            device_peak=device_peak(),
            host_peak=host_peak(),
        )
        self._await_others()

    def _await_others(self) -> None:
        """Stay until the other ranks have done as much: they may still need this one.

        One that never does is for the launcher, or for who waits for it, to end.
        """
        others = [self.report.with_suffix(f".{i}") for i in range(self.ranks)]
        while self.ranks > 1 and not all(map(_is_complete, others)):
            time.sleep(POLL_SECONDS)


def _place_among_ranks() -> tuple[int, int]:
    """The rank that a launcher gave this process, and of how many."""
    from gpulint.runtime import _ranks

    def first(names: Sequence[str]) -> int | None:
        return next((n for n in map(_ranks.env_count, names) if n is not None), None)

    rank, size = first(_ranks.RANK_VARIABLES), first(_ranks.WORLD_SIZE_VARIABLES)
    return rank or 0, size or 1


def _is_complete(report: Path) -> bool:
    try:
        events = read(report)
    except OSError:
        return False
    return bool(events) and events[-1]["event"] in LAST


def main(words: Sequence[str]) -> int:
    """Run the script; its exit code is ours."""
    options = json.loads(words[0])
    its = Child(options)
    if its.seed is not None:
        random.seed(its.seed)
    parent = os.getppid() if options.get("launched") else options["parent"]
    is_module = bool(options.get("module"))
    return child.run(its, parent, words[1:], __file__, is_module=is_module)


if __name__ == "__main__":
    # Under its own name, as the script is to be `__main__`.
    from gpulint.bench.child import main as run

    sys.exit(run(sys.argv[1:]))
