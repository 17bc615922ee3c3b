"""A settings file switches something fast on, and no code reads the switch.

## Why
`training.use_amp: true` stands in the file, and the trainer asks for
`config.get("use_amp", False)` at the top of it: mixed precision is silently off. Or the
code that read a switch is gone. Who looks into the file believes that the run is fast.

## Example
```yaml
# train.yaml
training:
  epochs: 90
  use_amp: true
```
```python
import torch
import yaml

with open("train.yaml") as file:
    config = yaml.safe_load(file)
use_amp = config.get("use_amp", False)
for epoch in range(config["training"]["epochs"]):
    train(epoch, use_amp)
```

## Fix
None: read the key where it is, or take it out of the file.

## When not
The word stands in any other code of the project, as a key, an attribute of an unknown
object, or a part of a string. The mapping is handed to code that is not seen:
`**config`, `instantiate`, a loop over its items, another library. Settings that name
what to build (`_target_`, `type`). Files and sections for debugging and tests, and a
value with a comment that gives a reason.

## Source
Seen in real projects: the key nested in the file, the read at its root.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Effect, Finding
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.settings.setting_values import setting_name
from gpulint.script.settings.unread_settings import Unread, unread_settings


class UnreadSetting(Rule):
    effect = Effect.NONE
    of_switches = True
    needs = Words("yaml <load>", "json <load>", "OmegaConf <load>")

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for a switch of a file that this script loads."""
        for unread in unread_settings(script):
            related = [(unread.load.func, "the file is loaded here")]
            if unread.shadow is not None:
                related.append((unread.shadow, "the read"))
            yield self.finding(
                script, unread.node, _message(script, unread), related=related
            )


def _message(script: Script, unread: Unread) -> str:
    name = setting_name(script, unread.node)
    value = str(unread.node.value)
    value = value.lower() if unread.node.value is True else value
    if unread.shadow is None:
        return f"`{name}` is {value}, and no code of the project reads it"
    read = script.text(unread.shadow)
    return f"`{name}` is {value}, but the code reads `{read}`, which is not in the file"
