"""Where a value comes from: names followed to the expressions that make them."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gpulint.index.build import FileIndex, Function
from gpulint.index.calls import Calls
from gpulint.index.classes import Classes
from gpulint.index.definitions import Definitions
from gpulint.index.flow import Definition, Step
from gpulint.index.outside import Outside
from gpulint.index.taken import Taken
from gpulint.index.targets import (
    is_given_beside,
    qualified_name,
    settings_arguments,
)
from gpulint.index.walk import dotted

MAX_ORIGINS = 24
# What builds the classes that settings name; Lightning's command line by the second.
_BUILDERS = ("instantiate", "LightningCLI", "jsonargparse")
_SAME_RESULT = frozenset(
    "staticmethod classmethod torch.no_grad torch.inference_mode".split()
)


@dataclass(eq=False, slots=True)
class Origin:
    """One place where a value is made.

    `node` is the expression (kind `expression`), or the node that binds the name
    where the way back ends: a parameter without known callers, an element of what a
    loop iterates, an import, a function, a class. `path` is what is still to be
    unpacked from it. `default`: it is a default that a caller or user may replace;
    `definition` is the parameter's then.
    """

    node: ast.AST
    kind: Literal[
        "expression", "parameter", "element", "import", "function", "class", "unknown"
    ]
    path: tuple[Step, ...] = ()
    definition: Definition | None = None
    default: bool = False

    @property
    def expression(self) -> ast.expr | None:
        """The expression, if that is what the value comes from unchanged."""
        if self.kind == "expression" and not self.path:
            assert isinstance(self.node, ast.expr)
            return self.node
        return None

    @property
    def call(self) -> ast.Call | None:
        """The call that makes the value, if it is one."""
        node = self.expression
        return node if isinstance(node, ast.Call) else None


class Resolver(Definitions):
    """Follows values from one file back to where they are made, on demand."""

    def __init__(self, index: FileIndex) -> None:
        super().__init__(index)
        self._origins: dict[ast.AST, tuple[Origin, ...]] = {}
        self._followed: dict[Function, bool] = {}  # back from calls; whether twice
        self._ways: set[tuple[ast.expr, tuple[Step, ...]]] = set()  # being traced
        self.repeated: dict[Function, bool] = {}  # whether loops call a function
        self.classes = Classes(self)
        self.calls = Calls(self)
        self.outside = Outside(self)

    def beside(self, index: FileIndex) -> Resolver:
        """The same, as seen from another file of the project; shares all answers."""
        other = copy.copy(self)
        other.index = index
        return other

    def called_only_by(self, callers: dict[Function, list[ast.Call]]) -> Resolver:
        """The same, as if only these calls were made of these functions.

        Beside those that it has been told of others already.
        """
        other = Resolver(self.index)
        other._flows = self._flows
        other.calls = Calls(other, self.calls.only | callers)
        return other

    def parameter_origins(self, function: Function, name: str) -> tuple[Origin, ...]:
        """Everything that a parameter can be when its function is called."""
        own = self.flow(function).definitions.get(name, ())
        parameters = [d for d in own if d.kind == "parameter"]
        return tuple(o for d in parameters for o in self._from_definition(d, ()))

    def origins(self, node: ast.AST) -> tuple[Origin, ...]:
        """Everything an expression can come from, names followed to their making."""
        known = self._origins.get(node)  # half a million times in a large project
        if known:
            return known
        return self.answers.first(self._origins, node, lambda: self._find(node), ())

    def _find(self, node: ast.AST) -> tuple[Origin, ...]:
        found: list[Origin] = []
        for origin in self._trace(node, ()):
            if not any(o.node is origin.node and o.path == origin.path for o in found):
                found.append(origin)
            if len(found) > MAX_ORIGINS:
                return (Origin(node, "unknown"),)
        return tuple(found)

    def _trace(self, node: ast.AST, path: tuple[Step, ...]) -> Iterator[Origin]:
        if isinstance(node, (ast.Name, ast.Attribute)):
            reached = self.definitions(node)
            if reached:
                for definition in reached:
                    yield from self._from_definition(definition, path)
                if self._may_be_older(node, reached):
                    yield from self._before(node, reached, path)
                elif self._may_be_of_others(node):
                    yield Origin(node, "expression", path)
            else:
                yield Origin(node, "expression", path)
        elif isinstance(node, ast.IfExp):
            known = self.compares_device(node.test)
            if known is not False:
                yield from self._trace(node.body, path)
            if known is not True:
                yield from self._trace(node.orelse, path)
        elif isinstance(node, ast.BoolOp):
            for value in node.values:
                yield from self._trace(value, path)
        elif isinstance(node, ast.NamedExpr):
            yield from self._trace(node.value, path)
        elif isinstance(node, (ast.Tuple, ast.List)) and path:
            yield from self._unpack(node, path)
        elif isinstance(node, ast.Call) and _prepares(node):
            yield from self._prepared(node, path)
        elif isinstance(node, ast.Call) and self._follow_returns(node):
            yield from self._returned(node, path)
        else:
            yield Origin(node, "expression", path)

    def compares_device(self, test: ast.expr) -> bool | None:
        """What `device == "cuda"` is: never true of a `torch.device`; None: not that.

        torch compares a device with a string as with any other object.
        """
        if not isinstance(test, ast.Compare) or len(test.ops) != 1:
            return None
        if not isinstance(test.ops[0], (ast.Eq, ast.NotEq)):
            return None
        right = test.comparators[0]
        if not isinstance(right, ast.Constant) or not isinstance(right.value, str):
            return None
        made = [origin.call for origin in self.origins(test.left)]
        if not made or not all(
            call is not None and self.index.qualified(call.func) == "torch.device"
            for call in made
        ):
            return None
        return isinstance(test.ops[0], ast.NotEq)

    def _may_be_older(self, node: ast.AST, reached: tuple[Definition, ...]) -> bool:
        """Whether an attribute may still have the value that its object came with."""
        if not isinstance(node, ast.Attribute):
            return False
        flow = self.flow(self.index.scope(node))
        if node in flow.uses or self.classes.of(node.value):
            return node in flow.maybe_older
        blocks = (self.index.parent(self.index.statement(d.node)) for d in reached)
        return not any(isinstance(block, ast.Module) for block in blocks)

    def _may_be_of_others(self, node: ast.AST) -> bool:
        """Whether an attribute may be that of an object whose class is not known."""
        if not isinstance(node, ast.Attribute):
            return False
        if node in self.flow(self.index.scope(node)).uses:
            return False
        return self.classes.may_be_others(node.value)

    def _before(
        self, node: ast.AST, reached: tuple[Definition, ...], path: tuple[Step, ...]
    ) -> Iterator[Origin]:
        """What an attribute is where this function has not set it."""
        assert isinstance(node, ast.Attribute)
        others = [d for d in self._attribute_definitions(node) if d not in reached]
        for definition in others:
            yield from self._from_definition(definition, path)
        if not others:
            yield Origin(node, "expression", path)

    def _unpack(
        self, node: ast.Tuple | ast.List, path: tuple[Step, ...]
    ) -> Iterator[Origin]:
        step = path[0]
        plain = not any(isinstance(item, ast.Starred) for item in node.elts)
        if isinstance(step, int) and plain and step < len(node.elts):
            yield from self._trace(node.elts[step], path[1:])
        else:
            yield Origin(node, "expression", path)

    def _from_definition(
        self, definition: Definition, path: tuple[Step, ...]
    ) -> Iterator[Origin]:
        path = (*definition.path, *path)
        if definition.kind == "assign" and definition.value is not None:
            if path == () and self._is_field(definition):
                for origin in self.origins(definition.value):
                    yield Origin(
                        origin.node, origin.kind, origin.path, definition, True
                    )
            elif path == ():
                yield from self.origins(definition.value)
            else:
                yield from self._trace_path(definition, path)
        elif definition.kind == "parameter":
            yield from self._from_callers(definition, path)
        elif definition.kind == "for":
            yield Origin(definition.node, "element", path, definition)
        elif definition.kind == "import":
            yield from self._from_import(definition, path)
        elif definition.kind in ("function", "class"):
            kind = definition.kind
            yield Origin(definition.node, kind, path, definition)
        elif definition.kind == "with" and definition.value is not None:
            yield Origin(definition.value, "expression", path, definition)
        else:
            yield Origin(definition.node, "unknown", path, definition)

    def _is_field(self, definition: Definition) -> bool:
        """Whether a value is the default of a dataclass's field."""
        statement = self.index.parent(definition.node)
        owner = self.index.parent(statement) if statement is not None else None
        annotated = isinstance(statement, ast.AnnAssign)
        return (
            annotated
            and isinstance(owner, ast.ClassDef)
            and self.classes.is_record(owner)
        )

    def _from_import(
        self, definition: Definition, path: tuple[Step, ...]
    ) -> Iterator[Origin]:
        for final in self.final(definition):
            if final.kind == "import":
                yield Origin(final.node, "import", path, final)
            else:
                yield from self._from_definition(final, path)

    def _trace_path(
        self, definition: Definition, path: tuple[Step, ...]
    ) -> Iterator[Origin]:
        """`x, y = pair`: back through the pair, each way once."""
        value = definition.value
        assert value is not None
        key = definition.node
        if key in self._origins and not self._origins[key]:
            self.answers.cut()
            return
        self._origins[key] = ()
        self.answers.open(self._origins, key)
        try:
            yield from self._trace(value, path)
        finally:
            del self._origins[key]
            self.answers.close(self._origins, key)

    def _from_callers(
        self, definition: Definition, path: tuple[Step, ...]
    ) -> Iterator[Origin]:
        function = self.index.parent(
            self.index.parent(definition.node) or definition.node
        )
        given: list[ast.expr] | None = []
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if definition.path == ():
                given = self.calls.arguments(function, definition.name)
            if self.self_name(function) == definition.name:
                yield Origin(definition.node, "parameter", path, definition)
                return
        for argument in given or ():
            if path == ():
                yield from self.origins(argument)
            else:
                yield from self._trace_argument(argument, path)
        if path == () and isinstance(function, ast.FunctionDef):
            if self._is_given_beside(function, definition.name):
                yield Origin(definition.node, "parameter", path, definition)
                return
            for setting in self._settings(function, definition.name):
                yield Origin(setting, "expression")
        if definition.value is not None and not (given and function in self.calls.only):
            default = definition.value
            for origin in self._trace(default, path) if path else self.origins(default):
                yield Origin(origin.node, origin.kind, origin.path, definition, True)
        if given is None or (not given and definition.value is None):
            yield Origin(definition.node, "parameter", path, definition)

    def _trace_argument(
        self, argument: ast.expr, path: tuple[Step, ...]
    ) -> Iterator[Origin]:
        """Back from a part of what a caller passes, each way once: it may recurse."""
        way = (argument, path)
        if way in self._ways:
            self.answers.cut()
            return
        self._ways.add(way)
        try:
            yield from self._trace(argument, path)
        finally:
            self._ways.discard(way)

    def _settings(self, function: Function, name: str) -> list[ast.expr]:
        """What settings files that name a class as their target pass to it."""
        named, project = self._target(function), self.index.home(function).project
        return settings_arguments(project, named, name) if project and named else []

    def _is_given_beside(self, function: Function, name: str) -> bool:
        """Whether who makes an object by settings may give a parameter as well."""
        named, project = self._target(function), self.index.home(function).project
        return bool(project and named and is_given_beside(project, named, name))

    def _target(self, function: Function) -> str | None:
        """What settings may call the class of an `__init__`; None for no such."""
        owner, home = self.index.parent(function), self.index.home(function)
        if function.name != "__init__" or not isinstance(owner, ast.ClassDef):
            return None
        if home.project is None or not any(map(home.project.mentions, _BUILDERS)):
            return None
        return qualified_name(home, owner)

    def _prepared(self, call: ast.Call, path: tuple[Step, ...]) -> Iterator[Origin]:
        """`accelerator.prepare(model, loader)` gives back what it is given."""
        step = path[0] if path else None
        if len(call.args) == 1 and not path:
            yield from self._trace(call.args[0], path)
        elif isinstance(step, int) and step < len(call.args) > 1:
            yield from self._trace(call.args[step], path[1:])
        else:
            yield Origin(call, "expression", path)

    def _follow_returns(self, call: ast.Call) -> bool:
        function = self.calls.callee(call)
        if function is None or not all(map(_gives_same, function.decorator_list)):
            return False
        flow = self.flow(function)
        return bool(flow.returns) and not flow.yields

    def _returned(self, call: ast.Call, path: tuple[Step, ...]) -> Iterator[Origin]:
        function = self.calls.callee(call)
        assert function is not None
        if function in self._followed:
            self._followed[function] = True  # recursion, with other arguments
            self.answers.cut()
            return
        self._followed[function] = False
        returned = [v for v in self.flow(function).returns if v is not None]
        try:
            for taken in (Taken(self, call, function), Taken(self, call, None)):
                for value in returned:
                    if taken.may_reach(value):
                        yield from self._given_back(value, path, taken)
                if not self._followed[function]:
                    break
        finally:
            del self._followed[function]

    def _given_back(
        self, value: ast.expr, path: tuple[Step, ...], taken: Taken
    ) -> Iterator[Origin]:
        """What a returned value comes from, in the branches that one call takes."""
        step = path[0] if path else None
        parts = value.elts if isinstance(value, ast.Tuple) else []
        plain = not any(isinstance(part, ast.Starred) for part in parts)
        if plain and isinstance(step, int) and step < len(parts):
            yield from self._given_back(parts[step], path[1:], taken)
            return
        reached = self.definitions(value) if isinstance(value, ast.Name) else ()
        chosen = [d for d in reached if taken.may_reach(d.node)]
        if len(chosen) == len(reached):
            yield from self._trace(value, path)
        else:
            for definition in chosen:
                yield from self._from_definition(definition, path)


def _gives_same(decorator: ast.expr) -> bool:
    """Whether a decorated function returns what its code says: `@staticmethod`."""
    its = decorator.func if isinstance(decorator, ast.Call) else decorator
    return dotted(its) in _SAME_RESULT


def _prepares(call: ast.Call) -> bool:
    """Whether a call wraps loaders and models for Accelerate or Fabric."""
    func = call.func
    if not isinstance(func, ast.Attribute) or any(
        isinstance(a, ast.Starred) for a in call.args
    ):
        return False
    name = (dotted(func.value) or "").lower()
    return (func.attr == "prepare" and "accelerator" in name) or (
        func.attr in ("setup", "setup_dataloaders") and "fabric" in name
    )
