"""A script chooses batch size, workers or precision by the name of the platform.

## Why
"Cloud" and "local" say little about a machine: a session of Colab may have 2 CPUs and
a GPU of 15 GB, a node in Kubernetes 128 CPUs and eight of 80 GB, and `/mnt/data` exists
on many a workstation. Settings that follow the name leave a large machine idle and fill
a small one; where precision follows it, results differ from place to place.

## Example
```python
import os

import torch
from torch.utils.data import DataLoader


def is_cloud():
    return os.path.exists("/opt/ml") or "KUBERNETES_SERVICE_HOST" in os.environ


batch_size = 128 if is_cloud() else 32
loader = DataLoader(dataset, batch_size=batch_size, shuffle=True)
```

## Fix
None: which settings are right depends on the machine. By hand, `runtime.hardware()`
says what there is (CPUs that may be used, GPU and its memory), `runtime.loader_kwargs`
and `runtime.amp_dtype` decide by it, and `runtime.environment()` names the place where
a log wants to say it.

## When not
Paths, downloads and displays that depend on the platform. Settings that a count or a
size decides. A name that the user gives.

## Source
CPython documentation, `os.process_cpu_count`; Linux kernel documentation, "Control
Group v2", `cpu.max`: neither of them depends on who runs the machine.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Effect, Finding
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.reaching.platforms import choices

SIGNS = (
    *("COLAB_", "KAGGLE_", "KUBERNETES_SERVICE_HOST", "SM_TRAINING_ENV", "SM_HOSTS"),
    *("SM_NUM_", "CLOUD_ML_", "CLOUD_SHELL", "AZUREML_", "DATABRICKS_", "RUNPOD_"),
    *("PAPERSPACE_", "google.colab", "/kaggle", "/opt/ml", "/mnt/data", "/content"),
)


class HandRolledEnvironment(Rule):
    effect = Effect.NONE
    needs = Words(*(f"{sign} if" for sign in SIGNS))

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding a file: its first setting, others are related."""
        found = choices(script)
        if not found:
            return
        first, *others = found
        sign = script.text(first.sign)
        yield self.finding(
            script,
            first.at,
            f"`{first.setting}` depends on the platform's name, not on its hardware",
            related=[(o.at, f"so does `{o.setting}`") for o in others],
            evidence=[(first.sign, f"the platform is known by {sign}")],
        )
