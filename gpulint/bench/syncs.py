"""Count how often a script makes the host wait for a CUDA device.

torch warns of waits that its own operations cause (`.item()`, a copy to the host,
indexing by a mask), and of none that the script asks for by name; those are counted
where they are called. Extensions and `torch.distributed` are not seen. Warnings take
time, so this is done in a run whose time is not measured.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from typing import Any

MESSAGE = "called a synchronizing (CUDA|HIP) operation"
BY_NAME = ("Event",)  # beside the module's own `synchronize`; of streams torch warns


class HostSyncs:
    """Counts from the first `listen` on, which is called after each step."""

    def __init__(self) -> None:
        self.count = 0
        self.on = False
        self.shown: Callable[..., None] = warnings.showwarning

    def watch_cuda(self, module: Any) -> None:
        """`torch.cuda` was imported: see what waits and does not warn of it."""
        module.synchronize = self.counted(module.synchronize)
        for name in BY_NAME:
            kind = getattr(module, name)
            kind.synchronize = self.counted(kind.synchronize)

    def counted(self, called: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, which counts."""

        def synchronize(*arguments: Any, **options: Any) -> Any:
            self.count += self.on
            return called(*arguments, **options)

        return synchronize

    def listen(self) -> None:
        """Have torch warn, and hear it whatever filters the script has set."""
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if cuda is None or not cuda.is_initialized():
            return
        if not self.on:
            cuda.set_sync_debug_mode("warn")
            self.on = True
        warnings.filterwarnings("always", MESSAGE)
        if warnings.showwarning != self.show:
            self.shown, warnings.showwarning = warnings.showwarning, self.show

    def show(self, message: Any, *where: Any, **more: Any) -> None:
        """Stands for `warnings.showwarning`."""
        if re.match(MESSAGE, str(message)):
            self.count += 1
        else:
            self.shown(message, *where, **more)

    def per_step(self, steps: int) -> float | None:
        """How many came with a step; None: the script has used no CUDA device."""
        return self.count / steps if self.on else None
