"""Tensors that a function of the project makes on the host, from sizes alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import NOT_CUDA, Function, Where
from gpulint.index.tensor_names import FACTORIES, KEEPING_METHODS
from gpulint.index.walk import COMPREHENSIONS, LOOPS, dotted, walk_scope
from gpulint.script.copying.arrivals import has_device
from gpulint.script.copying.named_devices import is_of_host

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_DEPTH = 2  # functions that a function calls to make a tensor
# What brings a tensor to a device, or to that of another one.
_SENDS = frozenset("to cuda type_as".split())
_BUILTINS = frozenset("range len int float min max abs list tuple bool".split())
_MODULES = ("torch.", "math.")
# Of torch, what reads or moves something, or goes on with what was there before.
_NOT_MADE = (
    *("torch.load", "torch.cuda.", "torch.jit.", "torch.utils.", "torch.nn."),
    *("torch.from_numpy", "torch.as_tensor", "torch.frombuffer", "torch.distributed."),
    *("torch.device", "torch.set_", "torch.random", "torch.get_"),
)
# The host's generator draws it, or numbers come one by one from somewhere.
_OTHERWISE = re.compile(
    r"^torch\.(rand|normal|bernoulli|multinomial|Generator|manual|tensor)"
)
_READS = frozenset(
    "to cuda cpu numpy type_as new pin_memory item tolist copy_ random_ normal_ "
    "uniform_ bernoulli_ exponential_".split()
)
# Of a function that keeps what it made, that the device would fill far slower, or that
# says itself where its tensors are.
_NOT_PLAIN = (
    *(ast.Global, ast.Nonlocal, ast.Lambda, ast.With, ast.Yield, ast.YieldFrom),
    *(ast.Await, ast.Try, *LOOPS, *COMPREHENSIONS),
)


class HelperCreation(NamedTuple):
    """A `call` of the `function` that makes a tensor, and where that is `sent`."""

    call: ast.Call
    function: Function
    sent: ast.Call


def helper_creations(script: Script) -> Iterator[HelperCreation]:
    """All of a file, in the order in which they are sent to a device."""
    for sent in script.index.all(ast.Call):
        func = sent.func
        if not isinstance(func, ast.Attribute) or func.attr not in _SENDS:
            continue
        call = _asked(func.value)
        function = script.resolver.calls.callee(call) if call is not None else None
        if call is None or function is None or not _goes_to_device(script, sent):
            continue
        if any(isinstance(a, ast.With) for a in script.index.ancestors(call)):
            continue  # it may say where tensors are made
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        if not given or not all(_is_size(script, value) for value in given):
            continue
        if _makes_from_sizes(script, function, MAX_DEPTH):
            yield HelperCreation(call, function, sent)


def _asked(node: ast.expr) -> ast.Call | None:
    """The call that an expression goes back to, by views."""
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr not in KEEPING_METHODS:
                return node
            node = node.func.value
        else:
            return node if isinstance(node, ast.Call) else None


def _goes_to_device(script: Script, sent: ast.Call) -> bool:
    """Whether a call may send a tensor to a GPU, or to where one on it is."""
    move = script.devices.move(sent)
    if move is not None:
        return move.target not in NOT_CUDA and not is_of_host(script, move.device)
    named = sent.func.attr if isinstance(sent.func, ast.Attribute) else ""
    like = sent.args[0] if named == "type_as" and len(sent.args) == 1 else None
    return like is not None and not script.where(like).host and has_device(script)


def _is_size(script: Script, node: ast.expr, depth: int = MAX_DEPTH) -> bool:
    """Whether a value is a number that is written, or a size: `x.shape[0]`."""
    if isinstance(node, ast.Constant):
        return not isinstance(node.value, str)
    if isinstance(node, (ast.Tuple, ast.List)):
        return all(_is_size(script, part, depth) for part in node.elts)
    if isinstance(node, ast.BinOp):
        sides = (node.left, node.right)
        return all(_is_size(script, side, depth) for side in sides)
    if isinstance(node, ast.UnaryOp):
        return _is_size(script, node.operand, depth)
    if isinstance(node, ast.Subscript):
        return _is_size(script, node.value, depth)
    if isinstance(node, ast.Attribute):
        return node.attr == "shape"
    if isinstance(node, ast.Call):
        func = node.func
        sized = isinstance(func, ast.Attribute) and func.attr == "size"
        return sized or (getattr(func, "id", "") == "len" and len(node.args) == 1)
    if not isinstance(node, ast.Name) or not depth:
        return False
    reached = script.definitions(node)
    return bool(reached) and all(
        d.kind == "assign"
        and d.value is not None
        and _is_size(script, d.value, depth - 1)
        for d in reached
    )


def _makes_from_sizes(script: Script, function: Function, depth: int) -> bool:
    """Whether a function fills a tensor and computes with that and with sizes alone.

    It reads nothing that is not its own, names no device, and goes through nothing
    element by element.
    """
    its = script.of(function)
    args = function.args
    own = {a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)}
    if function.decorator_list or args.vararg or args.kwarg or "device" in own:
        return False
    if isinstance(its.index.parent(function), ast.ClassDef):
        return False  # it may read what its object holds
    defaults = [d for d in (*args.defaults, *args.kw_defaults) if d is not None]
    if not all(_is_size(its, default) for default in defaults):
        return False
    nodes = list(walk_scope(function))
    if any(isinstance(node, _NOT_PLAIN) for node in nodes):
        return False
    if any(
        isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
        for node in nodes
    ):
        return False
    if not all(_is_own(its, node, own) for node in nodes if isinstance(node, ast.Name)):
        return False
    fills = False
    for call in (node for node in nodes if isinstance(node, ast.Call)):
        name = its.index.qualified(call.func) or ""
        given = {keyword.arg for keyword in call.keywords}
        if given & {"device", "generator", "pin_memory", "out", None}:
            return False
        if name.startswith(_NOT_MADE) or _OTHERWISE.match(name):
            return False
        if name in FACTORIES:
            fills = True
        elif not _only_computes(its, call, name):
            inner = its.resolver.calls.callee(call) if depth else None
            if inner is None or not _makes_from_sizes(its, inner, depth - 1):
                return False
            fills = True
    given_back = its.resolver.flow(function).returns
    return fills and all(
        value is not None
        and its.where(value) is not Where.PLAIN
        and Where.DEVICE not in its.where(value)
        for value in given_back
    )


def _is_own(script: Script, name: ast.Name, own: set[str]) -> bool:
    """Whether a name is local, imported, a function, a constant or Python's own."""
    if name.id in own or not isinstance(name.ctx, ast.Load):
        return True
    reached = script.definitions(name)
    if not reached:
        return name.id in _BUILTINS
    scope = script.index.scope(name)
    return all(
        d.kind in ("import", "function")
        or script.index.scope(d.node) is scope
        or isinstance(d.value, ast.Constant)
        for d in reached
    )


def _only_computes(script: Script, call: ast.Call, name: str) -> bool:
    """`torch.stack(…)`, `range(n)`, `x.float()`, `rows.append(x)`."""
    if name in _BUILTINS or name.startswith(_MODULES):
        return True
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr in _READS:
        return False
    if not isinstance(func.value, ast.Name):
        return dotted(func.value) is None  # of what another call has made
    return not any(d.kind == "import" for d in script.definitions(func.value)) and (
        script.resolver.calls.callee(call) is None
    )
