"""An array stays on the host, and each step indexes it and copies the rows it needs.

## Why
`torch.from_numpy(bank[rows]).to(device)` gathers on the host (from the disk, where the
array is memory-mapped) and copies to the device while the GPU waits, in every step.
An array that fits in device memory needs one copy; then the device gathers.

## Example
```python
import numpy as np
import torch
from torch import nn

class Bank:
    def __init__(self, path, device):
        self.device = device
        self.maps = np.load(path, mmap_mode="r")

    def lookup(self, rows):
        picked = self.maps[rows]
        return torch.from_numpy(picked).to(self.device)

def train(model, loader, optimizer, bank):
    for x, y, rows in loader:
        loss = (model(x, bank.lookup(rows.numpy())) - y).square().mean()
        loss.backward()
        optimizer.step()
```
```python
import numpy as np
import torch
from torch import nn
from gpulint import runtime

class Bank:
    def __init__(self, path, device):
        self.device = device
        self.maps = runtime.resident(np.load(path, mmap_mode="r"), self.device)

    def lookup(self, rows):
        picked = self.maps[rows]
        return picked

def train(model, loader, optimizer, bank):
    for x, y, rows in loader:
        loss = (model(x, bank.lookup(rows.numpy())) - y).square().mean()
        loss.backward()
        optimizer.step()
```

## Fix
`runtime.resident(array, device)` where the array is opened: on the device if it fits
there, else in pinned memory, else as it was. Indexing it gives tensors on the device
with the same values. Needs the device to be known where the array is opened, and no
use of the array but its shape, its length and these lookups.

## When not
Arrays that a dataset reads in `__getitem__` (worker processes cannot share the device)
and arrays that the training writes to, such as replay buffers. Without a fix: an array
that is opened anew for each batch, or whose values NumPy casts on the way. Of low
confidence: a loop that trains nothing and goes over the array once, which reads each
row once wherever it lies.

## Source
PyTorch performance tuning guide, "Avoid unnecessary CPU-GPU synchronization"; NumPy,
"Memory-mapped file support"; `torch.from_numpy`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.rule import Hardware, Rule, Words
from gpulint.script import Script
from gpulint.script.copying.host_arrays import HostArrays, Lookup
from gpulint.script.copying.residency import Residency
from gpulint.script.loading.loaders import in_loop

_WHAT = {
    "mapped": "a memory-mapped array",
    "hdf5": "an HDF5 dataset",
    "tensor": "a memory-mapped tensor",
    "memory": "an array",
}


class PerBatchHostArray(Rule):
    """Fires on the copy to the device of what was indexed on the host."""

    effect = Effect.EXACT
    torch = (2, 3)
    hardware = Hardware.GPU
    needs = Words("<move> numpy torch", "<move> h5py torch", "<move> mmap torch.load")

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding an array and function; further lookups are related."""
        groups: dict[tuple[ast.AST, str], list[Lookup]] = {}
        in_file = list(HostArrays(script).lookups())
        for lookup in in_file:
            if script.runners.of(lookup.subscript) is None:
                continue
            key = (script.index.scope(lookup.subscript), script.text(lookup.array))
            groups.setdefault(key, []).append(lookup)
        for lookups in groups.values():
            residency = Residency(script, lookups, in_file)
            if not (residency.written_in_steps or residency.short_lived):
                yield self._finding(script, residency)
                yield from self._reopened(script, residency)

    def _finding(self, script: Script, residency: Residency) -> Finding:
        first = residency.first
        name = script.text(first.array)
        what = _WHAT[first.openings[0].kind]
        others = [(x.subscript, "indexed here as well") for x in residency.lookups[1:]]
        return self.finding(
            script,
            residency.place,
            f"`{name}`, {what}, is indexed on the host and copied in every step",
            fix=residency.rewrite,
            withheld=residency.withheld,
            confidence=Confidence.LOW if _is_only_pass(script, first) else None,
            related=[
                (first.openings[0].node, "opened here"),
                (first.subscript, "indexed here"),
                *others,
            ],
        )

    def _reopened(self, script: Script, residency: Residency) -> Iterator[Finding]:
        for opening in residency.reopened[:1]:
            yield self.finding(
                script,
                opening.node,
                f"`{script.text(residency.first.array)}` is opened anew in every step",
                withheld="it may be opened anew on purpose, to free what was read",
            )


def _is_only_pass(script: Script, lookup: Lookup) -> bool:
    """Whether a loop that trains nothing is the only one, and is come to once."""
    node = script.runners.of(lookup.subscript)
    loop = script.loop_at(node) if node is not None else None
    if loop is None or loop.train or in_loop(script.resolver, loop.node):
        return False
    return loop.function is None or bool(script.resolver.calls.callers(loop.function))
