"""MindSpore makes samples one after another while the device waits.

## Why
`GeneratorDataset` reads its source in one process unless it is told otherwise, and
`num_parallel_workers=1` does the same to any other stage of a pipeline. Decoding and
augmenting a batch then takes the time of all its samples, in every step. A number that
is written as a constant is no way out: MindSpore raises `ValueError` where the machine
has fewer CPUs.

## Example
```python
import cv2
import mindspore.dataset as ds


class Photos:
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return cv2.imread(self.paths[index])


dataset = ds.GeneratorDataset(
    Photos(paths),
    ["image"],
    shuffle=True,
)
```
becomes
```python
import cv2
import mindspore.dataset as ds
from gpulint import runtime


class Photos:
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return cv2.imread(self.paths[index])


dataset = ds.GeneratorDataset(
    Photos(paths),
    ["image"],
    shuffle=True,
    num_parallel_workers=runtime.ms.workers(python=True),
)
```

## Fix
`runtime.ms.workers` gives a number for the machine: by the usable CPUs and the limits
of the container, never more than MindSpore accepts. `python=True` is for sources and
functions in Python, which run in processes; a training on CPUs keeps one of these for
itself. What was written stays its argument, and is the least it gives.

The samples and their order stay the same. The fix is of the effect `random` where they
are drawn at random, as each worker draws its own numbers, else `exact`.

No fix where the number is a default that a caller or user may replace, where a sample
changes the dataset, which each process would do to its own copy, or where it is made
with a random generator that the dataset keeps, or may be made with NumPy's own, which
MindSpore does not seed in its workers, as it does Python's.

## When not
Stages other than a source in Python have eight workers where nothing is said. A source
that only indexes what is in memory, or that is iterated rather than indexed: it has no
use for workers. A stream behind `__getitem__`, which takes the next sample at whatever
index: each worker would have its own copy. Samples made by MindSpore's own operators,
which it runs with one worker itself. `**kwargs` and values that are not known. A
comment that gives a reason.
What is used by programs that train nothing, such as those that prepare files, is of low
confidence, as is what a module tries out under its main guard.

## Source
MindSpore documentation, `mindspore.dataset.GeneratorDataset` (`num_parallel_workers`
is 1) and `mindspore.dataset.config.set_num_parallel_workers` (8, at most the CPUs).
Measured with MindSpore 2.10: two workers of a `GeneratorDataset`, or of `map`, give
each number of `numpy.random.rand()` twice, and the same numbers in the next epoch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.frameworks.ms_pipelines import DATA, GENERATOR, WORKERS, Stage
from gpulint.script.frameworks.ms_workers import (
    computes_on_device,
    draws,
    is_native,
    is_one,
    is_stream,
    operations,
    repeats_numpy,
    source_of,
    unread_parameter,
    values_of,
)
from gpulint.script.loading.loader_options import has_reason
from gpulint.script.rewriting.edits import Replace, Rewrite
from gpulint.script.rewriting.syntax import code, set_keywords
from gpulint.script.samples.datasets import Work

TITLE = "Let the runtime choose the workers"
REPEATS = "all workers would draw the same numbers from NumPy's generator"
MANY = 8  # more CPUs than most machines with a GPU give to one process
SET_WORKERS = f"{DATA}.config.set_num_parallel_workers"


class MsSerialPipeline(Rule):
    effect = Effect.RANDOM
    framework = "mindspore"
    needs = Words("mindspore GeneratorDataset", f"mindspore {WORKERS}")

    def check(self, script: Script) -> Iterator[Finding]:
        """Stages with one worker, and with more than there may be CPUs."""
        written: set[ast.AST] = set()  # large numbers that were spoken of
        for stage in script.ms_pipelines.stages:
            if any(has_reason(script, v.node) for v in values_of(stage)):
                continue
            if stage.kind == GENERATOR and is_one(stage):
                yield from self._source(script, stage)
            elif stage.kind == "map" and is_one(stage):
                yield self._map(script, stage)
            elif _too_many(stage) and values_of(stage)[0].node not in written:
                written.add(values_of(stage)[0].node)
                yield self._too_many(script, stage)
        for call in script.index.calls.get(SET_WORKERS, ()):
            yield from self._config(script, call)

    def _source(self, script: Script, stage: Stage) -> Iterator[Finding]:
        dataset = source_of(stage)
        if dataset.work is not Work.SOME or dataset.iterable:
            return
        if computes_on_device(script, dataset) or is_stream(script, dataset):
            return
        withheld = _why_not(stage)
        if dataset.mutated:
            withheld = "samples change the dataset, and each worker has its own copy"
        if dataset.generator is not None:
            withheld = "all workers would have a copy of the dataset's generator"
        exact = dataset.random is False
        if not exact and repeats_numpy(script):
            withheld = withheld or REPEATS
        unread = unread_parameter(stage)
        related: list[tuple[ast.AST, str]] = []
        if unread is not None:
            related.append((unread, f"`{unread.arg}` is never read"))
        if dataset.place is not None:
            related.append((dataset.place, dataset.reason))
        said = "is 1" if stage.argument(WORKERS).given else "is not set"
        yield self.finding(
            script,
            stage.call.func,
            f"`{WORKERS}` {said}, so one process makes all samples of "
            f"`{GENERATOR}`: {_clause(dataset.reason)}",
            fix=None if withheld else _fix(script, stage, python=True),
            withheld=withheld,
            related=related,
            effect=Effect.EXACT if exact else Effect.RANDOM,
            confidence=_confidence(stage),
        )

    def _map(self, script: Script, stage: Stage) -> Finding:
        its = operations(stage)
        python = its is None or not all(is_native(script, o) for o in its)
        exact = its is not None and not any(draws(script, o) for o in its)
        withheld = _why_not(stage)
        if not exact and repeats_numpy(script):
            withheld = withheld or REPEATS
        return self.finding(
            script,
            stage.call.func,
            f"`{WORKERS}` is 1, so `map` works on one sample at a time",
            fix=None if withheld else _fix(script, stage, python),
            withheld=withheld,
            effect=Effect.EXACT if exact else Effect.RANDOM,
            confidence=_confidence(stage),
        )

    def _too_many(self, script: Script, stage: Stage) -> Finding:
        number = values_of(stage)[0].constant
        withheld = _why_not(stage)
        return self.finding(
            script,
            stage.call.func,
            f"`{WORKERS}` is {number}: MindSpore raises on a machine with fewer CPUs",
            fix=None if withheld else _fix(script, stage, python=False),
            withheld=withheld,
            effect=Effect.EXACT,
        )

    def _config(self, script: Script, call: ast.Call) -> Iterator[Finding]:
        given = script.evaluator.argument(call, "num", 0).direct
        number = script.evaluator.constant(given) if given is not None else None
        if given is None or type(number) is not int or 1 < number <= MANY:
            return
        if has_reason(script, call):
            return
        what = "every stage works on one sample at a time"
        if number > MANY:
            what = "MindSpore raises on a machine with fewer CPUs"
        runtime, imports = script.names.runtime
        chosen = f"{runtime}.ms.workers({script.text(given)})"
        withheld = REPEATS if number <= MANY and repeats_numpy(script) else None
        fix = Rewrite(TITLE, (Replace(given, code(chosen)),), imports)
        yield self.finding(
            script,
            call.func,
            f"the number of workers of all stages is {number}: {what}",
            fix=None if withheld else fix,
            withheld=withheld,
            effect=Effect.EXACT if number > MANY else Effect.RANDOM,
        )


def _confidence(stage: Stage) -> Confidence | None:
    trained = stage.script.ms_pipelines.may_be_trained(stage.call)
    return None if trained else Confidence.LOW


def _too_many(stage: Stage) -> bool:
    known = values_of(stage)
    numbers = [v.constant for v in known if type(v.constant) is int]
    complete = stage.values(WORKERS).complete and len(numbers) == len(known) == 1
    return complete and numbers[0] > MANY


def _why_not(stage: Stage) -> str | None:
    values = values_of(stage)
    if any(v.default for v in values):
        return "the number is a default that a caller or user may replace"
    if values and stage.argument(WORKERS).direct is None:
        return "the number is written in another place"
    return None


def _fix(script: Script, stage: Stage, python: bool) -> Rewrite:
    """The helper's call in place of the number, or as a new keyword."""
    direct = stage.argument(WORKERS).direct
    runtime, imports = script.names.runtime
    given = [] if direct is None else [script.text(direct)]
    given += ["python=True"] if python else []
    chosen = f"{runtime}.ms.workers({', '.join(given)})"
    if direct is not None:
        return Rewrite(TITLE, (Replace(direct, code(chosen)),), imports)
    build = set_keywords(**{WORKERS: chosen})
    return Rewrite(TITLE, (Replace(stage.call, build),), imports)


def _clause(reason: str) -> str:
    clear = reason[0] == "`" or reason[0].isupper()
    return reason if clear else f"the source {reason}"
