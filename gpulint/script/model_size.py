"""How many weights a model of this file has, where literal sizes tell."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index.walk import COMPREHENSIONS, LOOPS, walk

if TYPE_CHECKING:
    from gpulint.script.model import Script
    from gpulint.script.training_step import Step

SMALL = 10_000  # weights: less keeps no GPU busy, in whatever precision
_LAYERS = {"Linear": 2, "Conv1d": 3, "Conv2d": 3, "Embedding": 2, "Conv3d": 3}
_NO_WEIGHTS = frozenset(
    "ReLU Tanh Sigmoid Dropout Sequential Flatten Softmax GELU ELU LeakyReLU MaxPool2d "
    "AvgPool2d LogSoftmax Identity MaxPool1d SiLU Softplus Dropout2d".split()
)


def is_tiny(script: Script, step: Step) -> bool:
    """Whether the model of a step is known to be too small to gain by precision."""
    size = weights(script, step.forward.func) if step.forward is not None else None
    return size is not None and size < SMALL


def weights(script: Script, model: ast.expr) -> int | None:
    """The number of weights, biases left out; None where a size is not known."""
    total = 0
    origins = script.resolver.origins(model)
    for origin in origins:
        call = origin.call
        while call is not None and _only_moves(call):
            inner = call.func.value  # type: ignore[attr-defined]
            call = inner if isinstance(inner, ast.Call) else None
        count = _made(script, call) if call is not None else None
        if count is None:
            return None
        total += count
    return total if origins else None


def _only_moves(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in ("to", "cuda")


def _made(script: Script, call: ast.Call) -> int | None:
    """Weights of what a call makes: a layer, a container, a module of this file."""
    name = script.index.qualified(call.func) or ""
    if name.startswith("torch.nn."):
        return _sum(script, [n for n in walk(call) if isinstance(n, ast.Call)])
    owner = script.resolver.class_of(call.func)
    if owner is None or not script.tensors.is_module_class(owner):
        return None
    init = script.resolver.methods(owner).get("__init__")
    if init is None or any(
        isinstance(n, (*LOOPS, *COMPREHENSIONS)) for n in walk(init)
    ):
        return None
    calls = [n for s in init.body for n in walk(s) if isinstance(n, ast.Call)]
    return _sum(script, [c for c in calls if "super" not in ast.dump(c.func)])


def _sum(script: Script, calls: list[ast.Call]) -> int | None:
    total = 0
    for call in calls:
        name = script.index.qualified(call.func) or ""
        last = name.rpartition(".")[2]
        if not name.startswith("torch.nn.") or last not in {*_LAYERS, *_NO_WEIGHTS}:
            return None
        if last in _LAYERS:
            sizes = [script.evaluator.constant(a) for a in call.args[: _LAYERS[last]]]
            if len(sizes) < _LAYERS[last] or not all(isinstance(s, int) for s in sizes):
                return None
            count = 1
            for size in sizes:
                assert isinstance(size, int)
                count *= size
            total += count * (sizes[2] if last == "Conv2d" else 1)  # type: ignore[operator]
    return total
