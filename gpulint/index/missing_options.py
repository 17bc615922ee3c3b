"""Options that a command line surely lacks: reading one of them raises."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from gpulint.index.build import FileIndex, Function, last_name
from gpulint.index.resolve import Origin
from gpulint.index.walk import dotted

if TYPE_CHECKING:
    from gpulint.index.command_line import CommandLine

# How options get names that no line says.
_MAKES_OPTIONS = re.compile(
    r"add_subparsers|\bparents\s*=(?!\s*True|\s*\[\s*[\w.]+(\(\s*\))?\s*\])"
    r"|set_defaults\(\s*\*\*|add_argument\(\s*[^'\"\s]"
)
_HOLDER = (
    r"(self\.)?"
    r"(args?|opts?|options|config|cfg|conf|params|hparams|flags|namespace|ns)\b"
)
_SETS_OPTIONS = re.compile(
    rf"\bsetattr\(\s*{_HOLDER}|\bNamespace\(|\bnamespace\s*="
    rf"|\b{_HOLDER}\.__dict__(?!\s*[,)]|\.(items|keys|values|copy|get)\()"
    rf"|\bvars\([^()]*\)(\[|\.(update|setdefault))|=\s*vars\(\s*{_HOLDER}\)\s*(\n|#)"
    rf"|\b{_HOLDER}\.__setattr__\(",
    re.IGNORECASE,
)
# What a call with options is named that only looks at them.
_SHOWS = re.compile(
    r"(?i)^(vars|dir|str|repr|dict|type|isinstance|getattr|hasattr|len|format|init|update|"
    r"p?print|pformat|info|debug|warning|error|log\w*|write|dump|save\w*|copy|deepcopy|"
    r"add_text|add_hparams|asdict|config|OmegaConf|create|spawn|partial|seed\w*)$"
)
MAX_CALLS = 2  # that hand options on to each other
_HELD = re.compile(rf"(\w+\.)?{_HOLDER}", re.IGNORECASE)
_SETTERS = ("setattr(", "__dict__", "vars(", "Namespace(", "namespace=")
Nodes = frozenset[ast.AST]
# The files that run together with one, all of them; None: there may be others.
Together = Callable[[FileIndex], "list[FileIndex] | None"]


class MissingOptions:
    """What the options of a command line have no attribute for."""

    def __init__(self, line: CommandLine) -> None:
        self.line = line
        self.resolver = line.resolver
        self.index = line.index
        self._lacking: dict[tuple[ast.AST | None, str], bool] = {}
        self._handed_out: dict[tuple[FileIndex, str | None], bool] = {}

    def has_no(self, holder: ast.expr, name: str, together: Together) -> bool:
        """Whether an object holds parsed options, and surely none of that name.

        Of a parser of argparse all of whose options are written out, and that is given
        to nothing. Nothing in the project sets an attribute, or has a text, of that
        name, nor attributes of options by names that it reads, and no code that is not
        seen is given the object. `together`: the files that run with one that parses,
        if that can be told; then the others do not count.
        """
        home = self.index.home(holder)
        origins = list(self.line.sources(holder))
        if _sets(home, name) or self.is_handed_out(home, dotted(holder)):
            return False
        for origin in origins:
            key = (origin.node, name)
            if key not in self._lacking:
                self._lacking[key] = self._lacks(origin, name, together)
        return bool(origins) and all(self._lacking[o.node, name] for o in origins)

    def _lacks(self, origin: Origin, name: str, together: Together) -> bool:
        table = self.line.table(origin)
        if not table or name in table or self.line.is_given(origin):
            return False
        call = origin.node
        func = call.func if isinstance(call, ast.Call) else None
        parser = func.value if isinstance(func, ast.Attribute) else None
        if parser is None or not dotted(parser) or not self._is_plain(parser):
            return False
        home = self.index.home(parser)
        above = home.parent(call)
        targets = above.targets if isinstance(above, ast.Assign) else []
        if any(self.is_handed_out(home, dotted(target)) for target in targets):
            return False
        files = [home, *self.line.helpers(home)]
        if any(
            f.source.has(_MAKES_OPTIONS) or f.source.has(_SETS_OPTIONS) for f in files
        ):
            return False
        if home.project is None:
            return not _sets(home, name)
        return self._is_set_nowhere(home, name) or self._is_set_by_none(
            home, name, together(home)
        )

    def _is_set_nowhere(self, home: FileIndex, name: str) -> bool:
        """Whether no file of the project may give options one of that name."""
        project = home.project
        assert project is not None
        if any(map(project.mentions, (f'"{name}"', f"'{name}'", f'"--{name}"'))):
            return False
        if project.writing(name) != []:
            return False
        texts = [t for part in _SETTERS for t in project.texts(part)]
        return not any(map(_SETS_OPTIONS.search, texts))

    def _is_set_by_none(
        self, home: FileIndex, name: str, files: list[FileIndex] | None
    ) -> bool:
        """The same of the files alone that run with one."""
        if files is None or home not in files:
            return False
        quoted = re.compile(rf"['\"](--)?{name}['\"]")
        for file in files:
            if (
                _sets(file, name)
                or file.source.has(_SETS_OPTIONS)
                or file.source.has(quoted)
            ):
                return False
            if any(map(partial(self.is_handed_out, file), _held(file))):
                return False  # whatever the object is called in other files
        return True

    def is_handed_out(self, home: FileIndex, name: str | None) -> bool:
        """Whether a file gives an object to a call whose function is not seen.

        Or to functions whose file gives their parameter to imports that are not seen.
        """
        key = (home, name)
        if key not in self._handed_out:
            self._handed_out[key] = any(
                not self._is_own(home, call)
                if not (functions := self.resolver.calls.callees(call))
                else any(
                    self._hands_on(call, f, name or "", MAX_CALLS) for f in functions
                )
                for call in self._giving(home, name)
            )
        return self._handed_out[key]

    def _giving(self, home: FileIndex, name: str | None) -> Iterator[ast.Call]:
        """The calls of a file that are given an object, and may set something of it."""
        for call in home.calls_given.get(name or "", ()):
            shows = _SHOWS.search(last_name(call)) is not None
            if not shows and self.resolver.classes.named(call.func) is None:
                yield call

    def _hands_on(
        self, call: ast.Call, function: Function, name: str, depth: int
    ) -> bool:
        """Whether a function's file gives on to others what a call gives it."""
        calls, home, args = (
            self.resolver.calls,
            self.index.home(function),
            function.args,
        )
        taken = [
            parameter.arg
            for parameter in (*args.posonlyargs, *args.args, *args.kwonlyargs)
            if name in map(dotted, calls.given(call, function, parameter.arg)[0])
        ]
        for parameter in taken:
            for inner in self._giving(home, parameter):
                found = calls.callees(inner)
                head = (dotted(inner.func) or "").partition(".")[0]
                if not found and head in home.imports and not self._is_own(home, inner):
                    return True
                if depth > 1 and any(
                    self._hands_on(inner, f, parameter, depth - 1) for f in found
                ):
                    return True
        return False

    def _is_own(self, home: FileIndex, call: ast.Call) -> bool:
        """`engine.run(args)`, of a module of the project; `type(self)(args)`."""
        if isinstance(call.func, ast.Call):
            return dotted(call.func.func) == "type"
        head = (dotted(call.func) or "").partition(".")[0]
        origin = home.imports.get(head)
        return origin is not None and home.owns(origin)

    def _is_plain(self, parser: ast.expr, around: Nodes = frozenset()) -> bool:
        """Whether a parser is argparse's own, and only adds options and parses.

        `around`: calls that make parsers of which it is a parent.
        """
        made = {origin.node for origin in self.resolver.origins(parser)}
        if not made or not made.isdisjoint(around):
            return False
        if not all(self._makes_plain(its, around | made) for its in made):
            return False
        targets = [getattr(self.index.parent(its), "targets", ()) for its in made]
        names = [parser, *(name for its in targets for name in its)]
        return not any(dotted(name) and self._is_given(name, made) for name in names)

    def _makes_plain(self, made: ast.AST, around: Nodes) -> bool:
        """`ArgumentParser(parents=[get_parser()])`, of a file that is looked at."""
        if not isinstance(made, ast.Call):
            return False
        if self.index.qualified(made.func) != "argparse.ArgumentParser":
            return False
        home = self.index.home(made)
        parents = [k.value for k in made.keywords if k.arg in ("parents", None)]
        seen = {home, *self.line.helpers(home)} if parents else set()
        return all(
            self._is_plain(its, around)
            and all(self.index.home(o.node) in seen for o in self.resolver.origins(its))
            for parent in parents
            for its in (parent.elts if isinstance(parent, ast.List) else [parent])
        )

    def _is_given(self, parser: ast.expr, made: set[ast.AST]) -> bool:
        """Whether a call is given a parser, not what the name holds elsewhere.

        But for a function of a file that is looked at, which gives it to no other.
        """
        home, name = self.index.home(parser), dotted(parser)
        for call in home.calls_given.get(name or "", ()):
            for value in (*call.args, *(k.value for k in call.keywords)):
                if (
                    dotted(value) == name
                    and not made.isdisjoint(
                        o.node for o in self.resolver.origins(value)
                    )
                    and not self._only_adds(home, call)
                ):
                    return True
        return False

    def _only_adds(self, home: FileIndex, call: ast.Call) -> bool:
        """Whether a call's function may add options, and hands nothing on.

        `parser = add_arguments(parser)`.
        """
        function = self.resolver.calls.callee(call)
        its = self.index.home(function) if function is not None else None
        if function is None or its not in (home, *self.line.helpers(home)):
            return False
        return not any(
            its.inside(given, function)
            for parameter in function.args.args
            for given in its.calls_given.get(parameter.arg, ())
        )


def _sets(home: FileIndex, name: str) -> bool:
    """Whether a file sets an attribute of that name, not of `self`."""
    writes = home.attribute_writes.get(name, ())
    return any(dotted(written.value) != "self" for written in writes)


def _held(home: FileIndex) -> list[str]:
    """What a file calls things that may be options, where it gives calls one."""
    return [name for name in home.calls_given if _HELD.fullmatch(name)]
