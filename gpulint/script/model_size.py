"""How many weights a model of this file has, where literal sizes tell."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index.walk import COMPREHENSIONS, LOOPS, walk
from gpulint.script.products import is_product

if TYPE_CHECKING:
    from gpulint.script.model import Script
    from gpulint.script.training_step import Step

SMALL = 10_000  # weights: less keeps no GPU busy, in whatever precision
# Linear layers use a weight once for a sample: less than the start of a kernel takes.
SMALL_IF_LINEAR = 200_000
_LAYERS = {"Linear": 2, "Embedding": 2, "Conv1d": 3, "Conv2d": 3, "Conv3d": 3}
_NO_PRODUCTS = frozenset(
    "ReLU Tanh Sigmoid Dropout Sequential Flatten Softmax GELU ELU LeakyReLU MaxPool2d "
    "AvgPool2d LogSoftmax Identity MaxPool1d SiLU Softplus Dropout2d ReLU6 "
    "BatchNorm1d BatchNorm2d LayerNorm PReLU Mish Hardtanh Unflatten ModuleList".split()
)


class Size(NamedTuple):
    """The number of weights; whether each is used once for a sample."""

    weights: int
    linear: bool

    @property
    def tiny(self) -> bool:
        """Whether it keeps no GPU busy."""
        return self.weights < (SMALL_IF_LINEAR if self.linear else SMALL)


def is_tiny(script: Script, step: Step) -> bool:
    """Whether the model of a step is known to be too small to gain by precision."""
    size = _size(script, step.forward.func) if step.forward is not None else None
    return size is not None and size.tiny


def _size(script: Script, model: ast.expr) -> Size | None:
    """The size of a model, all of what it may be together; None: not known."""
    made = [_made(script, origin.call) for origin in script.resolver.origins(model)]
    return _total(made) if made else None


def _total(sizes: Iterable[Size | None]) -> Size | None:
    total = Size(0, linear=True)
    for size in sizes:
        if size is None:
            return None
        total = Size(total.weights + size.weights, total.linear and size.linear)
    return total


def _only_moves(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in ("to", "cuda")


def _made(script: Script, call: ast.Call | None) -> Size | None:
    """What a call makes: a layer, a container, a module of this file."""
    while call is not None and _only_moves(call):
        inner = call.func.value  # type: ignore[attr-defined]
        call = inner if isinstance(inner, ast.Call) else None
    if call is None:
        return None
    name = script.index.qualified(call.func) or ""
    if name.startswith("torch.nn."):
        inside = [n for n in walk(call) if isinstance(n, ast.Call)]
        return _total(_layer(script, c) for c in inside)
    owner = script.resolver.class_of(call.func)
    if owner is None or not script.tensors.is_module_class(owner):
        return None
    init = script.resolver.methods(owner).get("__init__")
    if init is None or any(
        isinstance(n, (*LOOPS, *COMPREHENSIONS)) for n in walk(init)
    ):
        return None
    calls = [n for s in init.body for n in walk(s) if isinstance(n, ast.Call)]
    layers = [c for c in calls if "super" not in ast.dump(c.func)]
    size = _total(_layer(script, c) for c in layers)
    run = walk(*script.resolver.bases(owner))
    if size is not None and any(is_product(script, n) for n in run):
        return Size(size.weights, linear=False)  # attention
    return size


def _layer(script: Script, call: ast.Call) -> Size | None:
    name = script.index.qualified(call.func) or ""
    last = name.rpartition(".")[2]
    if not name.startswith("torch.nn.") or last not in {*_LAYERS, *_NO_PRODUCTS}:
        return None
    count = _LAYERS.get(last, 0)
    values = [script.evaluator.constant(a) for a in call.args[:count]]
    sizes = [v for v in values if isinstance(v, int)]
    if len(sizes) < count:
        return None
    if last == "Conv2d":
        sizes.append(sizes[2])
    return Size(prod(sizes) if sizes else 0, linear=not last.startswith("Conv"))
