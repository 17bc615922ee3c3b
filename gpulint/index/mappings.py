"""What is known of dicts and namespaces: keys, and the expressions they can hold."""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index.build import FileIndex, Function, last_name
from gpulint.index.flow import enclosing_function
from gpulint.index.known import Mapping
from gpulint.index.resolve import Origin
from gpulint.index.walk import dotted

if TYPE_CHECKING:
    from gpulint.index.values import Evaluator

_NAMESPACES = frozenset(
    "Namespace SimpleNamespace EasyDict edict Dict AttrDict Munch Box DotMap HParams "
    "ConfigDict create to_container merge asdict unsafe_merge munchify".split()
)
UNKNOWN = Mapping(complete=False)
MAX_DEPTH = 50  # dicts and updates, one looked into for another
_IN_PLACE = frozenset("update setdefault pop popitem clear".split())


class Update(NamedTuple):
    """What changes a dict in place: `holder[key] = value`, `holder.update(…)`.

    With a key and no value, the key is taken out.
    """

    node: ast.AST
    holder: ast.expr
    key: ast.expr | None = None
    value: ast.expr | None = None


class Mappings:
    """Dicts and namespaces of a project, by the expressions that stand for them."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self.resolver = evaluator.resolver
        self.index = evaluator.index
        self._busy: set[ast.AST] = set()
        self._known: dict[Hashable, Mapping] = {}
        self._updates: dict[FileIndex, list[Update]] = {}

    @property
    def is_busy(self) -> bool:
        """Whether a dict is being looked into."""
        return bool(self._busy)

    def of(self, node: ast.expr) -> Mapping:
        """What is known of a dict expression, `update` and `d[k] = v` included."""
        if node in self._busy or len(self._busy) > MAX_DEPTH:
            return UNKNOWN
        if not self.evaluator.may_look():
            return UNKNOWN
        origins = self.resolver.origins(node)
        key = self._same(node, origins)
        alone = not self._busy and not self.evaluator.lookups
        if alone and key in self._known:
            return self._known[key]
        self._busy.add(node)
        try:
            parts = [self._of_origin(o) for o in origins]
            parts += [UNKNOWN for o in origins if self._may_be_another(o)]
            whole = self._written(one_of(parts), node)
        finally:
            self._busy.discard(node)
        if alone:  # else it may lack what is being looked for
            self._known[key] = whole
        return whole

    def _same(self, node: ast.expr, origins: tuple[Origin, ...]) -> Hashable:
        """What is alike for all expressions that are the same mapping."""
        name = dotted(node) or node
        made = tuple((o.node, o.kind, o.path) for o in origins)
        return self.index.home(node), name, made

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

    def _may_be_another(self, origin: Origin) -> bool:
        """Whether an origin is the default of a parameter that calls elsewhere may set.

        Without a call in its own file, others than those of this project may call it.
        """
        definition = origin.definition
        if not origin.default or definition is None or definition.kind != "parameter":
            return False
        function = enclosing_function(self.index, definition)
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        home = self.index.home(function)
        return not any(map(home.holds, self.resolver.calls.callers(function)))

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
        loaded = self.evaluator.settings.loaded(node)
        return one_of(loaded) if loaded else UNKNOWN

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
        """What callers pass beyond the named parameters.

        Without a call in its own file, others than those of this project may call it.
        """
        args = function.args
        named = {a.arg for a in [*args.posonlyargs, *args.args, *args.kwonlyargs]}
        parts = []
        calls = self.resolver.calls.callers(function)
        home = self.index.home(function)
        if not any(home.holds(call) for call in calls):
            parts.append(UNKNOWN)
        for call in calls:
            its = self._namespace(ast.Call(call.func, [], call.keywords))
            items = {k: v for k, v in its.items.items() if k not in named}
            parts.append(Mapping(items, its.maybe - named, its.complete, its.replaced))
        return one_of(parts)

    def _inner(self, holder: ast.expr, name: str) -> Mapping:
        inner = self.of(holder)
        nodes = inner.items.get(name, [])
        if inner.replaced:
            return UNKNOWN
        return one_of([self.of(its) for its in nodes])

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

    def _written(self, whole: Mapping, node: ast.expr) -> Mapping:
        """A mapping with what statements set, here and wherever else it is known."""
        origins = self.resolver.origins(node)
        mine = {origin.node for origin in origins}
        items = {key: list(its) for key, its in whole.items.items()}
        maybe, complete, replaced = set(whole.maybe), whole.complete, whole.replaced
        for home in self._homes(node, origins):
            for update in self._updates_of(home):
                if update.node in self._busy or not self._changes(update, node, mine):
                    continue
                self._busy.add(update.node)
                for key, value in self._contents(update):
                    if value is None:  # taken out
                        maybe |= set(items) if key is None else {key} & set(items)
                    elif key is None:
                        complete, replaced = False, True
                    else:
                        maybe |= {key} - set(items)
                        if value not in items.setdefault(key, []):
                            items[key].append(value)
                self._busy.discard(update.node)
        return Mapping(items, frozenset(maybe), complete, replaced)

    def _homes(
        self, node: ast.expr, origins: tuple[Origin, ...]
    ) -> dict[FileIndex, None]:
        """The files in which a dict may be changed."""
        outside = self.evaluator.outside
        homes = [self.index.home(node), *outside.made_in(origins)]
        found = dict.fromkeys([*homes, *outside.receivers(homes, node, origins)])
        for origin in origins:
            home = self.index.home(origin.node)
            if home.project is None or isinstance(origin.node, (ast.arg, ast.Module)):
                continue
            above = home.statement(origin.node)
            if home.parent(above) is not home.tree:
                continue
            for target in above.targets if isinstance(above, ast.Assign) else ():
                name = (dotted(target) or "").partition(".")[0]
                if name:
                    its = home.project.importers(home, name, name)
                    found.update(dict.fromkeys(its or ()))
        return found

    def _updates_of(self, home: FileIndex) -> list[Update]:
        """Everything in a file that changes a dict in place."""
        if home not in self._updates:
            found = list(_updates_in(home))
            for call, holder in self.evaluator.outside.handed_to_strangers(home):
                if getattr(call.func, "attr", "") not in _IN_PLACE:
                    found.append(Update(call, holder))
            self._updates[home] = found
        return self._updates[home]

    def _changes(self, update: Update, node: ast.expr, mine: set[ast.AST]) -> bool:
        """Whether a statement may change a dict of these origins, or one in it."""
        if update.node in self.evaluator.lookups:
            return False
        its = {o.node for o in self.resolver.origins(update.holder)}
        if not its or not mine:
            return dotted(update.holder) == dotted(node) is not None
        if not its.isdisjoint(mine):
            return True
        if isinstance(update.holder, (ast.Name, ast.Attribute)):
            nodes = [n for n in (update.holder, *its) if isinstance(n, ast.Attribute)]
            return not {n.attr for n in nodes}.isdisjoint(self._names_of(mine))
        keys, root = _chain(update.holder)
        if not keys:
            return False
        tops = {top for o in self.resolver.origins(root) for top in self._tops(o)}
        key = self.evaluator.constant(keys[0])
        return any(
            self.index.inside(m, top) and m is not top and _stands_under(m, key, self)
            for m in mine
            for top in tops
        )

    def _names_of(self, mine: set[ast.AST]) -> Iterator[str]:
        """As which attributes dicts are kept: `ML`, for `CONF.ML = EasyDict()`."""
        for node in mine:
            above = self.index.home(node).parent(node)
            for target in above.targets if isinstance(above, ast.Assign) else ():
                if isinstance(target, ast.Attribute):
                    yield target.attr

    def _tops(self, origin: Origin) -> Sequence[ast.AST]:
        """The literals that settings files hold, for the call that loads one."""
        call = origin.call
        roots = self.evaluator.settings.roots(call) if call is not None else []
        return roots or [origin.node]

    def _contents(self, update: Update) -> Iterator[tuple[str | None, ast.expr | None]]:
        """Keys and values that a statement sets; no key: not known which one."""
        node = update.node
        if update.key is not None:
            key = self.evaluator.constant(update.key)
            yield (key if isinstance(key, str) else None), update.value
        elif isinstance(node, ast.AugAssign):
            its = self.of(node.value)
            yield from ((k, v) for k, vs in its.items.items() for v in vs)
            if not its.complete:
                yield None, node.value
        elif isinstance(node, ast.Call) and last_name(node) in ("clear", "popitem"):
            yield None, None
        elif isinstance(node, ast.Call) and last_name(node) == "update":
            mapping = self._namespace(node)
            yield from ((k, v) for k, vs in mapping.items.items() for v in vs)
            if not mapping.complete:
                yield None, node
        else:
            yield None, update.holder


def _updates_in(home: FileIndex) -> Iterator[Update]:
    for added in home.all(ast.AugAssign):
        if isinstance(added.op, ast.BitOr):
            yield Update(added, added.target)
        elif isinstance(added.target, ast.Subscript):
            item = added.target
            made = ast.copy_location(ast.BinOp(item, added.op, added.value), item)
            yield Update(added, item.value, item.slice, made)
    for assign in home.all(ast.Assign):
        for target in assign.targets:
            if isinstance(target, ast.Subscript):
                yield Update(target, target.value, target.slice, assign.value)
    yield from _set_as_attributes(home)
    for deletion in home.all(ast.Delete):
        for target in deletion.targets:
            if isinstance(target, ast.Subscript):
                yield Update(target, target.value, target.slice)
    for call in home.all(ast.Call):
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr in _IN_PLACE:
            if func.attr == "setdefault" and len(call.args) == 2:
                yield Update(call, func.value, call.args[0], call.args[1])
            elif func.attr == "pop" and call.args:
                yield Update(call, func.value, call.args[0])
            elif func.attr in ("update", "clear", "popitem"):
                yield Update(call, func.value)


def _set_as_attributes(home: FileIndex) -> Iterator[Update]:
    """`CONF.TRAIN.BATCH = 32`, by whatever name; not what methods set on `self`."""
    for targets in home.attribute_writes.values():
        for target in targets:
            if isinstance(target.value, ast.Name) and target.value.id in (
                "self",
                "cls",
            ):
                continue
            above = home.parent(target)
            key = ast.copy_location(ast.Constant(target.attr), target)
            if isinstance(above, ast.Assign) and target in above.targets:
                yield Update(target, target.value, key, above.value)
            else:  # `CONF.RATE *= 0.1`, `CONF.A, CONF.B = pair`
                yield Update(target, target.value)


def _chain(node: ast.expr) -> tuple[list[ast.expr], ast.expr]:
    """The keys of `d["a"]["b"]`, the last one first, and `d`."""
    keys: list[ast.expr] = []
    while True:
        if isinstance(node, ast.Subscript):
            keys.append(node.slice)
            node = node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and node.args
        ):
            keys.append(node.args[0])
            node = node.func.value
        else:
            return keys, node


def _stands_under(node: ast.AST, key: object, mappings: Mappings) -> bool:
    """Whether a value stands under a key of the dict around it, None: any key."""
    above = mappings.index.parent(node)
    if key is None or not isinstance(above, ast.Dict):
        return True
    own = [k for k, v in zip(above.keys, above.values, strict=True) if v is node]
    return any(k is None or mappings.evaluator.constant(k) in (key, None) for k in own)


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
