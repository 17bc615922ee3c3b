"""Which definitions a name or an attribute may mean, in its file and others."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index.answers import Answers
from gpulint.index.build import FileIndex, Scope
from gpulint.index.flow import Definition, Flow
from gpulint.index.walk import dotted

if TYPE_CHECKING:
    from gpulint.index.classes import Classes
    from gpulint.index.module_search import Member
    from gpulint.index.outside import Outside


class Definitions:
    """Leads from one file's names to what binds them, through what it imports.

    Answers are kept, see `Answers`. Nodes may be those of any file of the project.
    """

    classes: Classes
    outside: Outside

    def __init__(self, index: FileIndex) -> None:
        self.index = index
        self._flows: dict[Scope, Flow] = {}
        self._self_names: dict[ast.AST, str | None] = {}
        self._of_self: dict[tuple[Scope, str], tuple[Definition, ...]] = {}
        self._of_others: dict[ast.Attribute, tuple[Definition, ...]] = {}
        self._free: dict[tuple[Scope, str], tuple[Definition, ...]] = {}
        self.answers = Answers()
        self._finals: dict[Definition, tuple[Definition, ...]] = {}

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
            key = (scope, node.id)
            if key not in self._free:
                self._free[key] = tuple(self._outer_definitions(node.id, scope))
            return self._free[key]
        if isinstance(node, ast.Attribute):
            return self._of_attribute(node, scope)
        return ()

    def _of_attribute(
        self, node: ast.Attribute, scope: Scope
    ) -> tuple[Definition, ...]:
        """Definitions of an attribute that its function does not set itself."""

        def found() -> tuple[Definition, ...]:
            return tuple(self._attribute_definitions(node))

        if not isinstance(node.value, ast.Name) or (
            node.value.id != self.self_name(scope)
        ):
            return self.answers.whole(self._of_others, node, found)
        key = (scope, node.attr)  # `self.x` is the same all over a method
        return self.answers.first(self._of_self, key, found, ())

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

    def _top_definitions(
        self, module: ast.Module, name: str, seen: frozenset[ast.Module] = frozenset()
    ) -> Iterator[Definition]:
        """Definitions of a global name of a module, those behind `import *` too.

        `seen`: modules that lead here by it, each of which may name another again.
        """
        own = self.flow(module).definitions.get(name)
        if own:
            yield from own
            return
        home = self.index.home(module)
        project, before = home.project, seen | {module}
        for star in home.stars:
            if project is None or project.modules.star_lacks(home, star, name):
                continue
            found = home.member(star)
            if found is not None and not found[1] and found[0].tree not in before:
                yield from self._top_definitions(found[0].tree, name, before)

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

        def found() -> tuple[Definition, ...]:
            its = dict.fromkeys(self._reached(definition, set()))
            return tuple(its) or (definition,)

        return self.answers.first(self._finals, definition, found, (definition,))

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
        if home.project is None or dotted(node) is None or not home.is_import(node):
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
