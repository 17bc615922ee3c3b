"""Moves in a loop of what does not change there, and how they get out of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING

from gpulint.index import NOT_CUDA, Move
from gpulint.index.walk import dotted
from gpulint.script.copying.constants import (
    KEEPS_MEMORY,
    constant_copies,
    is_constant,
    is_made_here,
    same_in_calls,
)
from gpulint.script.copying.module_moves import Hoist, module_hoist, module_loop
from gpulint.script.copying.named_devices import is_of_host
from gpulint.script.invariants import names_in
from gpulint.script.loops import Loop
from gpulint.script.reads import SHARES, changed_at
from gpulint.script.rewriting.edits import (
    Edit,
    InsertBefore,
    Remove,
    ReplaceCode,
    Rewrite,
)
from gpulint.script.set_before import is_set_at

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_SHARED = 20
_BLOCKS = frozenset("autocast no_grad enable_grad inference_mode tqdm trange".split())


def find_hoists(script: Script) -> Iterator[Hoist]:
    """All of them, in source order."""
    groups: dict[tuple[ast.AST, str], tuple[Loop, list[Move]]] = {}
    for call in script.move_calls:
        move = script.devices.move(call) if _is_repeated(script, call) else None
        if move is None or move.target in NOT_CUDA:
            continue
        if is_of_host(script, move.device):
            continue
        name = dotted(move.receiver) or ""
        loop = module_loop(script, move)
        if loop is not None:
            yield module_hoist(script, move, loop)
            continue
        if not is_constant(script, move.receiver):
            continue
        runner = script.runners.of(move.call)
        loop = next(
            (x for x in script.loops_around(move.call) if x.train or x.eval), None
        )
        if runner is None:
            continue
        if loop is None:
            made_here = is_made_here(script, move.call, move.receiver)
            if not made_here and same_in_calls(script, move.receiver):
                reason = "another function runs the loop"
                yield Hoist((move,), runner, False, withheld=reason)
        elif script.invariants.holds(move.receiver, loop):
            groups.setdefault((loop.node, name), (loop, []))[1].append(move)
    for loop, moves in groups.values():
        yield _TensorHoist(script, loop, moves).result()
    for move, node in constant_copies(script):
        made = script.text(move.call)
        yield Hoist((move,), node, False, withheld=f"`{made}` makes another tensor")


def _is_repeated(script: Script, call: ast.Call) -> bool:
    """A cheap look at a move: is it one of a name, and may a loop run it?"""
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
    if receiver is None or dotted(receiver) is None:
        return False
    if script.loops_around(call):
        return True
    if is_made_here(script, call, receiver) or not same_in_calls(script, receiver):
        return False
    return script.runners.of(call) is not None


# Tensors


class _TensorHoist:
    """The rewrite of one group of moves in one loop."""

    def __init__(self, script: Script, loop: Loop, moves: list[Move]) -> None:
        self.script = script
        self.moves = moves
        self.first = moves[0]
        self.inner = loop
        self.loop = self._outermost(loop)

    def _outermost(self, loop: Loop) -> Loop:
        parts = [self.first.receiver, *self._argument_names()]
        while loop.parent is not None and all(
            self.script.invariants.holds(p, loop.parent) for p in parts
        ):
            loop = loop.parent
        return loop

    def _argument_names(self) -> list[ast.expr]:
        call = self.first.call
        given = [*call.args, *(k.value for k in call.keywords)]
        return [name for argument in given for name in names_in(argument)]

    def result(self) -> Hoist:
        """The finding's facts, with a rewrite where it is proven to be exact."""
        reason = self._hindrance()
        rewrite = None if reason else self._rewrite()
        return Hoist(tuple(self.moves), self.inner.node, False, rewrite, reason)

    def _hindrance(self) -> str | None:
        script, receiver = self.script, self.first.receiver
        if not isinstance(receiver, ast.Name):
            return f"`{script.text(receiver)}` is an attribute"
        if any(k.arg == "copy" for k in self.first.call.keywords):
            return "each iteration asks for a copy of its own"
        if len({script.text(m.call) for m in self.moves}) > 1:
            return "it is moved in different ways"
        for name in self._argument_names():
            if not script.invariants.holds(name, self.loop) or not self._is_set(name):
                return f"`{script.text(name)}` is not known before the loop"
        if not self._is_set(receiver):
            return f"`{receiver.id}` may not be set before the loop"
        if any(
            isinstance(o.node, ast.Constant) for o in script.resolver.origins(receiver)
        ):
            return f"`{receiver.id}` may be no tensor"
        if script.index.called_names & {"globals", "locals", "exec"}:
            return "the file may set its names in other ways"
        changed = self._changed_on_host()
        if changed is not None:
            line = getattr(changed, "lineno", 0)
            return f"what line {line} does with `{receiver.id}` is not known"
        for move in self.moves:
            if script.index.scope(move.call) is not script.index.scope(self.loop.node):
                return "a nested function moves it"
            if self._in_block(move):
                return "it is moved under a `with` that may matter"
            changed = changed_at(script, move.call)
            if changed is not None:
                line = getattr(changed, "lineno", move.call.lineno)
                return f"what line {line} does with the moved tensor is not known"
        return None

    def _changed_on_host(self) -> ast.AST | None:
        """Where the host's tensor may be changed, under this name or another."""
        own = {m.receiver for m in self.moves}
        for shared in self._shared(self.first.receiver, []):
            for node in self._same(shared):
                if node in own or self._is_after(node):
                    continue
                changed = self._change_at(node) or self._change_by_name(node)
                if changed is not None:
                    return changed
        return None

    def _shared(self, node: ast.expr, found: list[ast.expr]) -> list[ast.expr]:
        """Names and attributes that may be, or share memory with, an expression."""
        if isinstance(node, (ast.Name, ast.Attribute)):
            if len(found) > MAX_SHARED or any(node is f for f in found):
                return found
            found.append(node)
            for definition in self.script.definitions(node):
                if definition.value is not None:
                    self._shared(definition.value, found)
        elif isinstance(node, (ast.Subscript, ast.Starred)):
            self._shared(node.value, found)
        elif isinstance(node, (ast.Tuple, ast.List)):
            for item in node.elts:
                self._shared(item, found)
        elif isinstance(node, ast.IfExp):
            self._shared(node.body, found)
            self._shared(node.orelse, found)
        elif isinstance(node, ast.Call):
            name = self.script.index.qualified(node.func) or ""
            library = name.startswith(("torch.", "numpy."))
            if library and name.rpartition(".")[2] in KEEPS_MEMORY:
                for argument in node.args[:1]:
                    self._shared(argument, found)
            elif not library and isinstance(node.func, ast.Attribute):
                self._shared(node.func.value, found)
        return found

    def _same(self, shared: ast.expr) -> Iterator[ast.expr]:
        """Where a name, or an attribute of any object, means the same."""
        index = self.script.index
        if isinstance(shared, ast.Attribute):
            yield from (n for n in index.all(ast.Attribute) if n.attr == shared.attr)
            return
        assert isinstance(shared, ast.Name)
        definitions = set(self.script.definitions(shared))
        for node in index.all(ast.Name):
            if node.id == shared.id and not definitions.isdisjoint(
                self.script.definitions(node)
            ):
                yield node

    def _change_at(self, node: ast.expr) -> ast.AST | None:
        above = self.script.index.parent(node)
        if isinstance(above, ast.AugAssign) and above.target is node:
            return above
        if not isinstance(getattr(node, "ctx", None), ast.Load):
            return None
        return changed_at(self.script, node)

    def _change_by_name(self, node: ast.expr) -> ast.AST | None:
        """Where a part or view of it is changed under a name that it is given.

        `rows = weights.view(2, 5)`, and `rows[0] = 1` anywhere.
        """
        index, own = self.script.index, {m.receiver for m in self.moves}
        while True:
            above = index.parent(node)
            if isinstance(above, ast.Subscript) and above.value is node:
                node = above
            elif isinstance(above, ast.Attribute) and above.attr in SHARES:
                call = index.parent(above)
                node = above
                if isinstance(call, ast.Call) and call.func is above:
                    node = call
            else:
                break
        named = (ast.Assign, ast.AnnAssign, ast.NamedExpr)
        if not isinstance(above, named) or above.value is not node:
            return None
        targets = above.targets if isinstance(above, ast.Assign) else [above.target]
        for target in targets:
            if not isinstance(target, ast.Name):
                return above  # who else holds it is not known
            for read in index.all(ast.Name):
                if read.id != target.id or read in own or self._is_after(read):
                    continue
                if any(d.node is target for d in self.script.definitions(read)):
                    changed = self._change_at(read)
                    if changed is not None:
                        return changed
        return None

    def _is_after(self, node: ast.AST) -> bool:
        """Whether a node of the same function runs when the loop is over."""
        index, loop = self.script.index, self.loop
        if loop.parent is not None or index.scope(node) is not index.scope(loop.node):
            return False
        return getattr(node, "lineno", 0) > int(loop.node.end_lineno or 0)

    def _is_set(self, name: ast.expr) -> bool:
        head = name
        own = self.script.resolver.self_name(self.script.index.scope(self.loop.node))
        while isinstance(head, ast.Attribute):
            head = head.value
        if isinstance(head, ast.Name) and head.id in self.script.index.imports:
            return True
        if isinstance(head, ast.Name) and head.id != own:
            name = head
        return is_set_at(self.script, name, self.loop.node)

    def _in_block(self, move: Move) -> bool:
        around = self.script.index.ancestors(move.call)
        for above in takewhile(lambda a: a is not self.loop.node, around):
            if isinstance(above, (ast.With, ast.AsyncWith)):
                for item in above.items:
                    call = item.context_expr
                    func = call.func if isinstance(call, ast.Call) else call
                    name = self.script.index.qualified(func) or ""
                    if name.rpartition(".")[2] not in _BLOCKS:
                        return True
        return False

    # Edits

    def _rewrite(self) -> Rewrite:
        receiver = self.first.receiver
        assert isinstance(receiver, ast.Name)
        title = f"Move `{receiver.id}` once, before the loop"
        statement = self._whole_statement()
        if statement is not None:
            text = self.script.text(statement)
            edits: list[Edit] = [InsertBefore(self.loop.node, text), Remove(statement)]
            return Rewrite(title, tuple(edits))
        name = (
            receiver.id if self._rebindable(receiver) else self._new_name(receiver.id)
        )
        code = f"{name} = {self.script.text(self.first.call)}"
        replaced = (ReplaceCode(move.call, name) for move in self.moves)
        return Rewrite(title, (InsertBefore(self.loop.node, code), *replaced))

    def _whole_statement(self) -> ast.Assign | None:
        """`w = x.to(device)` in the loop's body, where `w` has no other value."""
        index = self.script.index
        call = self.first.call
        statement = index.parent(call)
        if not isinstance(statement, ast.Assign) or len(self.moves) > 1:
            return None
        targets = statement.targets
        body = self.inner.node.body
        if statement not in body or len(body) < 2 or len(targets) != 1:
            return None
        assert isinstance(targets[0], ast.Name)  # nothing else is only read
        flow = self.script.resolver.flow(index.scope(statement))
        name = targets[0].id
        alone = len(flow.definitions.get(name, [])) == 1 and name not in flow.outer
        deleted = (n for n in index.all(ast.Name) if isinstance(n.ctx, ast.Del))
        alone = alone and all(n.id != name for n in deleted)
        return statement if alone else None

    def _rebindable(self, receiver: ast.Name) -> bool:
        """Whether nothing reads the host's tensor once the loop has begun."""
        index = self.script.index
        scope = index.scope(receiver)
        flow = self.script.resolver.flow(scope)
        if self.loop.parent is not None or receiver.id in flow.outer:
            return False
        if receiver.id not in flow.definitions:
            return False
        own = {m.receiver for m in self.moves}
        for node in index.all(ast.Name):
            if node.id != receiver.id or node in own:
                continue
            here = index.scope(node) is scope
            nested = index.inside(node, scope) and not here
            if nested or (here and node.lineno >= self.loop.node.lineno):
                return False
        return True

    def _new_name(self, name: str) -> str:
        index = self.script.index
        new = f"{name.lower()}_device"
        while new in index.bound_names or new in index.imports:
            new += "_"
        return new
