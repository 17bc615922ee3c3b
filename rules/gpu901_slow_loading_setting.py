"""A settings file makes the training wait for its batches.

## Why
The script reads its loader's options from a file, and the file says 0 or 1 workers,
pageable memory, or workers that end with every epoch. The GPU waits in every step, or
at the start of every epoch, and nothing in the code shows it.

## Example
```yaml
# train.yaml
data:
  batch_size: 256
  num_workers: 0
```
```python
import torch
import yaml
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

with open("train.yaml") as file:
    config = yaml.safe_load(file)
device = torch.device("cuda")
images = datasets.CIFAR10("data", transform=transforms.ToTensor())
loader = DataLoader(
    images,
    batch_size=config["data"]["batch_size"],
    num_workers=config["data"]["num_workers"],
    pin_memory=True,
)
for image, label in loader:
    loss = criterion(model(image.to(device)), label.to(device))
    loss.backward()
    optimizer.step()
```

## Fix
None: a settings file cannot ask the machine what it has. Half the usable CPUs up to 8
is a start for `num_workers`; `pin_memory: true` suits a GPU, `persistent_workers: true`
a loader with workers.

A path that is known only when the script runs means any file of the project with all
the keys that the script reads, three or more; each is one that a run may take.

## When not
What GPU201, GPU202 and GPU203 leave alone: in-memory data, datasets that workers must
not share, batches made on the GPU, datasets that change between epochs. Files and
sections for debugging and tests, a value with a comment that gives a reason, and a
group of hydra whose value the main file overrides. `pin_memory` where no worker makes
the batches is of low confidence: the process that trains would pin them itself.

## Source
PyTorch documentation, `torch.utils.data`; Performance Tuning Guide, Enable asynchronous
data loading and augmentation.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.rule import Loaders, Rule
from gpulint.script import Loader, Script
from gpulint.script.settings.illegal_settings import illegal_settings
from gpulint.script.settings.setting_values import setting_name
from gpulint.script.settings.slow_settings import SlowSetting, slow_settings


class SlowLoadingSetting(Rule):
    effect = Effect.NONE
    needs = Loaders()

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for a value, with all loaders that take it."""
        crashing = {pair.workers.node for pair in illegal_settings(script)}
        for setting in slow_settings(script):
            if setting.value.node not in crashing:
                yield self._finding(script, setting)

    def _finding(self, script: Script, setting: SlowSetting) -> Finding:
        dataset = setting.loaders[0].dataset
        evidence = []
        if setting.option == "num_workers" and dataset.place is not None:
            evidence.append((dataset.place, dataset.reason))
        return self.finding(
            script,
            setting.value.node,
            _message(script, setting),
            related=[
                (loader.call.func, f"{_what(loader)} takes it")
                for loader in setting.loaders
            ],
            evidence=evidence,
            confidence=None if setting.sure else Confidence.LOW,
        )


def _what(loader: Loader) -> str:
    names = [n for n in loader.names if n]
    return f"`{names[0]}`" if names else "the loader"


def _message(script: Script, setting: SlowSetting) -> str:
    name = setting_name(script, setting.value.node)
    constant = setting.value.constant
    if setting.option == "pin_memory":
        return f"`{name}` is {str(constant).lower()}, and the batches go to the GPU"
    if setting.option == "persistent_workers":
        return f"`{name}` is false: the workers start again in every epoch"
    reason = setting.loaders[0].dataset.reason
    clause = reason[:1] == "`" or reason[:1].isupper()
    what = reason if clause else f"the dataset {reason}"
    who = "one process" if constant == 1 else "the training process"
    return f"`{name}` is {constant}, so {who} loads alone: {what}"
