"""Where the path of a checkpoint goes: who may look at the file beside torch."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from gpulint.index import Definition, FileIndex, Function
from gpulint.index.build import last_name
from gpulint.index.walk import FUNCTIONS, dotted, walk
from gpulint.script.neighbours import run_together
from gpulint.script.rewriting.edits import CannotFix
from gpulint.script.saving.path_mappings import PathMapping, lookups
from gpulint.script.saving.path_parts import (
    beginnings,
    differ,
    ending,
    file_name,
    holds_blanks,
    is_folder,
    key,
    plain,
    whole_path,
)

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

MAX_PATHS = 40  # names, attributes and constants that one path is followed through
# What reads the file, or writes it itself: not before it is in place.
TOUCHES = {"torch.load": 0, "torch.save": 1}  # the argument that is the path
_DONE = "gpulint.runtime.async_save"
# What only shows a path, makes folders, or writes files of its own.
_QUIET = frozenset(
    "print info debug warning warn error critical log write set_description "
    "set_postfix getLogger makedirs mkdir len bool isinstance SummaryWriter "
    "FileHandler TensorBoardLogger CSVLogger".split()
)
# What asks for a folder.
_OF_FOLDERS = frozenset("exists isdir isfile is_dir is_file access".split())
# What meets all files of a folder.
ALL_FILES = frozenset(
    "glob iglob rglob listdir scandir walk iterdir rmtree copytree make_archive "
    "move".split()
)
_TESTS = (ast.Compare, ast.If, ast.While, ast.Assert, ast.UnaryOp, ast.Expr)
_KEEPS = (ast.Assign, ast.AnnAssign, ast.NamedExpr)


class Paths:
    """Follows one path to all that may read or move the file.

    `touched` are calls of `torch.load` and `torch.save` of the script with a path that
    may be the same. Raises CannotFix where something else may use the file, or where
    the path cannot be followed. What has run before the loop that saves does no harm.

    In the methods, `tail` is what the path of the checkpoint surely ends with, and
    `whole` says that a value is the path, not its folder.
    """

    def __init__(self, script: Script, path: ast.expr, loop: Loop) -> None:
        self.script = script
        self.touched: list[ast.Call] = []
        self._loop = loop
        self._seen: set[object] = set()
        self._own: set[ast.AST] = set()
        self._follow(path, None, whole=True)

    @cached_property
    def _files(self) -> list[FileIndex]:
        """The files whose code may run with it."""
        return run_together(self.script)

    # From a path to the names and constants that lead to it

    def _follow(self, path: ast.expr, tail: str | None, whole: bool) -> None:
        self._own.update(walk(path))
        if whole:
            tail = tail or ending(self.script, path)
            self._namesakes(path)
        for start in beginnings(self.script, path):
            if start is None:
                text = self.script.text(path)
                raise CannotFix(f"`{text}` is not known to be a path")
            self._spread(start, tail, whole and start is plain(path))

    def _namesakes(self, path: ast.expr) -> None:
        """Look at all strings with the file's own name, in whatever folder."""
        name = file_name(path)
        if name is not None and self._is_new(("file", name)):
            for text in self._texts():
                if f"/{text.value!s}".endswith(f"/{name}"):
                    self._judge(text, name, whole=True)

    def _spread(self, start: ast.expr, tail: str | None, whole: bool) -> None:
        """Look at all other uses of what a path begins with."""
        if isinstance(start, ast.Constant):
            self._constant(start, tail, whole)
            return
        definitions = tuple(self.script.of(start).definitions(start))
        if isinstance(start, ast.Name):
            self._name(start, definitions, tail, whole)
        elif isinstance(start, ast.Attribute) and self._is_new((".", start.attr)):
            self._check_owner(start)
            self._sources(start, definitions, tail, whole)
            self._judge_all(self._read(start.attr, ast.Attribute), tail, whole)
        elif isinstance(start, ast.Subscript) and self._is_new(("[", key(start))):
            self._looked_up(start, tail, whole)

    def _looked_up(self, start: ast.Subscript, tail: str | None, whole: bool) -> None:
        """Follow what a dict has for a key, and all who read the key or the dict."""
        for value in PathMapping(self.script, self._files, start, _QUIET).values:
            self._follow(value, tail, whole)
        self._judge_all(lookups(self._files, key(start)), tail, whole)

    def _is_new(self, what: object) -> bool:
        if what in self._seen:
            return False
        self._seen.add(what)
        if len(self._seen) > MAX_PATHS:
            raise CannotFix("the path goes through too many names")
        return True

    def _check_owner(self, start: ast.Attribute) -> None:
        """Refuse what another package has for a folder: `wandb.run.dir`."""
        index = self.script.index.home(start)
        first = (dotted(start) or "").partition(".")[0]
        if first in index.imports:
            name = index.qualified(start) or ""
            if not index.owns(name):
                self._refuse(start)

    def _refuse(self, node: ast.AST) -> None:
        text = self.script.text(node)
        raise CannotFix(f"where `{text}` comes from is not known")

    def _name(
        self,
        start: ast.Name,
        definitions: tuple[Definition, ...],
        tail: str | None,
        whole: bool,
    ) -> None:
        if not definitions:
            self._refuse(start)
        if self._is_new(frozenset(definitions)):
            self._sources(start, definitions, tail, whole)
            self._judge_all(self._read_of(start, definitions), tail, whole)

    def _sources(
        self,
        start: ast.expr,
        definitions: tuple[Definition, ...],
        tail: str | None,
        whole: bool,
    ) -> None:
        """Follow the values that a name or attribute gets."""
        for definition in definitions:
            if definition.kind == "assign" and not definition.path:
                assert definition.value is not None
                if not _is_options(definition.value):
                    self._follow(definition.value, tail, whole)
            elif definition.kind == "parameter":
                self._given(definition, tail, whole)
            elif definition.kind not in ("import", "field"):
                self._refuse(start)

    def _given(self, definition: Definition, tail: str | None, whole: bool) -> None:
        """Follow what callers pass for a parameter."""
        above = self.script.index.home(definition.node).ancestors(definition.node)
        function = next(a for a in above if isinstance(a, FUNCTIONS))
        if definition.value is not None:
            self._follow(definition.value, tail, whole)
        given = (
            None
            if isinstance(function, ast.Lambda)
            else self.script.resolver.calls.arguments(function, definition.name)
        )
        if given is None or (not given and definition.value is None):
            raise CannotFix(f"what callers give as `{definition.name}` is not known")
        for argument in given:
            self._follow(argument, tail, whole)

    def _constant(self, start: ast.Constant, tail: str | None, whole: bool) -> None:
        """Look at all strings that name the same file, or its folder."""
        if not isinstance(start.value, str) or not self._is_new(start.value):
            return
        value = start.value.removeprefix("./")
        if is_folder(self.script.index.home(start).parent(start)) and not whole:
            value = f"{value.rstrip('/')}/"
        folder = value.rpartition("/")[0]
        for text in self._texts():
            other = str(text.value).removeprefix("./")
            if folder and f"{folder}/".startswith(f"{other.rstrip('/')}/"):
                self._judge(text, tail, whole=False)
            elif folder:
                if other.startswith(f"{folder}/"):
                    self._judge(text, tail, whole=True)
            elif (
                f"/{other}".endswith(f"/{value}")
                if whole
                else (value and other.startswith(value))
            ):
                self._judge(text, tail, whole=True)

    # Reads

    def _texts(self) -> Iterator[ast.Constant]:
        """All strings but those of the path itself."""
        for index in self._files:
            for node in index.all(ast.Constant):
                if isinstance(node.value, str) and node not in self._own:
                    yield node

    def _read(self, name: str, kind: type[ast.expr]) -> Iterator[ast.expr]:
        """All reads of a name, or of an attribute, in all files."""
        for index in self._files:
            for node in index.reads.get(name, ()):
                if isinstance(node, kind):
                    yield node

    def _read_of(
        self, name: ast.Name | ast.arg, definitions: Iterable[Definition]
    ) -> Iterator[ast.expr]:
        """The reads that definitions of a name reach; in all files, if it is global."""
        its, index = self.script.of(name), self.script.index.home(name)
        wanted = {index.statement(d.node): d for d in definitions}
        word = name.id if isinstance(name, ast.Name) else name.arg
        for node in index.reads.get(word, ()):
            if isinstance(node, ast.Name) and any(
                index.statement(d.node) in wanted for d in its.definitions(node)
            ):
                yield node
        if any(index.scope(d.node) is index.tree for d in wanted.values()):
            for kind in (ast.Name, ast.Attribute):
                others = self._read(word, kind)
                yield from (n for n in others if not index.holds(n))

    def _judge_all(
        self, reads: Iterable[ast.expr], tail: str | None, whole: bool
    ) -> None:
        for node in reads:
            if node not in self._own:
                self._judge(node, tail, whole)

    # From a name or constant to what is done with it

    def _judge(self, node: ast.expr, tail: str | None, whole: bool) -> None:
        """See what a use of a path, or of its folder, does."""
        index = self.script.index.home(node)
        path = whole_path(index, node)
        whole = whole or path is not node
        other = whole and differ(ending(self.script, path), tail)
        other = other and not holds_blanks(path)
        above = index.parent(path)
        if isinstance(above, ast.keyword):
            above = index.parent(above)
        if isinstance(above, ast.Call):
            self._passed(index, above, path, tail, whole, other)
        elif isinstance(above, ast.Attribute):
            self._asked(above, whole, other)
        elif isinstance(above, _TESTS) or other:
            return
        elif isinstance(above, _KEEPS):
            self._kept(above, tail, whole)
        elif not (isinstance(above, ast.IfExp) and path is above.test):
            text = self.script.text(path)
            raise CannotFix(f"where `{text}` goes is not known")

    def _passed(
        self,
        index: FileIndex,
        call: ast.Call,
        path: ast.expr,
        tail: str | None,
        whole: bool,
        other: bool,
    ) -> None:
        """An argument of a call: what it calls, or how it goes on in a function."""
        name, last = index.qualified(call.func) or "", last_name(call)
        if name in TOUCHES and not other:
            self._touched(call)
            return
        harmless = last in _OF_FOLDERS and (not whole or other)
        early = last in (*_OF_FOLDERS, *ALL_FILES) and self.runs_before(call)
        if harmless or early or name in (*TOUCHES, _DONE) or last in _QUIET:
            return
        if not other or last in ALL_FILES:
            parameters = list(self._parameters(call, path))
            if not parameters:
                text = self.script.text(call.func)
                raise CannotFix(f"the path is given to `{text}`")
            for function, parameter in parameters:
                flow = self.script.resolver.flow(function)
                its = [d for d in flow.definitions[parameter.arg] if d.path == ()]
                if self._is_new(parameter):
                    self._judge_all(self._read_of(parameter, its), tail, whole)

    def _parameters(
        self, call: ast.Call, path: ast.expr
    ) -> Iterator[tuple[Function, ast.arg]]:
        """The parameters that an argument is for; none if one is not clear."""
        resolver = self.script.resolver
        functions = list(resolver.calls.callees(call))
        if not functions:
            owner = resolver.classes.named(call.func)
            init = resolver.classes.methods(owner).get("__init__") if owner else None
            functions = [init] if init is not None else []
        found = []
        for function in functions:
            args = function.args
            for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs]:
                given, clear = resolver.calls.given(call, function, arg.arg)
                if clear and path in given:
                    found.append((function, arg))
        yield from found if len(found) == len(functions) else ()

    def _asked(self, attribute: ast.Attribute, whole: bool, other: bool) -> None:
        """`path.exists()`, `path.mkdir()`, and all else that a path can do."""
        name = attribute.attr
        harmless = not whole or other or self.runs_before(attribute)
        if name in _QUIET or (name in _OF_FOLDERS and harmless):
            return
        if not other or name in ALL_FILES:
            text = self.script.text(attribute)
            raise CannotFix(f"the path is given to `{text}`")

    def _kept(
        self,
        statement: ast.Assign | ast.AnnAssign | ast.NamedExpr,
        tail: str | None,
        whole: bool,
    ) -> None:
        """Follow a path to the names that get it."""
        targets = (
            statement.targets
            if isinstance(statement, ast.Assign)
            else [statement.target]
        )
        for target in targets:
            if isinstance(target, ast.Attribute):
                if self._is_new((".", target.attr)):
                    reads = self._read(target.attr, ast.Attribute)
                    self._judge_all(reads, tail, whole)
            elif isinstance(target, ast.Name):
                scope = self.script.index.scope(target)
                known = self.script.resolver.flow(scope).definitions[target.id]
                its = [
                    d for d in known if d.node is target or d.value is statement.value
                ]
                if self._is_new(target):
                    self._judge_all(self._read_of(target, its), tail, whole)
            else:
                text = self.script.text(target)
                raise CannotFix(f"the path is kept in `{text}`")

    def _touched(self, call: ast.Call) -> None:
        if not self.script.index.holds(call):
            home = self.script.index.home(call).source.path.name
            text = self.script.text(call.func)
            raise CannotFix(f"`{text}` in {home} may be of the same file")
        self.touched.append(call)

    # Order

    def runs_before(self, node: ast.AST) -> bool:
        """Whether a node has run before the loop that saves begins."""
        loop, index = self._loop.node, self.script.index.home(node)
        if not index.holds(loop) or index.function(node) is not index.function(loop):
            return False
        before: bool = node.lineno < loop.lineno  # type: ignore[attr-defined]
        return before and not self.script.of(loop).loops_around(loop)


def _is_options(value: ast.expr) -> bool:
    """`parser.parse_args().save`, a number or None: no path."""
    constant = isinstance(value, ast.Constant) and not isinstance(value.value, str)
    return constant or (isinstance(value, ast.Call) and "parse" in last_name(value))
