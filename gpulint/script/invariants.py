"""What stays the same while a loop runs, and host tensors that are constants."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING

from gpulint.index import Definition
from gpulint.index.flow import enclosing_function
from gpulint.index.tensor_names import FACTORIES
from gpulint.index.walk import dotted, walk
from gpulint.script.loops import Loop

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_DEPTH = 6
_NO_TENSOR_LIBRARY = (
    "torch.nn.",
    "torch.optim.",
    "torch.utils.",
    "torch.load",
    "torch.jit.",
)


class Invariants:
    """Answers by the definitions and in-place changes that the file shows."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.index = script.index

    def holds(self, node: ast.AST, loop: Loop) -> bool:
        """Whether a name or attribute has one value as long as the loop runs."""
        if isinstance(node, ast.Attribute):
            return self._attribute(node, loop)
        return isinstance(node, ast.Name) and self._name(node, loop)

    def _name(self, node: ast.Name, loop: Loop) -> bool:
        definitions = self.script.definitions(node)
        if not definitions:
            return node.id in self.index.imports
        if any(self.index.inside(d.node, loop.node) for d in definitions):
            return False
        scopes = set(map(self.scope_of, definitions))
        here = self.index.scope(loop.node)
        if scopes - {here, self.index.tree}:
            return self._around(scopes, here, node.id)
        if self.script.mutations(node.id, loop.node):
            return False
        outer = here is not self.index.tree and self.index.tree in scopes
        return not outer or self.is_constant_name(node.id, definitions)

    def scope_of(self, definition: Definition) -> ast.AST:
        """The scope in which a definition binds its name."""
        function = enclosing_function(self.index, definition)
        if definition.kind == "parameter" and function is not None:
            return function
        return self.index.scope(definition.node)

    def _around(self, scopes: set[ast.AST], here: ast.AST, name: str) -> bool:
        """A free name of a nested function: bound once around, changed nowhere."""
        if len(scopes) != 1:
            return False
        outer = next(iter(scopes))
        return (
            self.index.inside(here, outer)
            and all(isinstance(m, ast.Name) for m in self.script.mutations(name, outer))
            and len(self.script.resolver.flow(outer).definitions.get(name, [])) == 1  # type: ignore[arg-type]
        )

    def is_constant_name(self, name: str, definitions: tuple[Definition, ...]) -> bool:
        """Whether a module's name is bound at its top and changed in no function."""
        tree = self.index.tree
        if any(self.scope_of(d) is not tree for d in definitions):
            return False
        return all(
            self.index.scope(m) is tree or self._is_local(name, m)
            for m in self.script.mutations(name, tree)
        )

    def _is_local(self, name: str, node: ast.AST) -> bool:
        """Whether a name is a function's own where a node changes it."""
        flow = self.script.resolver.flow(self.index.scope(node))
        return name in flow.definitions and name not in flow.outer

    def _attribute(self, node: ast.Attribute, loop: Loop) -> bool:
        name = dotted(node)
        if name is None:
            return False
        head = name.partition(".")[0]
        function = self.index.function(node)
        if function is not None and self.script.resolver.self_name(function) == head:
            return name.count(".") == 1 and self.is_constant_attribute(node)
        base: ast.expr = node
        while isinstance(base, ast.Attribute):
            base = base.value
        stored = self.script.mutations(name, loop.node) or any(
            not isinstance(n.ctx, ast.Load) and f"{name}.".startswith(f"{dotted(n)}.")
            for n in walk(loop.node)
            if isinstance(n, ast.Attribute)
        )
        return not stored and self._bound_outside(base, loop)

    def _bound_outside(self, base: ast.expr, loop: Loop) -> bool:
        found = self.script.definitions(base)
        return bool(found or dotted(base) in self.index.imports) and not any(
            self.index.inside(d.node, loop.node) for d in found
        )

    def is_constant_attribute(self, node: ast.Attribute) -> bool:
        """Whether `self.x` is bound in `__init__` alone and changed nowhere."""
        owner = self.index.owner(node)
        if owner is None:
            return False
        definitions = self.script.resolver.classes.member(owner, node.attr)
        if not definitions or any(
            getattr(self.index.scope(d.node), "name", "")
            not in ("__init__", owner.name)
            for d in definitions
        ):
            return False
        own = {d.node for d in definitions}
        changed = (
            n
            for n in self.index.all(ast.Attribute)
            if n.attr == node.attr and n not in own and self._changes(n)
        )
        others = self.script.resolver.outside.of_classes([owner], node)
        return not any(True for _ in changed) and all(d.node in own for d in others)

    def _changes(self, node: ast.Attribute) -> bool:
        if not isinstance(node.ctx, ast.Load):
            return True
        return bool(
            self.script.mutations(dotted(node) or "", self.index.statement(node))
        )

    # Constants

    def is_host_constant(self, node: ast.AST, depth: int = 0) -> bool:
        """Whether a tensor is made on the host from numbers: it has no gradient."""
        if isinstance(node, ast.Constant):
            return True
        if depth > MAX_DEPTH:
            return False
        if isinstance(node, (ast.List, ast.Tuple)):
            return all(self.is_host_constant(e, depth + 1) for e in node.elts)
        if isinstance(node, ast.UnaryOp):
            return self.is_host_constant(node.operand, depth + 1)
        if isinstance(node, ast.BinOp):
            sides = (node.left, node.right)
            return all(self.is_host_constant(s, depth + 1) for s in sides)
        if isinstance(node, ast.Subscript):
            return self.is_host_constant(node.value, depth + 1)
        if isinstance(node, ast.Call):
            return self._made_from_constants(node, depth)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._traced(node, depth)
        return False

    def _traced(self, node: ast.expr, depth: int) -> bool:
        origins = self.script.resolver.origins(node)
        name = dotted(node) or ""
        return bool(origins) and name not in self._differentiated and all(
            o.expression is not None
            and o.node is not node
            and self.is_host_constant(o.node, depth + 1)
            for o in origins
        )  # fmt: skip

    def _made_from_constants(self, call: ast.Call, depth: int) -> bool:
        if any(k.arg in ("requires_grad", "out", None) for k in call.keywords):
            return False
        name = self.index.qualified(call.func) or ""
        if name in FACTORIES or name.startswith("numpy."):
            return True
        if name.startswith("torch."):
            inner = [*call.args, *(k.value for k in call.keywords)]
            return not name.startswith(_NO_TENSOR_LIBRARY) and all(
                self.is_host_constant(a, depth + 1) for a in inner
            )
        if self.script.devices.move(call) is not None:
            return False
        if isinstance(call.func, ast.Attribute) and call.func.attr != "requires_grad_":
            return self.is_host_constant(call.func.value, depth + 1)
        return False

    @cached_property
    def _differentiated(self) -> frozenset[str]:
        """Names whose gradient the file asks for."""
        found = set()
        for node in self.index.all(ast.Attribute):
            if node.attr in ("requires_grad", "requires_grad_", "grad", "retain_grad"):
                found.add(dotted(node.value) or "")
        return frozenset(found)


def names_in(node: ast.AST) -> list[ast.expr]:
    """The outermost names and attribute chains of an expression."""
    found: list[ast.expr] = []
    inner: set[ast.AST] = set()
    for part in walk(node):
        if isinstance(part, (ast.Name, ast.Attribute)) and part not in inner:
            found.append(part)
            inner.update(walk(part))
    return found
