"""The program of a child of `gpulint bench`: runs a script for some optimizer steps.

    python -m gpulint.bench.child '{"report": …, "steps": 60, …}' SCRIPT ARGUMENTS

The script runs as it would alone and imports torch itself. Nothing waits for the device
between the steps that are measured.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpulint.bench.losses import Losses
from gpulint.bench.steps import Recorder
from gpulint.running.device import device_name, device_peak, host_peak, synchronize
from gpulint.running.script import (
    AfterImport,
    describe,
    die_with,
    run_as_main,
    show,
)

PROGRESS_SECONDS = 0.5


class Child:
    """One run: its steps and losses, and the report about them."""

    def __init__(self, options: dict[str, Any]) -> None:
        warmup, steps = options["warmup"], options["steps"]
        self.recorder = Recorder(warmup, steps, time.perf_counter, synchronize)
        self.process = os.getpid()
        self.losses = Losses(self.at_home)
        self.report = Path(options["report"])
        self.said = 0.0

    def at_home(self) -> bool:
        """Whether this is the process of the script, not a forked worker."""
        return os.getpid() == self.process

    def actions(self) -> dict[str, Callable[[Any], None]]:
        """What to do after the import of modules of torch."""

        def scalers(module: Any) -> None:
            self.losses.watch_scalers(module, lambda: self.recorder.seen)

        return {
            "torch._tensor": self.losses.watch_tensors,
            "torch.amp.grad_scaler": scalers,
            "torch.optim.optimizer": self.watch_optimizers,
            "torch.utils.data.dataloader": self.watch_loaders,
        }

    def watch_optimizers(self, module: Any) -> None:
        """`torch.optim.optimizer` was imported: count the steps of all optimizers."""
        module.register_optimizer_step_post_hook(self.on_step)

    def watch_loaders(self, module: Any) -> None:
        """`torch.utils.data.dataloader` was imported: see its loops and batches."""
        recorder, loader = self.recorder, module.DataLoader
        begun, given = loader.__iter__, module._BaseDataLoaderIter.__next__

        def begin(its: Any) -> Any:
            loop, since = recorder.begin(its), time.perf_counter()
            batches = begun(its)
            batches._gpulint_loop = loop
            batches._gpulint_start = time.perf_counter() - since  # of its workers
            return batches

        def deliver(batches: Any) -> Any:
            since = time.perf_counter()
            batch = given(batches)
            waited = time.perf_counter() - since
            loop = getattr(batches, "_gpulint_loop", None)
            if loop is not None:
                waited += batches._gpulint_start
                batches._gpulint_start = 0.0
                recorder.deliver(loop, waited)
            return batch

        loader.__iter__ = begin
        module._BaseDataLoaderIter.__next__ = deliver

    def on_step(self, *_: Any) -> None:
        """After each step of an optimizer; ends the process with the last one."""
        if not self.at_home():
            return
        done = self.recorder.step()
        now = time.perf_counter()
        if now - self.said >= PROGRESS_SECONDS:
            self.said = now
            self.say("progress", steps=self.recorder.seen)
        if done:
            self.finish()
            # Not by an exception: what the script does when it fails or ends, such as
            # saving a model that has hardly learned, must not happen.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

    def finish(self) -> None:
        """Say what was measured."""
        taken = self.recorder.taken
        self.say(
            "measured",
            steps=self.recorder.seen,
            seconds=[step.seconds for step in taken],
            waits=[step.wait for step in taken],
            samples=[step.samples for step in taken],
            between=[step.between for step in taken],
            losses=self.losses.fetch(),
            skipped=self.losses.skipped,
            device=device_name(),
            device_peak=device_peak(),
            host_peak=host_peak(),
        )

    def say(self, event: str, **facts: Any) -> None:
        """Write a line of the report; forked processes have nothing to say."""
        if not self.at_home():
            return
        with self.report.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event, **facts}) + "\n")


def main(words: Sequence[str]) -> int:
    """Run the script; its exit code is ours."""
    options, script, arguments = json.loads(words[0]), words[1], list(words[2:])
    die_with(options["parent"])
    child = Child(options)
    sys.meta_path.insert(0, AfterImport(child.actions()))
    code = 0
    try:
        run_as_main(script, arguments)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
    except BaseException as error:
        show(error, __file__)
        child.say("raised", error=describe(error), steps=child.recorder.seen)
        return 1
    child.say("ended", steps=child.recorder.seen)
    return code


if __name__ == "__main__":
    # Under its own name, as the script is to be `__main__`.
    from gpulint.bench.child import main as run

    sys.exit(run(sys.argv[1:]))
