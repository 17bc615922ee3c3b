"""What may be differentiated anywhere in a file: all that flows into `backward()`."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.walk import children, dotted, walk_scope
from gpulint.script.training.step_calls import is_backward

if TYPE_CHECKING:
    from gpulint.script.model import Script

_ENDS = frozenset(
    "item detach tolist numpy argmax argmin".split()
)  # their results have no graph
_PLAIN = frozenset("float int bool len str repr print range isinstance round".split())
_ADDS = frozenset("append appendleft extend insert add update setdefault put".split())
_ASKS = frozenset("torch.autograd.grad torch.autograd.backward".split())


class Backpropagated:
    """Follows losses back through names, containers, arguments and returns.

    A wide net: what is in it need not be differentiated, what is not in it is not,
    as far as this file shows.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.index = script.index
        self._entered: set[Function] = set()  # by a call whose arguments are followed

    def holds(self, name: ast.expr) -> bool:
        """Whether a name's or attribute's value may be differentiated."""
        if isinstance(name, ast.Attribute) and name.attr in self._attributes:
            return True
        flow = self.script.resolver.flow(self.index.scope(name))
        mine = {d.node for d in flow.definitions.get(dotted(name) or "", ())}
        return not mine.isdisjoint(self._bound)

    def computed_in(self, node: ast.AST) -> bool:
        """Whether a part of what may be differentiated is computed below a node.

        Data on its way to a function that trains elsewhere too is not.
        """
        return any(
            isinstance(n, ast.Call)
            and self.script.devices.move(n) is None
            and self.index.inside(n, node)
            for n in self._nodes
        )

    # The walk

    @property
    def _nodes(self) -> set[ast.AST]:
        return self._walked[0]

    @property
    def _bound(self) -> set[ast.AST]:
        return self._walked[1]

    @cached_property
    def _attributes(self) -> set[str]:
        return {n.attr for n in self._nodes if isinstance(n, ast.Attribute)}

    @cached_property
    def _walked(self) -> tuple[set[ast.AST], set[ast.AST]]:
        """All expressions on the way, and where names on the way are bound."""
        seen: set[ast.AST] = set()
        bound: set[ast.AST] = set()
        todo = list(self._roots())
        while todo:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            if isinstance(node, (ast.Name, ast.Attribute)):
                todo += self._named(node, bound)
            elif isinstance(node, ast.Call):
                todo += self._called(node)
            else:
                todo += children(node)
        return seen, bound

    def _roots(self) -> Iterator[ast.AST]:
        for call in self.index.all(ast.Call):
            name = self.index.qualified(call.func)
            if is_backward(call):
                assert isinstance(call.func, ast.Attribute)
                yield call.func.value
                yield from call.args
            elif name in _ASKS:
                yield from call.args
                yield from (k.value for k in call.keywords)
            elif any((dotted(a) or "").endswith(".backward") for a in call.args):
                yield from call.args  # map(torch.Tensor.backward, losses)

    def _named(
        self, node: ast.Name | ast.Attribute, bound: set[ast.AST]
    ) -> Iterator[ast.AST]:
        definitions = self.script.definitions(node)
        if isinstance(node, ast.Attribute):
            yield node.value
        for definition in definitions:
            bound.add(definition.node)
            if definition.value is not None:
                yield definition.value
            if definition.kind == "parameter":
                yield from self._given(definition.node)
        yield from self._added(node)

    def _given(self, parameter: ast.AST) -> list[ast.expr]:
        arguments = self.index.parent(parameter)
        function = self.index.parent(arguments) if arguments is not None else None
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return []
        if function in self._entered and function not in self._differentiating:
            return []  # other calls are followed where their results are
        name = getattr(parameter, "arg", "")
        return self.script.resolver.calls.arguments(function, name) or []

    def _added(self, node: ast.Name | ast.Attribute) -> Iterator[ast.AST]:
        """What is put into a container: by its name, or by a function it is given."""
        name = node.attr if isinstance(node, ast.Attribute) else node.id
        mine = {d.node for d in self.script.definitions(node)}
        for holder, values in self._additions.get(name, ()):
            if isinstance(holder, ast.Attribute) or not mine.isdisjoint(
                d.node for d in self.script.definitions(holder)
            ):
                yield from values
        for argument, call in self._passed.get(name, ()):
            if mine.isdisjoint(d.node for d in self.script.definitions(argument)):
                continue
            function = self.script.resolver.calls.callee(call)
            if function is not None:
                yield from self._added_in(function)

    def _added_in(self, function: Function) -> Iterator[ast.AST]:
        """All that a function adds to its parameters, or puts in them."""
        names = {
            a.arg
            for a in [
                *function.args.posonlyargs,
                *function.args.args,
                *function.args.kwonlyargs,
            ]
        }
        for name in names:
            for holder, values in self._additions.get(name, ()):
                if self.index.scope(holder) is function:
                    yield from values

    @cached_property
    def _additions(self) -> dict[str, list[tuple[ast.expr, list[ast.expr]]]]:
        """By last name: containers, and what is added to them in one place."""
        found: dict[str, list[tuple[ast.expr, list[ast.expr]]]] = defaultdict(list)
        for call in self.index.all(ast.Call):
            func = call.func
            if isinstance(func, ast.Attribute) and func.attr in _ADDS:
                values = [*call.args, *(k.value for k in call.keywords)]
                found[_last(func.value)].append((func.value, values))
        for assign in self.index.all(ast.Assign):
            for target in assign.targets:
                if isinstance(target, ast.Subscript):
                    holder = target.value
                    found[_last(holder)].append((holder, [assign.value]))
        return found

    @cached_property
    def _passed(self) -> dict[str, list[tuple[ast.expr, ast.Call]]]:
        """By last name: arguments that are names, and the calls that take them."""
        found: dict[str, list[tuple[ast.expr, ast.Call]]] = defaultdict(list)
        for call in self.index.all(ast.Call):
            for given in [*call.args, *(k.value for k in call.keywords)]:
                if isinstance(given, (ast.Name, ast.Attribute)):
                    found[_last(given)].append((given, call))
        return found

    def _called(self, call: ast.Call) -> Iterator[ast.AST]:
        func = call.func
        if isinstance(func, ast.Attribute):
            if func.attr in _ENDS:
                return
            yield func.value
        elif self.index.qualified(func) in _PLAIN:
            return
        yield from call.args
        yield from (k.value for k in call.keywords)
        function = self.script.resolver.calls.callee(call)
        if function is not None:
            self._entered.add(function)
            yield from _results(function)

    @cached_property
    def _differentiating(self) -> set[Function]:
        """Functions in which `backward()` and its kin stand."""
        found = (self.index.function(root) for root in self._roots())
        return {function for function in found if function is not None}


def _results(function: Function) -> Iterator[ast.expr]:
    for node in walk_scope(function):
        kinds = (ast.Return, ast.Yield, ast.YieldFrom)
        if isinstance(node, kinds) and node.value is not None:
            yield node.value


def _last(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
