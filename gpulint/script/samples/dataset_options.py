"""What tests of a dataset's own attributes give, by what the dataset was made with."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.walk import dotted

if TYPE_CHECKING:
    from gpulint.script.model import Script

_UNKNOWN = object()


class DatasetOptions:
    """The attributes of one object: `made` is the call that makes it, if known."""

    def __init__(self, script: Script, made: ast.Call | None) -> None:
        self.script = script
        self.made = made

    def holds(self, test: ast.expr) -> bool | None:
        """Whether a test of what the dataset was made with holds."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.holds(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            left = self._option(test.left)
            right = self._option(test.comparators[0])
            if left is _UNKNOWN or right is _UNKNOWN:
                return None
            if isinstance(test.ops[0], ast.Eq):
                return left == right
            return left != right if isinstance(test.ops[0], ast.NotEq) else None
        value = self._option(test)
        return None if value is _UNKNOWN else bool(value)

    def _option(self, node: ast.expr) -> object:
        """A constant, or what `self.train` is for the dataset that is trained on."""
        if isinstance(node, ast.Constant):
            return node.value
        function = self.script.index.function(node)
        its_self = self.script.resolver.self_name(function) if function else None
        if not isinstance(node, ast.Attribute) or dotted(node.value) != its_self:
            return _UNKNOWN
        owner = self.script.index.owner(node)
        init = (
            self.script.resolver.classes.methods(owner).get("__init__")
            if owner
            else None
        )
        writes = self.script.index.attribute_writes.get(node.attr, [])
        if init is None or self.made is None or len(writes) != 1:
            return _UNKNOWN
        kept = self.script.index.parent(writes[0])
        value = kept.value if isinstance(kept, ast.Assign) else None
        if kept not in init.body or not isinstance(value, ast.Name):
            return value.value if isinstance(value, ast.Constant) else _UNKNOWN
        return self._given(init, value.id)

    def _given(self, init: Function, name: str) -> object:
        assert self.made is not None
        given, clear = self.script.resolver.calls.given(self.made, init, name)
        own = self.script.resolver.flow(init).definitions.get(name, [])
        if not clear or len(own) != 1 or own[0].kind != "parameter":
            return _UNKNOWN
        passed = given[0] if given else own[0].value
        return passed.value if isinstance(passed, ast.Constant) else _UNKNOWN
