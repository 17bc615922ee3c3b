"""Expressions that need the number itself: `x.item()`, `float(x)`, a test, a print."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import Target, Where
from gpulint.index.walk import dotted, is_text
from gpulint.script.every_step import Part, is_latch
from gpulint.script.training.losses import differentiated
from gpulint.script.waiting.located import moves_anything, moves_batch, on_device
from gpulint.script.waiting.members import SAME_PLACE
from gpulint.script.waiting.meters import is_of_meter

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

READS = frozenset("item tolist cpu".split())  # `numpy` of a GPU's tensor raises
# Methods that make one number of a tensor.
REDUCES = frozenset("max min amax amin sum mean any all".split())
_SCALARS = frozenset("float int bool str repr format math.isnan math.isfinite".split())
_COMPARES = ("max", "min")  # Python's own: a wait for each two
_PAIRS = ("items", "keys")  # whose names are compared first
_LOGS = frozenset("add_scalar add_scalars add_histogram set_postfix".split())
_TENSOR_TESTS = frozenset("torch.equal torch.allclose torch.is_nonzero".split())
_TRUTHS = frozenset("any all isnan isinf isfinite gt lt ge le eq ne".split())


def waiting_in(
    script: Script, part: Part, loop: Loop
) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Pairs of the waiting expression and what it waits for."""
    node = part.node
    if isinstance(node, ast.Call):
        for value in _called(script, node, loop):
            if _is_no_tensor(script, part, value):
                continue
            if _is_there(script, value, loop):
                yield node, value
                return
        yield from _tested(script, part, loop)
    elif isinstance(node, ast.FormattedValue):
        shown = node.value
        if not _is_no_tensor(script, part, shown) and on_device(script, shown, loop):
            yield shown, shown
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        if is_text(node.left):
            right = node.right
            values = right.elts if isinstance(right, ast.Tuple) else [right]
            for value in values:
                if on_device(script, value, loop):
                    yield node, value
                    return
    else:
        yield from _tested(script, part, loop)


def _is_there(script: Script, value: ast.expr, loop: Loop) -> bool:
    """Whether a value that a call reads is on the device."""
    return (
        on_device(script, value, loop)
        or _is_beside_loss(script, value, loop)
        or is_of_meter(script, value, loop)
    )


def _is_no_tensor(script: Script, part: Part, value: ast.expr) -> bool:
    """Whether a value stands behind a test that says it is something else.

    `if isinstance(value, str):`, or in the `else` of one for tensors. Also where it is
    the greatest of such: `longest` of `longest = max(lengths)`.
    """
    root = value
    while isinstance(root, (ast.Subscript, ast.Attribute)):
        root = root.value
    roots = {ast.dump(whole) for whole in (root, *_greatest_of(script, root))}
    for branch, holds in part.branches:
        test = branch.test if isinstance(branch, (ast.If, ast.IfExp)) else None
        if not isinstance(test, ast.Call) or not test.args:
            continue
        asks = dotted(test.func) or ""
        if ast.dump(test.args[0]) not in roots:
            continue
        if asks == "isinstance" and len(test.args) == 2:
            if holds != ("Tensor" in ast.unparse(test.args[1])):
                return True
        elif asks == "torch.is_tensor" and not holds:
            return True
    return False


def _greatest_of(script: Script, name: ast.expr) -> list[ast.expr]:
    """What a name is the greatest or least of, wherever it is given a value."""
    reached = script.definitions(name) if isinstance(name, ast.Name) else ()
    given = [d.value for d in reached if d.kind == "assign"]
    calls = [
        v for v in given if isinstance(v, ast.Call) and dotted(v.func) in _COMPARES
    ]
    return [c.args[0] for c in calls if c.args] if len(calls) == len(given) else []


def _called(script: Script, call: ast.Call, loop: Loop) -> Iterator[ast.expr]:
    """The values that a call would wait for, if they are on the device."""
    func = call.func
    name = script.index.qualified(func) or ""
    last = func.attr if isinstance(func, ast.Attribute) else ""
    if isinstance(func, ast.Attribute) and last in READS and not call.args:
        if last == "item":
            yield bare(func.value)
        elif not loop.eval and not read_on(script, call):
            yield func.value  # an evaluation collects its outputs on the host
        return
    move = script.devices.move(call)
    if move is not None:
        asked = move.non_blocking  # whether the copy is only queued
        waits = asked is None or (isinstance(asked, ast.Constant) and not asked.value)
        if move.target is Target.CPU and waits and not loop.eval:
            yield move.receiver
        return
    if name in _COMPARES and not call.keywords:
        yield from (v for v in call.args if _method(v) not in _PAIRS)
    elif (
        name in _SCALARS or name == "print" or name in _TENSOR_TESTS or last == "format"
    ):
        yield from map(bare, call.args)
        yield from (k.value for k in call.keywords)
    elif last in _LOGS or name == "wandb.log":
        for given in [*call.args, *(k.value for k in call.keywords)]:
            yield from (
                (v for v in given.values) if isinstance(given, ast.Dict) else [given]
            )


def _method(node: ast.expr) -> str:
    """The name of the method that a call runs."""
    func = node.func if isinstance(node, ast.Call) else None
    return func.attr if isinstance(func, ast.Attribute) else ""


def bare(value: ast.expr) -> ast.expr:
    """A value without `.detach()`, `.cpu()` and `.data` at its end."""
    while True:
        if isinstance(value, ast.Attribute) and value.attr == "data":
            value = value.value
        elif (
            isinstance(value, ast.Call)
            and isinstance(value.func, ast.Attribute)
            and value.func.attr in ("detach", "cpu")
            and not value.args
        ):
            value = value.func.value
        else:
            return value


def read_on(script: Script, call: ast.Call) -> bool:
    """`x.cpu()` in `x.cpu().item()` and `float(x.cpu())`, which count as one wait.

    Also by way of `.data` and `.detach()`.
    """
    parent = script.index.parent(call)
    while isinstance(parent, ast.Attribute) and parent.attr in ("data", "detach"):
        above = script.index.parent(parent)
        detached = parent.attr == "detach" and above is not None
        parent = script.index.parent(above) if detached and above else above
    if isinstance(parent, ast.Attribute):
        return parent.attr == "item"
    if not isinstance(parent, ast.Call) or call not in parent.args:
        return False
    return dotted(parent.func) in ("float", "int", "bool")


def _tested(
    script: Script, part: Part, loop: Loop
) -> Iterator[tuple[ast.expr, ast.expr]]:
    """A truth value of a tensor: `if loss > best:`, `assert x.isfinite().all()`."""
    node = part.node
    parent = script.index.parent(node)
    if not isinstance(node, ast.expr) or not isinstance(
        parent, (ast.If, ast.While, ast.Assert, ast.IfExp)
    ):
        return
    if getattr(parent, "test", None) is node:
        for value in _operands(node, parent):
            compared = value.left if isinstance(value, ast.Compare) else value
            if not _is_truth(script, value) or _is_no_tensor(script, part, compared):
                continue
            if any(on_device(script, v, loop) for v in (value, _judged(script, value))):
                yield value, value
                return


def _judged(script: Script, value: ast.expr) -> ast.expr:
    """The `loss` of `torch.isnan(loss).any()` and `loss.isnan()`."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr not in _TRUTHS:
            break
        of_torch = script.index.qualified(value.func) == f"torch.{value.func.attr}"
        if of_torch and not value.args:
            break
        value = value.args[0] if of_torch else value.func.value
    return value


def _operands(test: ast.expr, above: ast.AST | None) -> Iterator[ast.expr]:
    """The values that a test asks in every step."""
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _operands(value, None)
            if is_latch(test, value, above):
                return
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _operands(test.operand, None)
    else:
        yield test


def _is_truth(script: Script, node: ast.expr) -> bool:
    """Whether a test is a tensor of one truth value, not a container or a flag."""
    if isinstance(node, ast.Compare):
        counts = isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.Mod)
        compared = [node.left, *node.comparators]
        counts = counts or any(map(_is_length, compared))
        none = any(isinstance(c, ast.Constant) and c.value is None for c in compared)
        texts = any(map(is_text, compared))
        return not (counts or none or texts or _compares_metadata(node))
    if isinstance(node, ast.Call):
        name = script.index.qualified(node.func) or ""
        return name.rpartition(".")[2] in _TRUTHS or (
            isinstance(node.func, ast.Attribute) and node.func.attr in _TRUTHS
        )
    if isinstance(node, ast.Name):
        values = [d.value for d in script.definitions(node)]
        return bool(values) and all(
            isinstance(v, (ast.Compare, ast.Call)) and _is_truth(script, v)
            for v in values
        )
    return False


def _compares_metadata(node: ast.Compare) -> bool:
    """`block.properties == other.properties`: names that objects have of their tensors.

    Tensors are seldom asked so, as those of more than one element have no truth.
    """
    sides = (node.left, node.comparators[0])
    return isinstance(node.ops[0], (ast.Eq, ast.NotEq)) and all(
        isinstance(side, ast.Attribute) and side.attr not in ("data", "grad")
        for side in sides
    )


def _is_length(node: ast.expr) -> bool:
    """`len(tokens)`: what is compared with it is a number as well."""
    return isinstance(node, ast.Call) and dotted(node.func) == "len"


def _is_beside_loss(script: Script, value: ast.expr, loop: Loop) -> bool:
    """`parts.mean()` or `parts.item()`, where one call gives `loss` and `parts`.

    Most likely a tensor, as the loss is: enough to say that it waits, not to take it
    for one, as `numpy.mean(…)` has the same methods.
    """
    above = script.index.parent(value)
    name = value
    while isinstance(name, ast.Call) and isinstance(name.func, ast.Attribute):
        if name.func.attr not in SAME_PLACE:
            return False
        name = name.func.value
    reads = isinstance(above, ast.Attribute) and above.attr == "item"
    if (name is value and not reads) or script.where(value) != Where.UNKNOWN:
        return False
    if not (moves_batch(script, loop) or moves_anything(script, loop)):
        return False
    beside = {
        its.value
        for call in loop.backward
        for its in differentiated(script, call)
        if its.path
    }
    return any(its.path and its.value in beside for its in script.definitions(name))
