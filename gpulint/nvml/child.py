"""The program of a child that reads GPUs again and again, an event a line.

    python -m gpulint.nvml.child '{"interval": 1.0, "gpus": null, "parent": 4711}'

It ends when its standard input does, which is with its parent at the latest, even where
it hangs in the driver.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Collection
from typing import Any

from gpulint.nvml.figures import Gpu
from gpulint.nvml.library import (
    IMPORTING,
    NO_LIBRARY,
    STARTING,
    as_text,
    ask,
    library,
    reason,
)
from gpulint.running.script import describe, die_with

Say = Callable[..., None]


def watch(say: Say, interval: float, wanted: Collection[int] | None) -> None:
    """Say what the GPUs do until the parent listens no longer."""
    say(stage=IMPORTING)
    nvml = library()
    if nvml is None:
        say(error=NO_LIBRARY)
        return
    say(stage=STARTING)
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        say(error=reason(nvml, error))
        return
    numbers = range(ask(nvml, "DeviceGetCount") or 0)
    say(driver=as_text(ask(nvml, "SystemGetDriverVersion")), count=len(numbers))
    chosen = [i for i in numbers if wanted is None or i in wanted]
    gpus = [Gpu(nvml, index) for index in chosen]
    due = time.monotonic()
    while True:
        found = []
        for gpu in gpus:
            say(stage=f"reading GPU {gpu.index}")
            found.append(dataclasses.asdict(gpu.read(time.monotonic())))
        say(at=time.monotonic(), gpus=found)
        due = max(due + interval, time.monotonic())
        time.sleep(max(due - time.monotonic(), 0))


def _end_with_input() -> None:
    while os.read(0, 64):  # `sys.stdin` would be locked when this process ends
        pass
    os._exit(0)


def main(words: list[str]) -> int:
    """Run with the options `words[0]`."""
    options = json.loads(words[0])
    die_with(options["parent"])
    threading.Thread(target=_end_with_input, daemon=True).start()
    # What a library prints must not stand between the events.
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def say(**event: Any) -> None:
        out.write(json.dumps(event) + "\n")
        out.flush()

    try:
        watch(say, options["interval"], options["gpus"])
    except BrokenPipeError:
        os._exit(0)  # nobody listens: nothing is left to be flushed
    # Whatever a broken installation raises, SystemExit included, is an answer.
    except BaseException as error:
        say(error=describe(error))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
