"""What is known of dicts and namespaces: keys, and the expressions they can hold."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gpulint.index.build import FileIndex, Function, last_name
from gpulint.index.known import Mapping
from gpulint.index.resolve import Origin, enclosing_function
from gpulint.index.walk import dotted

if TYPE_CHECKING:
    from gpulint.index.values import Evaluator

_NAMESPACES = frozenset(
    "Namespace SimpleNamespace EasyDict edict Dict AttrDict Munch Box DotMap HParams "
    "ConfigDict create to_container merge asdict unsafe_merge munchify".split()
)
UNKNOWN = Mapping(complete=False)
Update = ast.Assign | ast.AugAssign | ast.Call


class Mappings:
    """Dicts and namespaces of a project, by the expressions that stand for them."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self.resolver = evaluator.resolver
        self.index = evaluator.index
        self._busy: set[ast.AST] = set()
        self._updates: dict[FileIndex, dict[str, list[Update]]] = {}

    def of(self, node: ast.expr) -> Mapping:
        """What is known of a dict expression, `update` and `d[k] = v` included."""
        if node in self._busy:
            return UNKNOWN
        self._busy.add(node)
        try:
            origins = self.resolver.origins(node)
            found = [self._of_origin(o) for o in origins]
            whole = one_of(found)
            for name in self._names(node, origins):
                whole = self._written(whole, name, origins)
        finally:
            self._busy.discard(node)
        return whole

    def _of_origin(self, origin: Origin) -> Mapping:
        if origin.kind == "parameter":
            return self._parameter(origin)
        node = origin.expression
        if isinstance(node, ast.Dict):
            return self._literal(node)
        if isinstance(node, ast.Call):
            return self._made(node)
        if isinstance(node, ast.Subscript):
            return self._nested(node.value, node.slice)
        if isinstance(node, ast.Attribute):
            if node.attr == "__dict__":
                return self._fields(node.value)
            return self._inner(node.value, node.attr)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return _merged([self.of(node.left), self.of(node.right)])
        return UNKNOWN

    # What makes a mapping

    def _made(self, node: ast.Call) -> Mapping:
        name = self.index.qualified(node.func) or ""
        last = last_name(node)
        if last in _NAMESPACES or name in ("dict", "collections.OrderedDict"):
            return self._namespace(node)
        if self.evaluator.is_loader_kwargs(node):
            return self._namespace(ast.Call(node.func, [], node.keywords))
        if last in ("copy", "deepcopy"):
            inner = node.args[0] if node.args else getattr(node.func, "value", None)
            return self.of(inner) if inner is not None else UNKNOWN
        if name == "vars" and node.args:
            return self._fields(node.args[0])
        if (
            last in ("get", "pop")
            and isinstance(node.func, ast.Attribute)
            and node.args
        ):
            return self._nested(node.func.value, node.args[0])
        return self.evaluator.settings.loaded(node) or UNKNOWN

    def _parameter(self, origin: Origin) -> Mapping:
        """`**kwargs` of a function with known callers, or a hydra main's settings."""
        definition = origin.definition
        if definition is None:
            return UNKNOWN
        function = enclosing_function(self.index, definition)
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return UNKNOWN
        if function.args.kwarg is definition.node:
            return self._rest(function)
        return self.evaluator.settings.given(function, definition) or UNKNOWN

    def _rest(self, function: Function) -> Mapping:
        """What callers pass beyond the named parameters."""
        args = function.args
        named = {a.arg for a in [*args.posonlyargs, *args.args, *args.kwonlyargs]}
        parts = []
        for call in self.resolver.callers(function):
            its = self._namespace(ast.Call(call.func, [], call.keywords))
            items = {k: v for k, v in its.items.items() if k not in named}
            parts.append(Mapping(items, its.maybe - named, its.complete, its.replaced))
        return one_of(parts)

    def _inner(self, holder: ast.expr, name: str) -> Mapping:
        inner = self.of(holder)
        nodes = inner.items.get(name, [])
        if len(nodes) != 1 or inner.replaced:
            return UNKNOWN
        return self.of(nodes[0])

    def _nested(self, holder: ast.expr, key: ast.expr) -> Mapping:
        name = self.evaluator.constant(key)
        return self._inner(holder, name) if isinstance(name, str) else UNKNOWN

    def _fields(self, node: ast.expr) -> Mapping:
        """`vars(args)`: the attributes of parsed options or of a namespace."""
        options = self.evaluator.command_line.all_of(node)
        if options is not None:
            return Mapping(options, complete=False)
        return self.of(node)

    def _literal(self, node: ast.Dict) -> Mapping:
        items: dict[str, list[ast.expr]] = {}
        complete = True
        replaced = False
        maybe: set[str] = set()
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                inner = self.of(value)
                complete = complete and inner.complete
                replaced = replaced or inner.replaced
                replaced = replaced or bool(items and not inner.complete)
                maybe |= inner.maybe - set(items)
                for name, its in inner.items.items():
                    items[name] = list(its)
            else:
                constant = self.evaluator.constant(key)
                if isinstance(constant, str):
                    items[constant] = [value]
                    maybe.discard(constant)
                else:
                    complete = complete and constant is not None
        return Mapping(items, frozenset(maybe), complete, replaced)

    def _namespace(self, call: ast.Call) -> Mapping:
        parts = [self.of(a) for a in call.args]
        parts += [self.of(k.value) for k in call.keywords if k.arg is None]
        whole = _merged(parts)
        for keyword in call.keywords:
            if keyword.arg is not None:
                whole.items[keyword.arg] = [keyword.value]
        return whole

    # Keys set in place

    def _names(
        self, node: ast.expr, origins: Iterable[Origin]
    ) -> set[tuple[FileIndex, str]]:
        """What a dict is called, here and where it is made."""
        names = {(self.index.home(node), dotted(node) or "")}
        for origin in origins:
            home = self.index.home(origin.node)
            above = home.parent(origin.node)
            targets = above.targets if isinstance(above, ast.Assign) else []
            names |= {(home, dotted(target) or "") for target in targets}
        return {(home, name) for home, name in names if name}

    def _written(
        self, whole: Mapping, name: tuple[FileIndex, str], origins: tuple[Origin, ...]
    ) -> Mapping:
        """A mapping with what statements set under one of its names."""
        items = {key: list(its) for key, its in whole.items.items()}
        maybe, complete, replaced = set(whole.maybe), whole.complete, whole.replaced
        for key, value in self._writes(name, origins):
            if key is None:
                complete, replaced = False, True
                continue
            if key not in items:
                maybe.add(key)
            if value not in items.setdefault(key, []):
                items[key].append(value)
        return Mapping(items, frozenset(maybe), complete, replaced)

    def _updates_of(self, home: FileIndex) -> dict[str, list[Update]]:
        """Statements and calls that set keys in place, by the dict's written name."""
        if home in self._updates:
            return self._updates[home]
        updates: dict[str, list[Update]] = defaultdict(list)
        for added in home.all(ast.AugAssign):
            if isinstance(added.op, ast.BitOr):
                updates[dotted(added.target) or ""].append(added)
        for assign in home.all(ast.Assign):
            for target in assign.targets:
                if isinstance(target, ast.Subscript):
                    updates[dotted(target.value) or ""].append(assign)
        for call in home.all(ast.Call):
            func = call.func
            if isinstance(func, ast.Attribute) and func.attr in (
                "update",
                "setdefault",
            ):
                updates[dotted(func.value) or ""].append(call)
        updates.pop("", None)
        self._updates[home] = updates
        return updates

    def _writes(
        self, name: tuple[FileIndex, str], origins: tuple[Origin, ...]
    ) -> Iterator[tuple[str | None, ast.expr]]:
        """Keys set in place on a dict, by its name; None for a key not known."""
        home, text = name
        for written in self._updates_of(home).get(text, ()):
            if written in self._busy or not self._same(written, text, origins):
                continue
            self._busy.add(written)
            if isinstance(written, ast.Call):
                yield from self._update_items(written)
            elif isinstance(written, ast.AugAssign):
                its = self.of(written.value)
                yield from ((k, v) for k, vs in its.items.items() for v in vs)
                if not its.complete:
                    yield None, written.value
            else:
                yield from self._set_items(written, text)
            self._busy.discard(written)

    def _same(self, written: Update, text: str, origins: tuple[Origin, ...]) -> bool:
        """Whether a statement may change a dict of these origins, not a namesake."""
        holder: ast.expr | None = None
        if isinstance(written, ast.Call):
            holder = getattr(written.func, "value", None)
        elif isinstance(written, ast.Assign):
            holder = next(
                t.value
                for t in written.targets
                if isinstance(t, ast.Subscript) and dotted(t.value) == text
            )
        if holder is None:
            return True
        its = {o.node for o in self.resolver.origins(holder)}
        mine = {o.node for o in origins}
        return not its or not mine or not its.isdisjoint(mine)

    def _set_items(
        self, assign: ast.Assign, name: str
    ) -> Iterator[tuple[str | None, ast.expr]]:
        for target in assign.targets:
            if isinstance(target, ast.Subscript) and dotted(target.value) == name:
                key = self.evaluator.constant(target.slice)
                yield (key if isinstance(key, str) else None), assign.value

    def _update_items(self, call: ast.Call) -> Iterator[tuple[str | None, ast.expr]]:
        assert isinstance(call.func, ast.Attribute)
        if call.func.attr == "setdefault":
            if len(call.args) == 2:
                key = self.evaluator.constant(call.args[0])
                yield (key if isinstance(key, str) else None), call.args[1]
            return
        mapping = self._namespace(call)
        for name, its in mapping.items.items():
            for value in its:
                yield name, value
        if not mapping.complete:
            yield None, call


def one_of(parts: list[Mapping]) -> Mapping:
    """What holds whichever of several mappings arrives."""
    if not parts:
        return UNKNOWN
    items: dict[str, list[ast.expr]] = {}
    for part in parts:
        for key, its in part.items.items():
            items.setdefault(key, []).extend(its)
    maybe = set().union(*(p.maybe for p in parts)) | {
        key for key in items if any(key not in p.items for p in parts)
    }
    complete = all(p.complete for p in parts)
    return Mapping(items, frozenset(maybe), complete, any(p.replaced for p in parts))


def _merged(parts: list[Mapping]) -> Mapping:
    """Several mappings laid over each other, the last on top."""
    items: dict[str, list[ast.expr]] = {}
    maybe: set[str] = set()
    complete = True
    replaced = any(part.replaced for part in parts)
    for part in parts:
        complete = complete and part.complete
        replaced = replaced or bool(items and not part.complete)
        for key, its in part.items.items():
            if key not in part.maybe:
                items[key] = list(its)
                maybe.discard(key)
            else:
                maybe |= {key} - set(items)
                items[key] = [*items.get(key, ()), *its]
    return Mapping(items, frozenset(maybe), complete, replaced)
