"""Options of a command line and their defaults: argparse, click, typer, absl."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index.build import FileIndex, Function, last_name
from gpulint.index.flow import enclosing_function
from gpulint.index.known import Value, Values, joined
from gpulint.index.missing_options import MissingOptions
from gpulint.index.resolve import Origin

if TYPE_CHECKING:
    from gpulint.index.values import Evaluator

PARSES = frozenset("parse_args parse_known_args parse_intermixed_args".split())
_ACTIONS = {"store_true": True, "store_false": False}
_FLAGS = frozenset("absl.flags.FLAGS tensorflow.app.flags.FLAGS".split())
MAX_STEPS = 4  # classes that hand options on to their bases


class CommandLine:
    """Which values options have where the user gives none."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self.resolver = evaluator.resolver
        self.index = evaluator.index
        self._added: dict[
            tuple[FileIndex, bool, tuple[FileIndex, ...]], dict[str, list[ast.expr]]
        ] = {}
        self._defined: dict[FileIndex, dict[str, list[ast.expr]]] = {}
        self.missing = MissingOptions(self)

    def option(self, holder: ast.expr, name: str) -> Values | None:
        """`args.x`, `FLAGS.x`; None: the object holds no parsed options."""
        parts = []
        for origin in self.sources(holder):
            table = self.table(origin)
            if table is None:
                return None
            its = [self.evaluator.values(n) for n in table.get(name, ())]
            parts.append(joined(its, bool(its) and not self.is_given(origin)))
        if parts:
            parts += self.evaluator.set_outside(holder, name)
        return joined(parts, True) if parts else None

    def beside(self, node: ast.Attribute) -> Values:
        """What the file's own option of an attribute's name is where none is given.

        `self.args.workers`, where nothing says that `args` are what this file parses.
        """
        options = self._options(self.index.home(node), False, ()).get(node.attr, [])
        its = [self.evaluator.values(option) for option in options]
        return joined(its, bool(its))

    @staticmethod
    def is_given(origin: Origin) -> bool:
        """Whether options are parsed from a list, or into an object, of the script."""
        if not isinstance(origin.node, ast.Call):
            return False
        keywords = {k.arg: k.value for k in origin.node.keywords}
        given = [*origin.node.args[:1], *filter(None, [keywords.get("args")])]
        written = any(isinstance(a, ast.List) and a.elts for a in given)
        return written or len(origin.node.args) > 1 or "namespace" in keywords

    def choices(self, holder: ast.expr, name: str) -> frozenset[object] | None:
        """All that `args.x` can be, by the `choices` of the option and its default.

        None: it may be something else, or the object holds no parsed options.
        """
        offered: set[object] = set()
        for origin in self.sources(holder):
            options = (self.table(origin) or {}).get(name)
            if not options or self.is_given(origin):
                return None
            for option in options:
                its = _choices_of(option)
                default = self.evaluator.values(option)
                if its is None:
                    return None
                offered |= {*its, *(value.constant for value in default.known)}
        written = self.evaluator.set_outside(holder, name)
        return frozenset(offered) if offered and not written else None

    def all_of(self, holder: ast.expr) -> dict[str, list[ast.expr]] | None:
        """The defaults of all options that an object holds; None: it holds none."""
        tables = [self.table(o) for o in self.sources(holder)]
        if not tables or None in tables:
            return None
        return {k: v for table in tables for k, v in (table or {}).items()}

    def sources(self, holder: ast.expr, depth: int = 0) -> Iterator[Origin]:
        """Where options come from, also by `super().__init__(args)`."""
        for origin in self.resolver.origins(holder):
            passed = self._by_super(origin) if depth < MAX_STEPS else []
            for argument in passed:
                yield from self.sources(argument, depth + 1)
            if not passed:
                yield origin

    def _by_super(self, origin: Origin) -> list[ast.expr]:
        """What deriving classes pass for a parameter that nobody else passes."""
        definition = origin.definition
        if origin.kind != "parameter" or origin.path or definition is None:
            return []
        function = enclosing_function(self.index, definition)
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return []
        position = self.resolver.calls.position(function, definition.name)
        given = [
            self.evaluator.argument(call, definition.name, position).direct
            for call in self.evaluator.outside.calls_by_super(function)
        ]
        return [] if None in given else [node for node in given if node is not None]

    def table(self, origin: Origin) -> dict[str, list[ast.expr]] | None:
        node = origin.node
        if isinstance(node, ast.Call) and origin.kind == "expression":
            last = last_name(node)
            first = origin.path == ((0,) if last == "parse_known_args" else ())
            parses = last in PARSES and first
            if not parses:
                return None
            parser = getattr(node.func, "value", None)
            home = self.index.home(node)
            made = self.resolver.origins(parser) if parser is not None else ()
            makers = [self.index.home(origin.node) for origin in made]
            shared = isinstance(parser, ast.Attribute)
            return self._options(home, shared, tuple(dict.fromkeys(makers)))
        absl = isinstance(node, ast.Attribute) and origin.expression is node
        if absl and self.index.qualified(node) in _FLAGS:
            return self._flags(self.index.home(node))
        return None

    # argparse

    def _options(
        self, home: FileIndex, shared: bool, makers: tuple[FileIndex, ...]
    ) -> dict[str, list[ast.expr]]:
        """Expressions that give an option its default, by its attribute.

        Those of the file that parses, of modules that help it with the parser or make
        it, and, where the parser is an attribute (`shared`), of files that import this
        one. Any default may come from an unpacked dict, which stands under each name
        then.
        """
        key = (home, shared, makers)
        if key not in self._added:
            homes = [home, *self.helpers(home), *makers]
            if shared and home.project is not None:
                for call in ("add_argument(", "set_defaults("):
                    homes += home.project.importers(home, "", call) or []
            parts = [_options_in(h) for h in dict.fromkeys(homes)]
            pairs = [pair for part in parts for pair in part]
            chosen = {n for n, node in pairs if not _is_option(node)}
            found: dict[str, list[ast.expr]] = defaultdict(list)
            for name, node in pairs:
                if name in chosen and _has_no_default(node):
                    continue  # what `set_defaults` says holds
                if name in chosen and self._is_repeated(node, name, pairs):
                    continue  # so does it, with an option or without
                found[name].append(node)
            for unpacked in found.pop("", ()):
                its = self.evaluator.mapping(unpacked)
                for name in found if not its.complete or its.replaced else its.items:
                    found[name] += its.items.get(name, [unpacked])
            self._added[key] = found
        return self._added[key]

    def _is_repeated(
        self, option: ast.expr, name: str, pairs: list[tuple[str, ast.expr]]
    ) -> bool:
        """`store_true` beside `set_defaults(name=True)` in one block: always True."""
        action = _ACTIONS.get(_action(option) or "")
        home = self.index.home(option)
        return action is not None and any(
            other == name
            and isinstance(node, ast.Constant)
            and node.value is action
            and self.index.home(node) is home
            and home.parent(home.statement(node)) is home.parent(home.statement(option))
            for other, node in pairs
        )

    def helpers(self, home: FileIndex) -> Iterator[FileIndex]:
        project = home.project
        if project is None:
            return
        seen = {home}
        for origin in home.imported:
            found = home.member(origin)
            if found is not None and found[0] not in seen:
                seen.add(found[0])
                yield found[0]

    # absl

    def _flags(self, home: FileIndex) -> dict[str, list[ast.expr]]:
        if home not in self._defined:
            found: dict[str, list[ast.expr]] = defaultdict(list)
            for part in [home, *self.helpers(home)]:
                for call in part.all(ast.Call):
                    first = call.args[0] if len(call.args) > 1 else None
                    if last_name(call).startswith("DEFINE_") and isinstance(
                        first, ast.Constant
                    ):
                        found[str(first.value)].append(call)
            self._defined[home] = found
        return self._defined[home]

    # Defaults

    def default(self, call: ast.Call, name: str) -> Values | None:
        """What a call that declares an option says its default is."""
        last = last_name(call)
        if last == "add_argument":
            return self._argparse_default(call)
        if last.startswith("DEFINE_"):
            keywords = {k.arg: k.value for k in call.keywords}
            given = call.args[1] if len(call.args) > 1 else keywords.get("default")
            return self._of(given)
        if name in ("typer.Option", "typer.Argument"):
            keywords = {k.arg: k.value for k in call.keywords}
            return self._of(call.args[0] if call.args else keywords.get("default"))
        return None

    def _of(self, node: ast.expr | None) -> Values:
        if node is None:
            return Values(complete=False)
        return self.evaluator.values(node).replaceable()

    def _argparse_default(self, call: ast.Call) -> Values:
        keywords = {k.arg: k.value for k in call.keywords}
        action = keywords.get("action")
        flag = action.value if isinstance(action, ast.Constant) else None
        if "default" in keywords:
            its = self.evaluator.values(keywords["default"])
            stored = flag == "store_true"
            if flag in ("store_true", "store_false") and its.all_in(stored):
                return its  # whatever the user gives
            return its.replaceable()
        if flag in ("store_true", "store_false"):
            return Values((Value(flag == "store_false", call, True),))
        return Values(complete=False)

    def decorated(self, function: Function, name: str) -> Values | None:
        """A parameter that `@click.option` fills; None for any other parameter."""
        for decorator in function.decorator_list:
            if not isinstance(decorator, ast.Call):
                continue
            if last_name(decorator) not in ("option", "argument"):
                continue
            qualified = self.index.qualified(decorator.func) or ""
            if "click" in qualified and _destination(decorator, last=True) == name:
                return self._click_default(decorator)
        return None

    def _click_default(self, call: ast.Call) -> Values:
        keywords = {k.arg: k.value for k in call.keywords}
        if "default" in keywords:
            return self._of(keywords["default"])
        flag = keywords.get("is_flag")
        if isinstance(flag, ast.Constant) and flag.value is True:
            return Values((Value(False, call, True),))
        return Values(complete=False)


def _options_in(index: FileIndex) -> Iterator[tuple[str, ast.expr]]:
    """Options that a file declares, each with the call or value of its default.

    A dict unpacked into `set_defaults` has no name.
    """
    for call in index.calls_by_name.get("add_argument", ()):
        name = _destination(call)
        if name:
            yield name, call
    for call in index.calls_by_name.get("set_defaults", ()):
        for keyword in call.keywords:
            yield keyword.arg or "", keyword.value


def _choices_of(option: ast.expr) -> set[object] | None:
    """The constants that an `add_argument` lets a user choose from."""
    keywords = option.keywords if isinstance(option, ast.Call) else ()
    for keyword in keywords:
        if keyword.arg == "choices" and isinstance(
            keyword.value, (ast.List, ast.Tuple)
        ):
            items = keyword.value.elts
            if all(isinstance(item, ast.Constant) for item in items):
                return {item.value for item in items if isinstance(item, ast.Constant)}
    return None


def _is_option(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_name(node) == "add_argument"


def _has_no_default(node: ast.expr) -> bool:
    """Whether an `add_argument` leaves the default to others."""
    names = {k.arg for k in node.keywords} if isinstance(node, ast.Call) else set()
    return _is_option(node) and names.isdisjoint(("default", "action"))


def _action(node: ast.expr) -> str | None:
    """What an `add_argument` does with its option, as written."""
    keywords = node.keywords if isinstance(node, ast.Call) else ()
    for keyword in keywords:
        if keyword.arg == "action" and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    return None


def _destination(call: ast.Call, last: bool = False) -> str | None:
    """The attribute that an option sets; `last`: click takes a bare name first."""
    for keyword in call.keywords:
        if keyword.arg == "dest" and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    flags = [
        a.value
        for a in call.args
        if isinstance(a, ast.Constant) and isinstance(a.value, str)
    ]
    bare = [f for f in flags if not f.startswith("-")] if last else []
    long = bare or [f for f in flags if f.startswith("--")] or flags
    if not long:
        return None
    return long[0].partition("/")[0].lstrip("-").replace("-", "_")
