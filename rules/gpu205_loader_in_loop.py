"""A loader is built anew in every epoch or step, although nothing in it changes.

## Why
A loader that is built in the loop lives for one pass: its workers start, get a copy of
the dataset and end with it, and `persistent_workers` cannot keep them. In a training
step, `next(iter(DataLoader(…)))` starts them for a single batch, and draws the order of
the whole dataset to take its first samples.

## Example
```python
from torch.utils.data import DataLoader


def train(model, train_set, criterion, optimizer, epochs):
    for epoch in range(epochs):
        loader = DataLoader(train_set, batch_size=64, shuffle=True, num_workers=4)
        for x, y in loader:
            loss = criterion(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
```
becomes
```python
from torch.utils.data import DataLoader


def train(model, train_set, criterion, optimizer, epochs):
    loader = DataLoader(train_set, batch_size=64, shuffle=True, num_workers=4)
    for epoch in range(epochs):
        for x, y in loader:
            loss = criterion(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
```

## Fix
The statement goes before the loop. To build a loader draws no random numbers, and each
pass over it draws its order anew, so all batches stay the same, bit for bit. None where
a sampler is given, workers are persistent, another function builds the loader, or its
name has other values: report only. GPU203 keeps the workers of the loader that remains.

## When not
A dataset, sampler or option that changes from epoch to epoch (a split, a curriculum, a
growing size), or is not seen to stay the same; loops over folds, tasks and seeds, in
which each iteration makes its own optimizer; loaders in branches. In an epoch a loader
without workers: to build it costs microseconds. Rounds that take their own time and
train nothing are of low confidence.

## Source
PyTorch documentation, `torch.utils.data`, "Multi-process data loading": each time an
iterator of a `DataLoader` is created, worker processes are created.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.index.walk import walk
from gpulint.rule import Loaders, Rule
from gpulint.script import Script
from gpulint.script.loading.loader_options import fed_by_framework, trains_on_cpu
from gpulint.script.loading.rebuilt import Rebuilt, before_the_loop, find_rebuilt
from gpulint.script.waiting.timed import is_clock


class LoaderInLoop(Rule):
    """Fires on the loader that each epoch or step builds in the same way."""

    effect = Effect.EXACT
    severity = Severity.ERROR
    needs = Loaders()

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding a loader."""
        if trains_on_cpu(script):
            return
        for loader in script.loaders:
            if fed_by_framework(script, loader):
                continue
            rebuilt = find_rebuilt(script, loader)
            if rebuilt is not None:
                yield self._finding(script, rebuilt)

    def _finding(self, script: Script, rebuilt: Rebuilt) -> Finding:
        fix, withheld = before_the_loop(script, rebuilt)
        related = [(rebuilt.over, "iterated here")]
        if rebuilt.site is not rebuilt.loader.call:
            related.append((rebuilt.site, "called in the loop"))
        return self.finding(
            script,
            rebuilt.loader.call.func,
            _message(rebuilt),
            fix=fix,
            withheld=withheld,
            related=related,
            evidence=[(rebuilt.loop.node, "builds the same loader each time")],
            confidence=Confidence.LOW if _is_measured(script, rebuilt) else None,
        )


def _is_measured(script: Script, rebuilt: Rebuilt) -> bool:
    """Whether rounds that train nothing take their own time, as a benchmark does."""
    clocks = (node for node in walk(*rebuilt.loop.node.body) if is_clock(script, node))
    trains = rebuilt.loop.train or rebuilt.loop.kind == "epoch"
    return not trains and next(clocks, None) is not None


def _message(rebuilt: Rebuilt) -> str:
    if rebuilt.step:
        return "the same loader is built in every step, for one batch"
    return "the same loader is built in every epoch, and its workers end with it"
