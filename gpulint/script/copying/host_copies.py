"""Copies to the host that the script reads before they are complete."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Definition, Function, Move, Target, Where
from gpulint.index.build import last_name
from gpulint.index.flow import enclosing_function
from gpulint.index.walk import COMPREHENSIONS, dotted, walk
from gpulint.script.reads import SHARES

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_DEPTH = 5
_READERS = frozenset(
    "float int bool str repr print sum max min sorted format math.isnan".split()
)
_ADDS = frozenset("append extend add appendleft".split())
# Methods of lists that look at no element; tensors have none of these names.
_OF_LISTS = frozenset("append extend insert appendleft pop popleft clear copy".split())
_FETCHES = frozenset("item tolist cpu numpy".split())
_WAITS = frozenset("synchronize barrier query wait".split())
_PLAIN = frozenset(
    "shape dtype device ndim is_cuda requires_grad size numel dim is_contiguous "
    "is_pinned stride data_ptr element_size nelement requires_grad_ storage".split()
)
_ON_THE_DEVICE = frozenset("to cuda type record_stream".split())  # in its own order
_ASK = frozenset(
    "torch.is_tensor torch.numel numpy.shape numpy.ndim torch.empty_like "
    "torch.zeros_like torch.ones_like numpy.empty_like numpy.zeros_like".split()
)
# They may give a tensor that shares memory with their argument.
_SHARING = frozenset("torch.as_tensor torch.from_numpy numpy.asarray".split())
# Packages, and functions that ask for them, which are of use on CUDA alone.
_ON_CUDA_ALONE = re.compile(r"deepspeed|vllm|sglang|megatron|nccl|flash_attn|apex")


class EarlyRead(NamedTuple):
    """A copy to the host, and the first read that may come before it is complete."""

    move: Move
    read: ast.AST


def find_early_reads(script: Script) -> Iterator[EarlyRead]:
    """All of them, in source order."""
    for move in script.moves:
        if move.target is not Target.CPU or not is_set(script, move):
            continue
        where = script.where(move.receiver)
        may_be_there = where & (Where.DEVICE | Where.UNKNOWN)
        if not may_be_there or script.modules.is_module(move.receiver):
            continue
        if _is_for_a_stream(script, move) or _is_for_others(script, move):
            continue
        reads = [r for r in _reads(script, move.call, 0) if _follows(r, move.call)]
        for read in sorted(reads, key=_end):
            if not _is_complete(script, move, read):
                yield EarlyRead(move, read)
                break


def is_set(script: Script, move: Move) -> bool:
    """Whether a move is surely given `non_blocking=True`."""
    given = move.non_blocking
    return given is not None and script.evaluator.values(given).all_in(True)


def _is_for_others(script: Script, move: Move) -> bool:
    """Whether the device is a parameter of a function that other code may call."""
    device = move.device
    if not isinstance(device, ast.Name):
        return False
    given = [d for d in script.definitions(device) if d.kind == "parameter"]
    functions = (enclosing_function(script.index, d) for d in given)
    return any(
        isinstance(function, Function) and script.evaluator.outside.handed_on(function)
        for function in functions
    )


# Where the values are read


def _reads(script: Script, value: ast.AST, depth: int) -> Iterator[ast.AST]:
    """Where the values of a tensor, or of a list of tensors, are surely read."""
    above = script.index.parent(value)
    if depth > MAX_DEPTH or above is None:
        return
    if isinstance(above, ast.Attribute):
        yield from _of_member(script, above, depth)
    elif isinstance(above, ast.Subscript):
        if above.value is value and isinstance(above.ctx, ast.Load):
            yield from _reads(script, above, depth)
    elif isinstance(above, (ast.BinOp, ast.UnaryOp, ast.FormattedValue)):
        yield above
    elif isinstance(above, ast.Compare):
        if script.where(above) != Where.PLAIN:
            yield above
    elif isinstance(above, ast.Call) and value in above.args:
        yield from _of_argument(script, above, depth)
    elif isinstance(above, ast.Assign):
        for definition in _bound(script, above):
            for use in script.uses(definition):
                yield from _reads(script, use, depth + 1)
    elif _lists(above, value):
        yield from _reads(script, above, depth)


def _lists(above: ast.AST, value: ast.AST) -> bool:
    """Whether a value is an element of a list or dict that is made here."""
    if isinstance(above, COMPREHENSIONS):
        return value in (getattr(above, "elt", None), getattr(above, "value", None))
    return isinstance(above, (ast.List, ast.Tuple))


def _of_member(script: Script, member: ast.Attribute, depth: int) -> Iterator[ast.AST]:
    call = script.index.parent(member)
    called = isinstance(call, ast.Call) and call.func is member
    if member.attr in _PLAIN | _ON_THE_DEVICE | _OF_LISTS:
        return
    if member.attr in SHARES - {"numpy"}:
        assert call is not None
        yield from _reads(script, call if called else member, depth)
    elif called and script.where(member.value).host:
        yield call  # type: ignore[misc]


def _of_argument(script: Script, call: ast.Call, depth: int) -> Iterator[ast.AST]:
    name = script.index.qualified(call.func) or ""
    func = call.func
    if isinstance(func, ast.Attribute) and func.attr in _ADDS:
        if isinstance(func.value, ast.Name):
            for use in _later_uses(script, func.value):
                yield from _reads(script, use, depth + 1)
    elif name in _SHARING:
        yield from _reads(script, call, depth)
    elif name in _READERS or (
        name.startswith(("torch.", "numpy.")) and name not in _ASK
    ):
        yield call


def _bound(script: Script, assign: ast.Assign) -> Iterator[Definition]:
    """The definitions of plain names that an assignment makes."""
    flow = script.resolver.flow(script.index.scope(assign))
    for target in assign.targets:
        if isinstance(target, ast.Name):
            its = flow.definitions.get(target.id, ())
            yield from (d for d in its if d.node is target)


def _later_uses(script: Script, name: ast.Name) -> Iterator[ast.AST]:
    """Other uses of a list that a value is appended to."""
    mine = set(script.definitions(name))
    flow = script.resolver.flow(script.index.scope(name))
    for use, reached in flow.uses.items():
        if use is not name and not mine.isdisjoint(reached):
            yield use


# What waits in between


def _is_for_a_stream(script: Script, move: Move) -> bool:
    """Whether its function knows of other streams, whose user waits for them."""
    names = map(last_name, _calls(script.index.scope(move.call)))
    return "record_stream" in names


def _calls(scope: ast.AST) -> Iterator[ast.Call]:
    return (node for node in walk(scope) if isinstance(node, ast.Call))


def _is_complete(script: Script, move: Move, read: ast.AST) -> bool:
    """Whether something between a copy and a read waits for the device."""
    scope = script.index.scope(move.call)
    return any(
        _follows(node, move.call) and _end(node) < _end(read)
        for node in _calls(scope)
        if node is not read and _waits(script, node)
    )


def _waits(script: Script, call: ast.Call, depth: int = 0) -> bool:
    func = call.func
    last = func.attr if isinstance(func, ast.Attribute) else dotted(func) or ""
    if last in _WAITS or "synchronize" in last:
        return True
    if isinstance(func, ast.Attribute) and last in _FETCHES and not call.args:
        return not script.where(func.value).host
    move = script.devices.move(call)
    if move is not None:
        return move.target is Target.CPU and not is_set(script, move)
    if last in ("float", "int", "bool", "print"):
        return any(script.where(a).device for a in call.args)
    function = script.resolver.calls.callee(call) if depth < MAX_DEPTH else None
    return function is not None and any(
        isinstance(node, ast.Call) and _waits(script, node, depth + 1)
        for node in walk(*function.body)
    )


def _follows(node: ast.AST, call: ast.Call) -> bool:
    """Whether a node is done after a call, in the order of the source."""
    return _end(node) > _end(call)


def _end(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "end_lineno", 0), getattr(node, "end_col_offset", 0)


# Other copies that gain nothing by `non_blocking` or pinned memory


def find_unsafe_on_mps(script: Script) -> Iterator[list[Move]]:
    """Copies from the host to what is or may be Apple's MPS, by function."""
    found: dict[ast.AST, list[Move]] = {}
    for move in script.moves if "mps" in script.source.text else ():
        if move.device is None or not is_set(script, move):
            continue
        receiver = move.receiver
        if script.where(receiver).device or script.modules.is_module(receiver):
            continue
        if move.target is Target.MPS or "mps" in _kinds(script, move.device, 0):
            found.setdefault(script.index.scope(move.call), []).append(move)
    yield from found.values()


def works_on_cuda(script: Script) -> bool:
    """Whether a file is for CUDA, whatever its device may be called: `import vllm`."""
    taken = [*script.index.imported, *script.index.packages]
    return any(map(_ON_CUDA_ALONE.search, taken))


def _kinds(script: Script, device: ast.expr, depth: int) -> set[str]:
    """The kinds of device that an expression is seen to name."""
    found: set[str] = set()
    for origin in script.resolver.origins(device):
        call = origin.call
        name = script.index.qualified(call.func) if call is not None else None
        if call is not None and name == "torch.device" and call.args:
            if depth < MAX_DEPTH:
                found |= _kinds(script, call.args[0], depth + 1)
        elif isinstance(origin.node, ast.Constant):
            found.add(str(origin.node.value).partition(":")[0])
    return found


def find_pinned_for_nothing(script: Script) -> Iterator[list[Move]]:
    """`x.pin_memory().to(device)` in every step, by function."""
    found: dict[ast.AST, list[Move]] = {}
    for move in script.moves:
        if (
            _is_pinned(move.receiver)
            and move.non_blocking is None
            and move.target is not Target.CPU
            and script.runners.of(move.call) is not None
        ):
            found.setdefault(script.index.scope(move.call), []).append(move)
    yield from found.values()


def _is_pinned(node: ast.expr) -> bool:
    """`x.pin_memory()`"""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    given = [*node.args, *node.keywords]
    return node.func.attr == "pin_memory" and not given
