"""Where a value comes from: names followed to the expressions that make them."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from gpulint.index.build import FileIndex, Function, Scope
from gpulint.index.flow import Definition, Flow, Step
from gpulint.index.walk import FUNCTIONS, dotted

MAX_ORIGINS = 24
# Method names too common to identify a class by.
_COMMON_METHODS = frozenset(
    "forward step update run get close reset add append load save __call__ to cuda "
    "eval items keys values copy write read start stop backward zero_grad".split()
)


@dataclass(frozen=True, eq=False)
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


class Resolver:
    """Follows names inside one file, on demand, each answer computed once."""

    def __init__(self, index: FileIndex) -> None:
        self.index = index
        self._flows: dict[Scope, Flow] = {}
        self._origins: dict[ast.AST, tuple[Origin, ...]] = {}
        self._callees: dict[ast.Call, Function | None] = {}
        self._callers: dict[Function, list[ast.Call]] = {}
        self._members: dict[tuple[ast.ClassDef, str], list[Definition]] = {}

    # Scopes and definitions

    def flow(self, scope: Scope) -> Flow:
        """Use-definition chains of one scope."""
        if scope not in self._flows:
            self._flows[scope] = Flow(scope)
        return self._flows[scope]

    def definitions(self, node: ast.AST) -> tuple[Definition, ...]:
        """The definitions that can reach a name or attribute where it is read."""
        scope = self.index.scope(node)
        flow = self.flow(scope)
        found = flow.uses.get(node)
        if found is not None:
            if isinstance(scope, ast.Module) and isinstance(node, ast.Name):
                for function in self._writers.get(node.id, ()):
                    found += tuple(self.flow(function).definitions.get(node.id, ()))
            return found
        if isinstance(node, ast.Name):
            return tuple(self._outer_definitions(node.id, scope))
        if isinstance(node, ast.Attribute):
            return tuple(self._attribute_definitions(node))
        return ()

    def _outer_definitions(self, name: str, scope: Scope) -> Iterator[Definition]:
        """Definitions of a free name in the scopes around; all of the nearest."""
        if isinstance(scope, ast.Module):
            yield from self.flow(scope).definitions.get(name, ())
            return
        mine = self.flow(scope).definitions.get(name)
        if mine and name not in self.flow(scope).outer:
            yield from mine
            return
        above = self.index.scope(scope)
        while isinstance(above, ast.ClassDef):
            above = self.index.scope(above)
        yield from self._outer_definitions(name, above)
        for function in self._writers.get(name, ()):
            yield from self.flow(function).definitions.get(name, ())

    @cached_property
    def _writers(self) -> dict[str, list[Function]]:
        """Functions that assign a name they declare global or nonlocal."""
        writers: dict[str, list[Function]] = defaultdict(list)
        for node in [*self.index.all(ast.Global), *self.index.all(ast.Nonlocal)]:
            assert isinstance(node, (ast.Global, ast.Nonlocal))
            function = self.index.function(node)
            if function is not None:
                for name in node.names:
                    writers[name].append(function)
        return writers

    def _attribute_definitions(self, node: ast.Attribute) -> Iterator[Definition]:
        for owner in self.classes_of(node.value):
            yield from self.member(owner, node.attr)
        name = dotted(node)
        if name and "." in name and not name.startswith(("self.", "cls.")):
            head = name.partition(".")[0]
            scope = self.index.scope(node)
            if head in self.flow(scope).definitions or isinstance(scope, ast.Module):
                return
            yield from self.flow(self.index.tree).definitions.get(name, ())

    def self_name(self, function: ast.AST) -> str | None:
        """The name of a method's instance parameter; None for a plain function."""
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return None
        if not isinstance(self.index.parent(function), ast.ClassDef):
            return None
        decorators = {dotted(d) for d in function.decorator_list}
        args = [*function.args.posonlyargs, *function.args.args]
        return None if "staticmethod" in decorators or not args else args[0].arg

    def classes_of(self, node: ast.expr) -> list[ast.ClassDef]:
        """Classes of this file that an object can be an instance of (or itself)."""
        if isinstance(node, ast.Name):
            scope: Scope = self.index.scope(node)
            while not isinstance(scope, ast.Module):
                if self.self_name(scope) == node.id:
                    owner = self.index.parent(scope)
                    assert isinstance(owner, ast.ClassDef)
                    return [owner]
                scope = self.index.scope(scope)
        found = []
        for origin in self.origins(node):
            if isinstance(origin.node, ast.ClassDef):
                found.append(origin.node)
            elif origin.call is not None:
                owner_class = self.local_class(origin.call.func)
                if owner_class is not None:
                    found.append(owner_class)
        return found

    def local_class(self, callee: ast.expr) -> ast.ClassDef | None:
        """The class of this file that a callee names."""
        if isinstance(callee, ast.Name) and callee.id in self.index.classes:
            return self.index.classes[callee.id]
        return None

    def bases(self, owner: ast.ClassDef) -> list[ast.ClassDef]:
        """The class and its base classes in this file, nearest first."""
        order: list[ast.ClassDef] = []
        todo = [owner]
        while todo:
            current = todo.pop(0)
            if current not in order:
                order.append(current)
                for base in current.bases:
                    local = self.local_class(base)
                    if local is not None:
                        todo.append(local)
        return order

    def base_names(self, owner: ast.ClassDef) -> set[str]:
        """Qualified names of all bases, those of local bases included."""
        names = set()
        for current in self.bases(owner):
            for base in current.bases:
                node = base.value if isinstance(base, ast.Subscript) else base
                names.add(self.index.qualified(node) or "")
        return names

    def methods(self, owner: ast.ClassDef) -> dict[str, Function]:
        """Methods by name, inherited ones of this file included."""
        found: dict[str, Function] = {}
        for current in reversed(self.bases(owner)):
            for item in current.body:
                if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    found[item.name] = item
        return found

    def member(self, owner: ast.ClassDef, name: str) -> list[Definition]:
        """All definitions of an attribute: `self.name = …` anywhere, class body."""
        key = (owner, name)
        if key not in self._members:
            found: list[Definition] = []
            for current in self.bases(owner):
                found += self.flow(current).definitions.get(name, ())
                for item in current.body:
                    own = self.self_name(item)
                    if own is not None:
                        assert isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))
                        its = self.flow(item).definitions
                        found += its.get(f"{own}.{name}", ())
            self._members[key] = found
        return self._members[key]

    # Functions and their callers

    def callee(self, call: ast.Call) -> Function | None:
        """The function or method of this file that a call runs, if it is sure."""
        if call not in self._callees:
            self._callees[call] = None  # a cycle adds nothing
            if _last_name(call) in self._function_names:
                self._callees[call] = self._find_callee(call)
        return self._callees[call]

    @cached_property
    def _function_names(self) -> frozenset[str]:
        """Names that functions of this file go by, aliases included."""
        own = {f.name for f in self.index.functions}
        return frozenset(own)

    def _find_callee(self, call: ast.Call) -> Function | None:
        func = call.func
        if isinstance(func, ast.Name):
            reached = self.definitions(func)
            functions = [d.node for d in reached if d.kind == "function"]
            if len(functions) == 1 and len(reached) == 1:
                found = functions[0]
                assert isinstance(found, (ast.FunctionDef, ast.AsyncFunctionDef))
                return found
            return None
        if isinstance(func, ast.Attribute):
            owners = self.classes_of(func.value)
            methods = {self.methods(owner).get(func.attr) for owner in owners}
            if len(methods) == 1:
                return methods.pop()
            if not owners and not self._imported(func):
                return self._only_method(func.attr)
        return None

    def _imported(self, func: ast.Attribute) -> bool:
        name = dotted(func)
        return name is None or name.partition(".")[0] in self.index.imports

    def _only_method(self, name: str) -> Function | None:
        """The file's one method of that name, unless the name is a common one."""
        if name in _COMMON_METHODS or name.startswith("__"):
            return None
        found = [
            f
            for f in self.index.functions
            if f.name == name and isinstance(self.index.parent(f), ast.ClassDef)
        ]
        return found[0] if len(found) == 1 else None

    def callers(self, function: Function) -> list[ast.Call]:
        """Calls in this file of a function, a method, or (as `__init__`) a class."""
        if function not in self._callers:
            self._callers[function] = []  # a cycle adds nothing
            self._callers[function] = list(self._find_callers(function))
        return self._callers[function]

    def _find_callers(self, function: Function) -> Iterator[ast.Call]:
        for call in self._calls_by_name.get(function.name, ()):
            if self.callee(call) is function:
                yield call
        if function.name == "__init__":
            for name, owner in self.index.classes.items():
                if self.methods(owner).get("__init__") is function:
                    for call in self._calls_by_name.get(name, ()):
                        if self.local_class(call.func) is owner:
                            yield call

    @cached_property
    def _calls_by_name(self) -> dict[str, list[ast.Call]]:
        calls: dict[str, list[ast.Call]] = defaultdict(list)
        for call in self.index.all(ast.Call):
            calls[_last_name(call)].append(call)
        return calls

    def arguments(self, function: Function, name: str) -> list[ast.expr] | None:
        """What callers in this file pass for a parameter; None if one is not clear."""
        args = function.args
        names = [a.arg for a in [*args.posonlyargs, *args.args]]
        bound = self.self_name(function) is not None
        found: list[ast.expr] = []
        for call in self.callers(function):
            given = [k.value for k in call.keywords if k.arg == name]
            if given:
                found.append(given[0])
                continue
            if name in names:
                position = names.index(name) - bound
                spread = any(isinstance(a, ast.Starred) for a in call.args)
                if 0 <= position < len(call.args) and not spread:
                    found.append(call.args[position])
                    continue
                if spread:
                    return None
            if any(k.arg is None for k in call.keywords):
                return None
        return found

    # Origins

    def origins(self, node: ast.AST) -> tuple[Origin, ...]:
        """Everything an expression can come from, names followed to their making."""
        if node not in self._origins:
            self._origins[node] = ()  # a cycle adds nothing
            found: list[Origin] = []
            for origin in self._trace(node, ()):
                if not any(
                    o.node is origin.node and o.path == origin.path for o in found
                ):
                    found.append(origin)
                if len(found) > MAX_ORIGINS:
                    found = [Origin(node, "unknown")]
                    break
            self._origins[node] = tuple(found)
        return self._origins[node]

    def _trace(self, node: ast.AST, path: tuple[Step, ...]) -> Iterator[Origin]:
        if isinstance(node, (ast.Name, ast.Attribute)):
            reached = self.definitions(node)
            if reached:
                for definition in reached:
                    yield from self._from_definition(definition, path)
                if self._may_be_older(node, reached):
                    yield from self._before(node, reached, path)
            else:
                yield Origin(node, "expression", path)
        elif isinstance(node, ast.IfExp):
            yield from self._trace(node.body, path)
            yield from self._trace(node.orelse, path)
        elif isinstance(node, ast.BoolOp):
            for value in node.values:
                yield from self._trace(value, path)
        elif isinstance(node, ast.NamedExpr):
            yield from self._trace(node.value, path)
        elif isinstance(node, (ast.Tuple, ast.List)) and path:
            yield from self._unpack(node, path)
        elif isinstance(node, ast.Call) and self._follow_returns(node):
            yield from self._returned(node, path)
        else:
            yield Origin(node, "expression", path)

    def _may_be_older(self, node: ast.AST, reached: tuple[Definition, ...]) -> bool:
        """Whether an attribute may still have the value that its object came with."""
        if not isinstance(node, ast.Attribute):
            return False
        flow = self.flow(self.index.scope(node))
        if node in flow.uses or self.classes_of(node.value):
            return node in flow.maybe_older
        blocks = (self.index.parent(self.index.statement(d.node)) for d in reached)
        return all(block is not self.index.tree for block in blocks)

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
            if path == ():
                yield from self.origins(definition.value)
            else:
                yield from self._trace_path(definition, path)
        elif definition.kind == "parameter":
            yield from self._from_callers(definition, path)
        elif definition.kind == "for":
            yield Origin(definition.node, "element", path, definition)
        elif definition.kind in ("import", "function", "class"):
            kind = definition.kind
            yield Origin(definition.node, kind, path, definition)
        elif definition.kind == "with" and definition.value is not None:
            yield Origin(definition.value, "expression", path, definition)
        else:
            yield Origin(definition.node, "unknown", path, definition)

    def _trace_path(
        self, definition: Definition, path: tuple[Step, ...]
    ) -> Iterator[Origin]:
        """`x, y = pair`: back through the pair, each way once."""
        value = definition.value
        assert value is not None
        key = definition.node
        if key in self._origins and not self._origins[key]:
            return
        self._origins[key] = ()
        yield from self._trace(value, path)
        del self._origins[key]

    def _from_callers(
        self, definition: Definition, path: tuple[Step, ...]
    ) -> Iterator[Origin]:
        function = self.index.parent(
            self.index.parent(definition.node) or definition.node
        )
        given: list[ast.expr] | None = None
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if definition.path == ():
                given = self.arguments(function, definition.name)
            if self.self_name(function) == definition.name:
                yield Origin(definition.node, "parameter", path, definition)
                return
        for argument in given or ():
            if path == ():
                yield from self.origins(argument)
            else:
                yield from self._trace(argument, path)
        if definition.value is not None:
            default = definition.value
            for origin in self._trace(default, path) if path else self.origins(default):
                yield Origin(origin.node, origin.kind, origin.path, definition, True)
        if not given and definition.value is None:
            yield Origin(definition.node, "parameter", path, definition)

    def _follow_returns(self, call: ast.Call) -> bool:
        function = self.callee(call)
        if function is None or function.decorator_list:
            return False
        flow = self.flow(function)
        return bool(flow.returns) and not flow.yields

    def _returned(self, call: ast.Call, path: tuple[Step, ...]) -> Iterator[Origin]:
        function = self.callee(call)
        assert function is not None
        if function in self._origins:  # recursion
            return
        self._origins[function] = ()
        for value in self.flow(function).returns:
            if value is not None:
                yield from self._trace(value, path)
        del self._origins[function]


def _last_name(call: ast.Call) -> str:
    """`step` for `step()` and `trainer.step()`."""
    func = call.func
    if isinstance(func, ast.Attribute):
        return func.attr
    return func.id if isinstance(func, ast.Name) else ""


def enclosing_function(index: FileIndex, definition: Definition) -> ast.AST | None:
    """The function (or lambda) whose parameter a definition is."""
    arguments = index.parent(definition.node)
    function = index.parent(arguments) if arguments is not None else None
    return function if isinstance(function, FUNCTIONS) else None
