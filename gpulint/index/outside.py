"""Attributes that are set out of sight: in other files, by computed names."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gpulint.index.build import FileIndex, Function, last_name
from gpulint.index.flow import Definition, Kind
from gpulint.index.walk import FUNCTIONS, dotted

if TYPE_CHECKING:
    from gpulint.index.resolve import Origin, Resolver

# Methods with which objects of other libraries take in settings.
_TAKES_IN = (
    "merge_from_file merge_from_list merge_from_other_cfg merge_with from_dict update "
    "merge_with_dotlist override_from_dict override parse parse_json update_from_dict "
    "load_yaml load_json set_hparam".split()
)
# Packages whose functions only look at what they are given.
_LOOKS = frozenset(
    "json yaml pickle wandb mlflow torch logging pprint numpy random loguru rich tqdm "
    "tensorboardX comet_ml neptune clearml copy os sys time hydra fire accelerate "
    "transformers pytorch_lightning lightning click typer absl dataclasses".split()
)
# What runs a function as a program, or only asks about a class.
_STARTS = frozenset(
    "Fire run cli CLI isinstance issubclass super print type HfArgumentParser "
    "structured signature wraps fields get_type_hints".split()
)
IMPORTS = ("import_module", "__import__")  # of a module by its name
MAX_DEPTH = 4
_COMPUTED = ("setattr(", "__dict__", "vars(")
Written = tuple[ast.expr, ast.expr | None]  # an object, and what it is given
Handed = tuple[ast.Call, ast.expr]  # a call, and the argument it may change


class Outside:
    """Who sets an attribute of an object in another place than where it is read."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.index = resolver.index
        self._given: dict[FileIndex, list[tuple[str | None, Written]]] = {}
        self._strangers: dict[FileIndex, list[Handed]] = {}
        self._subclasses: dict[ast.ClassDef, list[ast.ClassDef]] = {}
        self._handed: dict[Function, bool] = {}
        self._users: dict[tuple[ast.ClassDef, str], list[FileIndex]] = {}
        self._depth = 0  # of questions for what `setattr` is given

    def values(self, holder: ast.expr, name: str) -> list[ast.expr | None]:
        """What other code gives an attribute of an object; None for the unknown."""
        origins = self.resolver.origins(holder)
        mine = {origin.node for origin in origins}
        homes = self._homes(holder, origins, name)
        if homes is None:
            return [None]
        found: list[ast.expr | None] = []
        for home in homes:
            its = [*self._assigned(home, holder, name), *self._computed(home, name)]
            found += [v for o, v in its if self._is_one_of(o, mine)]
        return found

    def _is_one_of(self, node: ast.expr, mine: set[ast.AST]) -> bool:
        return any(origin.node in mine for origin in self.resolver.origins(node))

    def _assigned(
        self, home: FileIndex, holder: ast.expr, name: str
    ) -> Iterator[Written]:
        """`x.name = …`, but for those that are followed where `holder` stands."""
        scope = self.index.scope(holder)
        for written in home.attribute_writes.get(name, ()):
            followed = dotted(written.value) == dotted(holder)
            if not (followed and home.scope(written) is scope):
                above = home.parent(written)
                yield (
                    written.value,
                    above.value if isinstance(above, ast.Assign) else None,
                )

    def _computed(self, home: FileIndex, name: str) -> Iterator[Written]:
        if home not in self._given:
            self._given[home] = list(computed_attributes(home))
        for key, written in self._given[home]:
            if key is None or key == name:
                yield written
        for _, given in self.handed_to_strangers(home):
            yield given, None

    def handed_to_strangers(self, home: FileIndex) -> list[Handed]:
        """What a file's calls give to functions of unknown libraries to be changed."""
        if home not in self._strangers:
            self._strangers[home] = [
                (call, given)
                for statement in home.all(ast.Expr)
                for call in [statement.value]
                if isinstance(call, ast.Call)
                for given in self._handed_by(call, home)
            ]
        return self._strangers[home]

    def _handed_by(self, call: ast.Call, home: FileIndex) -> list[ast.expr]:
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr in _TAKES_IN:
            strange = self.resolver.calls.callee(call) is None and not self._if_asked(
                call
            )
            return [func.value] if strange else []
        head = (dotted(func) or "").partition(".")[0]
        origin = home.imports.get(head)
        if origin is None or origin.partition(".")[0] in _LOOKS:
            return []
        if home.project is None or home.owns(origin):
            return []
        values = [*call.args, *(k.value for k in call.keywords if k.arg)]
        return [v for v in values if isinstance(v, (ast.Name, ast.Attribute))]

    def _if_asked(self, call: ast.Call) -> bool:
        """`if text: settings.parse(text)`, with an option that has no default."""
        given = call.args[0] if len(call.args) == 1 else None
        above = self.index.parent(self.index.statement(call))
        if not isinstance(given, ast.Name) or not isinstance(above, ast.If):
            return False
        if ast.dump(above.test) != ast.dump(given) or call.keywords:
            return False
        origins = self.resolver.origins(given)
        return bool(origins) and all(map(self._is_nothing, origins))

    def _is_nothing(self, origin: Origin) -> bool:
        """Whether a value is None or empty, unless the user gives it."""
        node = origin.expression
        if isinstance(node, ast.Constant):
            return not node.value
        if not isinstance(node, ast.Attribute):
            return False
        parsers = [o.call for o in self.resolver.origins(node.value)]
        parsed = (p is not None and last_name(p) == "parse_args" for p in parsers)
        declared = [
            call
            for call in self.index.home(node).calls_by_name.get("add_argument", ())
            if any(getattr(a, "value", None) == f"--{node.attr}" for a in call.args)
        ]
        plain = len(declared) == 1 and not any(
            k.arg in ("default", "const", None) for k in declared[0].keywords
        )
        return plain and bool(parsers) and all(parsed)

    # Attributes of own classes and modules

    def of_classes(
        self, owners: list[ast.ClassDef], node: ast.Attribute
    ) -> Iterator[Definition]:
        """Other values of an attribute: by `setattr`, of importers, of subclasses."""
        resolver, name = self.resolver, node.attr
        wanted = set(owners)
        here = self.index.home(node)
        homes = dict.fromkeys([here, *map(self.index.home, owners)])
        written_here = any(home.attribute_writes.get(name) for home in homes)
        for owner in owners:
            setters = self._setters(owner, name)
            for home in setters:
                for written in home.attribute_writes.get(name, ()):
                    if home in homes:
                        continue  # found with the class
                    above = home.parent(written)
                    value = above.value if isinstance(above, ast.Assign) else None
                    if wanted & set(resolver.classes.of(written.value)):
                        yield Definition(name, written, "assign", value)
            if written_here or setters or resolver.classes.member(owner, name):
                around = [u for c in _COMPUTED for u in self._importing(owner, c)]
                users = [*homes, *around]
                for home in dict.fromkeys(users):
                    yield from self._set_by_name(home, name, wanted)
        scope = self.index.scope(node)  # of an object that may be of a subclass
        if isinstance(node.value, ast.Name) and resolver.self_name(scope) == (
            node.value.id
        ):
            for owner in owners:
                for sub in self.subclasses(owner):
                    yield from self._own_members(sub, name)
                    yield from self._set_by_name(self.index.home(sub), name, {sub})

    def _set_by_name(
        self, home: FileIndex, name: str, wanted: set[ast.ClassDef]
    ) -> Iterator[Definition]:
        if home not in self._given:
            self._given[home] = list(computed_attributes(home))
        for key, (holder, value) in self._given[home]:
            if key not in (None, name):
                continue
            holders = self._holders(holder)
            if holders is None or wanted & holders:
                known = None not in (key, value, holders)
                kind: Kind = "assign" if known else "except"  # not known what
                yield Definition(name, value or holder, kind, value if known else None)

    def _holders(self, holder: ast.expr) -> set[ast.ClassDef] | None:
        """The classes of what a `setattr` is given; None: it may be of any.

        To know them, what other calls set may have to be known, and so on through a
        project; few of these are followed, one for another.
        """
        if self._depth >= MAX_DEPTH:
            self.resolver.answers.cut()
            return None
        self._depth += 1
        try:
            return set(self.resolver.classes.of(holder))
        finally:
            self._depth -= 1

    def _own_members(self, owner: ast.ClassDef, name: str) -> Iterator[Definition]:
        """What a class itself gives an attribute."""
        resolver = self.resolver
        yield from resolver.flow(owner).definitions.get(name, ())
        for item in owner.body:
            own = resolver.self_name(item)
            if own is not None and isinstance(item, FUNCTIONS):
                yield from resolver.flow(item).definitions.get(f"{own}.{name}", ())

    def subclasses(self, owner: ast.ClassDef) -> list[ast.ClassDef]:
        """Classes that derive from one, here and in files that import it."""

        def found() -> list[ast.ClassDef]:
            home = self.index.home(owner)
            users = [home]
            if home.project is not None:
                users += home.project.derivers(home, owner.name)
            return [
                other
                for user in dict.fromkeys(users)
                for other in user.all(ast.ClassDef)
                if other.bases and other is not owner and self._derives(other, owner)
            ]

        return self.resolver.answers.first(self._subclasses, owner, found, [])

    def _derives(self, heir: ast.ClassDef, owner: ast.ClassDef) -> bool:
        """Whether a class may derive from one, also by another name of it."""
        known = self.resolver.classes.bases(heir)
        return owner in known or any(
            self._may_mean(base, owner) for its in known for base in its.bases
        )

    def _may_mean(self, base: ast.expr, owner: ast.ClassDef) -> bool:
        """`Base` of `Base = Trainer`, of `Base = import_module("trainer").Trainer`."""
        home = self.index.home(base)
        name = home.qualified(base)
        named = self.resolver.classes.named
        of_others = name is not None and home.is_import(base) and not home.owns(name)
        if of_others or named(base) is not None:
            return False
        its_name = isinstance(base, ast.Attribute) and base.attr == owner.name
        return any(
            node is owner
            or (its_name and isinstance(node, ast.alias))  # `P = base`, a module
            or (
                isinstance(node, ast.expr)
                and (named(node) is owner or _imports_by_name(node))
            )
            for node in self._stands_for(base)
        )

    def _stands_for(self, base: ast.expr) -> Iterator[ast.AST]:
        """What a base class is, or what the call or the table is made of that gives it.

        A class in `Trainer` is another one: `Trainer.Config`.
        """
        made = [origin.node for origin in self.resolver.origins(base)]
        yield from made
        for value in made:
            holders: list[ast.expr] = []
            if isinstance(value, ast.Call):  # `mixed(Trainer)`
                holders = value.args
                yield from holders
            elif isinstance(value, (ast.Subscript, ast.Attribute)):  # `Trainer[int]`
                holders = [value.value]
            for holder in holders:
                for origin in self.resolver.origins(holder):
                    of_class = isinstance(origin.node, ast.ClassDef)
                    if not (of_class and isinstance(value, ast.Attribute)):
                        yield origin.node
                    if isinstance(origin.node, ast.Dict):
                        yield from origin.node.values

    def descendants(self, owner: ast.ClassDef) -> Iterator[ast.ClassDef]:
        """Classes that derive from one, or from one that does, as somebody asks."""
        found = {owner}
        waiting = [owner]
        while waiting:
            for heir in self.subclasses(waiting.pop()):
                if heir not in found:
                    found.add(heir)
                    waiting.append(heir)
                    yield heir

    def _importing(self, owner: ast.ClassDef, text: str) -> list[FileIndex]:
        """Files that import a class and hold a text; none where they are too many."""
        home = self.index.home(owner)
        key = (owner, text)
        if home.project is None:
            return []
        if key not in self._users:
            its = home.project.importers(home, owner.name, text)
            self._users[key] = its or []
        return self._users[key]

    def _setters(self, owner: ast.ClassDef, name: str) -> list[FileIndex]:
        """Files that import a class and set an attribute of some object."""
        home = self.index.home(owner)
        if home.project is None:
            return []
        return home.project.setters(home, owner.name, name) or []

    def of_module(
        self, imported: tuple[Definition, ...], node: ast.Attribute
    ) -> Iterator[Definition]:
        """`config.WORKERS = 8` in any file, for a variable of a module."""
        project = self.index.home(node).project
        if project is None or all(d.kind != "assign" for d in imported):
            return
        for home in project.writing(node.attr) or ():
            for written in home.attribute_writes.get(node.attr, ()):
                above = home.parent(written)
                value = above.value if isinstance(above, ast.Assign) else None
                if set(self.resolver.module_member(written)) & set(imported):
                    yield Definition(node.attr, written, "assign", value)

    # Functions and classes used in other ways than by a call of their name

    def handed_on(self, function: Function) -> bool:
        """Whether a function, or the class it makes, is given to code that calls it."""
        if function not in self._handed:
            home = self.index.home(function)
            owner = home.parent(function)
            made = isinstance(owner, ast.ClassDef) and function.name == "__init__"
            thing: Function | ast.ClassDef = function
            if made and isinstance(owner, ast.ClassDef):
                thing = owner
            users = [home]
            if home.project is not None and home.parent(thing) is home.tree:
                users += home.project.importers(home, thing.name, thing.name) or []
            plain = made or not isinstance(owner, ast.ClassDef)
            self._handed[function] = plain and any(
                self._is_value(user, node, thing)
                for user in dict.fromkeys(users)
                for name in _named(user, thing.name)
                for node in user.reads.get(name, ())
            )
        return self._handed[function]

    def _is_value(
        self,
        home: FileIndex,
        node: ast.Name | ast.Attribute,
        thing: Function | ast.ClassDef,
    ) -> bool:
        above = home.parent(node)
        if isinstance(above, ast.keyword):
            above = home.parent(above)
        kept = (ast.Dict, ast.List, ast.Tuple, ast.Assign, ast.Return, ast.IfExp)
        if isinstance(above, ast.Call):
            if node is above.func or last_name(above) in _STARTS:
                return False
        elif not isinstance(above, kept):
            return False
        return any(
            final.node is thing
            for d in self.resolver.definitions(node)
            for final in self.resolver.final(d)
        )

    def calls_by_super(self, function: Function) -> Iterator[ast.Call]:
        """`super().make(…)` of the classes that derive from a method's class."""
        owner = self.index.parent(function)
        if not isinstance(owner, ast.ClassDef):
            return
        for sub in self.subclasses(owner):
            yield from self.super_calls(sub, function.name)
        if function.name == "__init__":
            home = self.index.home(owner)
            for call in home.calls_by_name.get("cls", ()):
                if home.inside(call, owner):
                    yield call

    def super_calls(self, owner: ast.ClassDef, name: str) -> Iterator[ast.Call]:
        """`super().make(…)` in a class, of the one that is next to it."""
        home = self.index.home(owner)
        for call in home.calls_by_name.get(name, ()):
            inner = getattr(call.func, "value", None)
            up = isinstance(inner, ast.Call) and last_name(inner) == "super"
            if up and home.inside(call, owner):
                yield call

    # Where to look

    def _homes(
        self, holder: ast.expr, origins: Iterable[Origin], name: str
    ) -> list[FileIndex] | None:
        """The files in which an object may be given something; None: too many."""
        homes = list(dict.fromkeys([self.index.home(holder), *self.made_in(origins)]))
        found = dict.fromkeys(homes)
        found.update(dict.fromkeys(self.receivers(homes, holder, origins)))
        project = self.index.project
        if project is not None:
            writing = project.writing(name)
            around = [project.importers(h, "", c) for h in homes for c in _COMPUTED]
            for more in (writing, *around):
                if more is None:
                    return None
                found.update(dict.fromkeys(more))
        return list(found)

    def made_in(self, origins: Iterable[Origin]) -> list[FileIndex]:
        """The files in which an object is made."""
        return list(dict.fromkeys(self.index.home(o.node) for o in origins))

    def receivers(
        self, homes: list[FileIndex], holder: ast.expr, origins: Iterable[Origin]
    ) -> Iterator[FileIndex]:
        """Files whose functions are given the object by one of its names."""
        names = {dotted(holder): None}
        for origin in origins:
            above = self.index.parent(origin.node)
            targets = above.targets if isinstance(above, ast.Assign) else []
            names.update((dotted(target), None) for target in targets)
        for home in homes:
            for name in names:
                for call in home.calls_given.get(name or "", ()):
                    callee = self.resolver.calls.callee(call)
                    if callee is not None:
                        yield self.index.home(callee)


def computed_attributes(home: FileIndex) -> Iterator[tuple[str | None, Written]]:
    """`setattr(x, k, v)`, `vars(x).update(…)`, `x.__dict__[k] = v` with their names."""
    for call in home.calls_by_name.get("setattr", ()):
        if len(call.args) == 3:
            yield _text(call.args[1]), (call.args[0], call.args[2])
    for call in home.calls_by_name.get("update", ()):
        func = call.func
        inner = _dict_of(func.value) if isinstance(func, ast.Attribute) else None
        if inner is not None:
            yield None, (inner, None)
        elif home.qualified(func) == "omegaconf.OmegaConf.update" and call.args:
            yield None, (call.args[0], None)
    for assign in home.all(ast.Assign):
        for target in assign.targets:
            if isinstance(target, ast.Subscript):
                inner = _dict_of(target.value)
                if inner is not None:
                    yield _text(target.slice), (inner, assign.value)


def _imports_by_name(value: ast.AST) -> bool:
    """`import_module("trainer").Trainer`, `getattr(import_module(module), name)`."""
    return isinstance(value, ast.expr) and any(
        isinstance(node, ast.Call) and last_name(node) in IMPORTS
        for node in ast.walk(value)
    )


def _dict_of(node: ast.expr) -> ast.expr | None:
    """The object of `vars(x)` and `x.__dict__`."""
    if isinstance(node, ast.Attribute) and node.attr == "__dict__":
        return node.value
    if isinstance(node, ast.Call) and last_name(node) == "vars" and node.args:
        return node.args[0]
    return None


def _text(node: ast.expr) -> str | None:
    plain = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return node.value if plain else None  # type: ignore[attr-defined]


def _named(index: FileIndex, name: str) -> list[str]:
    """What something of another file, or of this one, may be called in a file."""
    renamed = [n for n, o in index.imports.items() if o.rpartition(".")[2] == name]
    own = [] if name in index.imports and name not in renamed else [name]
    return list(dict.fromkeys([*own, *renamed]))
