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
Loaders whose number of workers is not known, or that have none and want none. One that
would load sooner with some, or that `runtime.loader_kwargs` decides for, is of low
confidence: without a guard it goes on alone there; so it is in a project that allows no
Python from 3.14 on, no torch from 2.9 or no NumPy from 2.3, whose Python forks on
Linux, and where an import or a call shows that no such torch runs it. Datasets that
hold a lambda or a local definition, which cannot be sent to such workers at all.
Scripts that choose themselves how processes start; files with the cells of a notebook;
files that only define functions, or call them under the guard.

## Source
Python documentation, `multiprocessing`, "Safe importing of main module" and "Contexts
and start methods"; PyTorch documentation, `torch.utils.data`, "Platform-specific
behaviors".
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.rule import Loaders, Rule
from gpulint.script import Loader, Loop, Script
from gpulint.script.loading.loader_options import trains_on_cpu, unpicklable
from gpulint.script.loading.serial import gains_by_workers
from gpulint.script.loading.unguarded import has_workers, unguarded_pass
from gpulint.script.reaching.old_torch import runs_only_before

FORKSERVER_PYTHON = (3, 14)
FORKSERVER = (2, 9)  # the first torch for it


class UnguardedMain(Rule):
    """Fires once in a file, on the first loader that raises in a spawned worker."""

    effect = Effect.NONE
    needs = Loaders()

    def check(self, script: Script) -> Iterator[Finding]:
        """At most one finding."""
        if trains_on_cpu(script):
            return
        found = [(x, has_workers(x)) for x in script.loaders]
        for loader, sure in sorted(found, key=lambda x: not x[1]):
            if not (
                sure or loader.decided_by_runtime or gains_by_workers(script, loader)
            ):
                continue
            if unpicklable(script, loader) is not None:
                continue  # they could not start there, with a guard or without
            over = unguarded_pass(script, loader)
            if over is not None:
                yield self._finding(script, loader, over, sure)
                return

    def _finding(
        self, script: Script, loader: Loader, over: Loop, sure: bool
    ) -> Finding:
        message = (
            "workers start without a main guard: where they import the script "
            "(Windows, macOS, Python 3.14 on Linux) it raises RuntimeError"
        )
        if not sure:
            message = (
                "workers need a main guard where they import the script (Windows, "
                "macOS, Python 3.14 on Linux): without one, this loader loads alone"
            )
        python = script.releases("python").highest
        forks = python is not None and python < FORKSERVER_PYTHON
        forks |= runs_only_before(script, FORKSERVER)
        return self.finding(
            script,
            loader.call.func,
            message,
            related=[(over.node, "starts the workers on import")],
            confidence=None if sure and not forks else Confidence.LOW,
        )
