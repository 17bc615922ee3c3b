"""What surely runs for each sample of a dataset, and which values stay the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Definition, Function
from gpulint.index.build import last_name
from gpulint.index.flow import enclosing_function
from gpulint.index.walk import FUNCTIONS, children, dotted, walk_scope
from gpulint.script.branches import branches_of
from gpulint.script.samples.reachable import reachable

if TYPE_CHECKING:
    from gpulint.script.model import Script

ENTRIES = ("__getitem__", "__getitems__")
MAX_DEPTH = 4  # calls from the entry to a helper
_KEPT = re.compile(r"cache|memo(?!r)", re.IGNORECASE)
_MAY_NOT_RUN = (ast.ExceptHandler, ast.BoolOp, ast.IfExp)
_SAME_IN_SAME_OUT = frozenset(
    "os.path.join os.path.expanduser os.path.abspath os.path.normpath os.path.dirname "
    "os.path.realpath os.fspath pathlib.Path str len int bool isinstance".split()
)
_METHODS = frozenset(
    "format joinpath with_suffix with_name resolve expanduser replace join lower "
    "upper strip rstrip lstrip".split()
)
_LOOKED_AT = (ast.Call, ast.For, ast.Compare, ast.Subscript)
_TESTS = (ast.BoolOp, ast.Compare, ast.UnaryOp)
_JOINS = (ast.BinOp, ast.JoinedStr, ast.FormattedValue, ast.Tuple, ast.List)


class Frame(NamedTuple):
    """A function that runs for each sample, and the call that runs it."""

    function: Function
    call: ast.Call | None = None
    caller: Frame | None = None


class PerSample:
    """What an entry method of a dataset, and what it calls, does for each sample."""

    def __init__(self, script: Script, owner: ast.ClassDef, entry: Function) -> None:
        self.script = script
        self.owner = owner
        self.entry = entry
        self.resolver = script.resolver
        self.index = script.index
        self._seen: list[Function] = [entry]
        self._asked: list[ast.AST] = []  # whose values are being looked at

    def nodes(self) -> Iterator[tuple[ast.AST, Frame]]:
        """The nodes that nothing spares any sample, of this file's functions."""
        yield from self._of(Frame(self.entry), 0)

    def _of(self, frame: Frame, depth: int) -> Iterator[tuple[ast.AST, Frame]]:
        if keeps_results(self.script, frame.function):
            return
        for node in walk_scope(*frame.function.body):
            asked = isinstance(node, _LOOKED_AT) or self._may_be_property(node)
            if not asked or self._is_spared(node, frame):
                continue
            yield node, frame
            helper = self._helper(node)
            own = helper is not None and self.index.holds(helper)
            if helper is None or not own or depth >= MAX_DEPTH:
                continue
            if helper not in self._seen:
                self._seen.append(helper)
                call = node if isinstance(node, ast.Call) else None
                yield from self._of(Frame(helper, call, frame), depth + 1)

    def _helper(self, node: ast.AST) -> Function | None:
        if isinstance(node, ast.Call):
            return self.resolver.calls.callee(node)
        if isinstance(node, ast.Attribute):
            return self.resolver.classes.methods(self.owner).get(node.attr)
        return None

    def _may_be_property(self, node: ast.AST) -> bool:
        """`self.table`, where a method of that name is a property."""
        if not isinstance(node, ast.Attribute) or not self._is_self(node.value):
            return False
        method = self.resolver.classes.methods(self.owner).get(node.attr)
        marks = method.decorator_list if method is not None else []
        return "property" in map(dotted, marks)

    def _is_self(self, node: ast.expr) -> bool:
        scope = self.index.scope(node)
        return isinstance(node, ast.Name) and self.resolver.self_name(scope) == node.id

    def _is_spared(self, node: ast.AST, frame: Frame) -> bool:
        """Whether a test that differs between samples decides if a node runs."""
        child = node
        for above in self.index.ancestors(node):
            if isinstance(above, FUNCTIONS):
                break
            first = isinstance(above, ast.BoolOp) and above.values[0] is child
            if isinstance(above, _MAY_NOT_RUN) and not first:
                return True
            child = above
        for branch, holds in branches_of(self.index, node):
            if not isinstance(branch, ast.If) or not self.is_fixed(branch.test, frame):
                return True
            if self._value(branch.test) is not holds:
                return True
        return False

    def _value(self, test: ast.expr) -> bool | None:
        """What a test gives for all constants that reach it; None: not known."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._value(test.operand)
            return None if inner is None else not inner
        values = self.script.evaluator.values(test)
        found = {bool(v.constant) for v in values.known}
        return found.pop() if values.complete and len(found) == 1 else None

    # Values that are the same for all samples

    def is_fixed(self, node: ast.AST, frame: Frame) -> bool:
        """Whether an expression surely has one value for all samples of a dataset."""
        if isinstance(node, ast.Constant):
            return True
        if isinstance(node, ast.Name):
            return self._is_fixed_name(node, frame)
        if isinstance(node, ast.Attribute):
            if self._is_self(node.value):
                return self._is_fixed_member(node.attr)
            return self.is_fixed(node.value, frame)
        if isinstance(node, ast.Call):
            return self._is_fixed_call(node, frame)
        if isinstance(node, ast.Subscript):
            return self.is_fixed(node.value, frame) and self.is_fixed(node.slice, frame)
        if isinstance(node, (*_JOINS, *_TESTS)):
            return all(self.is_fixed(part, frame) for part in children(node))
        return False

    def _is_fixed_name(self, node: ast.Name, frame: Frame) -> bool:
        reached = self.resolver.definitions(node)
        return bool(reached) and all(self._is_same(d, frame) for d in reached)

    def _is_same(self, definition: Definition, frame: Frame) -> bool:
        """Whether one definition gives the same value for each sample."""
        if definition.kind in ("import", "function", "class"):
            return True
        if definition.kind == "parameter":
            own = enclosing_function(self.index, definition) is frame.function
            return own and self._is_given(definition, frame)
        if definition.kind != "assign" or definition.value is None:
            return False
        scope = self.index.scope(definition.node)
        if isinstance(scope, ast.Module):
            return not self.index.home(scope).writers.get(definition.name)
        if scope is not frame.function or definition.node in self._asked:
            return False  # `node = node[key]` in a loop is another one each time
        self._asked.append(definition.node)
        fixed = self.is_fixed(definition.value, frame)
        self._asked.remove(definition.node)
        return fixed

    def _is_given(self, parameter: Definition, frame: Frame) -> bool:
        """Whether the call of a helper passes the same for each sample."""
        if frame.call is None or frame.caller is None:
            return False
        given, clear = self.resolver.calls.given(
            frame.call, frame.function, parameter.name
        )
        if not clear or not (given or parameter.value):
            return False
        caller = frame.caller
        return all(self.is_fixed(node, caller) for node in given)

    def _is_fixed_member(self, name: str) -> bool:
        """Whether samples leave `self.name` as it is, and the class shows it."""
        found = self.resolver.classes.member(self.owner, name)
        return bool(found) and all(
            self.index.function(d.node) not in self._changers
            and d.kind in ("assign", "field")
            for d in found
        )

    @cached_property
    def _changers(self) -> tuple[Function, ...]:
        """Functions that may change the dataset while samples are made."""
        return reachable(self.entry, self.script.evaluator)

    def _is_fixed_call(self, call: ast.Call, frame: Frame) -> bool:
        func = call.func
        given = [*call.args, *(k.value for k in call.keywords)]
        if self.index.qualified(func) not in _SAME_IN_SAME_OUT:
            if not isinstance(func, ast.Attribute) or last_name(call) not in _METHODS:
                return False
            given.append(func.value)
        return all(self.is_fixed(node, frame) for node in given)


def keeps_results(script: Script, function: Function) -> bool:
    """Whether a function keeps what it made: `self.samples[i] = …`, `@lru_cache`."""
    if _KEPT.search(script.text(function)):
        return True
    if any(_KEPT.search(ast.unparse(mark)) for mark in function.decorator_list):
        return True
    return any(
        isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Store)
        and (dotted(node.value) or "").startswith("self.")
        for node in walk_scope(function)
    )
