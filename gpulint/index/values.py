"""What value reaches a name or an argument: constants, dicts, options, `**kwargs`."""

from __future__ import annotations

import ast

from gpulint.index.build import Function
from gpulint.index.command_line import CommandLine
from gpulint.index.flow import Definition, enclosing_function
from gpulint.index.known import Argument, Mapping, Value, Values, joined
from gpulint.index.loaded_settings import LoadedSettings
from gpulint.index.mappings import Mappings
from gpulint.index.resolve import Origin, Resolver

_LOOKUPS = ("get", "pop", "setdefault")
_TEXTS = ("strip", "lower", "upper")  # give a string for a string
MAX_LOOKS = 1000  # real programs were seen to need less than 200
_FIELDS = frozenset("field Field attrib ib Option".split())


class Evaluator:
    """Values of expressions, from wherever in the project they come."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.index = resolver.index
        self.mappings = Mappings(self)
        self.command_line = CommandLine(self)
        self.settings = LoadedSettings(self)
        self.outside = resolver.outside
        self.lookups: set[ast.AST] = set()  # `d.pop(k)` that are being evaluated
        self._busy: set[ast.AST] = set()
        self._looks = 0  # at dicts, for the question that is being answered
        self._known: dict[ast.expr, Values] = {}

    def may_look(self) -> bool:
        """Whether a dict may be looked into: not where a question needs too many.

        Calls that hand `**kwargs` on in a circle have more ways than can be followed.
        """
        self._count_anew()
        self._looks += 1
        return self._looks <= MAX_LOOKS

    def _count_anew(self) -> None:
        """Begin to count, unless what is asked is a part of another question."""
        if not (self._busy or self.lookups or self.mappings.is_busy):
            self._looks = 0

    def values(self, node: ast.expr) -> Values:
        """The constants that an expression can be."""
        if self._busy or self.lookups:  # what it gives may lack what is being asked for
            return self._values(node)
        if node not in self._known:
            self._known[node] = self._values(node)
        return self._known[node]

    def _values(self, node: ast.expr) -> Values:
        if node in self._busy:
            return Values()
        self._count_anew()
        self._busy.add(node)
        try:
            parts = [self._origin_values(o) for o in self.resolver.origins(node)]
            return joined(parts, True)
        finally:
            self._busy.discard(node)

    def constant(self, node: ast.expr) -> object:
        """The one constant an expression is; None when there are several or none."""
        its = self.values(node)
        if its.complete and len({repr(v.constant) for v in its.known}) == 1:
            return its.known[0].constant
        return None

    def mapping(self, node: ast.expr) -> Mapping:
        """What is known of a dict expression, `update` and `d[k] = v` included."""
        return self.mappings.of(node)

    def _origin_values(self, origin: Origin) -> Values:
        if origin.kind == "parameter" and not origin.path:
            return self._parameter(origin)
        if origin.default:
            found = self._from(origin)
            return joined([found, *self._other_callers(origin)], True)
        return self._from(origin)

    def _from(self, origin: Origin) -> Values:
        if origin.kind == "unknown" and isinstance(origin.node, ast.Call):
            return self._unpacked_field(origin)
        node = origin.expression
        if isinstance(node, ast.Constant):
            default = origin.default or self.settings.is_matched(node)
            return Values((Value(node.value, node, default),))
        if isinstance(node, ast.UnaryOp):
            return self._unary(node)
        if isinstance(node, ast.Compare):
            known = self.resolver.compares_device(node)
            return (
                Values(complete=False)
                if known is None
                else Values((Value(known, node),))
            )
        if isinstance(node, ast.Subscript):
            return self._looked_up(node.value, node.slice, None)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Call):
            its = self._called(node)
            return its.replaceable() if origin.default else its
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
            self.lookups.add(node)
            its = self._looked_up(func.value, node.args[0], default)
            self.lookups.discard(node)
            return its
        if isinstance(func, ast.Attribute) and func.attr in _TEXTS and not node.args:
            return self._text(func)
        name = self.index.qualified(func) or ""
        if name in ("int", "bool", "float", "str") and len(node.args) == 1:
            return self._converted(name, node.args[0])
        if name in ("min", "max"):
            return self._extreme(name, node)
        if name.endswith("runtime.batch_size") and node.args:
            return self.values(node.args[0]).replaceable()
        if name == "getattr" and len(node.args) > 1:
            return self._getattr(node)
        declared = self.command_line.default(node, name)
        if declared is not None:
            return declared
        return self._field(node, name.rpartition(".")[2])

    def _text(self, func: ast.Attribute) -> Values:
        """`name.strip()` of known strings."""
        inner = self.values(func.value)
        known = tuple(
            Value(getattr(v.constant, func.attr)(), v.node, v.default)
            for v in inner.known
            if isinstance(v.constant, str)
        )
        return Values(known, inner.complete and len(known) == len(inner.known))

    def _getattr(self, node: ast.Call) -> Values:
        """`getattr(args, "amp", False)`."""
        name = self.constant(node.args[1])
        found = self.member(node.args[0], name) if isinstance(name, str) else None
        if found is not None:
            return found
        default = self.values(node.args[2]) if len(node.args) == 3 else Values()
        return Values(default.known, complete=False)

    def _field(self, node: ast.Call, last: str) -> Values:
        """`field(default=4)` and its kin: the default of a class's attribute."""
        if last not in _FIELDS:
            return Values(complete=False)
        keywords = {k.arg: k.value for k in node.keywords}
        given = keywords.get("default")
        if given is None and last in ("Field", "Option") and node.args:
            given = node.args[0]
        made = keywords.get("default_factory") or keywords.get("factory")
        if given is None and isinstance(made, ast.Lambda):
            given = made.body
        return self.values(given).replaceable() if given else Values(complete=False)

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

    # Parameters that not every caller passes in a clear way

    def _parameter(self, origin: Origin) -> Values:
        """A parameter that callers pass through `**kwargs`, or a command line sets."""
        definition = origin.definition
        if definition is None or not isinstance(definition.node, ast.arg):
            return Values(complete=False)
        function = enclosing_function(self.index, definition)
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return Values(complete=False)
        option = self.command_line.decorated(function, definition.name)
        if option is not None:
            return option
        if any(self._forwards(c) for c in self.resolver.calls.callers(function)):
            return self._passed(function, definition)
        return Values(complete=False)

    def _other_callers(self, origin: Origin) -> list[Values]:
        """What those pass who get a function as a value, or call it by `super()`."""
        definition = origin.definition
        if definition is None or definition.kind != "parameter":
            return []
        function = enclosing_function(self.index, definition)
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return []
        if self.outside.handed_on(function):
            return [Values(complete=False)]
        parts = []
        position = self.resolver.calls.position(function, definition.name)
        for call in self.outside.calls_by_super(function):
            argument = self.argument(call, definition.name, position)
            parts += [self.values(n) for n in argument.nodes]
            if argument.state in ("maybe", "unknown"):
                parts.append(Values(complete=False))
        return parts

    @staticmethod
    def _forwards(call: ast.Call) -> bool:
        return any(k.arg is None for k in call.keywords)

    def _passed(self, function: Function, definition: Definition) -> Values:
        parts = []
        position = self.resolver.calls.position(function, definition.name)
        for call in self.resolver.calls.callers(function):
            argument = self.argument(call, definition.name, position)
            parts += [self.values(n) for n in argument.nodes]
            if argument.state in ("maybe", "unknown"):
                parts.append(Values(complete=False))
            elif argument.absent and definition.value is not None:
                parts.append(self.values(definition.value).replaceable())
        return joined(parts, bool(parts))

    def _unpacked_field(self, origin: Origin) -> Values:
        """A field of `Config(**settings)`."""
        definition = origin.definition
        if definition is None or definition.kind != "field" or origin.path:
            return Values(complete=False)
        assert isinstance(origin.node, ast.Call)
        argument = self.argument(origin.node, definition.name)
        if argument.absent:
            return Values()
        parts = [self.values(n) for n in argument.nodes]
        return joined(parts, argument.given)

    # Keys and attributes

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
        return joined(parts, complete and not mapping.replaced)

    def _attribute(self, node: ast.Attribute) -> Values:
        """`args.x` of parsed options, `cfg.x` of settings or of a namespace."""
        return self.member(node.value, node.attr) or Values(complete=False)

    def member(self, holder: ast.expr, name: str) -> Values | None:
        """The constants of an object's attribute; None where it is not known."""
        if isinstance(holder, ast.Attribute) and holder.attr == "hparams":
            saved = self._saved_parameter(holder, name)
            if saved is not None:
                return saved
        option = self.command_line.option(holder, name)
        if option is not None:
            return option
        mapping = self.mapping(holder)
        if name not in mapping.items:
            return None
        parts = [self.values(n) for n in mapping.items[name]]
        parts += self.set_outside(holder, name)
        there = mapping.complete or name not in mapping.maybe  # or reading it raises
        there = there and not mapping.replaced
        if isinstance(holder, ast.Attribute):  # `CONF.TRAIN` may be set as a whole
            known = self.mapping(holder.value).items.get(holder.attr, ())
            others = self.outside.values(holder.value, holder.attr)
            there = there and all(node in known for node in others)
        return joined(parts, there)

    def set_outside(self, holder: ast.expr, name: str) -> list[Values]:
        """What code in other places gives an attribute of an object."""
        return [
            self.values(n) if n is not None else Values(complete=False)
            for n in self.outside.values(holder, name)
        ]

    def _saved_parameter(self, holder: ast.Attribute, name: str) -> Values | None:
        """`self.hparams.x` after Lightning's `self.save_hyperparameters()`."""
        owner = self.index.owner(holder)
        init = self.resolver.classes.methods(owner).get("__init__") if owner else None
        if init is None:
            return None
        for call in self.index.home(init).calls_by_name.get("save_hyperparameters", ()):
            if self.index.inside(call, init):
                found = self.resolver.parameter_origins(init, name)
                parts = [self._origin_values(o) for o in found]
                return joined(parts, bool(parts)) if parts else None
        return None

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
        replaced = False
        for keyword in call.keywords:
            if keyword.arg is not None:
                continue
            if self.is_loader_kwargs(keyword.value) and name in LOADER_OPTIONS:
                return Argument("given", (keyword.value,))
            mapping = self.mapping(keyword.value)
            complete = complete and mapping.complete
            replaced = replaced or mapping.replaced
            if name in mapping.items:
                nodes += mapping.items[name]
                sure = sure or not (name in mapping.maybe or mapping.replaced)
        if sure:
            return Argument("given", tuple(nodes))
        if nodes:
            return Argument("unknown" if replaced else "maybe", tuple(nodes))
        return Argument("absent" if complete else "unknown")

    def is_loader_kwargs(self, node: ast.expr) -> bool:
        """Whether an expression is a call of the runtime's `loader_kwargs`."""
        if not isinstance(node, ast.Call):
            return False
        name = self.index.qualified(node.func) or ""
        return name.endswith("runtime.loader_kwargs")


LOADER_OPTIONS = frozenset(
    "num_workers pin_memory persistent_workers prefetch_factor timeout "
    "multiprocessing_context".split()
)
