"""What happens to slices after their move: what one shared copy could change."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from gpulint.index.walk import dotted, walk
from gpulint.script.copying.column_fates import Fate, Fates
from gpulint.script.copying.columns import (
    SAME_VALUES,
    Column,
    Columns,
    bound_to,
    root_of,
)

if TYPE_CHECKING:
    from gpulint.script.model import Script

_KEEPS = frozenset("append extend add put insert appendleft setdefault update".split())
_SAVES = ("torch.save", "pickle.dump", "numpy.save", "numpy.savez", "joblib.dump")
_NO_TENSOR = frozenset("shape size dim ndim dtype numel nelement".split())
_HARMLESS_CALLS = ("torch.", "numpy.", "math.")
_BUILTINS = frozenset("len print isinstance type range enumerate zip int float".split())


class ColumnUses:
    """Where the slices of one group go, followed inside the file."""

    def __init__(self, script: Script, columns: Columns) -> None:
        self.script = script
        self.index = script.index
        self.columns = columns
        self.function = script.index.scope(columns.first.move.call)
        roots = [root_of(c.tensor) for c in columns.moves]
        self._own = {root for root in roots if root is not None}
        self._head = next(iter(self._own)).id

    # The sliced tensor

    @cached_property
    def disturbed(self) -> ast.AST | None:
        """What may change the tensor between the first and the last move."""
        for statement in self.columns.statements:
            changes = self.script.mutations(self._head, statement)
            name = dotted(self.columns.first.tensor)
            if name is not None and name != self._head:
                changes += self.script.mutations(name, statement)
            if changes:
                return changes[0]
            for node in walk(statement):
                named = isinstance(node, ast.Name) and node.id == self._head
                if named and node not in self._own:
                    call = self._passed_to(node)
                    if call is not None:
                        return call
        return None

    def _passed_to(self, node: ast.AST) -> ast.Call | None:
        """The call, not of a library that only reads, that takes a node."""
        child: ast.AST = node
        for above in self.index.ancestors(node):
            if isinstance(above, ast.stmt):
                return None
            if isinstance(above, ast.Call) and child is not above.func:
                name = self.index.qualified(above.func) or ""
                reads = name in _BUILTINS or name.startswith(_HARMLESS_CALLS)
                return None if reads else above
            child = above
        return None

    @cached_property
    def read_later(self) -> bool:
        """Whether the tensor may be read on the host after the first move."""
        tensor = self.columns.first.tensor
        if not isinstance(tensor, ast.Name) or isinstance(
            self.function, (ast.Lambda, ast.ClassDef)
        ):
            return True
        flow = self.script.resolver.flow(self.function)
        if tensor.id in flow.outer or tensor.id not in flow.definitions:
            return True
        return any(self._after(node) for node in self._other_reads(tensor))

    def _other_reads(self, tensor: ast.Name) -> Iterator[ast.Name]:
        for node in walk(self.function):
            if not isinstance(node, ast.Name) or node.id != tensor.id:
                continue
            if node in self._own or not isinstance(node.ctx, (ast.Load, ast.Del)):
                continue
            above = self.index.parent(node)
            if isinstance(above, ast.Attribute) and above.attr in _NO_TENSOR:
                continue
            if isinstance(above, ast.Call) and dotted(above.func) == "len":
                continue
            yield node

    def _after(self, node: ast.Name) -> bool:
        """Whether a read may see what the inserted line binds."""
        if self.index.scope(node) is not self.function:
            return True
        tensor = self.columns.first.tensor
        mine = set(self.script.definitions(tensor))
        if mine.isdisjoint(self.script.definitions(node)):
            return isinstance(node.ctx, ast.Del)
        first = self.columns.first.statement
        if (node.lineno, node.col_offset) >= (first.lineno, first.col_offset):
            return True
        loop = self.script.loop_of(first)
        while loop is not None:  # read in the next round, unless bound anew in it
            if any(not self.index.inside(d.node, loop.node) for d in mine):
                return self.index.inside(node, loop.node)
            loop = loop.parent
        return False

    # The slices

    @cached_property
    def hindrance(self) -> str | None:
        """Why one copy with slices of it might change the run; None: it cannot."""
        name = self.columns.name
        if self.disturbed is not None:
            line = getattr(self.disturbed, "lineno", 0)
            return f"`{name}` may change between the copies (line {line})"
        if self._asks_for_gradients(dotted(self.columns.first.tensor)):
            return f"`{name}` requires gradients: its slices would be no leaves"
        mps = '"mps"' in self.script.source.text or "'mps'" in self.script.source.text
        casts = any(c.move.dtype or _casts(c.move.receiver) for c in self.columns.moves)
        if mps and casts:
            return "the slices are cast, and MPS has no float64"
        for column in self.columns.moves:
            reason = self._slice(column.move.call, 0)
            if reason:
                return reason
        return None

    def _asks_for_gradients(self, name: str | None) -> bool:
        return name is not None and any(
            isinstance(n, ast.Attribute)
            and n.attr.startswith("requires_grad")
            and dotted(n.value) == name
            for n in walk(self.function)
        )

    def _slice(self, value: ast.AST, depth: int) -> str | None:
        """Follow one expression whose value is a slice or shares its memory."""
        node = value
        above = self.index.parent(node)
        while isinstance(above, ast.Attribute) or (
            isinstance(above, ast.Call) and above.func is node
        ):
            if isinstance(above, ast.Attribute):
                reason = _method(above)
                if reason:
                    return reason
                if above.attr not in SAME_VALUES:
                    return None
            node, above = above, self.index.parent(above)
        return self._context(node, above, depth) or self._names(node, depth)

    def _context(self, node: ast.AST, above: ast.AST | None, depth: int) -> str | None:
        if isinstance(above, ast.Starred):
            above = self.index.parent(above)
        if isinstance(above, (ast.Tuple, ast.List, ast.Dict)):
            inner, above = above, self.index.parent(above)
            if isinstance(above, ast.Return):
                return self._returned(inner, node, depth)
        if isinstance(above, (ast.Return, ast.Yield, ast.YieldFrom)):
            return self._returned(node, node, depth)
        if isinstance(above, ast.Call):
            return self._argument(above, node, depth)
        if isinstance(above, ast.Assign) and self._saves:
            kept = (ast.Attribute, ast.Subscript)
            if any(isinstance(t, kept) for t in above.targets):
                return "a slice is stored, and the file saves tensors"
        return None

    def _argument(self, call: ast.Call, node: ast.AST, depth: int) -> str | None:
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr in _KEEPS and self._saves:
            return "a slice is stored, and the file saves tensors"
        callee = self.script.resolver.calls.callee(call)
        if callee is None:
            return None
        for number, argument in enumerate(call.args):
            if argument is node:
                bound = self.script.resolver.self_name(callee) is not None
                names = [a.arg for a in [*callee.args.posonlyargs, *callee.args.args]]
                if number + bound < len(names):
                    return self._changed(names[number + bound], callee)
        return None

    def _returned(self, value: ast.AST, node: ast.AST, depth: int) -> str | None:
        """Callers bind what is returned to names of their own."""
        function = self.index.function(value)
        callers = self.script.resolver.calls.callers(function) if function else ()
        if not callers or depth > 3:
            return "a slice is returned to callers that are not in this file"
        for call in callers:
            statement = self.index.statement(call)
            names = {
                n.id
                for n in walk(statement)
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            }
            within = self.index.scope(call)
            for name in names:
                reason = self._changed(name, within)
                if reason:
                    return reason
        return None

    def _names(self, node: ast.AST, depth: int) -> str | None:
        for target in bound_to(self.script, node):
            name = dotted(target)
            if name is None:
                continue
            reason = self._changed(name, self.function)
            if reason:
                return reason
            for use in self._uses(target):
                reason = self._slice(use, depth + 1) if depth < 4 else None
                if reason:
                    return reason
        return None

    def _uses(self, target: ast.AST) -> Iterator[ast.AST]:
        flow = self.script.resolver.flow(self.index.scope(target))
        for use, reached in flow.uses.items():
            if any(d.node is target for d in reached):
                yield use

    def _changed(self, name: str, within: ast.AST) -> str | None:
        """Whether a name's tensor is changed in place, or its layout matters."""
        for node in self.script.mutations(name, within):
            if not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)):
                line = getattr(node, "lineno", 0)
                return f"`{name}` is changed in place (line {line})"
        return None

    @cached_property
    def _saves(self) -> bool:
        return bool(self.index.called_names & set(_SAVES))

    # What a view serves for

    @cached_property
    def fates(self) -> dict[Column, Fate]:
        """What each slice is used for, at most."""
        fates = Fates(self.script)
        return {c: fates.of(c.move.call) for c in self.columns.moves}


def _method(attribute: ast.Attribute) -> str | None:
    if attribute.attr.endswith("_") and not attribute.attr.startswith("_"):
        return f"a slice is changed in place (line {attribute.lineno})"
    return None


def _casts(node: ast.expr) -> bool:
    """Whether a chain of calls before the move converts the type."""
    kinds = "float double half bfloat16 long int short bool type to".split()
    return any(isinstance(n, ast.Attribute) and n.attr in kinds for n in walk(node))
