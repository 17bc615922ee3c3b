"""The program of a child of `gpulint profile`: runs a script for some optimizer steps.

    python -m gpulint.profiling.child '{"report": …, "steps": 10, …}' SCRIPT ARGUMENTS

The last steps of the warm-up are traced: which lines run and, with an NVIDIA or AMD
GPU, which kernels they launch. Then nothing is in the way of the steps that are timed
but a thread that looks at the main thread's frames.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpulint.profiling.gpu import MARK
from gpulint.profiling.lines import LineTracer
from gpulint.profiling.own import Own, Rows, calls
from gpulint.profiling.sampling import Sampler
from gpulint.running import child
from gpulint.running.device import device_name, synchronize
from gpulint.running.steps import Loop, Recorder

TRACED = 2  # steps
TRACE = "trace.json"


@dataclass
class Waited:
    """What the loops over loaders that were made in one place have waited."""

    workers: int
    seconds: float = 0.0
    starts: float = 0.0  # of these, until the first batch of a pass had come
    passes: int = 0
    batches: int = 0

    def add(self, other: Waited) -> None:
        """The same place, in a later step."""
        self.workers = max(self.workers, other.workers)
        self.seconds += other.seconds
        self.starts += other.starts
        self.passes += other.passes
        self.batches += other.batches


class Child(child.Child):
    """One run: where its steps spend their time, and the report about it."""

    def __init__(self, options: dict[str, Any]) -> None:
        recorder = Recorder(
            options["warmup"],
            options["steps"],
            time.perf_counter,
            synchronize,
            options["seconds"],
        )
        super().__init__(options["report"], recorder)
        self.own = Own()
        self.sampler = Sampler(self.own)
        self.tracer: LineTracer | None = None
        self.kernels: KernelTrace | None = None
        self.waits: dict[Rows, Waited] = {}
        self._loops: dict[Loop, tuple[Rows, int]] = {}  # where made, workers
        self._begun: set[Loop] = set()  # those that have given a batch
        self._fresh: list[tuple[Rows, Waited]] = []

    def watch_loaders(self, module: Any) -> None:
        """`torch.utils.data.dataloader` was imported: see where loaders are made."""
        super().watch_loaders(module)
        loader, own = module.DataLoader, self.own
        made = loader.__init__

        @functools.wraps(made)
        def init(its: Any, *arguments: Any, **options: Any) -> None:
            its.__dict__["_gpulint_made"] = own.lines(calls(sys._getframe(1)))
            made(its, *arguments, **options)

        loader.__init__ = init

    def begin(self, loader: Any) -> Loop:
        """A loop over a loader begins."""
        loop = super().begin(loader)
        made = getattr(loader, "_gpulint_made", ())
        self._loops[loop] = made, getattr(loader, "num_workers", 0)
        return loop

    def deliver(self, loop: Loop, waited: float) -> None:
        """A loader has given a batch, for which `waited` seconds passed."""
        super().deliver(loop, waited)
        made, workers = self._loops[loop]
        first = loop not in self._begun
        self._begun.add(loop)
        its = Waited(workers, waited, waited if first else 0.0, int(first), 1)
        self._fresh.append((made, its))

    def step(self) -> bool:
        """An optimizer has done a step: trace, take samples, or see their end."""
        recorder = self.recorder
        if recorder.seen == recorder.warmup - 1:
            self._stop_tracing()
        done = recorder.step()
        if recorder.seen == recorder.warmup - TRACED:
            self._start_tracing()
        elif recorder.seen == recorder.warmup:
            self._fresh.clear()
            self.sampler.start()
        elif recorder.seen > recorder.warmup:
            self._commit()
        return done

    def _commit(self) -> None:
        """What has happened since the last step belongs to this one."""
        self.sampler.commit()
        for made, its in self._fresh:
            known = self.waits.get(made)
            if known is None:
                self.waits[made] = its
            else:
                known.add(its)
        self._fresh.clear()

    def _start_tracing(self) -> None:
        if device_name() is not None:
            self.kernels = start_kernels(self.report.parent / TRACE)
        self.tracer = LineTracer(self.own, self.at_home, self.kernels is not None)
        self.tracer.start(sys._getframe(1))

    def _stop_tracing(self) -> None:
        if self.tracer is not None:
            self.tracer.stop()
        if self.kernels is not None:
            synchronize()
            self.kernels.stop()

    def ended(self) -> None:
        """The script is over; the steps that were timed may be enough to speak of."""
        if self.recorder.taken:
            self.finish()
        else:
            super().ended()

    def finish(self) -> None:
        """Say what was measured."""
        self.sampler.stop()
        taken = self.recorder.taken
        tracer, kernels = self.tracer, self.kernels
        self.say(
            "measured",
            steps=self.recorder.seen,
            seconds=[step.seconds for step in taken],
            samples=self.sampler.count,
            stacks=[[k, s, t] for (k, s), t in self.sampler.seconds.items()],
            waits=[[made, vars(its)] for made, its in self.waits.items()],
            ran=_by_file(tracer.ran) if tracer is not None else {},
            files=self._files(),
            device=device_name(),
            gpu=None
            if kernels is None or tracer is None
            else {
                "trace": str(kernels.file),
                "began": kernels.began,
                "steps": TRACED,
                "timeline": tracer.timeline,
                "stacks": list(tracer.stacks),
            },
        )

    def _files(self) -> list[str]:
        """The user's files that were imported, without the script."""
        modules = list(sys.modules.values())
        names = {getattr(module, "__file__", None) for module in modules}
        return sorted(n for n in names if isinstance(n, str) and self.own.file(n))


@dataclass
class KernelTrace:
    """torch's profiler while it notes the kernels of a GPU."""

    profiler: Any
    file: Path
    began: int  # when the marked range was entered: nanoseconds of our clock

    def stop(self) -> None:
        """Write the trace."""
        self.profiler.stop()
        self.profiler.export_chrome_trace(str(self.file))


def start_kernels(file: Path) -> KernelTrace | None:
    """Note what runs on a GPU from now on; None: this torch cannot for this GPU."""
    torch: Any = sys.modules["torch"]
    if not torch.cuda.is_initialized():  # XPU and MPS have other traces
        return None
    from torch import profiler

    kinds = profiler.ProfilerActivity
    supported: Any = profiler.supported_activities
    if kinds.CUDA not in supported():
        return None
    its: Any = profiler.profile(activities=[kinds.CPU, kinds.CUDA])
    its.start()
    with profiler.record_function(MARK):
        began = time.perf_counter_ns()
    return KernelTrace(its, file, began)


def _by_file(ran: set[tuple[str, int]]) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for file, row in sorted(ran):
        rows.setdefault(file, []).append(row)
    return rows


def main(words: Sequence[str]) -> int:
    """Run the script; its exit code is ours."""
    options = json.loads(words[0])
    return child.run(Child(options), options["parent"], words[1:], __file__)


if __name__ == "__main__":
    # Under its own name, as the script is to be `__main__`.
    from gpulint.profiling.child import main as run

    sys.exit(run(sys.argv[1:]))
