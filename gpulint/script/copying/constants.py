"""Host tensors and arrays that a step gets again each time, and copies again."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import NOT_CUDA, FileIndex, Move, Target
from gpulint.index.tensor_names import (
    KEEPING_METHODS,
    PLAIN_ATTRIBUTES,
    PLAIN_METHODS,
)
from gpulint.index.walk import dotted
from gpulint.script.copying.arrivals import sent_like
from gpulint.script.copying.named_devices import is_of_host
from gpulint.script.neighbours import run_together

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

# What makes a tensor of an array or a list, with the values that this has.
_CONVERSIONS = frozenset(
    f"torch.{n}"
    for n in (
        "tensor as_tensor from_numpy asarray Tensor FloatTensor LongTensor IntTensor "
        "DoubleTensor BoolTensor autograd.Variable"
    ).split()
)
# Functions whose result may share memory with their first argument.
KEEPS_MEMORY = frozenset(
    "from_numpy as_tensor asarray Variable asanyarray ascontiguousarray reshape ravel "
    "squeeze unsqueeze transpose permute flatten narrow select broadcast_to view "
    "atleast_1d atleast_2d moveaxis movedim swapaxes expand_dims require "
    "split chunk unbind array_split".split()
)
_SENDS = frozenset("to cuda type_as".split())
# Of torch and NumPy, what changes an argument.
_CHANGES = frozenset("copyto put place putmask fill_diagonal shuffle at".split())
_ONLY_READ = frozenset(
    "len print sum max min zip enumerate range str float int list tuple sorted".split()
)
_WITH_DEVICE = frozenset(f"torch.{n}" for n in "tensor as_tensor asarray".split())


def is_constant(script: Script, node: ast.expr) -> bool:
    """Whether a host tensor is made from numbers, without a gradient."""
    return script.where(node).host and script.invariants.is_host_constant(node)


def is_made_here(script: Script, call: ast.Call, receiver: ast.expr) -> bool:
    """Whether a function makes what it moves: it is another one in each call."""
    scope = script.index.scope(call)
    return isinstance(receiver, ast.Name) and any(
        d.kind != "parameter" and script.index.scope(d.node) is scope
        for d in script.definitions(receiver)
    )


def same_in_calls(script: Script, node: ast.expr) -> bool:
    """Whether a step function gets the same tensor in every step."""
    if isinstance(node, ast.Attribute):
        return script.invariants.is_constant_attribute(node)
    definitions = script.definitions(node)
    assert isinstance(node, ast.Name)
    if all(d.kind == "assign" for d in definitions):
        return script.invariants.is_constant_name(node.id, definitions)
    function = script.index.function(node)
    if function is None or any(d.kind != "parameter" for d in definitions):
        return False
    given = script.resolver.calls.arguments(function, node.id)
    return bool(given) and all(_same_argument(script, a) for a in given or ())


def _same_argument(script: Script, node: ast.expr) -> bool:
    loops = [x for x in script.loops_around(node) if x.train or x.eval]
    return bool(loops) and is_constant(script, node) and all(
        script.invariants.holds(node, loop) for loop in loops[:1]
    )  # fmt: skip


# Copies of what is made of a constant


def constant_copies(script: Script) -> Iterator[tuple[Move, ast.stmt]]:
    """Copies in a step of a tensor that is made there of a constant.

    `torch.from_numpy(self.mask).to(device)`, `torch.tensor(TABLE, device=device)` or
    `self.bands[None].to(x)`, with the loop or the function that it calls. The receiver
    of the move is the constant.
    """
    for call in script.index.all(ast.Call):
        move = _copy(script, call)
        if move is None or not _is_array(script, move.receiver):
            continue
        if not isinstance(move.receiver, (ast.Name, ast.Attribute)):
            continue
        loops = (x for x in script.loops_around(call) if x.train or x.eval)
        loop = next(loops, None)
        if not _stays(script, move, loop):
            continue
        runner = script.runners.of(call)
        if runner is None or is_of_host(script, move.device):
            continue
        if _is_left_alone(script, move.receiver):
            yield move, runner if loop is None else loop.node


def _stays(script: Script, move: Move, loop: Loop | None) -> bool:
    """Whether it is the same one as long as a loop runs, or in every call."""
    if loop is not None:
        return script.invariants.holds(move.receiver, loop)
    made_here = is_made_here(script, move.call, move.receiver)
    return not made_here and same_in_calls(script, move.receiver)


def _copy(script: Script, call: ast.Call) -> Move | None:
    """The move of a constant that a call is, through what is made of it."""
    func = call.func
    if isinstance(func, ast.Attribute) and func.attr in _SENDS:
        move = script.devices.move(call)
        if move is not None and dotted(func.value) is not None:
            return None  # nothing is made of it
        constant = _made_of(script, func.value)
        if constant is None:
            return None
        if move is not None:
            known = move.target not in NOT_CUDA
            return move._replace(receiver=constant) if known else None
        like = sent_like(script, call)
        return Move(call, constant, like, Target.ANY, None, True) if like else None
    given = {k.arg: k.value for k in call.keywords}
    device = given.get("device")
    if device is None or script.index.qualified(func) not in _WITH_DEVICE:
        return None
    constant = _made_of(script, call)
    target = script.devices.target(device) if constant is not None else Target.UNKNOWN
    if constant is None or target in (Target.UNKNOWN, Target.NOT_A_DEVICE, *NOT_CUDA):
        return None
    return Move(call, constant, device, target, None, "dtype" in given)


def _made_of(script: Script, node: ast.expr) -> ast.Name | ast.Attribute | None:
    """The name or attribute that an expression is a view or a conversion of."""
    while not isinstance(node, (ast.Name, ast.Attribute)):
        if isinstance(node, ast.Subscript) and _is_whole(node.slice):
            node = node.value
        elif not isinstance(node, ast.Call):
            return None
        elif script.index.qualified(node.func) in _CONVERSIONS:
            if len(node.args) != 1 or any(
                k.arg in ("requires_grad", None) for k in node.keywords
            ):
                return None
            node = node.args[0]
        elif isinstance(node.func, ast.Attribute) and node.func.attr in KEEPING_METHODS:
            node = node.func.value
        else:
            return None
    return node if dotted(node) is not None else None


def _is_whole(index: ast.expr) -> bool:
    """`[None]`, `[:, None]`, `[...]`: an index that leaves nothing out."""
    if isinstance(index, ast.Tuple):
        return all(map(_is_whole, index.elts))
    if isinstance(index, ast.Slice):
        return index.lower is index.upper is index.step is None
    return isinstance(index, ast.Constant) and index.value in (None, ...)


def _is_array(script: Script, node: ast.expr) -> bool:
    """Whether it is a host tensor, an array or a list of constants, on each path."""
    if not script.invariants.is_host_constant(node):
        return False
    return script.where(node).host or all(
        isinstance(o.node, (ast.List, ast.Tuple)) and o.node.elts
        for o in script.resolver.origins(node)
    )


# Whether anything may change it in place


def _is_left_alone(script: Script, node: ast.Name | ast.Attribute) -> bool:
    """Whether a constant is made for its name alone, and only read under that.

    By its own file and those that run with it: who is handed it, keeps it or gives it
    another name may change it.
    """
    function, owner = script.index.function(node), script.index.owner(node)
    if isinstance(node, ast.Name):
        definitions, name = list(script.definitions(node)), node.id
    elif function is None or owner is None:
        return False
    elif dotted(node.value) != script.resolver.self_name(function):
        return False  # of an object that others hold as well
    else:
        definitions = script.resolver.classes.member(owner, node.attr)
        name = node.attr
    if not definitions or not all(
        d.kind == "assign" and not d.path and _is_made_anew(script, d.value)
        for d in definitions
    ):
        return False
    for index in run_together(script):
        for read in index.reads.get(name, ()):
            if isinstance(read, ast.Name) and index is script.index:
                reached = script.definitions(read)
                if not any(d in reached for d in definitions):
                    continue
            elif isinstance(read, ast.Name) and name not in index.imports:
                continue
            if not _is_just_read(index, read):
                return False
    return True


def _is_made_anew(script: Script, value: ast.expr | None) -> bool:
    """`np.zeros(3)`, `[1.0, 2.0]`, `2 ** x`: nothing else has its memory."""
    if isinstance(value, (ast.List, ast.Tuple, ast.BinOp, ast.UnaryOp)):
        return True
    if isinstance(value, ast.Subscript):
        return _is_made_anew(script, value.value)
    if not isinstance(value, ast.Call):
        return False
    name = script.index.home(value).qualified(value.func) or ""
    if name.startswith(("torch.", "numpy.")):
        shares = name.rpartition(".")[2] in KEEPS_MEMORY
        return not shares or any(_is_made_anew(script, a) for a in value.args[:1])
    func = value.func
    return isinstance(func, ast.Attribute) and _is_made_anew(script, func.value)


def _is_just_read(index: FileIndex, node: ast.AST) -> bool:
    """Whether an expression's value is read, and nobody can change it by that."""
    above = index.parent(node)
    call = index.parent(above) if isinstance(above, ast.keyword) else above
    if isinstance(above, ast.Attribute):
        called = index.parent(above)
        if not isinstance(called, ast.Call) or called.func is not above:
            return above.attr in PLAIN_ATTRIBUTES
        if above.attr in KEEPING_METHODS:
            return _is_just_read(index, called)
        return above.attr in _SENDS or above.attr in PLAIN_METHODS
    if isinstance(above, ast.Subscript):
        read = isinstance(above.ctx, ast.Load) and _is_just_read(index, above)
        return above.slice is node or read
    if isinstance(above, ast.keyword) and above.arg == "out":
        return False
    if isinstance(call, ast.Call) and call.func is not node:
        name = index.qualified(call.func) or ""
        last = name.rpartition(".")[2]
        if name.startswith(("torch.", "numpy.")) and last not in _CHANGES:
            return last not in KEEPS_MEMORY or _is_just_read(index, call)
        return name in _ONLY_READ
    computed = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.FormattedValue)
    if isinstance(above, (ast.For, ast.comprehension)):
        return above.iter is node
    if isinstance(above, ast.AugAssign):
        return above.value is node
    return isinstance(above, computed)
