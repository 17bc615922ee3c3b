"""Batches of tensors in memory are put together row by row in Python.

## Why
A DataLoader asks its dataset for one sample after another and stacks them: for a
`TensorDataset` that is two or three small operations of torch for each row and tensor,
all in the process that trains. One indexing of each tensor gives the same batch 1.4 to
22 times as fast, most for large batches of short rows. Small networks on tables,
windows and series wait for nothing else. Workers are no help: sending a row to another
process costs more than it takes.

## Example
```python
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda")
loader = DataLoader(TensorDataset(x, y), batch_size=256, shuffle=True)
model = nn.Linear(64, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
```
becomes
```python
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from gpulint import runtime

device = torch.device("cuda")
loader = runtime.TensorLoader(TensorDataset(x, y), batch_size=256, shuffle=True)
model = nn.Linear(64, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
```

## Fix
`runtime.TensorLoader`, which makes a DataLoader with the same options, samplers and
random states, and so the same batches. For a `TensorDataset` and parts of one it takes
the dataset; for a class of the program whose `__getitem__` is `return self.x[index],
self.y[index]` it takes these tensors or arrays. Where their rows cannot be gathered, it
is the plain DataLoader.

Withheld where a loader's `.dataset` is used otherwise than for its length, where these
attributes may be set after the dataset is made, and for classes derived from
DataLoader.

## When not
Samples that take work: they are GPU201's. A `collate_fn`, worker processes, batches of
less than 32 rows or of a size that is not known, a loader of which little is taken, and
scripts that use no GPU, or loaders whose loops are all in such. Programs that take a
model made of attention from a package: a step of it takes a hundred times as long as
putting its batch together. Of low confidence are programs that run with no torch from
2.0 on, the first that asks datasets for whole batches.

## Source
`torch.utils.data._utils.fetch`: a dataset with `__getitems__` is asked for whole
batches. That batches, strides and random states are equal was tested for all options of
DataLoader; the time was measured by `benchmarks/tensor_loader.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.rule import Loaders, Rule
from gpulint.script import Loader, Script
from gpulint.script.loading.device_batches import yields_device
from gpulint.script.loading.in_memory import Gathered, gathered, why_not_gathered
from gpulint.script.loading.loader_options import DERIVED, feeds_cpu, trains_on_cpu
from gpulint.script.loading.pinning import goes_to_gpu
from gpulint.script.modelling.networks import attends
from gpulint.script.reaching.old_torch import runs_only_before
from gpulint.script.rewriting.edits import Replace, ReplaceCode, Rewrite

FETCHES_BATCHES = (2, 0)  # the first torch that asks for `__getitems__`
ENOUGH_ROWS = 32  # in a batch, whose single look-ups take a tenth of a millisecond


class InMemoryLoader(Rule):
    effect = Effect.EXACT
    needs = Loaders()
    torch = (2, 3)

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each loader whose dataset only indexes."""
        if trains_on_cpu(script):
            return
        for loader in script.loaders:
            its = gathered(script, loader) if _is_plain(script, loader) else None
            if its is None or _rows(loader) < ENOUGH_ROWS:
                continue
            if feeds_cpu(script, loader):
                continue
            on_device = any(x.train for x in loader.loops)
            on_device = on_device and yields_device(script, loader)
            if not (on_device or goes_to_gpu(script, loader)) or attends(script):
                continue
            yield self._finding(script, loader, its)

    def _finding(self, script: Script, loader: Loader, its: Gathered) -> Finding:
        withheld = DERIVED if loader.derived else None
        withheld = withheld or why_not_gathered(loader, its)
        sizes = {v.constant for v in loader.values("batch_size").known}
        size = f"{sizes.pop()} rows" if len(sizes) == 1 else "rows"
        return self.finding(
            script,
            loader.call.func,
            f"each batch is put together from {size} taken one by one, "
            "though all of them are in memory",
            fix=None if withheld else _rewrite(script, loader, its),
            withheld=withheld,
            evidence=[(its.place, "indexes what is in memory")],
            confidence=Confidence.LOW
            if runs_only_before(script, FETCHES_BATCHES)
            else None,
        )


def _is_plain(script: Script, loader: Loader) -> bool:
    """Whether rows are collated as usual, by the process that trains."""
    workers = loader.argument("num_workers")
    alone = workers.absent or loader.values("num_workers").all_in(0)
    usual = loader.argument("collate_fn").absent
    usual = usual and loader.argument("batch_sampler").absent
    named = script.text(loader.call.func).rpartition(".")[2]
    return alone and usual and named != "TensorLoader"


def _rows(loader: Loader) -> int:
    """How many rows a batch has at least; 0: that is not known."""
    if loader.argument("batch_size").absent:
        return 1
    sizes = [v.constant for v in loader.values("batch_size").known]
    numbers = [size for size in sizes if isinstance(size, int)]
    return min(numbers, default=0) if len(numbers) == len(sizes) else 0


def _rewrite(script: Script, loader: Loader, its: Gathered) -> Rewrite:
    runtime, imports = script.names.runtime
    edits: list[Replace | ReplaceCode] = [
        ReplaceCode(loader.call.func, f"{runtime}.TensorLoader")
    ]
    dataset = loader.argument("dataset").direct
    if its.attributes and dataset is not None:
        name = script.text(dataset)
        tensors = ", ".join(f"{name}.{attribute}" for attribute in its.attributes)
        comma = "," if len(its.attributes) == 1 else ""
        edits.append(ReplaceCode(dataset, f"({tensors}{comma})"))
    return Rewrite("Gather the rows of a batch at once", tuple(edits), imports)
