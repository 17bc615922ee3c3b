"""Models and losses that are moved in a loop, again and again."""

from __future__ import annotations

import ast
import re
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Move, Target
from gpulint.index.walk import dotted, walk
from gpulint.script.invariants import names_in
from gpulint.script.loops import Loop
from gpulint.script.rewriting.edits import InsertBefore, Remove, Rewrite
from gpulint.script.set_before import is_set_at

if TYPE_CHECKING:
    from gpulint.script.model import Script

_MODEL = re.compile(r"^(\w+_)?(model|net|network|criterion|loss_fn)$", re.IGNORECASE)


class Hoist(NamedTuple):
    """Moves of one value that one iteration of a loop repeats.

    `runner` is the loop, or the function that the loop calls; `module` whether a
    model or loss is moved, not a tensor; `epoch` whether once an epoch, not a step.
    """

    moves: tuple[Move, ...]
    runner: ast.stmt
    module: bool
    rewrite: Rewrite | None = None
    withheld: str | None = None
    epoch: bool = False


def module_loop(script: Script, move: Move) -> Loop | None:
    """The loop in which a model or loss is moved, though it is the same one."""
    receiver = move.receiver
    loops = script.loops_around(move.call)
    kinds = ("train", "eval", "epoch")
    loop = next((x for x in loops if x.kind in kinds), None)
    if (
        loop is None
        or not _is_module(script, receiver)
        or script.runners.is_rare(move.call)
    ):
        return None
    name = dotted(receiver) or ""
    statement = script.index.statement(move.call)
    plain = isinstance(statement, ast.Expr) and statement.value is move.call
    again = (
        isinstance(statement, ast.Assign)
        and [dotted(t) for t in statement.targets] == [name]
        and statement.value is move.call
    )
    if not (plain or again) or _returns_to_host(script, name):
        return None
    own = statement.targets if isinstance(statement, ast.Assign) else []
    outside = [d for d in script.definitions(receiver) if d.node not in own]
    inside = any(script.index.inside(d.node, loop.node) for d in outside)
    if not outside or inside or _conditional(script, statement, loop):
        return None
    return loop


def _is_module(script: Script, receiver: ast.expr) -> bool:
    origins = script.resolver.origins(receiver)
    if origins and all(o.call and script.modules.makes_module(o.call) for o in origins):
        return True
    last = (dotted(receiver) or "").rpartition(".")[2]
    return bool(_MODEL.match(last)) and script.modules.is_module(receiver)


def _returns_to_host(script: Script, name: str) -> bool:
    """Whether a model is moved to the host somewhere: then it comes and goes."""
    last = name.rpartition(".")[2]
    for node in script.index.all(ast.Attribute):
        if node.attr == "cpu" and (dotted(node.value) or "").rpartition(".")[2] == last:
            return True
    return any(
        m.target is Target.CPU and (dotted(m.receiver) or "").rpartition(".")[2] == last
        for m in script.moves
    )


def _conditional(script: Script, statement: ast.stmt, loop: Loop) -> bool:
    around = takewhile(lambda a: a is not loop.node, script.index.ancestors(statement))
    return any(isinstance(above, (ast.If, ast.Try, ast.With)) for above in around)


def module_hoist(script: Script, move: Move, loop: Loop) -> Hoist:
    """The finding's facts for a moved model, with a rewrite where it is exact."""
    reason = _module_hindrance(script, move, loop)
    found = Hoist((move,), loop.node, True, epoch=loop.kind == "epoch")
    if reason is not None:
        return found._replace(withheld=reason)
    statement = script.index.statement(move.call)
    insert = InsertBefore(loop.node, script.text(statement))
    title = f"Move `{script.text(move.receiver)}` once, before the loop"
    return found._replace(rewrite=Rewrite(title, (insert, Remove(statement))))


def _module_hindrance(script: Script, move: Move, loop: Loop) -> str | None:
    receiver = move.receiver
    statement = script.index.statement(move.call)
    if not isinstance(receiver, ast.Name):
        return f"`{script.text(receiver)}` is an attribute"
    if statement not in loop.node.body or len(loop.node.body) < 2:
        return "an inner block moves it"
    for name in names_in(move.device) if move.device is not None else ():
        if not script.invariants.holds(name, loop) or not is_set_at(
            script, name, loop.node
        ):
            return f"`{script.text(name)}` is not known before the loop"
    if not is_set_at(script, receiver, loop.node):
        return f"`{receiver.id}` may not be set before the loop"
    for earlier in loop.node.body[: loop.node.body.index(statement)]:
        for node in walk(earlier):
            used = isinstance(node, ast.Name) and node.id == receiver.id
            if used and not _switches_mode(script, node):
                return f"`{receiver.id}` is used in the loop before it is moved"
    return None


def _switches_mode(script: Script, node: ast.AST) -> bool:
    method = script.index.parent(node)
    return isinstance(method, ast.Attribute) and method.attr in ("train", "eval")
