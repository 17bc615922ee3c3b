"""Where a value comes from: names followed to the expressions that make them."""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gpulint.index.build import FileIndex, Function, Scope, last_name
from gpulint.index.chosen import chosen_classes, may_be_chosen
from gpulint.index.flow import Definition, Flow, Step
from gpulint.index.outside import Outside
from gpulint.index.project import MAX_IMPORTERS
from gpulint.index.taken import Taken
from gpulint.index.targets import qualified_name, settings_arguments
from gpulint.index.walk import dotted

if TYPE_CHECKING:
    from gpulint.index.project import Member

MAX_ORIGINS = 24
_RECORDS = frozenset("dataclass define s attrs frozen mutable".split())
_RECORD_BASES = frozenset(
    "BaseModel NamedTuple BaseSettings TrainingArguments Tap PretrainedConfig".split()
)
# Calls that give an object of a class they are given.
_MAKERS = frozenset(
    "field cli parse parse_args_into_dataclasses structured ib attrib wrap "
    "Factory".split()
)
# Methods of a module that return it.
_RETURN_SELF = frozenset("to cuda eval train half double requires_grad_ apply".split())
_CLASS_KEYWORDS = ("default_factory", "factory", "config_class")
# Methods of tensors, arrays and lists: no look at what their object is made of.
TENSOR_METHODS = frozenset(
    "view reshape size permute transpose item backward zero_grad append extend float "
    "long int unsqueeze squeeze mean sum max min format join split strip numpy cpu "
    "detach contiguous cuda to parameters state_dict load_state_dict expand repeat "
    "flatten clone dim numel astype tolist keys values items index count sort pop "
    "add_argument parse_args register_buffer zeros_like norm pow sqrt abs exp log "
    "softmax matmul bmm masked_fill gather scatter topk argmax".split()
)
# Methods that an object has which is a network.
OF_MODULES = ("parameters", "state_dict", "named_parameters", "modules")
# Method names too common to identify a class by.
_SAME_RESULT = frozenset(
    "staticmethod classmethod torch.no_grad torch.inference_mode".split()
)
_COMMON_METHODS = frozenset(
    "forward step update run get close reset add append load save __call__ to cuda "
    "eval items keys values copy write read start stop backward zero_grad".split()
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


class Resolver:
    """Follows names from one file, and through what it imports, on demand.

    Each answer is computed once. Nodes may be those of any file of the project.
    """

    def __init__(self, index: FileIndex) -> None:
        self.index = index
        self._flows: dict[Scope, Flow] = {}
        self._origins: dict[ast.AST, tuple[Origin, ...]] = {}
        self._followed: dict[Function, bool] = {}  # back from calls; whether twice
        self._callees: dict[ast.Call, tuple[Function, ...]] = {}
        self._callers: dict[Function, tuple[list[ast.Call], bool]] = {}
        self._members: dict[tuple[ast.ClassDef, str], list[Definition]] = {}
        self._busy: set[ast.expr] = set()
        self._ways: set[tuple[ast.expr, tuple[Step, ...]]] = set()  # being traced
        self._self_names: dict[ast.AST, str | None] = {}
        self._of_self: dict[tuple[Scope, str], tuple[Definition, ...]] = {}
        self._finals: dict[Definition, tuple[Definition, ...]] = {}
        self.repeated: dict[Function, bool] = {}  # whether loops call a function
        self._only: frozenset[Function] = frozenset()  # those whose callers are chosen
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
        other._callers = {f: (calls, False) for f, calls in callers.items()}
        other._only = frozenset(callers)
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
            if project is None or project.star_lacks(home, star, name):
                continue
            found = self._project_member(home, star)
            if found is not None and not found[1] and found[0] is not home:
                yield from self._top_definitions(found[0].tree, name)

    # Other files

    def _globals(self, module: ast.Module, name: str) -> Iterator[Definition]:
        """Definitions of a module's name, those by `global` in functions too."""
        yield from self._top_definitions(module, name)
        for function in self.index.home(module).writers.get(name, ()):
            yield from self.flow(function).definitions.get(name, ())

    def _project_member(self, home: FileIndex, name: str) -> Member | None:
        return home.project.resolve(home, name) if home.project is not None else None

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
            return self._project_member(home, f"{module}{dot}{alias.name}")
        name = alias.name if alias.asname else alias.name.partition(".")[0]
        return self._project_member(home, name)

    def final(self, definition: Definition) -> tuple[Definition, ...]:
        """What an imported name is defined as in its own file; else itself."""
        if definition.kind != "import":
            return (definition,)
        if definition not in self._finals:
            self._finals[definition] = (definition,)  # a cycle leads nowhere
            its = dict.fromkeys(self._reached(definition, set()))
            self._finals[definition] = tuple(its) or (definition,)
        return self._finals[definition]

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
        target = self._project_member(home, home.qualified(node) or "")
        if target is None or len(target[1]) != 1:
            return ()
        return tuple(self._globals(target[0].tree, target[1][0]))

    def _attribute_definitions(self, node: ast.Attribute) -> Iterator[Definition]:
        owners = self.classes_of(node.value)
        for owner in owners:
            yield from self.member(owner, node.attr)
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
            yield from self.flow(tree).definitions.get(name, ())

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

    def classes_of(self, node: ast.expr) -> list[ast.ClassDef]:
        """Classes of this project that an object can be an instance of (or itself)."""
        if isinstance(node, ast.Name):
            scope: Scope = self.index.scope(node)
            while not isinstance(scope, ast.Module):
                if self.self_name(scope) == node.id:
                    owner = self.index.parent(scope)
                    assert isinstance(owner, ast.ClassDef)
                    return [owner]
                scope = self.index.scope(scope)
        found: list[ast.ClassDef] = []
        for origin in self.origins(node):
            owner = self._class_of_origin(origin)
            if owner is not None:
                found.append(owner)
            elif origin.call is not None and not origin.path:
                found += chosen_classes(self, origin.call)
        return list(dict.fromkeys(found))

    def _class_of_origin(self, origin: Origin) -> ast.ClassDef | None:
        node = origin.node
        if isinstance(node, ast.ClassDef):
            return node
        if isinstance(node, ast.arg) and origin.path == ():
            return self._annotated(node.annotation) or self._returning_itself(node)
        if isinstance(node, ast.Call) and origin.kind == "expression":
            return self._class_of_call(node, origin.path)
        return None

    def _returning_itself(self, parameter: ast.arg) -> ast.ClassDef | None:
        """The class of `self`, which a method gives back."""
        home = self.index.home(parameter)
        function = home.parent(home.parent(parameter) or parameter)
        owner = home.parent(function) if function is not None else None
        if function is None or self.self_name(function) != parameter.arg:
            return None
        return owner if isinstance(owner, ast.ClassDef) else None

    def _class_of_call(
        self, call: ast.Call, path: tuple[Step, ...]
    ) -> ast.ClassDef | None:
        """`Config()`, `tyro.cli(Config)`, `field(default_factory=Config)`."""
        made = self.class_of(call.func) if path == () else None
        last = last_name(call)
        func = call.func
        if made is None and last in _RETURN_SELF and path == ():
            if not isinstance(func, ast.Attribute):
                return None  # a function: `eval(args.model)`
            its = self._classes_before(call, func.value)
            return its[0] if len(its) == 1 else None
        if made is not None or last not in _MAKERS:
            return made
        if last == "parse_args_into_dataclasses":
            return self._parsed_class(call, path)
        given = [k.value for k in call.keywords if k.arg in _CLASS_KEYWORDS]
        given = given or call.args[:1]
        return self.class_of(given[0]) if given and path == () else None

    def _classes_before(self, call: ast.Call, node: ast.expr) -> list[ast.ClassDef]:
        """Classes of what `x = x.to(device)` is called on; none round a loop."""
        if call in self._busy:
            return []
        self._busy.add(call)
        its = self.classes_of(node)
        self._busy.discard(call)
        return its

    def _parsed_class(
        self, call: ast.Call, path: tuple[Step, ...]
    ) -> ast.ClassDef | None:
        """`HfArgumentParser((A, B)).parse_args_into_dataclasses()`."""
        if not isinstance(call.func, ast.Attribute):
            return None
        for origin in self.origins(call.func.value):
            parser = origin.call
            given = parser.args[0] if parser is not None and parser.args else None
            classes = (
                given.elts if isinstance(given, (ast.Tuple, ast.List)) else [given]
            )
            step = path[0] if path else None
            if isinstance(step, int) and step < len(classes) and len(path) == 1:
                chosen = classes[step]
                return self.class_of(chosen) if chosen is not None else None
        return None

    def _annotated(self, node: ast.expr | None) -> ast.ClassDef | None:
        """The class of this project that an annotation names."""
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self.class_of(node)
        home = self.index.home(node) if node is not None else self.index
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return home.classes.get(node.value)
        return None

    def is_record(self, owner: ast.ClassDef) -> bool:
        """Whether a class's `__init__` is made from its annotated attributes."""
        marks = {
            dotted(d.func if isinstance(d, ast.Call) else d) or ""
            for d in owner.decorator_list
        }
        names = {m.rpartition(".")[2] for m in marks}
        bases = {b.rpartition(".")[2] for b in self.base_names(owner)}
        return bool(names & _RECORDS or bases & _RECORD_BASES)

    def constructors(self, owner: ast.ClassDef) -> list[ast.Call]:
        """Calls of a class, in its own file and in those that import it."""
        home = self.index.home(owner)
        homes = [home]
        if home.project is not None:
            homes += home.project.importers(home, owner.name, f"{owner.name}(") or []
        calls = (c for h in homes for c in h.calls_by_name.get(owner.name, ()))
        return [call for call in calls if self.class_of(call.func) is owner]

    def _given_fields(self, owner: ast.ClassDef, name: str) -> Iterator[Definition]:
        """What calls of a dataclass pass for one of its fields."""
        names = [
            item.target.id
            for current in reversed(self.bases(owner))
            for item in current.body
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        ]
        names = list(dict.fromkeys(names))
        for call in self.constructors(owner) if name in names else ():
            given = {k.arg: k.value for k in call.keywords}
            position = names.index(name)
            if name in given:
                yield Definition(name, given[name], "assign", given[name])
            elif any(isinstance(a, ast.Starred) for a in call.args[: position + 1]):
                yield Definition(name, call, "field")
            elif position < len(call.args):
                value = call.args[position]
                yield Definition(name, value, "assign", value)
            elif None in given:
                yield Definition(name, call, "field")

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
                if set(self.classes_of(written.value)) & set(owners):
                    yield Definition(node.attr, written, "assign", value)

    def class_of(self, callee: ast.expr) -> ast.ClassDef | None:
        """The class of this project that a callee names."""
        home = self.index.home(callee)
        if isinstance(callee, ast.Name) and callee.id in home.classes:
            return home.classes[callee.id]
        if home.project is None or not isinstance(callee, (ast.Name, ast.Attribute)):
            return None
        head = (dotted(callee) or "").partition(".")[0]
        star = home.stars and isinstance(callee, ast.Name)
        if head not in home.imports and not (star and head not in home.bound_names):
            return None
        if callee in self._busy:
            return None  # `layers = layers.chosen()`, of an imported name
        self._busy.add(callee)
        try:
            found = {f.node for d in self.definitions(callee) for f in self.final(d)}
        finally:
            self._busy.discard(callee)
        only = found.pop() if len(found) == 1 else None
        return only if isinstance(only, ast.ClassDef) else None

    def bases(self, owner: ast.ClassDef) -> list[ast.ClassDef]:
        """The class and its base classes in this project, nearest first."""
        order: list[ast.ClassDef] = []
        todo = [owner]
        while todo:
            current = todo.pop(0)
            if current not in order:
                order.append(current)
                for base in current.bases:
                    local = self.class_of(base)
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
        """Methods by name, inherited ones of this project included."""
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
            if self.is_record(owner):
                self._members[key] = found
                found += self._given_fields(owner, name)
            self._members[key] = found
        return self._members[key]

    # Functions and their callers

    def callee(self, call: ast.Call) -> Function | None:
        """The function or method of this project that a call runs, if it is sure."""
        found = self.callees(call)
        return found[0] if len(found) == 1 else None

    def callees(self, call: ast.Call) -> tuple[Function, ...]:
        """Functions of this project, one of which a call surely runs."""
        if call not in self._callees:
            self._callees[call] = ()  # a cycle adds nothing
            if self._may_be_own(call):
                self._callees[call] = tuple(self._find_callees(call))
        return self._callees[call]

    def _may_be_own(self, call: ast.Call) -> bool:
        """A cheap look at the name: most calls are of other packages."""
        home = self.index.home(call)
        name = last_name(call)
        if name in home.function_names or (home.stars and home.project is not None):
            return name not in TENSOR_METHODS or name in home.function_names
        if home.project is None or name in TENSOR_METHODS:
            return False
        head = (dotted(call.func) or "").partition(".")[0]
        origin = home.imports.get(head)
        if origin is not None:
            return home.project.owns(home, origin)
        method = isinstance(call.func, ast.Attribute) and home.uses_project
        return method and home.project.defines(name)

    def _find_callees(self, call: ast.Call) -> list[Function]:
        func = call.func
        if isinstance(func, ast.Name):
            reached = [f for d in self.definitions(func) for f in self.final(d)]
            return _functions([d.node for d in reached])
        if isinstance(func, ast.Attribute):
            owners = self.classes_of(func.value)
            if owners:
                return _functions([self.methods(o).get(func.attr) for o in owners])
            only = self._member_function(call, func)
            return [only] if only is not None else []
        return []

    def _member_function(self, call: ast.Call, func: ast.Attribute) -> Function | None:
        """A module's function, or the only method of that name."""
        home = self.index.home(func)
        name = dotted(func)
        if name is not None and name.partition(".")[0] not in home.imports:
            method = self._only_method(home, func.attr)
            if method is None or not self.takes(method, call):
                return None
            if home.owner(call) is home.parent(method):
                return None  # what an object holds is seldom of its own class
            foreign = _sets_mode(home, func, call) or self._is_foreign(home, func.value)
            return None if foreign or home.inside(call, method) else method
        found = {f.node for d in self.module_member(func) for f in self.final(d)}
        only = found.pop() if len(found) == 1 else None
        both = (ast.FunctionDef, ast.AsyncFunctionDef)
        return only if isinstance(only, both) else None

    def _only_method(self, home: FileIndex, name: str) -> Function | None:
        """The file's one method of that name, unless the name is a common one."""
        if name in _COMMON_METHODS or name.startswith("__"):
            return None
        found = [
            f
            for f in home.functions
            if f.name == name and isinstance(home.parent(f), ast.ClassDef)
        ]
        return found[0] if len(found) == 1 else None

    def _is_foreign(self, home: FileIndex, value: ast.expr) -> bool:
        """Whether a value may be what another package makes: `self.words = Words()`."""
        made = [o.expression for o in self.origins(value)]
        heads = ((dotted(m.func) or "") for m in made if isinstance(m, ast.Call))
        names = (home.imports.get(head.partition(".")[0]) for head in heads)
        owns = home.project.owns if home.project is not None else None
        return any(n is not None and not (owns and owns(home, n)) for n in names)

    def takes(self, function: Function, call: ast.Call) -> bool:
        """Whether a call passes a function each of its parameters once, and no more."""
        args = function.args
        bound = self.self_name(function) is not None
        names = [a.arg for a in [*args.posonlyargs, *args.args]][bound:]
        spread = any(isinstance(a, ast.Starred) for a in call.args)
        given = {k.arg for k in call.keywords}
        if len(call.args) > len(names) and args.vararg is None and not spread:
            return False
        placed = set(names[: len(call.args)]) - {a.arg for a in args.posonlyargs}
        if not spread and given & placed:
            return False  # by position and by name
        known = {*names, *(a.arg for a in args.kwonlyargs), None}
        if not given <= known and args.kwarg is None:
            return False
        needed = names[len(call.args) : len(names) - len(args.defaults)]
        return spread or None in given or set(needed) <= given

    def callers(self, function: Function) -> list[ast.Call]:
        """Calls of a function, a method, or (as `__init__`) a class, own file first."""
        return self._all_callers(function)[0]

    def _all_callers(self, function: Function) -> tuple[list[ast.Call], bool]:
        """The calls that are found, and whether those of too many files are not."""
        if function not in self._callers:
            self._callers[function] = ([], False)  # a cycle adds nothing
            home = self.index.home(function)
            others = self._importers(home, function)
            found = list(self._callers_in(home, function))
            for other in others or ():
                found += self._callers_in(other, function)
            self._callers[function] = (found, others is None)
        return self._callers[function]

    def _importers(self, home: FileIndex, function: Function) -> list[FileIndex] | None:
        """Other files that may call a function."""
        owner = home.parent(function)
        method = isinstance(owner, ast.ClassDef)
        if home.project is None or not (method or owner is home.tree):
            return []
        name = function.name
        if name.startswith("__") and name != "__init__":
            return []
        if not isinstance(owner, ast.ClassDef):
            return home.project.importers(home, name, f"{name}(")
        if name == "__init__":
            return home.project.importers(home, owner.name, f"{owner.name}(")
        found: dict[FileIndex, None] = {}
        heirs = self.outside.descendants(owner)
        for number, heir in enumerate(itertools.chain([owner], heirs)):
            its = self.index.home(heir)
            others = home.project.importers(its, heir.name, f".{name}(")
            if others is None:
                return None
            found.update(dict.fromkeys(o for o in others if o is not home))
            if max(number, len(found)) > MAX_IMPORTERS:
                return None  # of all heirs together
        if may_be_chosen(self, owner):
            for path in home.project.mentioning(f".{name}(")[:MAX_IMPORTERS]:
                other = home.project.index(path)
                if other is not None and other is not home:
                    found[other] = None
        return list(found)

    def _callers_in(self, home: FileIndex, function: Function) -> Iterator[ast.Call]:
        names = {function.name, *home.local_names.get(function.name, ())}
        for name in sorted(names):
            for call in home.calls_by_name.get(name, ()):
                if function in self.callees(call):
                    yield call
        if function.name == "__init__":
            yield from self._constructors_in(home, function)

    def _constructors_in(
        self, home: FileIndex, function: Function
    ) -> Iterator[ast.Call]:
        """Calls of the classes whose `__init__` a function is."""
        owner = self.index.parent(function)
        if not isinstance(owner, ast.ClassDef):
            return
        for name in sorted(_named_like(home, owner.name) & set(home.calls_by_name)):
            for call in home.calls_by_name[name]:
                made = self.class_of(call.func)
                chosen = name in home.renamed and made is None
                classes = self.classes_of(call.func) if chosen else [made]
                if any(
                    c and self.methods(c).get("__init__") is function for c in classes
                ):
                    yield call

    def arguments(self, function: Function, name: str) -> list[ast.expr] | None:
        """What callers pass for a parameter; None if one is not clear."""
        if self._all_callers(function)[1]:
            return None
        found: list[ast.expr] = []
        for call in self.callers(function):
            given, clear = self.given(call, function, name)
            if not clear:
                return None
            found += given
        return found

    def arguments_near(self, function: Function, name: str) -> list[ast.expr]:
        """What calls pass in this file, and in the function's own."""
        homes = dict.fromkeys([self.index, self.index.home(function)])
        calls = (c for home in homes for c in self._callers_in(home, function))
        return [n for call in calls for n in self.given(call, function, name)[0]]

    def given(
        self, call: ast.Call, function: Function, name: str
    ) -> tuple[list[ast.expr], bool]:
        """What a call passes for a parameter, and whether that is clear."""
        given = [k.value for k in call.keywords if k.arg == name]
        if given:
            return given, True
        position = self.position(function, name)
        if position is not None:
            spread = any(isinstance(a, ast.Starred) for a in call.args)
            if position < len(call.args) and not spread:
                return [call.args[position]], True
            if spread:
                return [], False
        return [], all(k.arg is not None for k in call.keywords)

    def position(self, function: Function, name: str) -> int | None:
        """Which argument of a call (0-based, without `self`) a parameter is."""
        args = function.args
        names = [a.arg for a in [*args.posonlyargs, *args.args]]
        bound = self.self_name(function) is not None
        number = names.index(name) - bound if name in names else -1
        return number if number >= 0 else None

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
        if node in flow.uses or self.classes_of(node.value):
            return node in flow.maybe_older
        blocks = (self.index.parent(self.index.statement(d.node)) for d in reached)
        return not any(isinstance(block, ast.Module) for block in blocks)

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
        return annotated and isinstance(owner, ast.ClassDef) and self.is_record(owner)

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
                given = self.arguments(function, definition.name)
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
        if definition.value is not None and not (given and function in self._only):
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
        function = self.callee(call)
        if function is None or not all(map(_gives_same, function.decorator_list)):
            return False
        flow = self.flow(function)
        return bool(flow.returns) and not flow.yields

    def _returned(self, call: ast.Call, path: tuple[Step, ...]) -> Iterator[Origin]:
        function = self.callee(call)
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


def _functions(nodes: list[ast.AST] | list[Function | None]) -> list[Function]:
    """The nodes without repetitions; none where one of them is no function."""
    both = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [node for node in dict.fromkeys(nodes) if isinstance(node, both)]
    return found if len(found) == len(set(nodes)) else []


def _sets_mode(home: FileIndex, func: ast.Attribute, call: ast.Call) -> bool:
    """Whether `model.train()` is that of a module, which the file calls or asks."""
    given = [*call.args, *(k.value for k in call.keywords)]
    plain = all(isinstance(a, ast.Constant) for a in given)
    if func.attr not in ("train", "eval") or not plain or len(given) > 1:
        return False
    name = dotted(func.value)
    called = home.calls_by_name.get((name or "").rpartition(".")[2], ())
    asked = (c for m in OF_MODULES for c in home.calls_by_name.get(m, ()))
    return any(dotted(c.func) == name for c in called) or any(
        isinstance(c.func, ast.Attribute) and dotted(c.func.value) == name
        for c in asked
    )


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


def _named_like(home: FileIndex, name: str) -> set[str]:
    """What a class, and those that derive from it, may be called in a file."""
    names = {name}
    names |= {n for n, o in home.imports.items() if o.rpartition(".")[2] == name}
    for owner in home.classes.values():
        bases = {(dotted(b) or "").rpartition(".")[2] for b in owner.bases}
        if bases & names:
            names.add(owner.name)
    return names | {new for new, olds in home.renamed.items() if olds & names}
