"""Samples are made one after another in one process while the GPU waits.

## Why
Without worker processes the training process itself reads, decodes and augments every
sample of a batch before it can start the step; with one worker the samples still come
one after another. The GPU stands still meanwhile, in every step.

## Example
```python
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __init__(self, paths, transform):
        self.paths, self.transform = paths, transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return self.transform(Image.open(self.paths[index]))


device = torch.device("cuda")
loader = DataLoader(
    Photos(paths, transform),
    batch_size=32,
    num_workers=0,
)
for images in loader:
    loss = model(images.to(device)).mean()
    loss.backward()
    optimizer.step()
```
becomes
```python
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from gpulint import runtime


class Photos(Dataset):
    def __init__(self, paths, transform):
        self.paths, self.transform = paths, transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return self.transform(Image.open(self.paths[index]))


device = torch.device("cuda")
loader = DataLoader(
    Photos(paths, transform),
    batch_size=32,
    **runtime.loader_kwargs(device, was={"num_workers": 0}),
)
for images in loader:
    loss = model(images.to(device)).mean()
    loss.backward()
    optimizer.step()
```

## Fix
`runtime.loader_kwargs` chooses the workers for the machine when the script runs: by
the usable CPUs, the limits of the container and the other ranks, and 0 under a debugger
or where workers cannot start. Where they would import a script anew that has no
`if __name__ == "__main__":` it gives 0 too, so that guard is no condition of the fix.
Other options of the call move into it and win over its choice; the number that it
replaces stays in `was`.

Workers draw their own random numbers, so the fix is of the effect `random`; it is
`exact` where the dataset draws none, no function collates or sets up workers, torch
computes nothing that rounds by the number of threads, and the order of the samples is
drawn at the same time: not where shuffled loaders are zipped or their iterators kept.

No fix where workers would change what is trained on, or could not start: an iterable
dataset without `get_worker_info`, a dataset that changes itself, a random generator
kept on it (all workers would draw the same), a lambda, lock or local function handed
over, samples that require gradients or are made on a device that a caller may name, a
dataset of which only the tokenizing collate function is known, batches of which loops
only read arrays, a loader built in a loop, a dataset or sampler that the training loop
steers, global variables that change or stand under the main guard, a `worker_init_fn`
that raises an error whenever it is called, sparse tensors in a project that allows a
torch before 2.6, and a number that is the default of an option, parameter or class: who
sets that must be obeyed. Nor with random operations of
albumentations from 1.4.21 on, which keeps generators of its own: forked workers have
copies that nothing seeds, unless the program calls `set_random_seed`.

## When not
In-memory data are copied between processes for nothing, also where an option that
nothing sets would make samples take work, or the transform given does next to nothing.
Nor a loader of which single batches are taken, or none, or that is only asked how long
it is, nor one whose loops ask for no GPU, whatever file they are in, or in a notebook
that moves all to the CPU by name, nor one whose loops move their batches to a CPU that
they are given (`test(model, "cpu", loader)`). A pass that is one batch of all samples,
or that stops after a few batches, leaves workers nothing to make ahead, as does a
training that ends after a few steps, a number that is written out or an option's
default. Where each step begins a pass of its own, `next(iter(loader))`, workers would
start with each batch, and an iterator derived from `_SingleProcessDataLoaderIter`
refuses them. Samples that a notebook, a file of data or a program without any device
only shows. A dataset whose samples are all the same is for a profile or a trial. Files
that import Lightning have GPU251; nothing waits for what its trainers take on the CPU
alone. Batches that a dataset makes on the GPU, or reads without `map_location` from
files that the project saved there, and files opened in `__init__` (HDF5, LMDB), must
not be shared with workers. A 0 with a comment that gives a reason (debugging, Windows,
notebooks) is meant. One worker may well keep up with a process that trains or
evaluates: low confidence, as where nothing is known of what a sample takes, or only
that it loops in Python or computes with arrays (receiving a batch of two dozen small
tensors from workers took 5 ms, making one of windows of an array 1.4 ms), where the
number is the default of several functions, each for its callers to replace, or of an
option that a command of the README or of a script gives, where all batches are put into
a list once, or its loops only read arrays of them (a mean of all pictures), where
nobody takes batches of a loader that is handed on or kept, where one of the datasets
has a single batch, or all have at most 64 samples (2000 of MNIST or CIFAR), made before
workers would have started, where a function of a package makes the loader of the texts
that a call gives it, where the class of the samples is called one of mock or dummy
data, where a batch is at most 8 pictures of at most 64 x 64 (on two cores 4 of CIFAR
took 0.7 ms to make and 1.0 ms from two workers, 32 took 2.9 and 1.9 ms), where every
worker would yield all samples of an iterable dataset, where samples change the dataset,
of which each worker would have its own, and where a PyTorch before 1.9 runs a dataset
that draws from NumPy's global generator.

## Source
PyTorch documentation, `torch.utils.data`, Single- and Multi-process Data Loading; the
Performance Tuning Guide, Enable asynchronous data loading and augmentation. Measured
with albumentations 2.0.8: five crops of each of three forked workers, in two epochs,
are the same five.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.index import Value
from gpulint.rule import Loaders, Rule
from gpulint.script import Loader, Script
from gpulint.script.loading.batches_taken import kept_once, shown_once
from gpulint.script.loading.loader_options import (
    feeds_cpu,
    has_own_iterator,
    into_loader_kwargs,
    only_read_as_arrays,
    trains_on_cpu,
    written_options,
)
from gpulint.script.loading.requests import answers_a_call
from gpulint.script.loading.serial import (
    draws_the_same,
    gains_by_workers,
    hands_over_little,
    is_stand_in,
    loads_alone,
    may_be_light,
    may_gain_by_workers,
    no_copies,
    why_no_workers,
)
from gpulint.script.loading.worker_state import draws_alike
from gpulint.script.reaching.commands import is_passed
from gpulint.script.samples.dataset_size import has_few_samples, is_soon_passed

TITLE = "Let the runtime choose the workers"


class SerialLoading(Rule):
    effect = Effect.RANDOM
    needs = Loaders()

    def check(self, script: Script) -> Iterator[Finding]:
        """Loaders with 0 or 1 workers whose samples take work."""
        if trains_on_cpu(script):
            return
        for loader in script.loaders:
            if shown_once(script, loader) or feeds_cpu(script, loader):
                continue
            if has_own_iterator(loader):
                continue
            sure = gains_by_workers(script, loader)
            if sure or may_gain_by_workers(script, loader):
                values = loader.values("num_workers").known
                sure = sure and not has_one(values)
                sure = sure and not is_of_defaults(script, values)
                sure = sure and not any(is_passed(script, v) for v in values)
                sure = sure and not kept_once(script, loader)
                sure = sure and not draws_the_same(script, loader)
                sure = sure and not has_few_samples(loader, 1)
                sure = sure and not is_soon_passed(loader)
                sure = sure and not no_copies(script, loader)
                sure = sure and not is_stand_in(loader)
                sure = sure and not hands_over_little(script, loader)
                sure = sure and not may_be_light(loader)
                sure = sure and not only_read_as_arrays(script, loader)
                sure = sure and not answers_a_call(script, loader)
                yield self._finding(script, loader, values, sure)

    def _finding(
        self, script: Script, loader: Loader, values: tuple[Value, ...], sure: bool
    ) -> Finding:
        withheld = why_no_workers(script, loader, values)
        if withheld is None and only_read_as_arrays(script, loader):
            withheld = "nothing on a GPU waits for batches that are only read"
        fix = None
        if withheld is None:
            given = written_options(loader)
            was = {k: v for k, v in given.items() if k == "num_workers"}
            fix, withheld = into_loader_kwargs(script, loader, TITLE, was=was)
        elsewhere = [v for v in values if not script.index.inside(v.node, loader.call)]
        places = [(v.node, f"{v.constant} is written here") for v in elsewhere]
        work = loader.dataset.place or loader.call
        return self.finding(
            script,
            loader.call.func,
            loads_alone(loader, values),
            fix=fix,
            withheld=withheld,
            related=places,
            evidence=[*places, (work, loader.dataset.reason)],
            effect=Effect.EXACT if exact(script, loader) else Effect.RANDOM,
            confidence=None if sure else Confidence.LOW,
        )


def has_one(values: tuple[Value, ...]) -> bool:
    """Whether one worker loads while the process that trains does its own work."""
    return bool(values) and all(v.constant == 1 for v in values)


def is_of_defaults(script: Script, values: tuple[Value, ...]) -> bool:
    """Whether a number is that of several parameters' defaults, more than of calls.

    A library's layers, each for its callers to give; what a call writes is meant.
    """
    nodes = {v.node: v.default and _of_parameter(script, v.node) for v in values}
    return len(nodes) > 1 and 2 * sum(nodes.values()) > len(nodes)


def _of_parameter(script: Script, node: ast.AST) -> bool:
    return isinstance(script.index.parent(node), ast.arguments)


def exact(script: Script, loader: Loader) -> bool:
    """Whether workers make the same samples in the same order, bit for bit."""
    dataset = loader.dataset
    if dataset.random is not False or dataset.torch_math or dataset.iterable:
        return False
    if loader.values("batch_size").any_in(None) or not draws_alike(script, loader):
        return False  # batches that are views of the dataset, or drawn at other times
    return all(loader.argument(n).absent for n in ("collate_fn", "worker_init_fn"))
