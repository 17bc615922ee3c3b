"""Gradients are filled with zeros in each step instead of being dropped.

## Why
A gradient that is zeroed costs one write of its memory before the backward pass and one
read in it, where the new gradient is added to zeros; a gradient that is None costs
neither and gives its memory back meanwhile. `zero_grad()` has dropped gradients by
default since torch 2.0; an explicit `set_to_none=False`, or a loop of `p.grad.zero_()`,
brings the old cost back.

## Example
```python
import torch
from torch import nn

model = nn.Linear(64, 10).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for x, y in loader:
    optimizer.zero_grad(set_to_none=False)
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
```
becomes
```python
import torch
from torch import nn

model = nn.Linear(64, 10).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for x, y in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
```

## Fix
The argument is dropped; a loop over `model.parameters()` that only zeroes becomes
`model.zero_grad()`. An optimizer skips parameters whose gradient is None, but moves
those with a zero gradient by momentum and weight decay. So there is a fix only where
every parameter receives a gradient in each step: one optimizer on one model whose
forward pass has no branches, one unconditional backward, nothing frozen, no zeroing
between a backward pass and the step, and no other code that touches `.grad`. Needs
torch 2.0.

## When not
A plain `zero_grad()` is fine. So is zeroing the gradient of one tensor, such as an
input that is being optimised. Gradients that the script puts in a place of their own
(`p.grad = torch.empty_like(p)`, in a pool of memory or one flat buffer) have to stay.
An optimizer's own code, which may ask for gradients that are there, is left alone, and
so is a file that captures CUDA graphs, which are replayed on the gradients of then. Of
low confidence are programs that name no device, functions that zero what they are
given under a condition or several times in a step, and zeroing between a backward pass
and the step: without gradients an optimizer with momentum or weight decay leaves such
parameters alone, which it changes with zeros.

## Source
PyTorch documentation, `Optimizer.zero_grad` and the Performance Tuning Guide: setting
gradients to None needs fewer memory operations. pytorch#92731 made it the default.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.index.walk import dotted, walk
from gpulint.rule import Rule, Words
from gpulint.script import Loop, Script
from gpulint.script.neighbours import run_together
from gpulint.script.rewriting.edits import ReplaceCode, Rewrite
from gpulint.script.training.gradients import trained_model, why_gradients_may_miss
from gpulint.script.training.zeroing import (
    freezes_some,
    gradient_of,
    is_optimizer,
    only_zeroes,
    over_parameters,
    places_gradients,
    training_step,
    whole_model,
)

LOWEST = (2, 0)
PASSED_BY = "the optimizer's step would pass the parameters by"
# What a program says that trains on an accelerator, or leaves that to a trainer.
_DEVICES = re.compile(r"(?i)cuda|device|gpu|accelerat|trainer|fabric|learner")
_CAPTURES = re.compile(r"\bCUDAGraph\b|\bcuda\.graphs?\b|\bmake_graphed_callables\b")


class ZeroFilledGrads(Rule):
    effect = Effect.NUMERICS
    severity = Severity.NOTE
    needs = Words("zero_grad set_to_none", "zero_grad False", "zero_ <gradient> param")

    def check(self, script: Script) -> Iterator[Finding]:
        """Explicit `set_to_none=False`, and loops that zero gradients."""
        if script.source.has(_CAPTURES):
            return
        for call in script.index.all(ast.Call):
            if not isinstance(call.func, ast.Attribute):
                continue
            if call.func.attr == "zero_grad":
                yield from self._explicit(script, call)
            elif call.func.attr == "zero_":
                yield from self._by_hand(script, call)

    def _explicit(self, script: Script, call: ast.Call) -> Iterator[Finding]:
        argument = script.evaluator.argument(call, "set_to_none", 0)
        values = [v for n in argument.nodes for v in script.evaluator.values(n).known]
        loop = training_step(script, call)
        if not argument.given or not values or loop is None:
            return
        if any(v.default or v.constant is not False for v in values):
            return
        if places_gradients(script):
            return
        reason = None
        if not isinstance(argument.direct, ast.Constant):
            reason = "`set_to_none` is a setting"
        reason = reason or why_gradients_may_miss(script, loop)
        freezes = freezes_some(script, call)
        reason = reason or (PASSED_BY if freezes else None)
        fix = None
        if reason is None:
            edit = ReplaceCode(call, f"{script.text(call.func)}()")
            fix = Rewrite("Drop `set_to_none=False`", (edit,), torch=LOWEST)
        message = (
            f"`{script.text(call.func)}` fills all gradients with zeros in each step"
        )
        yield self._finding(script, call, message, fix, reason, freezes)

    def _by_hand(self, script: Script, call: ast.Call) -> Iterator[Finding]:
        assert isinstance(call.func, ast.Attribute)
        parameter = gradient_of(call.func.value)
        holder = over_parameters(script, parameter) if parameter is not None else None
        loop = training_step(script, call)
        if parameter is None or holder is None or loop is None:
            return
        if is_optimizer(script, script.index.owner(call)):
            return  # whose own state rests on these gradients
        rewrite, reason = self._whole_loop(script, call, holder, loop)
        text = script.text(call.func.value)
        message = f"`{text}` of each parameter is filled with zeros in each step"
        freezes = freezes_some(script, call)
        if freezes and rewrite is not None:
            rewrite, reason = None, PASSED_BY
        yield self._finding(script, call, message, rewrite, reason, freezes)

    def _finding(
        self,
        script: Script,
        call: ast.Call,
        message: str,
        fix: Rewrite | None,
        withheld: str | None,
        freezes: bool = False,
    ) -> Finding:
        named = any(index.source.has(_DEVICES) for index in run_together(script))
        return self.finding(
            script,
            call.func,
            message,
            fix=fix,
            withheld=withheld,
            confidence=None if named and not freezes else Confidence.LOW,
        )

    def _whole_loop(
        self, script: Script, call: ast.Call, holder: ast.AST, loop: Loop | ast.AST
    ) -> tuple[Rewrite | None, str | None]:
        if not isinstance(holder, ast.For) or not only_zeroes(holder, call):
            return None, "the loop does more than zeroing"
        model = whole_model(holder)
        if model is None or dotted(model) != trained_model(script):
            return None, "the loop is not over the parameters of the trained model"
        reason = why_gradients_may_miss(script, loop, walk(holder))
        if reason is not None:
            return None, reason
        edit = ReplaceCode(holder, f"{script.text(model)}.zero_grad()")
        return Rewrite("Drop the gradients", (edit,), torch=LOWEST), None
