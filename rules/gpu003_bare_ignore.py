"""A comment `gpulint: ignore` or `off` names no rule, so it switches nothing off.

## Why
A comment that switched everything off would hide later findings of which nobody
decided anything. So an `ignore` without a code has no effect, which its author should
know.

## Example
```python
import torch

for x in loader:
    print(model(x.cuda()).max())  # gpulint: ignore
```

## Fix
None: name the rules, by code or by name, and better the reason too:
`# gpulint: ignore[GPU106] -- printed on purpose`.

## When not
`# gpulint: skip-file` leaves a whole file out.

## Source
As ruff's PGH004, for comments of gpulint alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Effect, Finding, Severity
from gpulint.rule import Rule, Words
from gpulint.script import Script


class BareIgnore(Rule):
    """Found by the engine, when all other rules have run."""

    effect = Effect.NONE
    severity = Severity.NOTE
    needs = Words("gpulint:")
    framework = "any"
    in_tests = True

    def check(self, script: Script) -> Iterator[Finding]:
        """Nothing: comments are read when all rules have run."""
        yield from ()
