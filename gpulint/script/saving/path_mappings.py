"""Paths that a dict of the program keeps, `files["weights"]`, and who has the dict."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NoReturn

from gpulint.index import FileIndex
from gpulint.index.build import last_name
from gpulint.index.walk import dotted
from gpulint.script.rewriting.edits import CannotFix
from gpulint.script.saving.path_parts import key

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_NAMES = 10  # names that one dict goes by, those of parameters included
_READS = frozenset({"get", "pop", "setdefault"})
# What asks for a dict, shows it, or goes through its keys.
_HARMLESS = (
    *(ast.Compare, ast.UnaryOp, ast.If, ast.While, ast.Assert),
    *(ast.FormattedValue, ast.Expr, ast.For, ast.comprehension),
)


def lookups(files: Iterable[FileIndex], word: str | None) -> Iterator[ast.expr]:
    """All reads of a key: `files["weights"]`, `files.get("weights")`."""
    for index in files:
        for node in index.all(ast.Subscript):
            if key(node) == word and isinstance(node.ctx, ast.Load):
                yield node
        for name in _READS:
            for call in index.calls_by_name.get(name, ()):
                first = call.args[0] if call.args else None
                if isinstance(first, ast.Constant) and first.value == word:
                    yield call


class PathMapping:
    """A dict that the program makes, one of whose values is a path.

    `values` are the expressions that its key gets; none where the making of the dict is
    not seen, as of a settings file. CannotFix: some use of the dict is not of a key
    that is written there, so that its paths may go anywhere. Calls of `quiet` names
    only show what they get.
    """

    def __init__(
        self,
        script: Script,
        files: list[FileIndex],
        lookup: ast.Subscript,
        quiet: frozenset[str],
    ) -> None:
        self.values: list[ast.expr] = []
        self._script = script
        self._files = files
        self._quiet = quiet
        self._word = key(lookup)
        self._names: list[str] = []
        origins = script.resolver.origins(lookup.value)
        self._holders = [o.node for o in origins if not o.path and _is_made(o.node)]
        if self._holders:
            self.values += [v for h in self._holders for v in self._displayed(h)]
            self._kept_in(lookup.value)
            while self._holders:
                self._use(self._holders.pop())

    def _displayed(self, made: ast.AST) -> Iterator[ast.expr]:
        """What a display, or `dict(last="last.pt")`, has for the key."""
        if isinstance(made, ast.Dict):
            for name, value in zip(made.keys, made.values, strict=True):
                if isinstance(name, ast.Constant) and name.value == self._word:
                    yield value
        elif isinstance(made, ast.Call):
            yield from (k.value for k in made.keywords if k.arg == self._word)

    def _kept_in(self, target: ast.AST) -> None:
        name = (dotted(target) or "").rpartition(".")[2]
        if not name:
            self._refuse(target)
        self._held_as(name)

    def _held_as(self, name: str) -> None:
        """All reads of a name or attribute that has the dict, in all files."""
        if name not in self._names:
            if len(self._names) == MAX_NAMES:
                raise CannotFix("the path is in a dict of too many names")
            self._names.append(name)
            self._holders += [n for i in self._files for n in i.reads.get(name, ())]

    def _use(self, holder: ast.AST) -> None:
        """What is done with an expression that is the dict."""
        index = self._script.index.home(holder)
        above = index.parent(holder)
        if isinstance(above, ast.keyword) and above.arg is not None:
            above = index.parent(above)
        if isinstance(above, ast.Subscript) and above.value is holder:
            self._looked_up(index, above)
        elif isinstance(above, ast.Call) and above.func is not holder:
            self._passed(above, holder)
        elif isinstance(above, (ast.Assign, ast.AnnAssign)):
            targets = above.targets if isinstance(above, ast.Assign) else [above.target]
            for target in targets:
                self._kept_in(target)
        elif isinstance(above, ast.Return):
            self._returned(index, above)
        elif not (isinstance(above, _HARMLESS) or self._is_read(index, above)):
            self._refuse(holder)

    def _looked_up(self, index: FileIndex, lookup: ast.Subscript) -> None:
        if key(lookup) is None:
            self._refuse(lookup)
        above = index.parent(lookup)
        if key(lookup) == self._word and isinstance(lookup.ctx, ast.Store):
            if not isinstance(above, (ast.Assign, ast.AnnAssign)) or not above.value:
                self._refuse(lookup)
            self.values.append(above.value)

    def _is_read(self, index: FileIndex, attribute: ast.AST | None) -> bool:
        """Whether it is `files.get("log")` or `files.keys()`."""
        call = index.parent(attribute) if attribute is not None else None
        if not isinstance(attribute, ast.Attribute) or not isinstance(call, ast.Call):
            return False
        constant = bool(call.args) and isinstance(call.args[0], ast.Constant)
        return attribute.attr == "keys" or (attribute.attr in _READS and constant)

    def _passed(self, call: ast.Call, holder: ast.AST) -> None:
        """As an argument: the parameters of the program's functions have it then."""
        if last_name(call) in self._quiet:
            return
        calls = self._script.resolver.calls
        functions = list(calls.callees(call))
        parameters = [
            arg
            for function in functions
            for args in [function.args]
            for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs]
            if holder in calls.given(call, function, arg.arg)[0]
        ]
        if not parameters or len(parameters) < len(functions):
            self._refuse(holder)
        for parameter in parameters:
            self._held_as(parameter.arg)

    def _returned(self, index: FileIndex, statement: ast.Return) -> None:
        function = index.function(statement)
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._refuse(statement)
        self._holders += self._script.resolver.calls.callers(function)

    def _refuse(self, node: ast.AST) -> NoReturn:
        text = self._script.text(node)
        raise CannotFix(f"`{text}` has the path as well")


def _is_made(node: ast.AST) -> bool:
    display = isinstance(node, ast.Dict)
    return display or (isinstance(node, ast.Call) and last_name(node) == "dict")
