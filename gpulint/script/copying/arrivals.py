"""Where a tensor that a script makes from nothing on the host comes to the device."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import NOT_CUDA, Definition, Function, Move, Where
from gpulint.index.build import last_name
from gpulint.index.walk import COMPREHENSIONS, dotted, same, walk
from gpulint.script.copying.creations import (
    LIKE,
    RANDOM_LIKE,
    Creation,
    creation,
)
from gpulint.script.copying.named_devices import is_of_host
from gpulint.script.neighbours import run_together
from gpulint.script.set_before import precedes
from gpulint.script.training.training_step import block_of

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_NAMES = 3  # of one tensor, one after another
_SENDS = frozenset("to cuda type type_as".split())
_EXPRESSIONS = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Subscript, ast.Name)
# What is asked of a tensor without its values.
_ASKED = frozenset("shape size dim ndim numel dtype".split())
# What tensors have, and devices and types have not.
_OF_TENSORS = frozenset("shape size dim ndim numel device dtype".split())
_GUARDS = frozenset("isinstance is_tensor hasattr callable".split())
_READ_ALL = frozenset("locals vars eval exec globals".split())
_LEAVES = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)
# What is not evaluated, or not once, whenever the statement around it runs.
_PARTLY = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.NamedExpr, *COMPREHENSIONS)


class Arrival(NamedTuple):
    """A tensor that is made on the host, and the `call` by which it leaves that.

    `move` copies it to a device; without one it goes where the tensor `like` is, and
    becomes of its type. `names`: those that it has on the way, the last one first.
    """

    call: ast.Call
    made: Creation
    move: Move | None
    like: ast.expr | None
    names: tuple[Definition, ...] = ()


def arrivals(script: Script) -> Iterator[Arrival]:
    """All of a file, in the order of the calls."""
    for call in script.index.all(ast.Call):
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr not in _SENDS:
            continue
        names: list[Definition] = []
        made = _made(script, func.value, names)
        if made is None or any(script.devices.move(m) for m in made.methods):
            continue
        move, like = script.devices.move(call), None
        if move is None:
            like = sent_like(script, call)
        elif move.target in NOT_CUDA or is_of_host(script, move.device):
            continue
        arrival = Arrival(call, made, move, like, tuple(names))
        if not (move or like) or _is_there(arrival):
            continue
        if not names or _is_led_straight(script, arrival):
            yield arrival


def _made(script: Script, node: ast.expr, names: list[Definition]) -> Creation | None:
    """The creation that an expression is, also by way of names of the same function."""
    if not isinstance(node, _EXPRESSIONS):
        return None

    def named(name: ast.Name) -> ast.expr | None:
        reached = script.definitions(name) if len(names) < MAX_NAMES else ()
        its = reached[0] if len(reached) == 1 else None
        if its is None or its.kind != "assign" or its.path or its.value is None:
            return None
        statement = script.index.parent(its.node)
        alone = isinstance(statement, ast.Assign) and statement.targets == [its.node]
        if not alone or script.index.scope(its.node) is not script.index.scope(name):
            return None
        names.append(its)
        return its.value

    return creation(script, node, named)


def has_device(script: Script) -> bool:
    """Whether a file of the programs sends anything to a device: others are there."""
    return any(script.of(file.tree).uses_gpu for file in run_together(script))


# Other tensors


def sent_like(script: Script, call: ast.Call) -> ast.expr | None:
    """The tensor of `.to(x)`, `.type_as(x)` and `.type(x.type())`, on the device."""
    func = call.func
    if not isinstance(func, ast.Attribute) or call.keywords or len(call.args) != 1:
        return None
    given = call.args[0]
    if func.attr == "to":
        like = given if _is_tensor(script, given, call) else None
    elif func.attr == "type_as":
        like = given
    else:
        like = _typed(script, given) if func.attr == "type" else None
    if like is None or script.where(like).host or not has_device(script):
        return None
    return None if _is_batch(script, like) else like


def _is_batch(script: Script, node: ast.expr) -> bool:
    """Whether it is what `next(batches)` or `batches.next()` gives, moved nowhere.

    That a loader alone has it on the host may not be seen, for an iterator that a
    caller makes; one that sends batches ahead, or is not known, may have it there.
    """
    origins = script.resolver.origins(node)
    return bool(origins) and all(
        isinstance(origin.node, ast.Call) and last_name(origin.node) == "next"
        for origin in origins
    )


def _is_tensor(script: Script, node: ast.expr, call: ast.Call) -> bool:
    """Whether a name is a tensor: by where it is, or by what is asked of it before.

    In the same function, on every way there, and without looking what it is.
    """
    where = script.where(node)
    known = where & (Where.HOST | Where.DEVICE)
    if known and not where & (Where.UNKNOWN | Where.PLAIN):
        return True
    name = dotted(node)
    if name is None:
        return False
    inside = list(walk(script.index.scope(node)))
    tests = (c for c in inside if isinstance(c, ast.Call))
    if any(
        (dotted(test.func) or "").rpartition(".")[2] in _GUARDS
        and name in map(dotted, test.args)
        for test in tests
    ):
        return False
    made = set(script.definitions(node))
    return any(
        isinstance(asked, ast.Attribute)
        and asked.attr in _OF_TENSORS
        and dotted(asked.value) == name
        and set(script.definitions(asked.value)) == made
        and _is_evaluated_before(script, asked, call)
        for asked in inside
    )


def _is_evaluated_before(script: Script, asked: ast.AST, call: ast.Call) -> bool:
    """Whether an expression is evaluated whenever a call is, and before it."""
    statement = script.index.statement(asked)
    for above in script.index.ancestors(asked):
        if above is call:
            return True
        if above is statement:
            break
        if isinstance(above, _PARTLY):
            return False
    simple = isinstance(statement, _SIMPLE)
    return simple and precedes(script, asked, call)


def _typed(script: Script, node: ast.expr) -> ast.expr | None:
    """The `x` of `x.type()`, or of a name that stands for that everywhere."""
    found: list[ast.expr] = []
    for origin in script.resolver.origins(node):
        made = origin.call
        func = made.func if made is not None else None
        if not isinstance(func, ast.Attribute) or func.attr != "type":
            return None
        if made is None or made.args or made.keywords:
            return None
        found.append(func.value)
    return found[0] if found else None


def _is_there(arrival: Arrival) -> bool:
    """`zeros_like(x).to(x.device)`: made where `x` is, so that nothing is copied."""
    made, move, like = arrival.made, arrival.move, arrival.like
    if made.name not in LIKE | RANDOM_LIKE:
        return False
    if move is not None and isinstance(move.device, ast.Attribute):
        like = move.device.value if move.device.attr == "device" else None
    return like is not None and same(like, made.call.args[0])


# Names on the way


def _is_led_straight(script: Script, arrival: Arrival) -> bool:
    """Whether what has names on the host always goes on to the device, and only there.

    In the block in which it is made, or in a branch right in it. Nothing else reads it
    or writes into it there, in functions inside, or behind the copy; its size and type
    may be asked. Where it is moved under a condition, what stands behind may read it
    for want of the copy.
    """
    between = stretch(script, arrival)
    if between is None or any(isinstance(n, _LEAVES) for s in between for n in walk(s)):
        return False
    way = set(ast.walk(arrival.call.func))
    for definition in arrival.names:
        way.update(ast.walk(definition.value) if definition.value else ())
    around = choice(script, arrival)
    for definition in arrival.names:
        scope = script.index.scope(definition.node)
        flow = script.resolver.flow(scope)
        if definition.name in flow.outer or definition.name in script.index.writers:
            return False  # another function may read it
        for use in ast.walk(scope):
            if not isinstance(use, ast.Name):
                continue
            if use.id in _READ_ALL and isinstance(use.ctx, ast.Load):
                return False
            if use.id != definition.name or use in way or use is definition.node:
                continue
            if _is_asked(script, use) and _stands_before(use, arrival.call):
                continue
            if script.index.scope(use) is not scope:
                return False
            if isinstance(script.index.parent(use), ast.AugAssign):
                return False  # in place, where the copy may be by then
            if around is not None and _is_otherwise(script, arrival, around, use):
                continue
            if isinstance(use.ctx, ast.Load) and definition in script.definitions(use):
                return False
    return True


def stretch(script: Script, arrival: Arrival) -> list[ast.stmt] | None:
    """The statements between creation and copy, in one block; None: not in one.

    The copy stands in a simple statement of that block, or of a branch in it.
    """
    first = script.index.statement(arrival.made.call)
    block = block_of(script, first)
    start = block.index(first)
    for number, statement in enumerate(block[start + 1 :], start + 1):
        if not script.index.inside(arrival.call, statement):
            continue
        held = script.index.statement(arrival.call)
        branches = (
            [statement.body, statement.orelse] if isinstance(statement, ast.If) else []
        )
        there = held is statement or any(held in branch for branch in branches)
        simple = isinstance(held, _SIMPLE)
        return block[start + 1 : number] if there and simple else None
    return None


def is_immediate(script: Script, arrival: Arrival) -> bool:
    """Whether only what makes the tensor stands before its copy, which always follows.

    So that nothing changes what the copy's device is called, or leaves the step.
    """
    steps = {script.index.statement(name.node) for name in arrival.names}
    held = script.index.statement(arrival.call)
    if any(_may_go_on(script, above) for above in script.index.ancestors(held)):
        return False
    for above in script.index.ancestors(arrival.call):
        if above is held:
            break
        if isinstance(above, _PARTLY):
            return False
    between = stretch(script, arrival)
    return (
        between is not None
        and choice(script, arrival) is None
        and all(statement in steps for statement in between)
    )


def _may_go_on(script: Script, above: ast.AST) -> bool:
    """`try` and `with suppress(…)`: what stands behind may run after an error in it."""
    if isinstance(above, (ast.With, ast.AsyncWith)):
        names = (
            script.index.qualified(i.context_expr.func)
            if isinstance(i.context_expr, ast.Call)
            else None
            for i in above.items
        )
        return not all((name or "").startswith("torch.") for name in names)
    return isinstance(above, ast.Try)


def choice(script: Script, arrival: Arrival) -> ast.If | ast.IfExp | None:
    """What decides whether a name gets the copy: `if cuda: x = x.cuda()`."""
    if not arrival.names:
        return None
    made = arrival.names[0].node
    for above in script.index.ancestors(arrival.call):
        if isinstance(above, Function):
            break
        if isinstance(above, (ast.If, ast.IfExp)):
            return None if script.index.inside(made, above) else above
    return None


def _is_otherwise(
    script: Script, arrival: Arrival, around: ast.If | ast.IfExp, use: ast.Name
) -> bool:
    """Whether a name is read for want of the copy, which would have taken its place."""
    statement = script.index.statement(arrival.call)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if use.id not in {t.id for t in targets if isinstance(t, ast.Name)}:
        return False
    end = (around.end_lineno or 0, around.end_col_offset or 0)
    if (use.lineno, use.col_offset) >= end:
        return True
    body = around.body if isinstance(around, ast.If) else [around.body]

    def taken(node: ast.AST) -> bool:
        return any(script.index.inside(node, part) for part in body)

    return script.index.inside(use, around) and taken(use) is not taken(arrival.call)


def _stands_before(node: ast.expr, other: ast.expr) -> bool:
    return (node.lineno, node.col_offset) < (other.lineno, other.col_offset)


def _is_asked(script: Script, use: ast.Name) -> bool:
    above = script.index.parent(use)
    return isinstance(above, ast.Attribute) and above.attr in _ASKED
