"""What value reaches a name or an argument: constants, dicts, options, `**kwargs`."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from gpulint.index.resolve import Origin, Resolver
from gpulint.index.walk import dotted

_LOOKUPS = ("get", "pop", "setdefault")
_WRITES = ("update", "setdefault")
_NAMESPACES = frozenset(
    "Namespace SimpleNamespace EasyDict edict Dict AttrDict Munch Box DotMap "
    "ConfigDict create".split()
)


@dataclass(frozen=True)
class Value:
    """A constant that can reach a place, and the expression where it is written.

    `default`: a user or caller may replace it (parameter or command-line default).
    """

    constant: object
    node: ast.expr
    default: bool = False


@dataclass(frozen=True)
class Values:
    """The constants that can reach a place; `complete`: there are no others."""

    known: tuple[Value, ...] = ()
    complete: bool = True

    def all_in(self, *constants: object) -> bool:
        """Whether it is certain that only these constants can arrive."""
        return (
            self.complete
            and bool(self.known)
            and all(_among(v.constant, constants) for v in self.known)
        )

    def any_in(self, *constants: object) -> bool:
        """Whether one of these constants can arrive."""
        return any(_among(v.constant, constants) for v in self.known)


def _among(constant: object, choices: Iterable[object]) -> bool:
    return any(constant is c or (type(constant) is type(c) and constant == c)
               for c in choices)  # fmt: skip


@dataclass(frozen=True)
class Mapping:
    """What is known of a dict: for each key the expressions it can hold.

    `maybe`: keys set on some paths only; `complete`: no other key can be there;
    `replaced`: any key may have been given a value that is not known.
    """

    items: dict[str, list[ast.expr]] = field(default_factory=dict)
    maybe: frozenset[str] = frozenset()
    complete: bool = True
    replaced: bool = False


@dataclass(frozen=True)
class Argument:
    """An argument of a call: given, absent, or not known (through `**kwargs`).

    `nodes` are the expressions that can arrive; `direct` is the one written in the
    call itself.
    """

    state: Literal["given", "absent", "maybe", "unknown"]
    nodes: tuple[ast.expr, ...] = ()
    direct: ast.expr | None = None

    @property
    def given(self) -> bool:
        """Whether it is certain that the caller passes it."""
        return self.state == "given"

    @property
    def absent(self) -> bool:
        """Whether it is certain that the caller leaves it out."""
        return self.state == "absent"


class Evaluator:
    """Values of expressions inside one file."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.index = resolver.index
        self._busy: set[ast.AST] = set()
        self._mapping_busy: set[ast.AST] = set()

    def values(self, node: ast.expr) -> Values:
        """The constants that an expression can be."""
        if node in self._busy:
            return Values()
        self._busy.add(node)
        try:
            known: list[Value] = []
            complete = True
            for origin in self.resolver.origins(node):
                its = self._origin_values(origin)
                complete = complete and its.complete
                known += [v for v in its.known if v not in known]
            return Values(tuple(known), complete)
        finally:
            self._busy.discard(node)

    def constant(self, node: ast.expr) -> object:
        """The one constant an expression is; None when there are several or none."""
        its = self.values(node)
        if its.complete and len({repr(v.constant) for v in its.known}) == 1:
            return its.known[0].constant
        return None

    def _origin_values(self, origin: Origin) -> Values:
        node = origin.expression
        if node is None:
            return Values(complete=False)
        if isinstance(node, ast.Constant):
            return Values((Value(node.value, node, origin.default),))
        if isinstance(node, ast.UnaryOp):
            return self._unary(node)
        if isinstance(node, ast.Subscript):
            return self._looked_up(node.value, node.slice, None)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Call):
            return self._called(node)
        return Values(complete=False)

    def _unary(self, node: ast.UnaryOp) -> Values:
        inner = self.values(node.operand)
        known = []
        for value in inner.known:
            if isinstance(node.op, ast.Not):
                known.append(Value(not value.constant, node, value.default))
            elif isinstance(node.op, ast.USub) and isinstance(
                value.constant, (int, float)
            ):
                known.append(Value(-value.constant, node, value.default))
        return Values(tuple(known), inner.complete and len(known) == len(inner.known))

    def _called(self, node: ast.Call) -> Values:
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr in _LOOKUPS and node.args:
            default = node.args[1] if len(node.args) > 1 else None
            return self._looked_up(func.value, node.args[0], default)
        name = self.index.qualified(func)
        if name in ("int", "bool", "float", "str") and len(node.args) == 1:
            return self._converted(name, node.args[0])
        if name in ("min", "max"):
            return self._extreme(name, node)
        if name == "getattr" and len(node.args) == 3:
            default_values = self.values(node.args[2])
            return Values(default_values.known, complete=False)
        return Values(complete=False)

    def _converted(self, name: str, node: ast.expr) -> Values:
        inner = self.values(node)
        known = []
        for value in inner.known:
            try:
                made = {"int": int, "bool": bool, "float": float, "str": str}[name](
                    value.constant
                )
            except (TypeError, ValueError):
                return Values(complete=False)
            known.append(Value(made, value.node, value.default))
        return Values(tuple(known), inner.complete)

    def _extreme(self, name: str, node: ast.Call) -> Values:
        """`min(…, 0)` of known numbers; Unknown otherwise."""
        constants = [self.constant(a) for a in node.args]
        numbers = [c for c in constants if isinstance(c, (int, float))]
        if not numbers or len(numbers) != len(constants):
            return Values(complete=False)
        found = min(numbers) if name == "min" else max(numbers)
        return Values((Value(found, node),))

    # Dicts, namespaces, options

    def _looked_up(
        self, holder: ast.expr, key: ast.expr, default: ast.expr | None
    ) -> Values:
        name = self.constant(key)
        if not isinstance(name, str):
            return Values(complete=False)
        mapping = self.mapping(holder)
        parts = [self.values(n) for n in mapping.items.get(name, ())]
        missing = name not in mapping.items or name in mapping.maybe
        if missing and default is not None:
            parts.append(self.values(default))
        elif missing and name not in mapping.maybe:
            parts.append(Values(complete=False))
        complete = mapping.complete or name in mapping.items
        return _joined(parts, complete and not mapping.replaced)

    def _attribute(self, node: ast.Attribute) -> Values:
        """`args.x` of parsed options, `cfg.x` of a namespace made from literals."""
        parts: list[Values] = []
        for origin in self.resolver.origins(node.value):
            call = origin.call
            if call is None:
                return Values(complete=False)
            name = self.index.qualified(call.func) or ""
            last = name.rpartition(".")[2]
            if last in ("parse_args", "parse_known_args"):
                parts.append(self._option(node.attr))
            elif last in _NAMESPACES:
                its = self._namespace(call).items.get(node.attr)
                if its is None:
                    return Values(complete=False)
                parts += [self.values(n) for n in its]
            else:
                return Values(complete=False)
        return _joined(parts, bool(parts))

    def _option(self, name: str) -> Values:
        found = [self._option_default(c) for c in self.options.get(name, ())]
        return _joined(found, bool(found))

    @cached_property
    def options(self) -> dict[str, list[ast.Call]]:
        """`add_argument` and `set_defaults` calls by the attribute they set."""
        options: dict[str, list[ast.Call]] = defaultdict(list)
        for call in self.index.all(ast.Call):
            if (
                isinstance(call.func, ast.Attribute)
                and call.func.attr == "add_argument"
            ):
                name = _destination(call)
                if name:
                    options[name].append(call)
        return options

    def _option_default(self, call: ast.Call) -> Values:
        keywords = {k.arg: k.value for k in call.keywords}
        action = keywords.get("action")
        if "default" not in keywords:
            flag = action.value if isinstance(action, ast.Constant) else None
            if flag in ("store_true", "store_false"):
                return Values((Value(flag == "store_false", call, True),))
            return Values(complete=False)
        its = self.values(keywords["default"])
        return Values(
            tuple(Value(v.constant, v.node, True) for v in its.known), its.complete
        )

    def mapping(self, node: ast.expr) -> Mapping:
        """What is known of a dict expression, `update` and `d[k] = v` included."""
        if node in self._mapping_busy:
            return Mapping(complete=False)
        self._mapping_busy.add(node)
        try:
            found = [self._origin_mapping(o) for o in self.resolver.origins(node)]
        finally:
            self._mapping_busy.discard(node)
        if not found:
            return Mapping(complete=False)
        items: dict[str, list[ast.expr]] = {}
        for part in found:
            for key, its in part.items.items():
                items.setdefault(key, []).extend(n for n in its)
        maybe = set().union(*(p.maybe for p in found)) | {
            key for key in items if any(key not in p.items for p in found)
        }
        complete = all(p.complete for p in found)
        replaced = any(p.replaced for p in found)
        for written, value in self._writes(node):
            if written is None:
                complete, replaced = False, True
                continue
            if written not in items:
                maybe.add(written)
            items.setdefault(written, []).append(value)
        return Mapping(items, frozenset(maybe), complete, replaced)

    def _origin_mapping(self, origin: Origin) -> Mapping:
        node = origin.expression
        if isinstance(node, ast.Dict):
            return self._literal(node)
        if isinstance(node, ast.Call):
            name = self.index.qualified(node.func) or ""
            last = getattr(node.func, "attr", name.rpartition(".")[2])
            if last in _NAMESPACES or name in ("dict", "collections.OrderedDict"):
                return self._namespace(node)
            if self._is_loader_kwargs(node):
                return self._namespace(ast.Call(node.func, [], node.keywords))
            if last in ("copy", "deepcopy"):
                inner = node.args[0] if node.args else getattr(node.func, "value", None)
                if inner is not None:
                    return self.mapping(inner)
        if isinstance(node, ast.Subscript):
            return self._nested(node.value, node.slice)
        return Mapping(complete=False)

    def _nested(self, holder: ast.expr, key: ast.expr) -> Mapping:
        name = self.constant(key)
        if not isinstance(name, str):
            return Mapping(complete=False)
        inner = self.mapping(holder).items.get(name, [])
        return self.mapping(inner[0]) if len(inner) == 1 else Mapping(complete=False)

    def _literal(self, node: ast.Dict) -> Mapping:
        items: dict[str, list[ast.expr]] = {}
        complete = True
        replaced = False
        maybe: set[str] = set()
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                inner = self.mapping(value)
                complete = complete and inner.complete
                replaced = replaced or inner.replaced
                replaced = replaced or bool(items and not inner.complete)
                maybe |= inner.maybe - set(items)
                for name, its in inner.items.items():
                    items[name] = list(its)
            else:
                constant = self.constant(key)
                if isinstance(constant, str):
                    items[constant] = [value]
                    maybe.discard(constant)
                else:
                    complete = complete and constant is not None
        return Mapping(items, frozenset(maybe), complete, replaced)

    def _namespace(self, call: ast.Call) -> Mapping:
        items: dict[str, list[ast.expr]] = {}
        complete = True
        parts = [self.mapping(a) for a in call.args]
        parts += [self.mapping(k.value) for k in call.keywords if k.arg is None]
        for part in parts:
            complete = complete and part.complete
            items.update({k: list(v) for k, v in part.items.items()})
        for keyword in call.keywords:
            if keyword.arg is not None:
                items[keyword.arg] = [keyword.value]
        replaced = any(part.replaced for part in parts)
        return Mapping(items, frozenset(), complete, replaced)

    @cached_property
    def _updates(self) -> dict[str, list[ast.Assign | ast.AugAssign | ast.Call]]:
        """Statements and calls that set keys in place, by the dict's written name."""
        updates: dict[str, list[ast.Assign | ast.AugAssign | ast.Call]]
        updates = defaultdict(list)
        for added in self.index.all(ast.AugAssign):
            if isinstance(added.op, ast.BitOr):
                updates[dotted(added.target) or ""].append(added)
        for assign in self.index.all(ast.Assign):
            for target in assign.targets:
                if isinstance(target, ast.Subscript):
                    updates[dotted(target.value) or ""].append(assign)
        for call in self.index.all(ast.Call):
            func = call.func
            if isinstance(func, ast.Attribute) and func.attr in (
                "update",
                "setdefault",
            ):
                updates[dotted(func.value) or ""].append(call)
        updates.pop("", None)
        return updates

    def _writes(self, node: ast.expr) -> Iterator[tuple[str | None, ast.expr]]:
        """Keys set in place on a dict, by its name; None for a key not known."""
        name = dotted(node)
        for written in self._updates.get(name or "", ()):
            if written in self._busy:
                continue
            self._busy.add(written)
            if isinstance(written, ast.Call):
                yield from self._update_items(written)
            elif isinstance(written, ast.AugAssign):
                its = self.mapping(written.value)
                yield from ((k, v) for k, vs in its.items.items() for v in vs)
                if not its.complete:
                    yield None, written.value
            else:
                yield from self._set_items(written, name)
            self._busy.discard(written)

    def _set_items(
        self, assign: ast.Assign, name: str | None
    ) -> Iterator[tuple[str | None, ast.expr]]:
        for target in assign.targets:
            if isinstance(target, ast.Subscript) and dotted(target.value) == name:
                key = self.constant(target.slice)
                yield (key if isinstance(key, str) else None), assign.value

    def _update_items(self, call: ast.Call) -> Iterator[tuple[str | None, ast.expr]]:
        assert isinstance(call.func, ast.Attribute)
        if call.func.attr == "setdefault":
            if len(call.args) == 2:
                key = self.constant(call.args[0])
                yield (key if isinstance(key, str) else None), call.args[1]
            return
        mapping = self._namespace(call)
        for name, its in mapping.items.items():
            for value in its:
                yield name, value
        if not mapping.complete:
            yield None, call

    # Arguments

    def argument(
        self, call: ast.Call, name: str, position: int | None = None
    ) -> Argument:
        """An argument by keyword, position (0-based) or through `**kwargs`."""
        for keyword in call.keywords:
            if keyword.arg == name:
                return Argument("given", (keyword.value,), keyword.value)
        if position is not None:
            before = call.args[: position + 1]
            if any(isinstance(a, ast.Starred) for a in before):
                return Argument("unknown")
            if position < len(call.args):
                found = call.args[position]
                return Argument("given", (found,), found)
        return self._spread_argument(call, name)

    def _spread_argument(self, call: ast.Call, name: str) -> Argument:
        nodes: list[ast.expr] = []
        sure = False
        complete = True
        for keyword in call.keywords:
            if keyword.arg is not None:
                continue
            if self._is_loader_kwargs(keyword.value) and name in LOADER_OPTIONS:
                return Argument("given", (keyword.value,))
            mapping = self.mapping(keyword.value)
            complete = complete and mapping.complete
            if name in mapping.items:
                nodes += mapping.items[name]
                sure = sure or not (name in mapping.maybe or mapping.replaced)
        if sure:
            return Argument("given", tuple(nodes))
        if nodes:
            return Argument("maybe", tuple(nodes))
        return Argument("absent" if complete else "unknown")

    def _is_loader_kwargs(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Call):
            return False
        name = self.index.qualified(node.func) or ""
        return name.endswith("runtime.loader_kwargs")


LOADER_OPTIONS = frozenset(
    "num_workers pin_memory persistent_workers prefetch_factor timeout "
    "multiprocessing_context".split()
)


def _joined(parts: list[Values], complete: bool) -> Values:
    known: list[Value] = []
    for part in parts:
        complete = complete and part.complete
        known += [v for v in part.known if v not in known]
    return Values(tuple(known), complete)


def _destination(call: ast.Call) -> str | None:
    """The attribute that an `add_argument` call sets."""
    for keyword in call.keywords:
        if keyword.arg == "dest" and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    flags = [
        a.value
        for a in call.args
        if isinstance(a, ast.Constant) and isinstance(a.value, str)
    ]
    long = [f for f in flags if f.startswith("--")] or flags
    return long[0].lstrip("-").replace("-", "_") if long else None
