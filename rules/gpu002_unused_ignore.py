"""A comment ignores a rule that finds nothing there, or that does not exist.

## Why
An `ignore[…]` or `off[…]` that outlives its reason hides the next finding there, and
one with a misspelt name hides nothing though it looks as if it did.

## Example
```python
import torch

for x in loader:
    print(model(x.cuda()).max())  # gpulint: ignore[host-sync] -- printed on purpose
```

## Fix
None: drop the code, or the comment, or name the rule that is meant.

## When not
The rule is not selected in this run, so that it is not known whether it would find
anything. `# noqa:` comments are other tools' as well, and settings files have comments
of their own: neither is looked at.

## Source
As ruff's RUF100, for comments of gpulint alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Effect, Finding, Severity
from gpulint.rule import Rule, Words
from gpulint.script import Script


class UnusedIgnore(Rule):
    """Found by the engine, when all other rules have run."""

    effect = Effect.NONE
    severity = Severity.NOTE
    needs = Words("gpulint:")
    framework = "any"
    in_tests = True

    def check(self, script: Script) -> Iterator[Finding]:
        """Nothing: what comments switch off is known when all rules have run."""
        yield from ()
