"""Fewer samples are made ahead than MindSpore does by itself.

## Why
Each stage of a MindSpore pipeline has a queue of 16 elements before it. A number below
that does not buffer more, as it is often meant, but less: the device waits sooner when
a few samples take longer. What it saves is host memory.

## Example
```python
import mindspore.dataset as ds

ds.config.set_prefetch_size(2)
dataset = ds.ImageFolderDataset("photos").batch(32)
```

## Fix
None: leave the call out unless the host's memory is short; then it is right.

## When not
16 and more, a number that is not known, and one that a comment explains by memory.

## Source
MindSpore documentation, `mindspore.dataset.config.set_prefetch_size` (default 16; "a
higher value … reduces overall latency … uses more memory").
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpulint.finding import Effect, Finding, Severity
from gpulint.rule import Calls, Rule
from gpulint.script import Script
from gpulint.script.frameworks.ms_pipelines import DATA
from gpulint.script.loading.loader_options import has_reason

SET_PREFETCH = f"{DATA}.config.set_prefetch_size"
DEFAULT = 16
FOR_MEMORY = re.compile(r"#.*\b(memory|ram|oom)\b", re.IGNORECASE)


class MsShallowPrefetch(Rule):
    effect = Effect.NONE
    severity = Severity.NOTE
    framework = "mindspore"
    needs = Calls(SET_PREFETCH)

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each call."""
        for call in script.index.calls.get(SET_PREFETCH, ()):
            given = script.evaluator.argument(call, "size", 0).direct
            size = script.evaluator.constant(given) if given is not None else None
            if has_reason(script, call, FOR_MEMORY):
                continue
            if type(size) is int and size < DEFAULT:
                yield self.finding(
                    script,
                    call.func,
                    f"queues of {size} elements between the stages: MindSpore's own "
                    f"have {DEFAULT}",
                )
