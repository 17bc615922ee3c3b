"""Models that are trained with weights in float16, and a loss that nothing scales."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index.walk import dotted
from gpulint.script.neighbours import run_together

if TYPE_CHECKING:
    from gpulint.script.model import Script

# What scales a loss, or keeps a copy of the weights in float32.
_SCALES = re.compile(
    r"loss_?scal|grad_?scal|scaler|\bscale *=|\bscaled|apex|\bamp\b|deepspeed|FP16|"
    r"master_(weight|param)|bfloat16|accelerat|lightning",
    re.IGNORECASE,
)
_OPTIMIZERS = "torch.optim."


def trained_in_half(script: Script) -> Iterator[ast.Call]:
    """Each `model.half()` above the optimizer of a training without loss scaling."""
    halves = [c for c in script.index.calls_by_name.get("half", ()) if not c.args]
    if not halves or not script.training_loops or script.is_test:
        return
    if any(index.source.has(_SCALES) for index in run_together(script)):
        return
    optimized = [
        call
        for call in script.index.calls_by_name.get("parameters", ())
        if _goes_to_optimizer(script, call)
    ]
    for half in halves:
        if any(_is_before(script, half, call) for call in optimized):
            yield half


def _goes_to_optimizer(script: Script, call: ast.Call) -> bool:
    names = (
        script.index.qualified(above.func) or ""
        for above in script.index.ancestors(call)
        if isinstance(above, ast.Call)
    )
    return any(name.startswith(_OPTIMIZERS) for name in names)


def _is_before(script: Script, half: ast.Call, weights: ast.Call) -> bool:
    """Whether the same model, in the same function, gives its weights further down."""
    index = script.index
    if index.function(half) is not index.function(weights):
        return False
    if not isinstance(half.func, ast.Attribute) or half.lineno >= weights.lineno:
        return False
    assert isinstance(weights.func, ast.Attribute)
    model = half.func.value
    return (
        dotted(model) is not None
        and dotted(model) == dotted(weights.func.value)
        and script.modules.is_module(model)
    )
