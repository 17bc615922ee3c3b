"""A settings file switches off the mixed precision that the script has.

## Why
The code for mixed precision is there, and the flag that it asks is false in the file
that the script loads: every step runs in float32 and takes longer, and activations take
twice the memory.

## Example
```yaml
# train.yaml
training:
  use_amp: false
```
```python
import torch
import yaml
from torch import nn

with open("train.yaml") as file:
    config = yaml.safe_load(file)
use_amp = config["training"]["use_amp"]
device = torch.device("cuda")
model = nn.Linear(1024, 1024).to(device)
criterion = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda", enabled=use_amp)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    with torch.autocast("cuda", enabled=use_amp):
        loss = criterion(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## Fix
None: the file is the user's choice, and half precision rounds otherwise.

## When not
What GPU306 leaves alone: a flag that is not known everywhere, evaluation, the CPU,
frameworks with settings of their own. Files and sections for debugging and tests, and a
value with a comment that gives a reason. Networks of Fourier transforms, which float16
mostly fails in, are of low confidence.

## Source
PyTorch documentation, "Automatic Mixed Precision package": with `enabled=False`
autocast and the scaler do nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.rule import Hardware, Rule, Words
from gpulint.script import Script
from gpulint.script.modelling.networks import transforms_spectra
from gpulint.script.numerics.amp_guards import switched_off
from gpulint.script.settings.setting_values import is_meant, is_setting, setting_name


class AmpOffSetting(Rule):
    """The form of GPU306 for flags of which a settings file decides."""

    effect = Effect.NONE
    hardware = Hardware.MIXED
    of_switches = True
    needs = Words("autocast", "GradScaler")

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for a value."""
        for flag in switched_off(script):
            node = flag.value.node
            if not is_setting(script, node) or is_meant(script, node):
                continue
            name, constant = setting_name(script, node), flag.value.constant
            yield self.finding(
                script,
                node,
                f"`{name}` is {str(constant).lower()}, which switches mixed precision "
                "off",
                related=[
                    (s.call.func, f"`{script.text(s.call.func)}`, which it switches")
                    for s in flag.switches
                ],
                confidence=Confidence.LOW if transforms_spectra(script) else None,
            )
