"""A stage runs Python for each sample in threads that wait for one another.

## Why
MindSpore's own operations run in as many threads as a stage has workers. A Python
function in `.map` needs the interpreter's lock for all it does, so that its threads
work one at a time, and take the lock from the training loop besides.

## Example
```python
import mindspore.dataset as ds


def crop(image):
    return np.stack([stretch(row) for row in image])


dataset = ds.ImageFolderDataset("photos", decode=True)
dataset = dataset.map(operations=[crop], input_columns=["image"])
```

## Fix
None: use operations of `mindspore.dataset.vision` and `transforms`, which need no
Python, or `python_multiprocessing=True`, which runs it in processes: not for one that
draws from NumPy's generator, of which each process has a copy (GPU281).

## When not
`python_multiprocessing` is set. Stages behind `.batch`, which run once for a batch. A
function that only casts, indexes or does a single array operation, or is not known.
What is used by programs that train nothing, such as those that prepare files, is of low
confidence; so is work of OpenCV or PIL, which leave the interpreter's lock to others
while they read, decode or resize a picture.

## Source
MindSpore documentation, `mindspore.dataset.Dataset.map` (`python_multiprocessing`:
"beneficial if the Python operation is computational heavy").
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding
from gpulint.index.walk import LOOPS, walk
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.frameworks.ms_workers import operations, python_work

_WITHOUT_LOCK = ("cv2.", "PIL.")


class MsPythonOp(Rule):
    effect = Effect.NONE
    framework = "mindspore"
    needs = Words("mindspore .map(")

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each stage."""
        for stage in script.ms_pipelines.stages:
            if stage.kind != "map" or script.ms_pipelines.is_batched(stage.call):
                continue
            if not stage.argument("python_multiprocessing").absent:
                continue
            trained = script.ms_pipelines.may_be_trained(stage.call)
            for operation in operations(stage) or ():
                work = python_work(script, operation)
                if work is not None:
                    sure = trained and not _runs_beside(script, work[0])
                    yield self.finding(
                        script,
                        stage.call.func,
                        f"`map` runs Python for each sample: {_clause(work[1])}",
                        related=[(work[0], "here")],
                        confidence=None if sure else Confidence.LOW,
                    )
                    break


def _runs_beside(script: Script, work: ast.AST) -> bool:
    """Whether other threads run Python while a call works: in OpenCV or PIL.

    Not where the function loops in Python besides.
    """
    if not isinstance(work, ast.Call):
        return False
    index = script.of(work).index
    function = index.function(work)
    if function is None or any(isinstance(node, LOOPS) for node in walk(function)):
        return False
    return (index.qualified(work.func) or "").startswith(_WITHOUT_LOCK)


def _clause(reason: str) -> str:
    clear = reason[0] == "`" or reason[0].isupper()
    return reason if clear else f"the function {reason}"
