"""A settings file leaves one of torch's debugging aids on.

## Why
Anomaly detection keeps a stack trace for every operation and looks for NaN in every
gradient; the profiler records every operation; blocking launches make the host wait for
each kernel; deterministic kernels are slower ones. Left on in the file that the script
loads, they slow every step of every run.

## Example
```yaml
# train.yaml
detect_anomaly: true
```
```python
import torch
import yaml

with open("train.yaml") as file:
    config = yaml.safe_load(file)
torch.autograd.set_detect_anomaly(config["detect_anomaly"])
```

## Fix
None: who is looking for a fault needs it.

## When not
A switch whose value is not known everywhere. Deterministic kernels beside a seed: the
runs are meant to be repeatable. Files and sections for debugging and tests, and a value
with a comment that gives a reason.

## Source
PyTorch Performance Tuning Guide, Disable debugging APIs.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Effect, Finding
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.settings.debug_switches import debug_switches
from gpulint.script.settings.setting_values import setting_name


class DebugSettingOn(Rule):
    effect = Effect.NONE
    of_switches = True
    needs = Words(
        "anomaly",
        "profile torch",
        "nvtx",
        "deterministic cudnn",
        "deterministic _algorithms",
        "CUDA_LAUNCH_BLOCKING",
    )

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for a value."""
        for switch in debug_switches(script):
            node = switch.value.node
            state = str(switch.value.constant).lower()
            yield self.finding(
                script,
                node,
                f"`{setting_name(script, node)}` is {state}: {switch.cost}",
                related=[(switch.place, "what it switches")],
            )
