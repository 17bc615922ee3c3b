"""What a program does with the mapping that it loads: keys it reads, and escapes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index.build import last_name

if TYPE_CHECKING:
    from gpulint.index import FileIndex, Function
    from gpulint.script.model import Script

MAX_STEPS = 400
Keys = tuple[str, ...]
_LOOKUPS = ("get", "pop", "setdefault")
# Calls that show or store what they are given.
_SINKS = frozenset(
    "print pprint dump dumps safe_dump to_yaml save len str repr isinstance type info "
    "debug warning log_hyperparams hasattr bool".split()
)
# Calls whose result has the keys of their argument.
_SAME = frozenset(
    "EasyDict edict AttrDict Munch Box DotMap create deepcopy copy dict merge "
    "to_container munchify Namespace SimpleNamespace".split()
)


class MappingUses:
    """Follows a loaded mapping, and the mappings in it, through the project.

    `reads` has the keys that lead to what each key constant or attribute reads;
    `lookups` the call `.get(key, default)` around a key constant.
    """

    def __init__(self, script: Script, load: ast.Call, root: ast.expr | None) -> None:
        self.script = script
        self.index = script.index
        self.resolver = script.resolver
        self.root = root
        self.reads: dict[ast.AST, Keys] = {}
        self.lookups: dict[ast.AST, ast.Call] = {}
        self._escapes: set[Keys] = set()
        self._todo: list[tuple[ast.expr, Keys]] = [(load, ())]
        seen: set[tuple[ast.expr, Keys]] = set()
        while self._todo:
            step = self._todo.pop()
            if len(seen) > MAX_STEPS:
                self._escapes.add(())
                break
            if step not in seen:
                seen.add(step)
                self._follow(*step)

    def may_read(self, keys: Keys) -> bool:
        """Whether code that is not seen, or one that is, may read a value."""
        hidden = any(keys[: len(e)] == e for e in self._escapes)
        return hidden or keys in self.reads.values()

    def _follow(self, node: ast.expr, keys: Keys) -> None:
        above = self.index.parent(node)
        if isinstance(above, ast.Attribute):
            self._attribute(above, keys)
        elif isinstance(above, ast.Subscript) and above.value is node:
            self._item(above, above.slice, above.slice, keys)
        elif isinstance(above, ast.Call):
            self._passed(above, node, keys)
        elif isinstance(above, ast.keyword):
            self._keyword(above, keys)
        elif isinstance(above, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
            self._assigned(above, node, keys)
        elif isinstance(above, ast.Return):
            self._returned(above, keys)
        elif isinstance(above, (ast.BoolOp, ast.IfExp)):
            self._todo.append((above, keys))
        elif isinstance(above, ast.Compare):
            if node not in above.comparators:
                self._escapes.add(keys)
        elif not isinstance(above, (ast.Expr, ast.FormattedValue, ast.If, ast.UnaryOp)):
            self._escapes.add(keys)

    # Keys

    def _attribute(self, node: ast.Attribute, keys: Keys) -> None:
        call = self.index.parent(node)
        if isinstance(call, ast.Call) and call.func is node:
            if node.attr in _LOOKUPS and call.args:
                self._item(call, call.args[0], call.args[0], keys)
                self.lookups[call.args[0]] = call
            elif node.attr == "copy":
                self._todo.append((call, keys))
            elif node.attr != "update":
                self._escapes.add(keys)
        elif isinstance(node.ctx, ast.Load):
            self._read(node, node, (*keys, node.attr))

    def _item(self, whole: ast.expr, key: ast.expr, at: ast.AST, keys: Keys) -> None:
        name = self.script.evaluator.constant(key)
        if not isinstance(name, str):
            self._escapes.add(keys)
        elif isinstance(getattr(whole, "ctx", ast.Load()), ast.Load):
            self._read(whole, at, (*keys, name))

    def _read(self, whole: ast.expr, at: ast.AST, keys: Keys) -> None:
        self.reads[at] = keys
        if isinstance(item(self.root, keys), ast.Dict):
            self._todo.append((whole, keys))

    # Where mappings go

    def _passed(self, call: ast.Call, node: ast.expr, keys: Keys) -> None:
        if node not in call.args:
            self._escapes.add(keys)
            return
        function = self._called(call)
        if function is None:
            self._out_of_sight(call, keys)
            return
        number = call.args.index(node)
        plain = not any(isinstance(a, ast.Starred) for a in call.args[:number])
        names = [a.arg for a in [*function.args.posonlyargs, *function.args.args]]
        names = names[self.resolver.self_name(function) is not None :]
        if plain and number < len(names):
            self._parameter(function, names[number], keys)
        else:
            self._escapes.add(keys)

    def _keyword(self, keyword: ast.keyword, keys: Keys) -> None:
        call = self.index.parent(keyword)
        if not isinstance(call, ast.Call):
            self._escapes.add(keys)
            return
        function = self._called(call) if keyword.arg is not None else None
        args = function.args if function is not None else None
        named = [a.arg for a in [*args.args, *args.kwonlyargs]] if args else []
        if function is not None and keyword.arg in named:
            assert keyword.arg is not None
            self._parameter(function, keyword.arg, keys)
        else:
            self._out_of_sight(call, keys)

    def _called(self, call: ast.Call) -> Function | None:
        owner = self.resolver.classes.named(call.func)
        if owner is not None:
            return self.resolver.classes.methods(owner).get("__init__")
        return self.resolver.calls.callee(call)

    def _out_of_sight(self, call: ast.Call, keys: Keys) -> None:
        """A call of other code: known ones show it, or give the same keys."""
        own = self.resolver.classes.named(call.func) or self.resolver.calls.callee(call)
        name = last_name(call)
        if own is None and name in _SAME:
            self._todo.append((call, keys))
        elif own is not None or name not in _SINKS:
            self._escapes.add(keys)

    def _parameter(self, function: Function, name: str, keys: Keys) -> None:
        home = self.index.home(function)
        for node in home.all(ast.Name):
            inside = node.id == name and home.inside(node, function)
            if inside and isinstance(node.ctx, ast.Load):
                self._todo.append((node, keys))

    def _assigned(self, statement: ast.AST, node: ast.expr, keys: Keys) -> None:
        if isinstance(statement, ast.NamedExpr):
            self._todo.append((statement, keys))
        targets = getattr(statement, "targets", None) or [
            getattr(statement, "target", None)
        ]
        if getattr(statement, "value", None) is not node:
            return
        for target in targets:
            if isinstance(target, ast.Name):
                self._todo += [(n, keys) for n in self._names(target, keys)]
            elif isinstance(target, ast.Attribute):
                self._todo += [(n, keys) for n in self._attributes(target)]
            else:
                self._escapes.add(keys)

    def _names(self, target: ast.Name, keys: Keys) -> Iterator[ast.expr]:
        """Reads of a variable; one of a module may be imported elsewhere."""
        home = self.index.home(target)
        scope = home.scope(target)
        top = scope is home.tree
        for node in home.all(ast.Name):
            same = node.id == target.id and isinstance(node.ctx, ast.Load)
            if same and (top or home.inside(node, scope)):
                yield node
        if top and self._users(home, target.id, target.id):
            self._escapes.add(keys)

    def _attributes(self, target: ast.Attribute) -> Iterator[ast.expr]:
        """Reads of an attribute of that name, of whatever object."""
        home = self.index.home(target)
        owner = self.index.owner(target)
        name = owner.name if owner is not None else target.attr
        for index in [home, *self._users(home, name, f".{target.attr}")]:
            for node in index.all(ast.Attribute):
                if node.attr == target.attr and isinstance(node.ctx, ast.Load):
                    yield node

    def _users(self, home: FileIndex, name: str, text: str) -> list[FileIndex]:
        if home.project is None:
            return []
        found = home.project.importers(home, name, text)
        if found is None:
            self._escapes.add(())
        return found or []

    def _returned(self, statement: ast.Return, keys: Keys) -> None:
        function = self.index.function(statement)
        if function is None or function.decorator_list:
            self._escapes.add(keys)
            return
        self._todo += [(call, keys) for call in self.resolver.calls.callers(function)]


def item(root: ast.expr | None, keys: Keys) -> ast.expr | None:
    """The value in a tree of settings to which keys lead; None where there is none."""
    node = root
    for name in keys:
        if not isinstance(node, ast.Dict):
            return None
        pairs = zip(node.keys, node.values, strict=True)
        its = [v for k, v in pairs if isinstance(k, ast.Constant) and k.value == name]
        node = its[-1] if its else None
    return node
