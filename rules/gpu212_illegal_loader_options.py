"""A loader gets options that it refuses, or workers that repeat every sample.

## Why
`DataLoader` raises for `persistent_workers=True`, a `prefetch_factor`, a
`multiprocessing_context` or a `timeout` without workers, for a `batch_sampler` beside
what it replaces, and for an order that is given twice. The program stops when it builds
the loader, after the data are prepared, or in the job's queue.

An `IterableDataset` is copied to each worker. Where its `__iter__` does not ask
`get_worker_info` which part it is to yield, all workers yield everything: an epoch of
four workers trains on each sample four times, and nothing says so.

## Example
```python
from torch.utils.data import DataLoader

loader = DataLoader(
    train_set,
    batch_size=64,
    shuffle=True,
    pin_memory=True,
    persistent_workers=True,
)
for images, labels in loader:
    loss = criterion(model(images.cuda()), labels.cuda())
    loss.backward()
    optimizer.step()
```
becomes
```python
from torch.utils.data import DataLoader

loader = DataLoader(
    train_set,
    batch_size=64,
    shuffle=True,
    pin_memory=True,
)
for images, labels in loader:
    loss = criterion(model(images.cuda()), labels.cuda())
    loss.backward()
    optimizer.step()
```

## Fix
Options that need workers are left out where there are none. Where the number is a name
that is 0 by default, they are tied to it, `persistent_workers=args.workers > 0`: the
loader of a program that ran before is the same. None for samplers and for iterable
datasets: a person must say which order, or which share for each worker, is meant.

## When not
One of the values is not known, or is the default of a function's parameter that its
callers are not seen to leave out. Values in settings files are GPU904. A call in a
`try` block. A `prefetch_factor` of 2 is the default before torch 2.0 and is not refused
there. Iterable datasets that draw their samples at random, whose code names workers,
ranks or shards, that come with a `worker_init_fn`, or that wrap a stream which is not
seen: libraries share theirs out among the workers.

## Source
PyTorch source, `torch/utils/data/dataloader.py`; PyTorch documentation,
`torch.utils.data.IterableDataset`, "each worker will have a different copy of the
dataset object".
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Effect, Finding, Severity
from gpulint.rule import Loaders, Rule
from gpulint.script import Loader, Script
from gpulint.script.loading.illegal_options import (
    Refused,
    refused_options,
    without_refused,
    workers_wanted,
)
from gpulint.script.samples.repeated_samples import repeats_samples


class IllegalLoaderOptions(Rule):
    """Fires on the option that is refused, or the loader that repeats its samples."""

    effect = Effect.EXACT
    severity = Severity.ERROR
    needs = Loaders()

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding a loader for all options that need workers."""
        for loader in script.loaders:
            refused = workers_wanted(script, loader)
            if refused:
                yield self._without_workers(script, loader, refused)
            for one in refused_options(script, loader):
                yield self._refused(script, one)
            yield from self._repeated(script, loader)

    def _without_workers(
        self, script: Script, loader: Loader, refused: list[Refused]
    ) -> Finding:
        fix, withheld = without_refused(script, loader, refused)
        first, *others = refused
        related = [(r.at, f"`{r.option}` needs workers as well") for r in others]
        if first.other is not None:
            related.append((first.other, "the number of workers"))
        default = any(r.default for r in refused)
        return self.finding(
            script,
            first.at,
            _message(refused, default),
            fix=fix,
            withheld=withheld,
            related=related,
            severity=Severity.WARNING if default else None,
        )

    def _refused(self, script: Script, refused: Refused) -> Finding:
        when = "the first pass over the loader" if refused.late else "`DataLoader`"
        other = refused.other
        return self.finding(
            script,
            refused.at,
            f"{when} raises an error for `{refused.option}`: {refused.reason}",
            related=[(other, "the other option")] if other is not None else [],
        )

    def _repeated(self, script: Script, loader: Loader) -> Iterator[Finding]:
        found = repeats_samples(script, loader)
        if found is not None:
            number, entry = found
            yield self.finding(
                script,
                loader.call.func,
                f"each of the {number} workers yields all samples: an epoch has every "
                f"sample {number} times",
                related=[(entry, "never asks which worker it runs in")],
            )


def _message(refused: list[Refused], default: bool) -> str:
    names = " and ".join(f"`{r.option}`" for r in refused)
    verb = "needs" if len(refused) == 1 else "need"
    none = "which are 0 by default" if default else "and there are none"
    if all(r.late for r in refused):
        return f"{names} {verb} workers, {none}: the first pass raises an error"
    return f"{names} {verb} workers, {none}: `DataLoader` raises ValueError"
