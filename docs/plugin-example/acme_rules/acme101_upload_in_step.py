"""Each training step waits for a metric to reach the server.

## Why
`acme_metrics.upload` returns when the server has answered: some milliseconds, in each
of which the GPU has nothing to do.

## Example
```python
for images, labels in loader:
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
    acme_metrics.upload("step", step)
```
becomes
```python
for images, labels in loader:
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
    acme_metrics.queue("step", step)
```

## Fix
`queue` takes the same arguments and sends them from a thread. No fix where the answer
is used: `queue` has none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Effect, Finding
from gpulint.rule import Calls, Rule
from gpulint.script import Script
from gpulint.script.rewriting.edits import ReplaceCode, Rewrite

UPLOAD = "acme_metrics.upload"


class UploadInStep(Rule):
    effect = Effect.EXACT
    needs = Calls(UPLOAD)

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding a call."""
        alone = {statement.value for statement in script.index.all(ast.Expr)}
        for loop in script.step_loops:
            for call in loop.calls:
                if not loop.train or script.index.qualified(call.func) != UPLOAD:
                    continue
                yield self.finding(
                    script,
                    call.func,
                    "each training step waits for the metrics server",
                    fix=_rewrite(script, call) if call in alone else None,
                    withheld="its answer is used",
                    evidence=[(loop.node, "the training loop")],
                )


def _rewrite(script: Script, call: ast.Call) -> Rewrite | None:
    """None where the function was imported by its own name: `queue` was not."""
    if not isinstance(call.func, ast.Attribute):
        return None
    queue = f"{script.text(call.func.value)}.queue"
    return Rewrite("Queue the metric", (ReplaceCode(call.func, queue),))
