"""Tensors that a function of the project makes on the host, from numbers alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import NOT_CUDA, Function, Where
from gpulint.index.tensor_names import FACTORIES, KEEPING_METHODS
from gpulint.index.walk import dotted, walk, walk_scope
from gpulint.script.copying.arrivals import has_device
from gpulint.script.copying.named_devices import is_of_host

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_DEPTH = 2  # functions that a function calls to make a tensor
# What brings a tensor to a device, or to that of another one.
_SENDS = frozenset("to cuda type_as".split())
_BUILTINS = frozenset(
    "range len int float enumerate zip min max abs list tuple reversed sum map bool "
    "isinstance print round sorted slice".split()
)
_MODULES = ("torch.", "math.")
# Of torch, what reads or moves something, or goes on with what was there before.
_NOT_MADE = (
    *("torch.load", "torch.cuda.", "torch.jit.", "torch.utils.", "torch.nn."),
    *("torch.from_numpy", "torch.as_tensor", "torch.frombuffer", "torch.distributed."),
)
_MOVES = frozenset("to cuda cpu numpy type_as new pin_memory".split())


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
        call = _asked(script, func.value)
        function = script.resolver.calls.callee(call) if call is not None else None
        if call is None or function is None or not _goes_to_device(script, sent):
            continue
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        plain = all(script.where(value) is Where.PLAIN for value in given)
        if plain and _makes_from_numbers(script, function, MAX_DEPTH):
            yield HelperCreation(call, function, sent)


def _asked(script: Script, node: ast.expr) -> ast.Call | None:
    """The call that an expression goes back to, by views and one name."""
    named = False
    while True:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr not in KEEPING_METHODS:
                return node
            node = node.func.value
        elif isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Name) and not named:
            reached = script.definitions(node)
            its = reached[0] if len(reached) == 1 else None
            if its is None or its.kind != "assign" or its.path or its.value is None:
                return None
            if script.index.scope(its.node) is not script.index.scope(node):
                return None
            node, named = its.value, True
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


def _makes_from_numbers(script: Script, function: Function, depth: int) -> bool:
    """Whether a function fills a tensor and computes with that and with numbers alone.

    It reads nothing that is not its own, and names no device.
    """
    its = script.of(function)
    args = function.args
    if function.decorator_list or args.vararg or args.kwarg:
        return False
    if isinstance(its.index.parent(function), ast.ClassDef):
        return False  # it may read what its object holds
    defaults = [d for d in (*args.defaults, *args.kw_defaults) if d is not None]
    if any("device" in a.arg for a in (*args.args, *args.kwonlyargs)):
        return False
    if any(its.where(default) is not Where.PLAIN for default in defaults):
        return False
    nodes = list(walk_scope(function))
    if any(isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await)) for node in nodes):
        return False
    own = {a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)}
    if not all(_is_own(its, node, own) for node in nodes if isinstance(node, ast.Name)):
        return False
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    fills = False
    for call in calls:
        name = its.index.qualified(call.func) or ""
        if any(keyword.arg in ("device", None) for keyword in call.keywords):
            return False
        if name.startswith(_NOT_MADE):
            return False
        if name in FACTORIES:
            fills = True
        elif not _only_computes(its, call, name):
            inner = its.resolver.calls.callee(call) if depth else None
            if inner is None or not _makes_from_numbers(its, inner, depth - 1):
                return False
            fills = True
    given_back = its.resolver.flow(function).returns
    return fills and any(
        value is not None and its.where(value) is not Where.PLAIN
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
    if name in _BUILTINS:
        return True
    if name.startswith(_MODULES):
        return True
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr in _MOVES:
        return False
    head = next((n for n in walk(func.value) if isinstance(n, ast.Name)), None)
    return (
        dotted(func.value) is None
        or head is None
        or (
            not any(d.kind == "import" for d in script.definitions(head))
            and script.resolver.calls.callee(call) is None
        )
    )
