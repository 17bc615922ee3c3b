"""A run of a script in a process of its own whose optimizer steps are recorded.

What is learned goes to the report, a JSON object a line, as soon as it is known: the
process may be killed at any time.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpulint.running.script import (
    AfterImport,
    describe,
    die_with,
    run_as_main,
    run_module_as_main,
    show,
)
from gpulint.running.steps import Loop, Recorder

PROGRESS_SECONDS = 0.5


class Child:
    """One run: its steps, and the report about them. `finish` says what was seen."""

    def __init__(self, report: str, recorder: Recorder) -> None:
        self.report = Path(report)
        self.recorder = recorder
        self.process = os.getpid()
        self.said = 0.0

    def at_home(self) -> bool:
        """Whether this is the process of the script, not a forked worker."""
        return os.getpid() == self.process

    def actions(self) -> dict[str, Callable[[Any], None]]:
        """What to do after the import of modules of torch."""
        return {
            "torch.optim.optimizer": self.watch_optimizers,
            "torch.utils.data.dataloader": self.watch_loaders,
        }

    def watch_optimizers(self, module: Any) -> None:
        """`torch.optim.optimizer` was imported: count the steps of all optimizers."""
        module.register_optimizer_step_post_hook(self.on_step)

    def watch_loaders(self, module: Any) -> None:
        """`torch.utils.data.dataloader` was imported: see its loops and batches."""
        loader = module.DataLoader
        begun, given = loader.__iter__, module._BaseDataLoaderIter.__next__

        def begin(its: Any) -> Any:
            loop, since = self.begin(its), time.perf_counter()
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
                self.deliver(loop, waited)
            return batch

        loader.__iter__ = begin
        module._BaseDataLoaderIter.__next__ = deliver

    def begin(self, loader: Any) -> Loop:
        """A loop over a loader begins."""
        return self.recorder.begin(loader)

    def deliver(self, loop: Loop, waited: float) -> None:
        """A loader has given a batch, for which `waited` seconds passed."""
        self.recorder.deliver(loop, waited)

    def step(self) -> bool:
        """An optimizer has done a step; says whether there are enough."""
        return self.recorder.step()

    def on_step(self, *_: Any) -> None:
        """After each step of an optimizer; ends the process with the last one."""
        if not self.at_home():
            return
        done = self.step()
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
        raise NotImplementedError

    def ended(self) -> None:
        """The script has come to its end before there were enough steps."""
        self.say("ended", steps=self.recorder.seen)

    def say(self, event: str, **facts: Any) -> None:
        """Write a line of the report; forked processes have nothing to say."""
        if not self.at_home():
            return
        with self.report.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event, **facts}) + "\n")


def run(
    child: Child,
    parent: int,
    words: Sequence[str],
    caller: str,
    *,
    is_module: bool = False,
) -> int:
    """Run `SCRIPT ARGUMENTS`; its exit code is ours. `caller`: the file that calls.

    `is_module`: the script is named as `python -m` takes it.
    """
    die_with(parent)
    sys.meta_path.insert(0, AfterImport(child.actions()))
    code = 0
    try:
        start = run_module_as_main if is_module else run_as_main
        start(words[0], list(words[1:]))
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
    except BaseException as error:
        show(error, __file__, caller)
        said = {"error": describe(error), "at": time.time()}
        child.say("raised", steps=child.recorder.seen, **said)
        return 1
    child.ended()
    return code
