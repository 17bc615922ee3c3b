"""Worker processes end with every epoch and start again with the next one.

## Why
Without `persistent_workers=True` each pass over a loader starts its workers anew: every
worker is forked or imports the script again, gets a copy of the dataset and fills its
first batches while the GPU waits. With the start methods `spawn` and `forkserver` that
is seconds in every epoch.

## Example
```python
import torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

device = torch.device("cuda")
train_set = datasets.CIFAR10("data", transform=transforms.ToTensor())
loader = DataLoader(
    train_set,
    batch_size=128,
    num_workers=4,
)
for epoch in range(90):
    for images, labels in loader:
        loss = criterion(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
```
becomes
```python
import torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms
from gpulint import runtime

device = torch.device("cuda")
train_set = datasets.CIFAR10("data", transform=transforms.ToTensor())
loader = DataLoader(
    train_set,
    batch_size=128,
    **runtime.loader_kwargs(device, persistent=True, num_workers=4),
)
for epoch in range(90):
    for images, labels in loader:
        loss = criterion(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
```

## Fix
`persistent_workers` is an error without workers, and their number is often an option:
`runtime.loader_kwargs` sets it only where there are some. The script's number and its
other options move into the call and stay as they are. From the second epoch on the
random draws differ, the order of a shuffled loader too: the seed that a loader draws
for its workers is drawn once instead of once an epoch. Where samples draw from a
generator that the dataset keeps, workers that start anew begin with the same numbers in
every epoch; those that live on go on with it. A `loader_kwargs` that GPU201
has written before, without a change of draws, gets `persistent=True`.

No fix where samples change the dataset, since workers that live on would keep those
changes, where its class has a `set_epoch` that another file may call, and where batches
may be on the device already, which the runtime would pin.

## When not
A dataset or transform that the script changes between epochs (`dataset.set_epoch`,
`dataset.ng_sample()`, `loader.dataset.mode = …`), or one that it wraps, or what it was
made from, or the dict that holds it, or a global variable that samples read: workers
that live on do not see it. Nor do they see how far a training has come, where samples
read `current_epoch` or `global_step`, or the dataset holds the object that makes it. A
loader that is iterated once, also as one of several in `for phase in ("train", "val")`,
built in a loop (GPU205), in a training that ends after a few steps, where nothing
trains and each pass ends with its first batch, or whose iterators are kept or nested:
persistent workers serve one iterator at a time. One that a training passes over once in
500 steps or more, in a number of steps that is not known, or in five epochs or more, or
that a program passes over once for each of several trainings. Of low confidence and
never rewritten: samples that change the dataset, also by a function or transform that
writes into a view of its arrays (`drop(self.points[i])`): workers that start anew
forget that. So is a project that allows no torch from 1.8 on: 1.7, the first with
persistent workers, raises in the second epoch where memory is pinned. Files that import
Lightning have GPU251.

## Source
PyTorch documentation, `torch.utils.data.DataLoader`, `persistent_workers`; for 1.7,
pytorch#48370, mended by pytorch#48543 in 1.8.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.rule import Loaders, Rule
from gpulint.script import Loader, Script
from gpulint.script.loading.few_batches import is_tried_out
from gpulint.script.loading.kept_workers import (
    KEEPS_LATER,
    KEEPS_SINCE,
    start_again,
    starts_workers_anew,
    stays_the_same,
    why_not_kept,
)
from gpulint.script.loading.loader_options import (
    fed_by_framework,
    into_loader_kwargs,
    trains_on_cpu,
    written_options,
)
from gpulint.script.loading.rare_passes import passes_are_rare
from gpulint.script.reaching.old_torch import runs_only_before
from gpulint.script.rewriting.edits import Replace, Rewrite
from gpulint.script.rewriting.syntax import set_keywords
from gpulint.script.settings.setting_values import comes_from_settings

TITLE = "Keep the workers between epochs"


class RestartingWorkers(Rule):
    effect = Effect.RANDOM
    needs = Loaders()

    def check(self, script: Script) -> Iterator[Finding]:
        """Loaders with workers that are iterated again and again."""
        if trains_on_cpu(script):
            return
        for loader in script.loaders:
            if fed_by_framework(script, loader):
                continue
            if comes_from_settings(script, loader, "persistent_workers"):
                continue  # GPU901
            if not restarts(script, loader) or not stays_the_same(script, loader):
                continue
            if passes_are_rare(script, loader) or is_tried_out(script, loader):
                continue
            old = runs_only_before(script, KEEPS_SINCE)
            yield self._finding(script, loader, old)

    def _finding(self, script: Script, loader: Loader, old: bool) -> Finding:
        withheld = KEEPS_LATER if old else why_not_kept(script, loader)
        fix = None
        if withheld is None and loader.runtime_call is not None:
            keep = Replace(loader.runtime_call, set_keywords(persistent="True"))
            fix = Rewrite(TITLE, (keep,))
        elif withheld is None:
            given = written_options(loader)
            was = {k: v for k, v in given.items() if k == "persistent_workers"}
            fix, withheld = into_loader_kwargs(
                script, loader, TITLE, was=was, persistent=True
            )
        evidence = [(x.node, "iterated here in every epoch") for x in loader.loops]
        return self.finding(
            script,
            loader.call.func,
            start_again(loader),
            fix=fix,
            withheld=withheld,
            evidence=evidence,
            confidence=Confidence.LOW if old or loader.dataset.mutated else None,
        )


def restarts(script: Script, loader: Loader) -> bool:
    """Whether a loader is iterated anew again and again, and starts workers then."""
    return loader.reused and starts_workers_anew(script, loader)
