"""Lightning's trainer waits for a loader: it has no workers, or they start anew.

## Why
The trainer takes the loaders of its hooks as they are. Without workers its own process
reads and augments one sample after another while the GPU waits; with workers that do
not live on, every epoch and every validation starts them again and begins with an empty
queue.

## Example
```python
import lightning as L
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __init__(self, paths, transform):
        self.paths, self.transform = paths, transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return self.transform(Image.open(self.paths[index]))


class Data(L.LightningDataModule):
    def __init__(self, paths, transform):
        super().__init__()
        self.paths, self.transform = paths, transform

    def train_dataloader(self):
        return DataLoader(
            Photos(self.paths, self.transform),
            batch_size=64,
            shuffle=True,
        )
```
becomes
```python
import lightning as L
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


class Data(L.LightningDataModule):
    def __init__(self, paths, transform):
        super().__init__()
        self.paths, self.transform = paths, transform

    def train_dataloader(self):
        return DataLoader(
            Photos(self.paths, self.transform),
            batch_size=64,
            shuffle=True,
            **runtime.loader_kwargs(persistent=True),
        )
```

## Fix
`runtime.loader_kwargs` chooses the workers when the script runs, by the usable CPUs and
the ranks of the machine, as Lightning's own advice does (CPUs of a rank less one), but
with the limits of a container. Options of the call win over its choice. Loaders of
training and validation keep their workers between epochs; those of tests and
predictions are passed over once.

Workers draw their own random numbers, and those that live on take no new seed each
epoch: the effect is `random`. Withheld for the reasons that GPU201 and GPU203 give.

## When not
As for GPU201 and GPU203: datasets in memory, open files, samples on the GPU, numbers
that a comment, a settings file or the user gives. Hooks for tests and predictions that
nothing runs; trainers on the CPU alone. Workers that start anew are fine where
`reload_dataloaders_every_n_epochs` may ask for new loaders (persistent workers of old
loaders stay, and with pinned memory Lightning warns of that), where all trainers make
one epoch, and where the program changes a dataset through the trainer's loaders.
Pinning is GPU202. Where a checkpoint is downloaded and each `fit` runs only if there is
none, the confidence is low; so it is for workers that start anew where a settings file
asks for none so far, and where the project allows no torch from 1.8 on; and without
workers where each would have a dataset that its samples change, or yield all samples,
and where samples are only known to loop in Python or to compute with arrays, or the
trainer takes some of the batches (`limit_val_batches=10`).

The hooks are the same from 1.1 to 2.6; `predict_dataloader` came with 1.2.

## Source
`lightning.pytorch.trainer.connectors.data_connector._worker_check` and
`lightning.fabric.utilities.data.suggested_max_num_workers` of Lightning 2.6, which warn
of the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.index import Value
from gpulint.rule import Loaders, Rule
from gpulint.script import Loader, Script
from gpulint.script.frameworks.lightning_loaders import (
    hooks_for,
    is_cut_short,
    is_made_anew,
    is_steered,
    passes_again,
)
from gpulint.script.frameworks.trainers import feeds_no_gpu, never_on_gpu
from gpulint.script.loading.batches_taken import run_by_nobody
from gpulint.script.loading.few_batches import takes_few
from gpulint.script.loading.kept_workers import (
    KEEPS_LATER,
    KEEPS_SINCE,
    ends_workers,
    start_again,
    starts_workers_anew,
    stays_the_same,
    why_not_kept,
)
from gpulint.script.loading.loader_options import (
    has_reason,
    into_loader_kwargs,
    written_options,
)
from gpulint.script.loading.serial import (
    is_serial,
    loads_alone,
    may_be_light,
    no_copies,
    why_no_workers,
)
from gpulint.script.reaching.commands import is_passed
from gpulint.script.reaching.old_torch import runs_only_before
from gpulint.script.samples.dataset_size import gives_one_batch
from gpulint.script.settings.setting_values import comes_from_settings
from gpulint.script.training.trained_before import may_load_instead

WORKERS = "Let the runtime choose the workers"
KEEP = "Keep the workers between epochs"


class LightningSerialLoading(Rule):
    """Fires on the loader."""

    effect = Effect.RANDOM
    framework = "lightning"
    needs = Loaders()

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding a loader."""
        if "lightning" not in script.frameworks:
            return
        for loader in script.loaders:
            hooks = hooks_for(script, loader)
            if not hooks or run_by_nobody(script, loader):
                continue
            if takes_few(script, loader) or _stays_on_cpu(script, loader):
                continue
            if loader.decided_by_runtime:
                continue
            if is_serial(loader):
                yield from self._serial(script, loader, hooks)
            elif starts_workers_anew(script, loader) and _restarts(
                script, loader, hooks
            ):
                yield self._restarting(script, loader, sure=True)

    def _serial(
        self, script: Script, loader: Loader, hooks: frozenset[str]
    ) -> Iterator[Finding]:
        values = loader.values("num_workers").known
        if any(has_reason(script, v.node) for v in values):
            return
        if comes_from_settings(script, loader, "num_workers"):  # GPU901
            if ends_workers(script, loader) and _restarts(script, loader, hooks):
                yield self._restarting(script, loader, sure=False)
            return
        if not gives_one_batch(loader):
            live_on = _may_live_on(script, loader, hooks)
            live_on = live_on and why_not_kept(script, loader) is None
            live_on = live_on and not runs_only_before(script, KEEPS_SINCE)
            yield self._alone(script, loader, hooks, values, live_on)

    def _alone(
        self,
        script: Script,
        loader: Loader,
        hooks: frozenset[str],
        values: tuple[Value, ...],
        persistent: bool,
    ) -> Finding:
        withheld = why_no_workers(script, loader, values)
        fix = None
        if withheld is None:
            given = written_options(loader)
            was = {k: v for k, v in given.items() if k == "num_workers"}
            kept = persistent and "persistent_workers" not in given
            fix, withheld = into_loader_kwargs(
                script, loader, WORKERS, was=was, persistent=kept
            )
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
            confidence=Confidence.LOW
            if no_copies(script, loader)
            or may_be_light(loader)
            or is_cut_short(script, hooks)
            else _confidence(script, values),
        )

    def _restarting(self, script: Script, loader: Loader, sure: bool) -> Finding:
        old = runs_only_before(script, KEEPS_SINCE)
        sure = sure and not old and not loader.dataset.mutated
        withheld = KEEPS_LATER if old else why_not_kept(script, loader)
        fix = None
        if withheld is None:
            given = written_options(loader)
            was = {k: v for k, v in given.items() if k == "persistent_workers"}
            fix, withheld = into_loader_kwargs(
                script, loader, KEEP, was=was, persistent=True
            )
        return self.finding(
            script,
            loader.call.func,
            start_again(loader),
            fix=fix,
            withheld=withheld,
            confidence=_confidence(script, ()) if sure else Confidence.LOW,
        )


def _confidence(script: Script, values: tuple[Value, ...]) -> Confidence | None:
    """Low where one worker loads beside the training, or commands give a number."""
    one = bool(values) and all(v.constant == 1 for v in values)
    given = any(is_passed(script, v) for v in values)
    return Confidence.LOW if one or given or may_load_instead(script) else None


def _stays_on_cpu(script: Script, loader: Loader) -> bool:
    """Whether no trainer that takes the batches uses a GPU."""
    owner = script.index.owner(loader.call)
    return feeds_no_gpu(script, loader) or never_on_gpu(script, owner)


def _restarts(script: Script, loader: Loader, hooks: frozenset[str]) -> bool:
    """Whether workers that end with each pass would see the same if they did not."""
    if comes_from_settings(script, loader, "persistent_workers"):  # GPU901
        return False
    return _may_live_on(script, loader, hooks)


def _may_live_on(script: Script, loader: Loader, hooks: frozenset[str]) -> bool:
    """Whether workers can live on from one pass of the trainer to the next."""
    if not passes_again(script, loader, hooks) or is_made_anew(script):
        return False
    return not is_steered(script) and stays_the_same(script, loader)
