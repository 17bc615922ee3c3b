"""Biases of convolutions that the normalisation behind them takes away again."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index.build import last_name
from gpulint.index.walk import dotted, walk
from gpulint.script.branches import branches_of
from gpulint.script.neighbours import run_together

if TYPE_CHECKING:
    from gpulint.index import FileIndex, Function
    from gpulint.script.model import Script

_CONVOLUTION = re.compile(r"^torch\.nn\.Conv(Transpose)?[123]d$")
_NORM = re.compile(r"^torch\.nn\.(BatchNorm[123]d|SyncBatchNorm)$")
_BIAS_POSITION = 7


class IdleBias(NamedTuple):
    """A convolution whose bias the layer behind it takes away."""

    layer: ast.Call
    norm: ast.Call


def find_idle_biases(script: Script) -> list[IdleBias]:
    """The layers of a file, in order."""
    found = dict.fromkeys([*_in_sequences(script), *_in_forward(script)])
    return sorted(found, key=lambda idle: (idle.layer.lineno, idle.layer.col_offset))


def fills_biases(script: Script) -> bool:
    """Whether a program sets the biases of convolutions, and asks for none first.

    `if isinstance(m, nn.Conv2d): nn.init.zeros_(m.bias)`, of any module by its kind.
    """
    return any(
        _is_set(index, node)
        for index in run_together(script)
        for node in index.reads.get("bias", ())
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    )


def _is_set(index: FileIndex, bias: ast.Attribute) -> bool:
    """Whether a module's bias is handed to what fills it, or filled itself."""
    above = index.parent(bias)
    called = above.attr if isinstance(above, ast.Attribute) else ""
    handed = isinstance(above, ast.Call) and last_name(above).endswith("_")
    if not (handed or called == "data" or called.endswith("_")):
        return False
    tests = [
        ast.unparse(branch.test)
        for branch, holds in branches_of(index, bias)
        if isinstance(branch, ast.If) and holds
    ]
    kinds = [test for test in tests if "isinstance(" in test]
    asked = any("bias" in test for test in tests)
    return bool(kinds) and not asked and any("Conv" in test for test in kinds)


def _has_idle_bias(script: Script, layer: ast.AST, norm: ast.AST) -> bool:
    if not isinstance(layer, ast.Call) or not isinstance(norm, ast.Call):
        return False
    if not _NORM.match(script.index.qualified(norm.func) or ""):
        return False
    if not _CONVOLUTION.match(script.index.qualified(layer.func) or ""):
        return False
    bias = script.evaluator.argument(layer, "bias", _BIAS_POSITION)
    values = [script.evaluator.values(node) for node in bias.nodes]
    return bias.absent or (
        bias.given and bool(values) and all(its.all_in(True) for its in values)
    )


# One behind the other in a sequence


def _in_sequences(script: Script) -> Iterator[IdleBias]:
    for call in script.index.calls.get("torch.nn.Sequential", ()):
        if _is_run_by_layers(script, call):
            continue
        yield from _neighbours(script, call.args)
        for argument in call.args:
            yield from _in_argument(script, argument)


def _is_run_by_layers(script: Script, sequence: ast.Call) -> bool:
    """`Masked(nn.Sequential(…))`, of a class that runs one layer after the other.

    What it does between them, such as a mask, sees the biases. Also by a name, or of
    the class itself that keeps the layers.
    """
    owners = [script.index.owner(sequence)]
    for node in (sequence, *_reads_of(script, sequence)):
        above = script.index.parent(node)
        above = script.index.parent(above) if isinstance(above, ast.keyword) else above
        if isinstance(above, ast.Call):
            owners.append(script.resolver.classes.named(above.func))
    return any(owner is not None and _runs_layers(script, owner) for owner in owners)


def _reads_of(script: Script, sequence: ast.Call) -> list[ast.AST]:
    """Where a name is read that a sequence is given to."""
    flow = script.resolver.flow(script.index.scope(sequence))
    made = [d for its in flow.definitions.values() for d in its if d.value is sequence]
    return [node for definition in made for node in script.uses(definition)]


def _runs_layers(script: Script, owner: ast.ClassDef) -> bool:
    """Whether a module's `forward` calls what it keeps, layer by layer."""
    forward = script.resolver.classes.methods(owner).get("forward")
    if forward is None:
        return False
    for node in walk(forward):
        func = node.func if isinstance(node, ast.Call) else None
        if isinstance(func, ast.Subscript) and _is_kept(func.value):
            return True
        if isinstance(node, (ast.For, ast.comprehension)) and any(
            map(_is_kept, walk(node.iter))
        ):
            layers = {n.id for n in walk(node.target) if isinstance(n, ast.Name)}
            called = (n.func for n in walk(forward) if isinstance(n, ast.Call))
            if any(isinstance(f, ast.Name) and f.id in layers for f in called):
                return True
    return False


def _is_kept(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and dotted(node.value) == "self"


def _in_argument(script: Script, argument: ast.expr) -> Iterator[IdleBias]:
    """`Sequential(*layers)`, `Sequential(*[…])`, `Sequential(OrderedDict([…]))`."""
    if isinstance(argument, ast.Call):
        for inner in argument.args[:1]:
            if isinstance(inner, (ast.List, ast.Tuple)):
                pairs = [e.elts[-1] for e in inner.elts if isinstance(e, ast.Tuple)]
                if len(pairs) == len(inner.elts):
                    yield from _neighbours(script, pairs)
    elif isinstance(argument, ast.Starred):
        for listed in _lists(script, argument.value):
            yield from _neighbours(script, listed.elts)


def _lists(script: Script, layers: ast.expr) -> Iterator[ast.List | ast.Tuple]:
    """The lists that are put together to what is starred."""
    if isinstance(layers, (ast.List, ast.Tuple)):
        yield layers
    elif isinstance(layers, ast.Name):
        function = script.index.function(layers)
        for node in walk(function) if function is not None else ():
            value = _put_into(node, layers.id)
            if isinstance(value, (ast.List, ast.Tuple)):
                yield value


def _put_into(node: ast.AST, name: str) -> ast.expr | None:
    """What `name = […]`, `name += […]` and `name.extend([…])` put there."""
    target: ast.expr
    if isinstance(node, ast.Assign):
        target, value = node.targets[0], node.value
    elif isinstance(node, ast.AugAssign):
        target, value = node.target, node.value
    elif isinstance(node, ast.Call) and len(node.args) == 1:
        func = node.func
        if not isinstance(func, ast.Attribute) or func.attr != "extend":
            return None
        target, value = func.value, node.args[0]
    else:
        return None
    return value if isinstance(target, ast.Name) and target.id == name else None


def _neighbours(script: Script, layers: Sequence[ast.expr]) -> Iterator[IdleBias]:
    for layer, norm in pairwise(layers):
        if _has_idle_bias(script, layer, norm):
            assert isinstance(layer, ast.Call)
            assert isinstance(norm, ast.Call)
            yield IdleBias(layer, norm)


# One after the other in `forward`


def _in_forward(script: Script) -> Iterator[IdleBias]:
    for owner in script.index.all(ast.ClassDef):
        methods = script.resolver.classes.methods(owner)
        init = methods.get("__init__")
        if init is None:
            continue
        parts = _parts(script, init)
        for name, layer in parts.items():
            norms = {
                norm
                for method in methods.values()
                for use in _uses(script, method, name)
                for norm in [_applied_next(script, method, use)]
            }
            if len(norms) == 1:
                norm = parts.get(norms.pop() or "")
                if norm is not None and _has_idle_bias(script, layer, norm):
                    yield IdleBias(layer, norm)


def _parts(script: Script, init: Function) -> dict[str, ast.Call]:
    """The attributes of `self` that `__init__` sets once, to what a call makes."""
    made: dict[str, list[ast.expr]] = {}
    own = script.resolver.self_name(init)
    for node in walk(init):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if (name := _of_self(target, own)) is not None:
                    made.setdefault(name, []).append(node.value)
    return {
        name: values[0]
        for name, values in made.items()
        if len(values) == 1 and isinstance(values[0], ast.Call)
    }


def _of_self(node: ast.AST, own: str | None) -> str | None:
    """`conv` of `self.conv`."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr if own is not None and node.value.id == own else None
    return None


def _uses(script: Script, method: Function, name: str) -> Iterator[ast.Attribute]:
    own = script.resolver.self_name(method)
    for node in walk(method):
        if not isinstance(node, ast.Attribute) or isinstance(node.ctx, ast.Store):
            continue
        if _of_self(node, own) == name:
            yield node


def _applied_next(script: Script, method: Function, use: ast.Attribute) -> str | None:
    """The attribute that is applied to what `self.conv(x)` gives, and to it alone."""
    call = script.index.parent(use)
    if not isinstance(call, ast.Call) or call.func is not use:
        return None
    own = script.resolver.self_name(method)
    outer = script.index.parent(call)
    if isinstance(outer, ast.Call):
        return _of_self(outer.func, own) if outer.args == [call] else None
    target = outer.targets[0] if isinstance(outer, ast.Assign) else None
    if not isinstance(target, ast.Name):
        return None
    made = script.resolver.flow(method).definitions.get(target.id, ())
    uses = [use for d in made if d.node is target for use in script.uses(d)]
    above = script.index.parent(uses[0]) if len(uses) == 1 else None
    if isinstance(above, ast.Call) and above.args == uses:
        return _of_self(above.func, own)
    return None
