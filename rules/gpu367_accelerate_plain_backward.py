"""The loss is differentiated past Accelerate.

## Why
`accelerator.backward(loss)` divides by `gradient_accumulation_steps`, scales the loss
for float16 and hands it to DeepSpeed. `loss.backward()` does nothing of that, while the
prepared optimizer still takes the scale back: under
`accelerate launch --mixed_precision fp16` the gradients become 65536 times too small,
and gradients that are accumulated are summed instead of averaged.

## Example
```python
from accelerate import Accelerator

accelerator = Accelerator(gradient_accumulation_steps=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    with accelerator.accumulate(model):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
```

## Fix
None: `accelerator.backward(loss)` changes the size of the gradients where the script
divides the loss itself, and a learning rate may have been found with them as they are.

## When not
The optimizer that steps does not surely come from `prepare`. The loss is scaled by the
accelerator's own scaler, or a branch decides between both calls. Gradients of
something other than a training step.

## Source
`Accelerator.backward` and `AcceleratedOptimizer.step` of Accelerate 0.1 to 1.15, whose
documentation says: "Should be used in lieu of `loss.backward()`."
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Effect, Finding
from gpulint.index.walk import dotted, walk
from gpulint.rule import Rule, StepLoops
from gpulint.script import Loop, Script
from gpulint.script.loading.prepared import is_accelerated, is_prepared


class AcceleratePlainBackward(Rule):
    """One finding for each such call, in a loop that steps a prepared optimizer."""

    effect = Effect.NONE
    needs = StepLoops("ccelerator .backward( prepare")
    framework = "accelerate"

    def check(self, script: Script) -> Iterator[Finding]:
        """Calls of `backward` on a tensor."""
        seen: set[ast.Call] = set()
        for loop in script.training_loops:
            if not _steps_prepared(script, loop):
                continue
            for call in loop.backward:
                if call in seen or not script.index.holds(call):
                    continue
                seen.add(call)
                if _is_plain(call) and not _may_be_without(script, call, loop):
                    yield self.finding(
                        script,
                        call.func,
                        "the loss is differentiated past Accelerate, which scales it "
                        "for float16 and divides it by `gradient_accumulation_steps`",
                    )


def _steps_prepared(script: Script, loop: Loop) -> bool:
    """Whether all optimizers that a loop steps come from `prepare`."""
    holders = [c.func.value for c in loop.steps if isinstance(c.func, ast.Attribute)]
    return bool(holders) and all(is_prepared(script.of(h), h) for h in holders)


def _is_plain(call: ast.Call) -> bool:
    """`loss.backward()`, but not `scaler.scale(loss).backward()`."""
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr != "backward" or call.args:
        return False
    return not (
        isinstance(func.value, ast.Call)
        and (dotted(func.value.func) or "").endswith(("scale", "scale_loss"))
    )


def _may_be_without(script: Script, call: ast.Call, loop: Loop) -> bool:
    """Whether a branch or handler decides that Accelerate is not used."""
    for above in script.index.ancestors(call):
        if above is loop.node or isinstance(above, ast.Module):
            return False
        if isinstance(above, (ast.If, ast.IfExp)):
            test = script.text(above.test).lower()
            if "accel" in test or "distributed" in test:
                return True
            if any(isinstance(n, ast.Call) and is_accelerated(n) for n in walk(above)):
                return True
        if isinstance(above, ast.Try):
            return True
    return False
