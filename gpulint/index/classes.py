"""Classes of a project: what objects are instances of, and what classes hold."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index.build import FileIndex, Function, Scope, last_name
from gpulint.index.chosen import chosen_classes
from gpulint.index.flow import Definition, Step
from gpulint.index.walk import dotted

if TYPE_CHECKING:
    from gpulint.index.resolve import Origin, Resolver

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


class Classes:
    """The classes that a resolver's names and calls lead to, of all files.

    Answers are kept, see `Answers`.
    """

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.index = resolver.index
        self._members: dict[tuple[ast.ClassDef, str], list[Definition]] = {}
        self._named: dict[ast.expr, ast.ClassDef | None] = {}
        self._classes: dict[ast.expr, tuple[list[ast.ClassDef], bool]] = {}
        self._bases: dict[ast.ClassDef, list[ast.ClassDef]] = {}
        self._busy: set[ast.expr] = set()

    def of(self, node: ast.expr) -> list[ast.ClassDef]:
        """Classes of this project that an object can be an instance of (or itself)."""
        return self._reached(node)[0]

    def may_be_others(self, node: ast.expr) -> bool:
        """Whether an object of such a class may as well be one that is not known."""
        found, clear = self._reached(node)
        return bool(found) and not clear

    def _reached(self, node: ast.expr) -> tuple[list[ast.ClassDef], bool]:
        """The classes of an object, and whether each of its origins has one."""
        return self.resolver.answers.whole(
            self._classes, node, lambda: self._find_reached(node)
        )

    def _find_reached(self, node: ast.expr) -> tuple[list[ast.ClassDef], bool]:
        if isinstance(node, ast.Name):
            scope: Scope = self.index.scope(node)
            while not isinstance(scope, ast.Module):
                if self.resolver.self_name(scope) == node.id:
                    owner = self.index.parent(scope)
                    assert isinstance(owner, ast.ClassDef)
                    return [owner], True
                scope = self.index.scope(scope)
        found: list[ast.ClassDef] = []
        clear = True
        for origin in self.resolver.origins(node):
            owner = self._class_of_origin(origin)
            its = [owner] if owner is not None else []
            if owner is None and origin.call is not None and not origin.path:
                its = chosen_classes(self.resolver, origin.call)
            found += its
            clear = clear and bool(its or _is_none(origin))
        return list(dict.fromkeys(found)), clear

    def _class_of_origin(self, origin: Origin) -> ast.ClassDef | None:
        node = origin.node
        if isinstance(node, ast.ClassDef):
            return node
        if isinstance(node, ast.arg) and origin.path == ():
            return self._annotated(node.annotation) or self._returning_itself(node)
        if isinstance(node, ast.Call) and origin.kind == "expression":
            return self._class_of_call(node, origin.path)
        if isinstance(node, ast.Subscript) and origin.path == ():
            return self._class_of_value(node)
        return None

    def _class_of_value(self, node: ast.Subscript) -> ast.ClassDef | None:
        """The class of `meters[name]`, where `meters = defaultdict(Meter)`."""
        made = [origin.call for origin in self.resolver.origins(node.value)]
        if len(made) != 1 or made[0] is None or last_name(made[0]) != "defaultdict":
            return None
        return self.named(made[0].args[0]) if made[0].args else None

    def _returning_itself(self, parameter: ast.arg) -> ast.ClassDef | None:
        """The class of `self`, which a method gives back."""
        home = self.index.home(parameter)
        function = home.parent(home.parent(parameter) or parameter)
        owner = home.parent(function) if function is not None else None
        if function is None or self.resolver.self_name(function) != parameter.arg:
            return None
        return owner if isinstance(owner, ast.ClassDef) else None

    def _class_of_call(
        self, call: ast.Call, path: tuple[Step, ...]
    ) -> ast.ClassDef | None:
        """`Config()`, `tyro.cli(Config)`, `field(default_factory=Config)`."""
        made = self.named(call.func) if path == () else None
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
        return self.named(given[0]) if given and path == () else None

    def _classes_before(self, call: ast.Call, node: ast.expr) -> list[ast.ClassDef]:
        """Classes of what `x = x.to(device)` is called on; none round a loop."""
        if call in self._busy:
            self.resolver.answers.cut()
            return []
        self._busy.add(call)
        its = self.of(node)
        self._busy.discard(call)
        return its

    def _parsed_class(
        self, call: ast.Call, path: tuple[Step, ...]
    ) -> ast.ClassDef | None:
        """`HfArgumentParser((A, B)).parse_args_into_dataclasses()`."""
        if not isinstance(call.func, ast.Attribute):
            return None
        for origin in self.resolver.origins(call.func.value):
            parser = origin.call
            given = parser.args[0] if parser is not None and parser.args else None
            classes = (
                given.elts if isinstance(given, (ast.Tuple, ast.List)) else [given]
            )
            step = path[0] if path else None
            if isinstance(step, int) and step < len(classes) and len(path) == 1:
                chosen = classes[step]
                return self.named(chosen) if chosen is not None else None
        return None

    def _annotated(self, node: ast.expr | None) -> ast.ClassDef | None:
        """The class of this project that an annotation names."""
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self.named(node)
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
        homes: list[FileIndex] = []
        if home.project is not None:
            homes += home.project.importers(home, owner.name, f"{owner.name}(") or []
        homes = [home, *self.resolver.calls.beside(home, homes)]
        calls = (c for h in homes for c in h.calls_by_name.get(owner.name, ()))
        return [call for call in calls if self.named(call.func) is owner]

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

    def named(self, callee: ast.expr) -> ast.ClassDef | None:
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
            self.resolver.answers.cut()
            return None  # `layers = layers.chosen()`, of an imported name
        return self.resolver.answers.whole(
            self._named, callee, lambda: self._find_named(callee)
        )

    def _find_named(self, callee: ast.expr) -> ast.ClassDef | None:
        self._busy.add(callee)
        try:
            found = set(self.resolver.named(callee))
        finally:
            self._busy.discard(callee)
        only = found.pop() if len(found) == 1 else None
        return only if isinstance(only, ast.ClassDef) else None

    def bases(self, owner: ast.ClassDef) -> list[ast.ClassDef]:
        """The class and its base classes in this project, nearest first."""
        return self.resolver.answers.whole(
            self._bases, owner, lambda: self._find_bases(owner)
        )

    def _find_bases(self, owner: ast.ClassDef) -> list[ast.ClassDef]:
        order: list[ast.ClassDef] = []
        todo = [owner]
        while todo:
            current = todo.pop(0)
            if current not in order:
                order.append(current)
                for base in current.bases:
                    local = self.named(base)
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
            found |= own_methods(current)
        return found

    def member(self, owner: ast.ClassDef, name: str) -> list[Definition]:
        """All definitions of an attribute: `self.name = …` anywhere, class body."""
        key = (owner, name)
        if key in self._members:
            return self.resolver.answers.known(self._members, key)
        found: list[Definition] = []
        for current in self.bases(owner):
            found += self.resolver.flow(current).definitions.get(name, ())
            for item in current.body:
                own = self.resolver.self_name(item)
                if own is not None:
                    assert isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))
                    its = self.resolver.flow(item).definitions
                    found += its.get(f"{own}.{name}", ())

        def with_given() -> list[Definition]:
            given = self._given_fields(owner, name) if self.is_record(owner) else ()
            return [*found, *given]

        return self.resolver.answers.first(self._members, key, with_given, found)


def own_methods(owner: ast.ClassDef) -> dict[str, Function]:
    """The methods that stand in a class itself, by name."""
    both = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {item.name: item for item in owner.body if isinstance(item, both)}


def _is_none(origin: Origin) -> bool:
    """`self.camera = None`, which has no attributes to read."""
    its = origin.expression
    return isinstance(its, ast.Constant) and its.value is None
