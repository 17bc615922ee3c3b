"""The pictures that a network takes, by the linear layer that reads them flattened."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from math import inf, isqrt
from typing import TYPE_CHECKING

from gpulint.index.walk import LOOPS
from gpulint.script.modelling.layer_sizes import changes_no_shape
from gpulint.script.modelling.models import makers

if TYPE_CHECKING:
    from gpulint.script.model import Script
    from gpulint.script.training.training_step import Step

MAX_LAYERS = 60
MAX_DEPTH = 6  # modules in one another
_FUNCTIONS_THAT_POOL = frozenset(["max_pool2d", "avg_pool2d"])
_POOLS = _FUNCTIONS_THAT_POOL | {"MaxPool2d", "AvgPool2d"}
_FUNCTIONS = frozenset(
    "relu leaky_relu elu selu gelu silu tanh sigmoid dropout dropout2d batch_norm "
    "softmax log_softmax flatten view reshape size contiguous".split()
)


def flattened_side(script: Script, step: Step) -> float:
    """The side of the pictures that a step's model takes; infinite: not known.

    A linear layer of `64 * 4 * 4` features behind a convolution of 64 channels reads
    4 x 4 pixels, which the layers before it made of so many more. Of the sides that
    give as many, which differ by less than the strides, it is the smallest.
    """
    made = makers(script, step.forward.func) if step.forward is not None else ()
    return max((_side(script, call) for call in made), default=inf)


def _side(script: Script, made: ast.Call | None) -> float:
    layers: list[ast.Call] = []
    for layer in _in_order(script, made, 0) if made is not None else ():
        if layer is None or len(layers) > MAX_LAYERS:
            return inf
        layers.append(layer)
        if _kind(script, layer) == "Linear":
            break
    else:
        return inf
    *before, linear = layers
    channels = [
        _number(script, layer, "out_channels", 1)
        for layer in before
        if _kind(script, layer) == "Conv2d"
    ]
    features = _number(script, linear, "in_features", 0)
    if not channels or not channels[-1] or not features or features % channels[-1]:
        return inf
    pixels = features // channels[-1]
    side = isqrt(pixels)
    return _before(script, before, side) if side**2 == pixels else inf


def _before(script: Script, layers: list[ast.Call], side: int) -> float:
    """The side of the pictures that layers make those of `side` pixels of."""
    for layer in reversed(layers):
        kind = _kind(script, layer)
        first = 2 if kind == "Conv2d" else int(kind in _FUNCTIONS_THAT_POOL)
        kernel = _number(script, layer, "kernel_size", first)
        stride = _number(script, layer, "stride", first + 1)
        padding = _number(script, layer, "padding", first + 2)
        if not kernel or stride is None or padding is None:
            return inf
        stride = stride or (1 if kind == "Conv2d" else kernel)
        side = (side - 1) * stride + kernel - 2 * padding
    return side


def _kind(script: Script, call: ast.Call) -> str:
    """The last part of what is called: `Conv2d`, `max_pool2d`, `view`."""
    name = script.index.qualified(call.func) or ""
    return name.rpartition(".")[2] or getattr(call.func, "attr", "")


def _number(script: Script, layer: ast.Call, option: str, position: int) -> int | None:
    """The number that an option is; 0 where it is not given; None: not known."""
    argument = script.evaluator.argument(layer, option, position)
    if argument.absent:
        return 0
    return _whole(script, argument.direct) if argument.direct is not None else None


def _whole(script: Script, node: ast.expr) -> int | None:
    """The number that `64`, a name of one, or `64 * 4 * 4` is."""
    its = script.evaluator.constant(node)
    if isinstance(its, int):
        return its
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, (ast.Mult, ast.Pow)):
        return None
    left, right = _whole(script, node.left), _whole(script, node.right)
    if left is None or right is None:
        return None
    if isinstance(node.op, ast.Mult):
        return left * right
    return left**2 if right == 2 else None


def _in_order(script: Script, made: ast.Call, depth: int) -> Iterator[ast.Call | None]:
    """The convolutions, pools and linear layers as they run; None: one is not known."""
    name = script.index.qualified(made.func) or ""
    last = name.rpartition(".")[2]
    if name == "torch.nn.Sequential":
        for given in made.args:
            yield from _run(script, given, depth)
    elif name.startswith("torch.nn."):
        if last in ("Conv2d", "Linear") or last in _POOLS:
            yield made
        elif not changes_no_shape(last):
            yield None
    else:
        yield from _in_forward(script, made, depth)


def _run(script: Script, layer: ast.expr, depth: int) -> Iterator[ast.Call | None]:
    made = [origin.call for origin in script.resolver.origins(layer)]
    if len(made) == 1 and made[0] is not None and depth < MAX_DEPTH:
        yield from _in_order(script, made[0], depth + 1)
    else:
        yield None


def _in_forward(
    script: Script, made: ast.Call, depth: int
) -> Iterator[ast.Call | None]:
    """The same, of a class of this project, by the calls of its `forward`."""
    owner = script.resolver.classes.named(made.func)
    methods = script.resolver.classes.methods(owner) if owner is not None else {}
    forward = methods.get("forward")
    if owner is None or forward is None:
        yield None
        return
    own = script.resolver.self_name(forward)
    for statement in forward.body:
        for node in _as_run(statement):
            if isinstance(node, (*LOOPS, ast.If, ast.IfExp)):
                yield None
            if not isinstance(node, ast.Call):
                continue
            func = node.func
            held = func.value if isinstance(func, ast.Attribute) else None
            if isinstance(held, ast.Name) and held.id == own:
                yield from _run(script, func, depth)
            elif _kind(script, node) in _POOLS:
                yield node
            elif _kind(script, node) not in _FUNCTIONS:
                yield None


def _as_run(node: ast.AST) -> Iterator[ast.AST]:
    """A node behind those that are evaluated before it."""
    for child in ast.iter_child_nodes(node):
        yield from _as_run(child)
    yield node
