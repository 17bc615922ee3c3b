"""Columns of one host tensor that are moved to the device one by one."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpulint.index import NOT_CUDA, Move, Where
from gpulint.index.walk import COMPREHENSIONS, dotted, walk, whole_of
from gpulint.script.loading.loaders import in_loop

if TYPE_CHECKING:
    from gpulint.script.model import Script

# Methods that give the same values, in another shape or type.
SAME_VALUES = frozenset(
    "unsqueeze squeeze view reshape flatten t transpose permute contiguous detach "
    "clone float double half bfloat16 long int short bool type to expand".split()
)
_BATCH_NAME = re.compile(
    r"^(batch|data|x|inputs?|samples?|batch_?(data|x|input|inputs|samples?)|"
    r"(train|val|input|data|x)_?batch)$",
    re.IGNORECASE,
)
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)
_BRANCHES = (ast.IfExp, ast.BoolOp, ast.Lambda, *COMPREHENSIONS)


@dataclass(frozen=True, eq=False)
class Column:
    """One move of a slice: `tensor` is the sliced name where it stands in the move."""

    move: Move
    tensor: ast.expr
    index: ast.Tuple
    statement: ast.stmt


@dataclass(frozen=True, eq=False)
class Columns:
    """Slices of one host tensor that one block moves to one device, in order."""

    name: str
    moves: tuple[Column, ...]
    block: tuple[ast.stmt, ...]

    @property
    def first(self) -> Column:
        """The first move."""
        return self.moves[0]

    @property
    def statements(self) -> tuple[ast.stmt, ...]:
        """From the first statement that moves a slice to the last one."""
        first = self.block.index(self.first.statement)
        last = self.block.index(self.moves[-1].statement)
        return self.block[first : last + 1]

    @property
    def most(self) -> bool:
        """Whether the slices are known to be half of the tensor or more.

        A slice with an open end takes what is left. Without one there must be three
        columns, and none of an index so large that most columns are left out.
        """
        parts = [_part(c.index) for c in self.moves]
        if any(p is None for p in parts) or len({p[0] for p in parts if p}) != 1:
            return False
        elements = [p[1] for p in parts if p is not None]
        if any(isinstance(e, ast.Slice) and _open(e) for e in elements):
            return True
        taken: set[int] = set()
        for element in elements:
            taken |= _numbers(element)
        width = max(taken) + 1 + sum(number < 0 for number in taken)
        return len(taken) >= 3 and 2 * len(taken) >= width


def find_columns(script: Script) -> tuple[Columns, ...]:
    """All groups of two or more such moves that run again and again."""
    groups: dict[object, list[Column]] = defaultdict(list)
    blocks: dict[object, tuple[ast.stmt, ...]] = {}
    for call in script.move_calls:
        move = script.devices.move(call) if _may_be_sliced(call) else None
        column = _column(script, move) if move is not None else None
        if column is None:
            continue
        block = _block(script, column.statement)
        key = _key(script, column, block)
        groups[key].append(column)
        blocks[key] = block
    found = []
    for key, moves in groups.items():
        if len(moves) >= 2 and _on_host(script, moves[0].tensor):
            name = script.text(moves[0].tensor)
            found.append(Columns(name, tuple(moves), blocks[key]))
    return tuple(found)


def _key(script: Script, column: Column, block: tuple[ast.stmt, ...]) -> object:
    """Moves of one group have the same tensor, device and block."""
    move = column.move
    names = [n for n in walk(column.tensor) if isinstance(n, (ast.Name, ast.Attribute))]
    if move.device is not None:
        names += [n for n in walk(move.device) if isinstance(n, ast.Name)]
    reaching = tuple(
        tuple(sorted(id(d) for d in script.definitions(name))) for name in names
    )
    device = script.text(move.device) if move.device is not None else ""
    assert isinstance(move.call.func, ast.Attribute)
    tensor = ast.dump(column.tensor)
    return tensor, move.call.func.attr, device, id(block[0]), reaching


def _may_be_sliced(call: ast.Call) -> bool:
    """A cheap look at a move: is it one of `x[:, 0]`, perhaps cast?"""
    node: ast.expr = call
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple)


def _column(script: Script, move: Move) -> Column | None:
    """The slice that a move copies; None for anything but a constant slice."""
    if move.target in NOT_CUDA or not _plain_device(move.device):
        return None
    known = {"device", "dtype", "non_blocking"}
    if any(k.arg not in known for k in move.call.keywords):
        return None
    sliced = receiver(script, move.receiver)
    if not isinstance(sliced, ast.Subscript) or root_of(sliced.value) is None:
        return None
    if not isinstance(sliced.slice, ast.Tuple) or not _constant(sliced.slice):
        return None
    statement = script.index.statement(move.call)
    if not isinstance(statement, _SIMPLE) or _branched(script, move.call, statement):
        return None
    if _is_leaf(script, move.call):
        return None
    return Column(move, sliced.value, sliced.slice, statement)


def root_of(node: ast.expr) -> ast.Name | None:
    """The name of a chain such as `batch`, `self.table`, `batch["x"]`, `parts[0]`."""
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Subscript):
            key = node.slice
            if not isinstance(key, ast.Constant) or not isinstance(
                key.value, (int, str)
            ):
                return None
            node = node.value
        elif isinstance(node, ast.Attribute):
            node = node.value
        else:
            return None
    return node


def receiver(script: Script, node: ast.expr) -> ast.expr:
    """What a chain of casts and changes of shape is called on."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr not in SAME_VALUES or script.devices.move(node) is not None:
            break
        node = node.func.value
    return node


def _plain_device(device: ast.expr | None) -> bool:
    """Whether evaluating the device once is the same as for every column."""
    if isinstance(device, ast.Call):
        arguments = [*device.args, *(k.value for k in device.keywords)]
        made = dotted(device.func) in ("torch.device", "device")
        return made and all(isinstance(a, ast.Constant) for a in arguments)
    return (
        device is None or isinstance(device, ast.Constant) or dotted(device) is not None
    )


def _branched(script: Script, node: ast.AST, statement: ast.stmt) -> bool:
    """Whether an expression may not run, or run several times, in its statement."""
    for above in script.index.ancestors(node):
        if above is statement:
            return False
        if isinstance(above, _BRANCHES):
            return True
    return True


def _block(script: Script, statement: ast.stmt) -> tuple[ast.stmt, ...]:
    """The statements of the body in which a statement stands."""
    above = script.index.parent(statement)
    for name in ("body", "orelse", "finalbody"):
        body = getattr(above, name, None)
        if isinstance(body, list) and statement in body:
            return tuple(body)
    return (statement,)


# Slices


def _constant(index: ast.Tuple) -> bool:
    """Whether a tuple index has only numbers, slices of numbers, `...` and None."""
    bounds: list[ast.expr | None] = []
    for part in index.elts:
        bounds += [part.lower, part.upper, part.step] if _slices(part) else [part]  # type: ignore[attr-defined]
    for bound in bounds:
        if isinstance(bound, ast.UnaryOp) and isinstance(bound.op, ast.USub):
            bound = bound.operand
        if bound is None:
            continue
        if not isinstance(bound, ast.Constant) or isinstance(bound.value, bool):
            return False
        if not (
            bound.value is None or bound.value is ... or isinstance(bound.value, int)
        ):
            return False
    return _part(index) is not None or any(not _is_all(p) for p in index.elts)


def _slices(part: ast.expr) -> bool:
    return isinstance(part, ast.Slice)


def _is_all(part: ast.expr) -> bool:
    if isinstance(part, ast.Slice):
        return part.lower is part.upper is part.step is None
    return isinstance(part, ast.Constant) and (part.value is None or part.value is ...)


def _part(index: ast.Tuple) -> tuple[int, ast.expr] | None:
    """Axis (negative: counted from the end) and element of a one-axis slice."""
    chosen = [n for n, p in enumerate(index.elts) if not _is_all(p)]
    if len(chosen) != 1:
        return None
    number = chosen[0]
    before = index.elts[:number]
    if any(isinstance(p, ast.Constant) and p.value is None for p in index.elts):
        return None
    if any(isinstance(p, ast.Constant) for p in before):  # after `...`
        return number - len(index.elts), index.elts[number]
    return number, index.elts[number]


def _number(node: ast.expr | None) -> int | None:
    """A whole number, None for no or another expression."""
    try:
        value = ast.literal_eval(node) if node is not None else None
    except ValueError:
        return None
    return value if isinstance(value, int) else None


def _open(part: ast.Slice) -> bool:
    """Whether a slice takes all from a low start on, but for a few at the end."""
    upper = _number(part.upper)
    low = (_number(part.lower) or 0) in range(8)
    return low and part.step is None and (upper is None or upper < 0)


def _numbers(part: ast.expr) -> set[int]:
    if isinstance(part, ast.Slice):
        lower, upper = _number(part.lower) or 0, _number(part.upper) or 0
        return set(range(lower, min(upper, lower + 4096), _number(part.step) or 1))
    number = _number(part)
    return set() if number is None else {number}


# What the tensor is


def on_host(script: Script, node: ast.expr) -> bool:
    """Whether a tensor, or an attribute of a batch object, is on the host."""
    where = script.where(node)
    if where.host:
        return True
    root = whole_of(node)
    part = where is Where.UNKNOWN and root is not node
    return part and script.where(root).host and not _moved_in_place(script, root)


def _moved_in_place(script: Script, root: ast.expr) -> bool:
    """Whether a statement `data.to(device)` moves a batch object in place."""
    name = dotted(root)
    for node in walk(script.index.scope(root)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            move = script.devices.move(node.value)
            if move is not None and dotted(move.receiver) == name:
                return True
    return False


def _on_host(script: Script, tensor: ast.expr) -> bool:
    """Whether a tensor is on the host and sliced again and again."""
    function = script.index.function(tensor)
    resolver = script.resolver
    where = script.where(tensor)
    if on_host(script, tensor):
        return in_loop(resolver, tensor)
    if where is not Where.UNKNOWN or not isinstance(tensor, ast.Name) or not function:
        return False
    definitions = script.definitions(tensor)
    unknown = all(d.kind == "parameter" for d in definitions)
    if not definitions or not unknown or resolver.calls.callers(function):
        return False
    return bool(_BATCH_NAME.match(tensor.id)) and not _given_on_device(script, function)


def _given_on_device(script: Script, function: ast.AST) -> bool:
    """Whether a framework or model calls the function with tensors on the device."""
    owner = script.index.parent(function)
    if isinstance(owner, ast.ClassDef) and script.modules.is_module_class(owner):
        return True
    name = getattr(function, "name", "")
    return script.sends_modules or name in ("forward", "__call__", "loss_fn", "closure")


def _is_leaf(script: Script, call: ast.expr) -> bool:
    """Whether a column becomes a leaf that asks for gradients of the inputs."""
    node: ast.AST = call
    above = script.index.parent(node)
    while isinstance(above, (ast.Attribute, ast.Call)):
        if isinstance(above, ast.Attribute) and above.attr.startswith("requires_grad"):
            return True
        if any(k.arg == "requires_grad" for k in getattr(above, "keywords", ())):
            return True
        if isinstance(above, ast.Call) and above.func is not node:
            break
        node, above = above, script.index.parent(above)
    names = {dotted(t) for t in bound_to(script, node)}
    scope = script.index.scope(call)
    return any(
        isinstance(n, ast.Attribute)
        and n.attr.startswith("requires_grad")
        and not (n.attr == "requires_grad" and isinstance(n.ctx, ast.Load))
        and dotted(n.value) in names
        for n in walk(scope)
    )


def bound_to(script: Script, value: ast.AST) -> Iterator[ast.AST]:
    """Targets to which an assignment binds exactly this expression."""
    flow = script.resolver.flow(script.index.scope(value))
    for definitions in flow.definitions.values():
        for definition in definitions:
            if definition.value is value and definition.path == ():
                yield definition.node
