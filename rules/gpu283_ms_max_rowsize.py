"""The shared memory of each worker has a size that is written by hand.

## Why
Workers of MindSpore hand their samples over in shared memory, `max_rowsize` MiB for
each. Where nothing is said, newer releases take what a sample needs. A number keeps
that much of /dev/shm for every worker, used or not, and a sample that is larger is
copied through a pipe, slowly.

## Example
```python
import mindspore.dataset as ds

dataset = ds.GeneratorDataset(source, ["video"], num_parallel_workers=4, max_rowsize=64)
```

## Fix
None: leave the argument out where the project requires MindSpore 2.3 or newer.

## When not
None, -1 and a number that is not known. Stages without worker processes, which hand
nothing over: a source in Python of one worker, which it has where nothing is said, and
`map` and `batch` without `python_multiprocessing`. Projects that allow no release from
2.3 on. A number of workers that is not known is of low confidence.

## Source
MindSpore documentation, `mindspore.dataset.GeneratorDataset` (`max_rowsize`: default
None, allocated as needed).
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.frameworks.ms_context import allows
from gpulint.script.frameworks.ms_workers import has_processes

AUTOMATIC = (2, 3)


class MsMaxRowsize(Rule):
    effect = Effect.NONE
    framework = "mindspore"
    needs = Words("mindspore max_rowsize")

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each stage."""
        if not allows(script, AUTOMATIC):
            return
        for stage in script.ms_pipelines.stages:
            direct = stage.argument("max_rowsize").direct
            size = script.evaluator.constant(direct) if direct is not None else None
            if direct is not None and type(size) is int and size > 0:
                sure = has_processes(stage)
                if sure is False:
                    continue
                yield self.finding(
                    script,
                    direct,
                    f"each worker keeps {size} MiB of shared memory for a sample: "
                    "where nothing is said MindSpore takes what it needs",
                    confidence=None if sure else Confidence.LOW,
                )
