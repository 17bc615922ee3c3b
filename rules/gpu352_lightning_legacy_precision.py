"""Lightning's precision is spelled 16 or "bf16", which warns and says too little.

## Why
Since Lightning 2.0 `precision` says whether the weights are converted too: "16-mixed"
or "16-true". The old values mean the mixed form, are taken "for historical reasons" and
warn each time a `Trainer` or `Fabric` is made.

## Example
```python
import lightning as L

trainer = L.Trainer(max_epochs=10, precision=16)
```
becomes
```python
import lightning as L

trainer = L.Trainer(max_epochs=10, precision="16-mixed")
```

## Fix
16 and "16" become "16-mixed", "bf16" becomes "bf16-mixed": what Lightning itself takes
them for.

Withheld where the value is not written in the call, and where the project allows
Lightning 1, which knows only the old values, or imports `pytorch_lightning` and does
not say which release.

## When not
Other values, 32 and 64 among them, of which there is one form. A project that allows no
Lightning from 2.0 on. Of low confidence where Lightning 1 may be meant, which neither
warns nor knows the new values; the warning itself costs no time.

## Source
`lightning.fabric.connector._convert_precision_to_unified_args` of Lightning 2.6, which
has this table and this warning.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.rule import Calls, Rule
from gpulint.script import Script
from gpulint.script.frameworks.trainer_calls import (
    LIGHTNING_TWO,
    Maker,
    TrainerCall,
    may_be_first_lightning,
    may_have,
    names_of,
    trainer_calls,
)
from gpulint.script.rewriting.edits import ReplaceCode, Rewrite

NEW = {16: "16-mixed", "16": "16-mixed", "bf16": "bf16-mixed"}


class LightningLegacyPrecision(Rule):
    effect = Effect.EXACT
    needs = Calls(*names_of(Maker.LIGHTNING_TRAINER, Maker.FABRIC))
    framework = "lightning"

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each call."""
        if not may_have(script, "lightning", LIGHTNING_TWO):
            return
        for made in trainer_calls(script, Maker.LIGHTNING_TRAINER, Maker.FABRIC):
            yield from self._call(script, made)

    def _call(self, script: Script, made: TrainerCall) -> Iterator[Finding]:
        written = made.written("precision")
        values = made.values("precision")
        if written is None or not values.all_in(*NEW):
            return
        if len({v.constant for v in values.known}) > 1:
            return
        (value, node, replaceable), *_ = values.known
        if replaceable:
            return
        new = NEW[value]
        withheld = None
        if node is not written:
            withheld = "its value is not written in the call"
        else:
            withheld = may_be_first_lightning(made)
        fix = Rewrite(f'Write "{new}"', (ReplaceCode(written, f'"{new}"'),))
        yield self.finding(
            script,
            written,
            f"`precision={value!r}` is the old spelling of {new!r} and warns",
            fix=None if withheld else fix,
            withheld=withheld,
            related=[] if node is written else [(node, "the value")],
            confidence=Confidence.LOW if may_be_first_lightning(made) else None,
        )
