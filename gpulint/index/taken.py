"""Which branches of a function one call of it takes, by the constants it passes."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index.build import Function
from gpulint.index.flow import enclosing_function

if TYPE_CHECKING:
    from gpulint.index.resolve import Resolver

_LEAVES = (ast.Return, ast.Raise)
_UNKNOWN = object()


class Taken:
    """One call of a function: `get_loader("train")` takes no `if mode == "test":`.

    Without a function, all branches may be taken.
    """

    def __init__(
        self, resolver: Resolver, call: ast.Call, function: Function | None
    ) -> None:
        self.resolver = resolver
        self.call = call
        self.function = function
        self._values: dict[str, object] = {}

    def may_reach(self, node: ast.AST) -> bool:
        """Whether the call may run a node, as it may all that is not the function's."""
        index = self.resolver.index
        if self.function is None or not index.inside(node, self.function):
            return True
        child = node
        for above in index.ancestors(node):
            if isinstance(above, (ast.If, ast.IfExp)) and child is not above.test:
                body = above.body if isinstance(above.body, list) else [above.body]
                if self._holds(above.test) is (child not in body):
                    return False
            if isinstance(child, ast.stmt) and self._is_left_before(above, child):
                return False
            if above is self.function:
                return True
            child = above
        return True

    def _is_left_before(self, block: ast.AST, statement: ast.stmt) -> bool:
        """Whether a branch before it in its block is taken, and ends the function."""
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(block, name, None)
            if isinstance(statements, list) and statement in statements:
                return any(
                    isinstance(before, ast.If)
                    and isinstance(before.body[-1], _LEAVES)
                    and self._holds(before.test) is True
                    for before in statements[: statements.index(statement)]
                )
        return False

    def _holds(self, test: ast.expr) -> bool | None:
        """Whether a test of parameters holds in this call; None: not known."""
        if isinstance(test, ast.BoolOp):
            found = [self._holds(part) for part in test.values]
            decides = isinstance(test.op, ast.Or)  # what one part alone decides
            if decides in found:
                return decides
            return None if None in found else not decides
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._holds(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            return self._compares(test)
        value = self._value(test)
        return None if value is _UNKNOWN else bool(value)

    def _compares(self, test: ast.Compare) -> bool | None:
        left, right = self._value(test.left), self._value(test.comparators[0])
        if left is _UNKNOWN or right is _UNKNOWN:
            return None
        operator = test.ops[0]
        if isinstance(operator, (ast.Eq, ast.Is)):
            return left == right
        if isinstance(operator, (ast.NotEq, ast.IsNot)):
            return left != right
        if isinstance(operator, (ast.In, ast.NotIn)) and isinstance(right, tuple):
            return (left in right) is isinstance(operator, ast.In)
        return None

    def _value(self, node: ast.expr) -> object:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            items = tuple(self._value(item) for item in node.elts)
            return _UNKNOWN if _UNKNOWN in items else items
        if not isinstance(node, ast.Name):
            return _UNKNOWN
        reached = self.resolver.definitions(node)
        if len(reached) != 1 or reached[0].kind != "parameter" or reached[0].path:
            return _UNKNOWN
        if enclosing_function(self.resolver.index, reached[0]) is not self.function:
            return _UNKNOWN  # of a function around it, which another call runs
        if node.id not in self._values:
            self._values[node.id] = self._passed(node.id, reached[0].value)
        return self._values[node.id]

    def _passed(self, name: str, default: ast.expr | None) -> object:
        """The constant that the call passes for a parameter."""
        assert self.function is not None
        given, clear = self.resolver.calls.given(self.call, self.function, name)
        if not clear or len(given) > 1:
            return _UNKNOWN
        passed = given[0] if given else default
        if passed is None:
            return _UNKNOWN
        origins = self.resolver.origins(passed)
        only = origins[0] if len(origins) == 1 else None
        if only is None or only.default or not isinstance(only.node, ast.Constant):
            return _UNKNOWN
        return only.node.value
