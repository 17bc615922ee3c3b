"""A script starts workers outside of `if __name__ == "__main__":`.

## Why
Where processes are spawned, each worker first imports the script that started it. What
stands at its top runs there again: the data are read, the model is made, and the loop
asks for workers of its own, which raises "An attempt has been made to start a new
process before the current process has finished its bootstrapping phase". So it is on
Windows and macOS, and from Python 3.14 on, with `forkserver`, on Linux as well.

## Example
```python
from torch.utils.data import DataLoader

loader = DataLoader(train_set, batch_size=64, shuffle=True, num_workers=4)
for x, y in loader:
    loss = criterion(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
```

## Fix
None: what belongs behind the guard, a person knows. Put the program into a function,
and call it under `if __name__ == "__main__":` at the end of the file.

## When not
Loaders without workers, or whose number is not known; scripts that choose themselves
how processes start; files with the cells of a notebook; files that only define
functions, or call them under the guard.

## Source
Python documentation, `multiprocessing`, "Safe importing of main module" and "Contexts
and start methods"; PyTorch documentation, `torch.utils.data`, "Platform-specific
behaviors".
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Effect, Finding
from gpulint.rule import Loaders, Rule
from gpulint.script import Script
from gpulint.script.loader_options import trains_on_cpu
from gpulint.script.unguarded import unguarded_pass


class UnguardedMain(Rule):
    """Fires once in a file, on the first loader that raises in a spawned worker."""

    effect = Effect.NONE
    needs = Loaders()

    def check(self, script: Script) -> Iterator[Finding]:
        """At most one finding."""
        if trains_on_cpu(script):
            return
        for loader in script.loaders:
            over = unguarded_pass(script, loader)
            if over is not None:
                yield self.finding(
                    script,
                    loader.call.func,
                    "workers start without a main guard: where they import the script "
                    "(Windows, macOS, Python 3.14 on Linux) it raises RuntimeError",
                    related=[(over.node, "starts the workers on import")],
                )
                return
