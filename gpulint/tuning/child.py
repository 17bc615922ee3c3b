"""The program of a child of `gpulint tune`: runs a script until it is timed.

    python -m gpulint.tuning.child '{"report": …, "steps": 20, …}' SCRIPT ARGUMENTS

The script runs as it would alone: as `__main__`, with its own `__file__`, `sys.path[0]`
and arguments, and torch is imported by the script, so that what it sets before holds.
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

from gpulint.running.device import (
    device_peak,
    host_peak,
    synchronize,
    to_channels_last,
)
from gpulint.running.script import (
    AfterImport,
    describe,
    die_with,
    is_out_of_memory,
    run_as_main,
    show,
)
from gpulint.tuning.steps import Recorder

TUNER = "gpulint_tuner"  # where `gpulint.runtime`, also a vendored one, looks for us
PROGRESS_SECONDS = 0.5


class Child:
    """One run: what the script asks for, its steps, and the report about them."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.recorder = Recorder(
            options["steps"], options["seconds"], time.perf_counter, synchronize
        )
        self.channels_last = bool(options.get("channels_last"))
        self.sizes: dict[str, int] = {}
        self.said = 0.0
        self.process = os.getpid()
        self.report = Path(options["report"])

    def asked(self, helper: str, facts: dict[str, Any]) -> None:
        """`gpulint.runtime` says what one of its helpers was asked."""
        if helper == "batch_size":
            self.sizes[facts["name"]] = facts["size"]
        self.say("asked", helper=helper, **facts)

    def say(self, event: str, **facts: Any) -> None:
        """Write a line of the report; forked workers have nothing to say."""
        if os.getpid() != self.process:
            return
        with self.report.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event, **facts}) + "\n")

    def watch_optimizers(self, module: Any) -> None:
        """`torch.optim.optimizer` was imported: count the steps of all optimizers."""
        module.register_optimizer_step_post_hook(self.on_step)
        if not self.channels_last:
            return
        made = module.Optimizer.__init__

        def init(optimizer: Any, *arguments: Any, **options: Any) -> None:
            made(optimizer, *arguments, **options)
            self.say("converted", weights=to_channels_last(optimizer))

        module.Optimizer.__init__ = init

    def watch_loaders(self, module: Any) -> None:
        """`torch.utils.data.dataloader` was imported: see its loops and batches."""
        recorder, loader = self.recorder, module.DataLoader
        begun, given = loader.__iter__, module._BaseDataLoaderIter.__next__

        def begin(its: Any) -> Any:
            loop = recorder.begin(its)  # before the workers start
            batches = begun(its)
            batches._gpulint_loop = loop
            return batches

        def deliver(batches: Any) -> Any:
            batch = given(batches)
            loop = getattr(batches, "_gpulint_loop", None)
            if loop is not None:
                recorder.deliver(loop)
            return batch

        loader.__iter__ = begin
        module._BaseDataLoaderIter.__next__ = deliver

    def on_step(self, optimizer: Any, *_: Any) -> None:
        """After each step of an optimizer; ends the process when it is timed."""
        if os.getpid() != self.process:
            return
        if self.recorder.seen == 0:
            group = optimizer.param_groups[0]
            kind = type(optimizer).__name__
            self.say("optimizer", kind=kind, lr=_number(group.get("lr")))
        done = self.recorder.step()
        now = time.perf_counter()
        if now - self.said >= PROGRESS_SECONDS:
            self.said = now
            self.say("progress", steps=self.recorder.seen)
        if done:
            self.finish("measured")
            # Not by an exception: what the script does when it fails or ends, such as
            # saving a model that has hardly learned, must not happen.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

    def finish(self, event: str, code: int = 0) -> None:
        """Say what was measured."""
        first = self.recorder.passes[0] if self.recorder.passes else None
        self.say(
            event,
            steps=self.recorder.seen,
            rate=self.recorder.rate(self._batch()),
            samples=first and first.samples,
            batches=first and first.length,
            peak=device_peak(),
            own_peak=host_peak(),
            hardware=_hardware(),
            code=code,
        )

    def _batch(self) -> int:
        """The size of a batch in a script that has no loader."""
        sizes = [size for name, size in self.sizes.items() if name != "eval"]
        return self.sizes.get("train", sizes[0] if sizes else 1)


def main(words: Sequence[str]) -> int:
    """Run the script; its exit code is ours."""
    options, script, arguments = json.loads(words[0]), words[1], list(words[2:])
    die_with(options["parent"])
    child = Child(options)
    tuner: Any = child
    sys.modules[TUNER] = tuner
    actions: dict[str, Callable[[Any], None]] = {
        "torch.optim.optimizer": child.watch_optimizers,
        "torch.utils.data.dataloader": child.watch_loaders,
    }
    sys.meta_path.insert(0, AfterImport(actions))
    try:
        run_as_main(script, arguments)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
        child.finish("ended", code)
        return code
    except BaseException as error:
        show(error, __file__)
        memory = is_out_of_memory(error)
        child.say("raised", error=describe(error), memory=memory)
        return 1
    child.finish("ended")
    return 0


def _hardware() -> dict[str, Any]:
    """What `gpulint.runtime` calls this machine, to find the values again."""
    from gpulint import runtime

    machine = runtime.hardware()
    return {
        "name": machine.name,
        "kind": machine.kind,
        "memory": machine.memory_total,
        "cpus": machine.cpus,
    }


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


if __name__ == "__main__":
    # Under its own name, as the script is to be `__main__`.
    from gpulint.tuning.child import main as run

    sys.exit(run(sys.argv[1:]))
