"""A settings file asks for workers' options where it asks for no workers.

## Why
`DataLoader` raises ValueError for `persistent_workers=True` or a `prefetch_factor` with
`num_workers=0`. The options are read from a file, so the program stops when it builds
the loader: after the data are prepared and the model is made, or in the job's queue.

## Example
```yaml
# train.yaml
batch_size: 256
num_workers: 0
persistent_workers: true
```
```python
import yaml
from torch.utils.data import DataLoader

config = yaml.safe_load(open("train.yaml"))
loader = DataLoader(
    images,
    batch_size=config["batch_size"],
    num_workers=config["num_workers"],
    persistent_workers=config["persistent_workers"],
)
```

## Fix
None: a person must decide whether the loader has workers.

## When not
The two values are not both known, stand in different files, or one of them is a default
of the script that the file replaces. A `prefetch_factor` of 2 is the default before
torch 2.0 and is not refused there.

## Source
PyTorch source, `torch/utils/data/dataloader.py`: "persistent_workers option needs
num_workers > 0", "prefetch_factor option could only be specified in multiprocessing".
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Effect, Finding, Severity
from gpulint.rule import Loaders, Rule
from gpulint.script import Script
from gpulint.script.settings.illegal_settings import IllegalPair, illegal_settings
from gpulint.script.settings.setting_values import is_setting, setting_name


class IllegalSettingCombination(Rule):
    effect = Effect.NONE
    severity = Severity.ERROR
    needs = Loaders()

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for a pair of values."""
        for pair in illegal_settings(script):
            yield self._finding(script, pair)

    def _finding(self, script: Script, pair: IllegalPair) -> Finding:
        at, other = pair.value.node, pair.workers.node
        if not is_setting(script, at):
            at, other = other, at
        return self.finding(
            script,
            at,
            _message(script, pair),
            related=[
                (other, "the other value"),
                (pair.loader.call.func, "the loader that gets both"),
            ],
        )


def _message(script: Script, pair: IllegalPair) -> str:
    here = is_setting(script, pair.value.node)
    name = setting_name(script, pair.value.node) if here else pair.option
    constant = str(pair.value.constant).lower()
    return f"`{name}` is {constant} with 0 workers: DataLoader raises ValueError"
