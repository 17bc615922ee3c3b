"""A settings file gives small samples to the GPU in small batches.

## Why
Each step has costs that do not depend on the batch: Python, kernel launches, the
optimizer. With small images or table rows and a batch below 128 they are most of the
step, and most of the GPU's memory stays empty.

## Example
```yaml
# train.yaml
batch_size: 32
```
```python
import torch
import yaml
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

config = yaml.safe_load(open("train.yaml"))
device = torch.device("cuda")
train_set = datasets.CIFAR10("data", transform=transforms.ToTensor())
loader = DataLoader(train_set, batch_size=config["batch_size"], shuffle=True)
for image, label in loader:
    loss = criterion(model(image.to(device)), label.to(device))
    loss.backward()
    optimizer.step()
```

## Fix
None: another batch wants another learning rate, and a person must decide.

## When not
Samples that are not known to be small, language models, evaluation loaders, gradients
that are accumulated, a comment that gives a reason, several GPUs that share the work,
and settings for debugging and tests.

## Source
PyTorch Performance Tuning Guide; Goyal et al. 2017, "Accurate, Large Minibatch SGD",
for the learning rate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpulint.finding import Effect, Finding, Severity
from gpulint.index import Value
from gpulint.rule import Loaders, Rule
from gpulint.script import Loader, Script
from gpulint.script.loading.loader_options import trains_on_cpu
from gpulint.script.samples.small_samples import small_samples
from gpulint.script.settings.setting_values import (
    is_meant,
    option_settings,
    setting_name,
)
from gpulint.script.training.batch_size_reasons import ACCUMULATES, small_on_purpose

_OTHER_REASONS = re.compile(
    r"DistributedDataParallel|DataParallel|accelerat|tokeniz|world_size|autograd\.grad|"
    r"Transformer|Embedding|LSTM|GRU"
)


class SmallBatchSetting(Rule):
    effect = Effect.NONE
    severity = Severity.NOTE
    needs = Loaders()

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for a value."""
        if trains_on_cpu(script) or not script.uses_gpu:
            return
        if _OTHER_REASONS.search(script.source.text):
            return
        seen = set()
        for loader in script.loaders:
            for value in _small(script, loader):
                if value.node not in seen:
                    seen.add(value.node)
                    yield self._finding(script, loader, value)

    def _finding(self, script: Script, loader: Loader, value: Value) -> Finding:
        name = setting_name(script, value.node)
        return self.finding(
            script,
            value.node,
            f"`{name}` is {value.constant}: small samples in small batches "
            "leave most of a step to overhead",
            related=[(loader.call.func, "the training loader that takes it")],
        )


def _small(script: Script, loader: Loader) -> Iterator[Value]:
    """Sizes that certainly reach a loader of small training samples."""
    if loader.train is not True or not loader.argument("drop_last").absent:
        return
    settings = option_settings(script, loader, "batch_size")
    samples = small_samples(script, loader) if settings else None
    if samples is None or small_on_purpose(script, loader):
        return
    for run in settings:
        value = run.known[0]
        size = value.constant
        if not run.complete or len(run.known) > 1 or not isinstance(size, int):
            continue
        text = script.source_of(value.node).text
        tuned = ACCUMULATES.search(text) or is_meant(script, value.node)
        if 1 < size < samples.enough and not tuned:
            yield value
