"""Where a value comes from: names followed to the expressions that make them."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gpulint.index.build import FileIndex, Function, Scope
from gpulint.index.calls import Calls
from gpulint.index.classes import Classes
from gpulint.index.flow import Definition, Flow, Step
from gpulint.index.outside import Outside
from gpulint.index.taken import Taken
from gpulint.index.targets import qualified_name, settings_arguments
from gpulint.index.walk import dotted

if TYPE_CHECKING:
    from gpulint.index.module_search import Member

MAX_ORIGINS = 24
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


def _without_replaced(
    module: ast.Module, definitions: list[Definition]
) -> list[Definition]:
    """Without the imports of a name that a class or function takes further down.

    `class Dataset(Dataset):`, whose base is imported.
    """
    taken = [d.node.lineno for d in definitions if d.node in module.body]
    last = max(taken, default=0)
    return [
        d
        for d in definitions
        if d.kind != "import" or getattr(d.node, "lineno", last) >= last
    ]


class Resolver:
    """Follows names from one file, and through what it imports, on demand.

    Each answer is computed once. Nodes may be those of any file of the project.
    """

    def __init__(self, index: FileIndex) -> None:
        self.index = index
        self._flows: dict[Scope, Flow] = {}
        self._origins: dict[ast.AST, tuple[Origin, ...]] = {}
        self._followed: dict[Function, bool] = {}  # back from calls; whether twice
        self._ways: set[tuple[ast.expr, tuple[Step, ...]]] = set()  # being traced
        self._self_names: dict[ast.AST, str | None] = {}
        self._of_self: dict[tuple[Scope, str], tuple[Definition, ...]] = {}
        self._finals: dict[Definition, tuple[Definition, ...]] = {}
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
        """The same, as if only these calls were made of these functions."""
        other = Resolver(self.index)
        other._flows = self._flows
        other.calls = Calls(other, callers)
        return other

    # Scopes and definitions

    def flow(self, scope: Scope) -> Flow:
        """Use-definition chains of one scope."""
        found = self._flows.get(scope)
        if found is None:
            kept = self.index.home(scope).flows
            if scope not in kept:
                kept[scope] = Flow(scope)
            found = self._flows[scope] = kept[scope]
        return found

    def definitions(self, node: ast.AST) -> tuple[Definition, ...]:
        """The definitions that can reach a name or attribute where it is read."""
        scope = self.index.scope(node)
        flow = self.flow(scope)
        found = flow.uses.get(node)
        if found is not None:
            if isinstance(node, ast.Name):
                for function in self.index.home(scope).writers.get(node.id, ()):
                    if function is not scope and self.index.inside(function, scope):
                        its = self.flow(function).definitions.get(node.id, ())
                        found += tuple(its)
            return found
        if isinstance(node, ast.Name):
            return tuple(self._outer_definitions(node.id, scope))
        if isinstance(node, ast.Attribute):
            return self._of_attribute(node, scope)
        return ()

    def _of_attribute(
        self, node: ast.Attribute, scope: Scope
    ) -> tuple[Definition, ...]:
        """Definitions of an attribute that its function does not set itself."""
        if not isinstance(node.value, ast.Name) or (
            node.value.id != self.self_name(scope)
        ):
            return tuple(self._attribute_definitions(node))
        key = (scope, node.attr)
        if key not in self._of_self:  # `self.x` is the same all over a method
            self._of_self[key] = ()  # a cycle adds nothing
            self._of_self[key] = tuple(self._attribute_definitions(node))
        return self._of_self[key]

    def _outer_definitions(self, name: str, scope: Scope) -> Iterator[Definition]:
        """Definitions of a free name in the scopes around; all of the nearest."""
        if isinstance(scope, ast.Module):
            yield from self._top_definitions(scope, name)
            return
        mine = self.flow(scope).definitions.get(name)
        if mine and name not in self.flow(scope).outer:
            yield from mine
            return
        above = self.index.scope(scope)
        own = self._of_comprehension(name, scope, above)
        if own:
            yield from own
            return
        while isinstance(above, ast.ClassDef):
            above = self.index.scope(above)
        yield from self._outer_definitions(name, above)
        for function in self.index.home(scope).writers.get(name, ()):
            yield from self.flow(function).definitions.get(name, ())

    def _of_comprehension(
        self, name: str, scope: Scope, above: Scope
    ) -> list[Definition]:
        """What the comprehension around a lambda binds: `[lambda: x for x in xs]`."""
        inner = self.flow(above).inner
        for node in self.index.ancestors(scope) if inner else ():
            if node is above:
                break
            if name in inner.get(node, ()):
                return inner[node][name]
        return []

    def _top_definitions(self, module: ast.Module, name: str) -> Iterator[Definition]:
        """Definitions of a global name of a module, those behind `import *` too."""
        own = self.flow(module).definitions.get(name)
        if own:
            yield from own
            return
        home = self.index.home(module)
        project = home.project
        for star in home.stars:
            if project is None or project.modules.star_lacks(home, star, name):
                continue
            found = home.member(star)
            if found is not None and not found[1] and found[0] is not home:
                yield from self._top_definitions(found[0].tree, name)

    # Other files

    def _globals(self, module: ast.Module, name: str) -> Iterator[Definition]:
        """Definitions of a module's name, those by `global` in functions too."""
        yield from self._top_definitions(module, name)
        for function in self.index.home(module).writers.get(name, ()):
            yield from self.flow(function).definitions.get(name, ())

    def imported(self, definition: Definition) -> Member | None:
        """Where an import of this project leads: the module, and what is left."""
        alias = definition.node
        home = self.index.home(alias)
        if home.project is None or not isinstance(alias, ast.alias):
            return None
        statement = home.parent(alias)
        if isinstance(statement, ast.ImportFrom):
            module = "." * statement.level + (statement.module or "")
            dot = "" if module.endswith(".") else "."
            return home.member(f"{module}{dot}{alias.name}")
        name = alias.name if alias.asname else alias.name.partition(".")[0]
        return home.member(name)

    def final(self, definition: Definition) -> tuple[Definition, ...]:
        """What an imported name is defined as in its own file; else itself."""
        if definition.kind != "import":
            return (definition,)
        if definition not in self._finals:
            self._finals[definition] = (definition,)  # a cycle leads nowhere
            its = dict.fromkeys(self._reached(definition, set()))
            self._finals[definition] = tuple(its) or (definition,)
        return self._finals[definition]

    def named(self, node: ast.AST) -> list[ast.AST]:
        """What a name is defined as, in the files that it is imported from."""
        return [f.node for d in self.definitions(node) for f in self.final(d)]

    def _reached(
        self, definition: Definition, seen: set[Definition]
    ) -> Iterator[Definition]:
        """What a name stands for in the end; modules may import from each other."""
        if definition.kind != "import":
            yield definition
        elif definition not in seen:
            seen.add(definition)
            target = self.imported(definition)
            its: list[Definition] = []
            if target is not None and len(target[1]) == 1:
                its = list(self._globals(target[0].tree, target[1][0]))
                its = _without_replaced(target[0].tree, its)
            if not its:
                yield definition
            for inner in its:
                yield from self._reached(inner, seen)

    def module_member(self, node: ast.Attribute) -> tuple[Definition, ...]:
        """`utils.fit`: the definitions of `fit` in a module of this project."""
        home = self.index.home(node)
        name = dotted(node) if home.project is not None else None
        if name is None or name.partition(".")[0] not in home.imports:
            return ()
        target = home.member(home.qualified(node) or "")
        if target is None or len(target[1]) != 1:
            return ()
        return tuple(self._globals(target[0].tree, target[1][0]))

    def _attribute_definitions(self, node: ast.Attribute) -> Iterator[Definition]:
        owners = self.classes.of(node.value)
        for owner in owners:
            yield from self.classes.member(owner, node.attr)
        if owners:
            yield from self._written_outside(owners, node)
            yield from self.outside.of_classes(owners, node)
        imported = self.module_member(node)
        if imported:
            yield from imported
            yield from self.outside.of_module(imported, node)
            return
        name = dotted(node)
        if name and "." in name and not name.startswith(("self.", "cls.")):
            head = name.partition(".")[0]
            scope = self.index.scope(node)
            if head in self.flow(scope).definitions or isinstance(scope, ast.Module):
                return
            tree = self.index.home(node).tree
            found = self.flow(tree).definitions.get(name, ())
            yield from found
            if found:
                yield from self._set_in_functions(node, name)

    def _set_in_functions(self, node: ast.Attribute, name: str) -> Iterator[Definition]:
        """`CONF.size = 3` in other functions of a file than where it is read."""
        home = self.index.home(node)
        for written in home.attribute_writes.get(node.attr, ()):
            where = home.scope(written)
            if dotted(written) != name or where in (home.tree, home.scope(node)):
                continue
            above = home.parent(written)
            plain = isinstance(above, ast.Assign) and written in above.targets
            value = above.value if isinstance(above, ast.Assign) and plain else None
            yield Definition(node.attr, written, "assign", value)

    def self_name(self, function: ast.AST) -> str | None:
        """The name of a method's instance parameter; None for a plain function."""
        if function not in self._self_names:
            self._self_names[function] = self._find_self_name(function)
        return self._self_names[function]

    def _find_self_name(self, function: ast.AST) -> str | None:
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return None
        if not isinstance(self.index.parent(function), ast.ClassDef):
            return None
        decorators = {dotted(d) for d in function.decorator_list}
        args = [*function.args.posonlyargs, *function.args.args]
        return None if "staticmethod" in decorators or not args else args[0].arg

    def _written_outside(
        self, owners: list[ast.ClassDef], node: ast.Attribute
    ) -> Iterator[Definition]:
        """`trainer.loader = …` outside the class, in other functions than here."""
        homes = {self.index.home(node), *(self.index.home(o) for o in owners)}
        scope = self.index.scope(node)
        for home in homes:
            for written in home.attribute_writes.get(node.attr, ()):
                where = home.scope(written)
                if where is scope or dotted(written.value) == self.self_name(where):
                    continue
                above = home.parent(written)
                value = above.value if isinstance(above, ast.Assign) else None
                if set(self.classes.of(written.value)) & set(owners):
                    yield Definition(node.attr, written, "assign", value)

    # Origins

    def parameter_origins(self, function: Function, name: str) -> tuple[Origin, ...]:
        """Everything that a parameter can be when its function is called."""
        own = self.flow(function).definitions.get(name, ())
        parameters = [d for d in own if d.kind == "parameter"]
        return tuple(o for d in parameters for o in self._from_definition(d, ()))

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
            return
        self._origins[key] = ()
        try:
            yield from self._trace(value, path)
        finally:
            del self._origins[key]

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
            return
        self._ways.add(way)
        try:
            yield from self._trace(argument, path)
        finally:
            self._ways.discard(way)

    def _settings(self, function: Function, name: str) -> list[ast.expr]:
        """What settings files that name a class as their target pass to it."""
        owner, home = self.index.parent(function), self.index.home(function)
        if function.name != "__init__" or not isinstance(owner, ast.ClassDef):
            return []
        if home.project is None or not home.project.mentions("instantiate"):
            return []
        return settings_arguments(home.project, qualified_name(home, owner), name)

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
