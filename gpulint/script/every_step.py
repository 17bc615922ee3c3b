"""What runs in every step of a loop: its body and helpers, without rare branches."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from gpulint.index import Definition, Function
from gpulint.index.walk import COMPREHENSIONS, FUNCTIONS, children, dotted, walk
from gpulint.script.branches import Branches, leaves
from gpulint.script.call_modes import Constants, answer, constants_of
from gpulint.script.intervals import holds_mostly, is_interval
from gpulint.script.reaching.drawn import holds_seldom
from gpulint.script.reaching.once import holds_once
from gpulint.script.reaching.switches import is_off

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

MAX_HELPERS = 12
_TYPE_TESTS = frozenset("isinstance hasattr callable issubclass".split())
Rare = Literal["interval", "varies", "never"]


class Part(NamedTuple):
    """An expression node that runs in every step.

    `inner`: once for each turn of a loop (or comprehension) inside the step.
    `helper`: the function it stands in, if the loop only calls that; `call`: the call
    in the loop's file that leads there, if it stands in another file. `branches`: the
    conditions it stands behind, outermost first, and whether each holds there.
    `graph`: False where a call that leads there stands under `no_grad`.
    """

    node: ast.AST
    inner: bool
    helper: Function | None
    call: ast.Call | None = None
    branches: Branches = ()
    graph: bool = True


class EveryStep:
    """Walks one loop. Branches that are taken now and then are left out."""

    def __init__(self, script: Script, loop: Loop) -> None:
        self.script = script
        self.loop = loop
        self._seen: set[ast.AST] = set()
        self._outside: ast.Call | None = None  # the call that left this file
        self._branches: Branches = ()
        self._graph = True
        self._constants: Constants = {}  # that the call of the helper writes

    def parts(self) -> Iterator[Part]:
        """All expression nodes of a step, in source order, helpers where called."""
        if isinstance(self.loop.node, ast.While):
            yield from self._nodes(self.loop.node.test, False, None)
        yield from self._block(self.loop.node.body, False, None)

    def parts_of(self, function: Function, part: Part) -> Iterator[Part]:
        """Those of a function that a call in the step, which is a part, runs."""
        assert isinstance(part.node, ast.Call)
        away = part.call is None and not self.script.index.holds(function)
        self._outside = part.node if away else part.call
        self._branches, self._graph = part.branches, part.graph
        self._constants = constants_of(self.script, function, [part.node])
        yield from self._block(function.body, part.inner, function)

    def _block(
        self, body: list[ast.stmt], inner: bool, helper: Function | None
    ) -> Iterator[Part]:
        around = self._branches
        for statement in body:
            if isinstance(statement, ast.If):
                yield from self._nodes(statement.test, inner, helper)
                for holds in self._taken(statement, helper):
                    branch = statement.body if holds else statement.orelse
                    yield from self._behind(
                        statement, holds, self._block(branch, inner, helper)
                    )
                if leaves(statement.body):
                    always = answer(self.script, statement.test, self._constants)
                    if always or holds_mostly(self.script, statement.test):
                        break
                    self._branches += ((statement, False),)
            elif isinstance(statement, (ast.For, ast.AsyncFor, ast.While)):
                yield from self._inner_loop(statement, inner, helper)
            elif isinstance(statement, (ast.With, ast.AsyncWith)):
                for item in statement.items:
                    yield from self._nodes(item.context_expr, inner, helper)
                yield from self._block(statement.body, inner, helper)
            elif isinstance(statement, ast.Try):
                for part in (statement.body, statement.orelse, statement.finalbody):
                    yield from self._block(part, inner, helper)
            elif isinstance(statement, ast.Match):
                yield from self._nodes(statement.subject, inner, helper)
            elif isinstance(statement, ast.Assert):  # its message ends the step
                yield from self._nodes(statement.test, inner, helper)
            elif not isinstance(statement, (*FUNCTIONS, ast.ClassDef, ast.Raise)):
                yield from self._nodes(statement, inner, helper)
        self._branches = around

    def _behind(
        self, condition: ast.AST, holds: bool, parts: Iterator[Part]
    ) -> Iterator[Part]:
        """Parts that run where a condition holds, or does not.

        What an `if` leaves that holds once is run in all other steps.
        """
        around = self._branches
        branch = condition if isinstance(condition, (ast.If, ast.IfExp)) else None
        if holds or branch is None or not holds_once(self.script, branch):
            self._branches += ((condition, holds),)
        yield from parts
        self._branches = around

    def _taken(
        self, branch: ast.If | ast.IfExp, helper: Function | None
    ) -> Iterator[bool]:
        """The values of a condition that a step may well meet."""
        decided = answer(self.script, branch.test, self._constants)
        if decided is not None:
            yield decided
            return
        rare = self.rare(branch.test, helper)
        once = holds_once(self.script, branch)
        if rare is None and not once and not holds_seldom(self.script, branch.test):
            yield True
        if rare == "never" or (
            rare is None and not holds_seldom(self.script, branch.test, False)
        ):
            yield False

    def _inner_loop(
        self,
        node: ast.For | ast.AsyncFor | ast.While,
        inner: bool,
        helper: Function | None,
    ) -> Iterator[Part]:
        its = self.script.loop_at(node)
        if its is not None and (its.eval or (its.train and not self.loop.batches)):
            return  # a step loop of its own
        head = node.test if isinstance(node, ast.While) else node.iter
        yield from self._nodes(head, inner, helper)
        again = not (its is not None and its.train)
        yield from self._block(node.body, inner or again, helper)

    # Expressions

    def _part(self, node: ast.AST, inner: bool, helper: Function | None) -> Part:
        return Part(node, inner, helper, self._outside, self._branches, self._graph)

    def _nodes(
        self, root: ast.AST, inner: bool, helper: Function | None
    ) -> Iterator[Part]:
        if isinstance(root, FUNCTIONS):
            return
        if isinstance(root, (ast.IfExp, ast.BoolOp)):
            yield self._part(root, inner, helper)
            yield from self._choice(root, inner, helper)
            return
        below = children(root)
        if isinstance(root, COMPREHENSIONS):
            first = root.generators[0].iter
            yield from self._nodes(first, inner, helper)
            yield self._part(root, inner, helper)
            called = set(_surely_called(root))
            for child in walk(*below):
                if not isinstance(child, ast.comprehension) and child is not first:
                    yield self._part(child, True, helper)
                    if isinstance(child, ast.Call) and child in called:
                        yield from self._called(child, True)
            return
        for child in below:
            yield from self._nodes(child, inner, helper)
        yield self._part(root, inner, helper)
        if isinstance(root, ast.Call):
            yield from self._called(root, inner)

    def _choice(
        self, root: ast.IfExp | ast.BoolOp, inner: bool, helper: Function | None
    ) -> Iterator[Part]:
        if isinstance(root, ast.IfExp):
            yield from self._nodes(root.test, inner, helper)
            for holds in self._taken(root, helper):
                value = root.body if holds else root.orelse
                yield from self._behind(root, holds, self._nodes(value, inner, helper))
            return
        above = self.script.index.parent(root)
        for value in root.values:
            yield from self._nodes(value, inner, helper)
            if self.rare(value, helper) is not None or is_latch(root, value, above):
                return

    def _called(self, call: ast.Call, inner: bool) -> Iterator[Part]:
        function = self.script.resolver.calls.callee(call)
        if function is None or function in self._seen or len(self._seen) > MAX_HELPERS:
            return
        if any(
            x.function is function and (x.train or x.eval) for x in self.script.loops
        ):
            return
        self._seen.add(function)
        index = self.script.index
        leaves = self._outside is None and not index.holds(function)
        if leaves:
            self._outside = call
        around, constants = self._graph, self._constants
        self._graph = around and not self.script.of(call).without_grad(call)
        self._constants = constants_of(self.script, function, self._calls(function))
        yield from self._block(function.body, inner, function)
        self._graph, self._constants = around, constants
        if leaves:
            self._outside = None

    def _calls(self, function: Function) -> list[ast.Call]:
        """The calls of a function in an iteration, as far as it is followed."""
        runners = (self.loop.node, *self.loop.helpers)
        return [
            call
            for call in self.script.resolver.calls.callers(function)
            if any(self.script.of(call).index.inside(call, its) for its in runners)
        ]

    # Branches

    def rare(self, test: ast.expr, helper: Function | None = None) -> Rare | None:
        """Whether a branch is taken every n-th step, in some steps only, or never."""
        if is_off(self.script, test):
            return "never"
        if is_interval(self.script, test):
            return "interval"
        return "varies" if self.varies(test, helper) else None

    def varies(self, test: ast.expr, helper: Function | None) -> bool:
        """Whether a test can differ from step to step."""
        if isinstance(test, ast.UnaryOp):
            return self.varies(test.operand, helper)
        if isinstance(test, ast.BoolOp):
            return any(self.varies(v, helper) for v in test.values)
        if isinstance(test, ast.Compare) and all(
            isinstance(o, (ast.Is, ast.IsNot)) for o in test.ops
        ):
            return False
        if isinstance(test, ast.Call) and dotted(test.func) in _TYPE_TESTS:
            return False
        return any(
            self._changes(d, helper)
            for node in walk(test)
            if isinstance(node, (ast.Name, ast.Attribute))
            for d in self.script.definitions(node)
        )

    def _changes(self, definition: Definition, helper: Function | None) -> bool:
        index = self.script.index
        if (
            definition.kind == "for"
        ):  # an inner loop meets all its elements in each step
            return index.statement(definition.node) is self.loop.node
        if index.inside(definition.node, self.loop.node):
            return True
        if helper is None or not index.inside(definition.node, helper):
            return False
        if definition.kind != "parameter":
            return True
        given = self.script.resolver.calls.arguments(helper, definition.name) or []
        return any(
            index.inside(d.node, self.loop.node)
            for argument in given
            for name in walk(argument)
            if isinstance(name, (ast.Name, ast.Attribute))
            for d in self.script.definitions(name)
        )


def _surely_called(root: ast.expr) -> Iterator[ast.Call]:
    """The calls that a list or dict comprehension makes in each of its rounds."""
    if isinstance(root, ast.GeneratorExp):
        return  # whoever takes from it may stop, or never begin
    assert isinstance(root, COMPREHENSIONS)
    if any(generator.ifs for generator in root.generators):
        return
    todo: list[ast.AST] = [
        getattr(root, name) for name in ("elt", "key", "value") if hasattr(root, name)
    ]
    for node in todo:
        if isinstance(node, ast.Call):
            yield node
        if not isinstance(node, (ast.IfExp, ast.BoolOp, *FUNCTIONS, *COMPREHENSIONS)):
            todo += children(node)


def is_latch(root: ast.BoolOp, value: ast.expr, above: ast.AST | None) -> bool:
    """`full or test():`, where the branch sets `full`: asked until then."""
    if not isinstance(above, ast.If) or above.test is not root:
        return False
    wanted = isinstance(root.op, ast.Or)
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not):
        wanted, value = not wanted, value.operand
    name = dotted(value)
    return name is not None and any(
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and node.value.value is wanted
        and any(dotted(target) == name for target in node.targets)
        for node in walk(*above.body)
    )
