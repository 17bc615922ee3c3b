"""A sum or list of losses keeps the graph of every batch in memory.

## Why
A loss tensor holds the graph that leads to it: the nodes of every operation, the views
of every tensor that was saved for them. It is freed when the last tensor that refers to
it goes. `total += loss` and `losses.append(loss)` refer to the graphs of all batches so
far, so memory grows with every step until the epoch ends or memory runs out.

## Example
```python
import torch


def train(model, loader, criterion, optimizer):
    total = 0.0
    for x, y in loader:
        loss = criterion(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss
    return total / len(loader)
```
becomes
```python
import torch


def train(model, loader, criterion, optimizer):
    total = 0.0
    for x, y in loader:
        loss = criterion(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total / len(loader)
```

## Fix
`.detach()` on what is added or appended: the same value without its graph, still on the
device. `.item()` would do as well, but makes the host wait in every step. Withheld for
a term of the loss that is a number where something is switched off (`reg = 0`).

## When not
Sums that are differentiated (several losses of one step, truncated backpropagation,
meta-learning), sums that start anew in every step, everything under `no_grad()`, what
is appended to objects of other classes than lists, and what is kept every so many steps
(`if step % 50 == 0:`). Models that are put on the CPU. Of low confidence are a sum over
the parts of one step (`for _ in range(accumulation_steps):`), and programs of which no
file asks for a device.

## Source
"My model reports cuda runtime error(2): out of memory, Don't accumulate history across
your training loop" in the FAQ of the PyTorch documentation.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.reaching.started import runs_on_host
from gpulint.script.rewriting.edits import ReplaceCode, Rewrite
from gpulint.script.training.batch_size_reasons import ACCUMULATES
from gpulint.script.training.retained import Kept, find_kept, may_be_number


class RetainedGraph(Rule):
    """Fires on the sum or `append` that keeps losses with their graphs."""

    effect = Effect.EXACT
    severity = Severity.ERROR
    needs = Words("backward( torch +", "backward( torch append(")

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding a statement."""
        for kept in find_kept(script):
            doubtful = [
                x for x in kept.losses if may_be_number(script, x, kept.backward)
            ]
            withheld = None
            if doubtful:
                withheld = f"`{script.text(doubtful[0])}` may be a number in some runs"
            yield self.finding(
                script,
                kept.at,
                f"`{kept.name}` keeps the graph of `{script.text(kept.losses[0])}` of "
                "every step in memory, and is never differentiated",
                fix=None if withheld else _rewrite(script, kept),
                withheld=withheld,
                related=[(kept.backward.func, "only this differentiates the loss")],
                confidence=Confidence.LOW if _costs_little(script, kept) else None,
            )


def _costs_little(script: Script, kept: Kept) -> bool:
    return _is_over_parts(script, kept) or runs_on_host(script)


def _is_over_parts(script: Script, kept: Kept) -> bool:
    """`for _ in range(accumulation_steps):`, the few parts of one step."""
    loop = script.loop_of(kept.at)
    over = getattr(loop.node, "iter", None) if loop is not None else None
    if loop is None or loop.parent is not None or not isinstance(over, ast.Call):
        return False  # of steps, over all of which it may add up
    counts = script.index.qualified(over.func) == "range"
    return counts and ACCUMULATES.search(script.text(over)) is not None


def _rewrite(script: Script, kept: Kept) -> Rewrite:
    edits = tuple(
        ReplaceCode(loss, f"{script.text(loss)}.detach()") for loss in kept.losses
    )
    names = " and ".join(f"`{script.text(loss)}`" for loss in kept.losses)
    verb = "appended" if isinstance(kept.at, ast.Attribute) else "added"
    return Rewrite(f"Detach {names} before it is {verb}", edits)
