"""One pass over a file's `ast`: where things are, and what names mean."""

from __future__ import annotations

import ast
import builtins
import itertools
import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from gpulint.index.shadows import Shadows, runs_in
from gpulint.index.walk import FUNCTIONS, GETTERS, WITH_GAPS, dotted, walk, walk_scope
from gpulint.runtime_name import RUNTIME, canonical, is_vendored
from gpulint.source import Source, SourceError

if TYPE_CHECKING:
    from gpulint.index.flow import Flow
    from gpulint.index.module_search import Member
    from gpulint.index.project import Project

MAX_LINKS = 150
Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
Function = ast.FunctionDef | ast.AsyncFunctionDef
Runner = Function | ast.For | ast.AsyncFor | ast.While
Node = TypeVar("Node", bound=ast.AST)

_SCOPES = frozenset((*FUNCTIONS, ast.ClassDef, ast.Module))
_CHAINS = (ast.Name, ast.Attribute)
_LINKS = frozenset(
    (
        ast.BinOp,
        ast.UnaryOp,
        ast.Attribute,
        ast.Call,
        ast.Subscript,
        ast.Lambda,
        ast.IfExp,
    )
)


_NUMBERS = itertools.count(1)
# How a file may have names that no line of it binds, and those that it always has.
_MAKES_NAMES = re.compile(
    r"\b(globals|exec)\s*\(|\bvars\s*\((\s*\)|.*__name__)|\bmodules\[|"
    r"(\bmodules\b.*|__main__)\.__dict__|%(pylab|run|load|store)\b"
)
_MAKING = "globals exec vars modules __main__ %pylab %run %load %store".split()
_GIVEN = frozenset(
    [*dir(builtins), *"__file__ __path__ __class__ display get_ipython".split()]
)


def number_of(node: ast.AST) -> int:
    """The number of the index that holds a node, 0 for a made-up one.

    It stands on the node itself: nothing is asked more often than where a node is.
    """
    return getattr(node, "_file", 0)


@dataclass(eq=False, repr=False)
class FileIndex:
    """Every node of one file by class, with parents and qualified names.

    `parents` maps each node to the node that holds it; `nodes` maps an `ast` class
    to its nodes in source order; `imports` maps a local name to what it stands for.
    What is asked of a node is answered for nodes of other files of the `project` as
    well, by the index of the file that holds them.
    """

    source: Source
    tree: ast.Module
    parents: dict[ast.AST, ast.AST]
    nodes: dict[type, list[ast.AST]]
    imports: dict[str, str] = field(default_factory=dict)
    imported: tuple[str, ...] = ()
    stars: tuple[str, ...] = ()
    project: Project | None = None
    number: int = field(default_factory=lambda: next(_NUMBERS))
    flows: dict[Scope, Flow] = field(default_factory=dict)
    _scopes: dict[ast.AST, Scope] = field(default_factory=dict)
    _calls_below: dict[ast.AST, list[ast.Call]] = field(default_factory=dict)
    _names: dict[ast.AST | None, str | None] = field(default_factory=dict)

    def holds(self, node: ast.AST) -> bool:
        """Whether a node stands in this file."""
        return number_of(node) == self.number

    def home(self, node: ast.AST) -> FileIndex:
        """The index of the file that holds a node (this one for a made-up node)."""
        number = getattr(node, "_file", 0)  # as `number_of`, but asked most often
        if number == self.number or self.project is None:
            return self
        return self.project.numbered.get(number, self)

    def all(self, kind: type[Node]) -> list[Node]:
        """All nodes of one `ast` class in source order."""
        return self.nodes.get(kind, [])  # type: ignore[return-value]

    @cached_property
    def calls(self) -> dict[str, list[ast.Call]]:
        """Calls by the qualified (or as written) name of their callee."""
        calls: dict[str, list[ast.Call]] = defaultdict(list)
        for call in self.all(ast.Call):
            name = self.qualified(call.func)
            if name:
                calls[name].append(call)
        return calls

    @cached_property
    def calls_by_name(self) -> dict[str, list[ast.Call]]:
        """Calls by the last part of their callee: `step` for `trainer.step()`."""
        calls: dict[str, list[ast.Call]] = defaultdict(list)
        for call in self.all(ast.Call):
            calls[last_name(call)].append(call)
        return calls

    @cached_property
    def calls_given(self) -> dict[str, list[ast.Call]]:
        """Calls by each name or attribute chain that is one of their arguments."""
        calls: dict[str, list[ast.Call]] = defaultdict(list)
        for call in self.all(ast.Call):
            for value in [*call.args, *(k.value for k in call.keywords)]:
                if value.__class__ in _CHAINS:
                    name = dotted(value)
                    if name is not None:
                        calls[name].append(call)
        return calls

    @cached_property
    def reads(self) -> dict[str, list[ast.Name | ast.Attribute]]:
        """Places that read a name, or an attribute of a name, by that name."""
        found: dict[str, list[ast.Name | ast.Attribute]] = defaultdict(list)
        for name in self.all(ast.Name):
            if name.ctx.__class__ is ast.Load:
                found[name.id].append(name)
        for attribute in self.all(ast.Attribute):
            if attribute.ctx.__class__ is ast.Load:
                found[attribute.attr].append(attribute)
        return found

    @cached_property
    def writers(self) -> dict[str, list[Function]]:
        """Functions that assign a name they declare global or nonlocal."""
        writers: dict[str, list[Function]] = defaultdict(list)
        for node in [*self.all(ast.Global), *self.all(ast.Nonlocal)]:
            assert isinstance(node, (ast.Global, ast.Nonlocal))
            function = self.function(node)
            if function is not None:
                for name in node.names:
                    writers[name].append(function)
        return writers

    @cached_property
    def attribute_writes(self) -> dict[str, list[ast.Attribute]]:
        """Places that set an attribute, of whatever object, by its name."""
        writes: dict[str, list[ast.Attribute]] = defaultdict(list)
        for attribute in self.all(ast.Attribute):
            if isinstance(attribute.ctx, ast.Store):
                writes[attribute.attr].append(attribute)
        return writes

    @cached_property
    def item_writes(self) -> dict[str, list[ast.Assign]]:
        """`batch[key] = value`, by the name of what gets an item, in source order.

        Also beside others: `batch["x"], batch["y"] = pair`.
        """
        writes: dict[str, list[ast.Assign]] = defaultdict(list)
        for statement in self.all(ast.Assign):
            items = (
                n for n in walk(*statement.targets) if isinstance(n, ast.Subscript)
            )
            stored = (item.value for item in items if isinstance(item.ctx, ast.Store))
            names = (value.id for value in stored if isinstance(value, ast.Name))
            for name in dict.fromkeys(names):
                writes[name].append(statement)
        for statements in writes.values():
            statements.sort(key=lambda its: its.lineno)
        return writes

    @cached_property
    def local_names(self) -> dict[str, set[str]]:
        """Names that imports give things here, by the names these have elsewhere."""
        names: dict[str, set[str]] = defaultdict(set)
        for alias in self.all(ast.alias):
            if alias.asname is not None:
                names[alias.name].add(alias.asname)
        return names

    @cached_property
    def origins(self) -> dict[str, set[str]]:
        """All that each name is imported as: other branches may import others by it."""
        found = {name: {origin} for name, origin in self.imports.items()}
        for statement in self.all(ast.ImportFrom):
            for alias in statement.names:
                if alias.name != "*":
                    local, origin = _imported_as(statement, alias)
                    found[local].add(origin)
        return found

    def renamings(self, name: str) -> set[str]:
        """Names that the file itself gives to what is imported as another one."""
        kept = (
            target.id
            for assign in self.all(ast.Assign)
            if (dotted(assign.value) or "").rpartition(".")[2] == name
            for target in assign.targets
            if isinstance(target, ast.Name)
        )
        return {*kept, *self.local_names.get(name, ())} - {name}

    @cached_property
    def dispatched(self) -> dict[str, set[str]]:
        """Functions by names that are given one: `run = {"a": fit, "b": go}[kind]`."""
        tables: dict[str, list[ast.Dict]] = defaultdict(list)
        taken: list[tuple[str, ast.expr]] = []
        for statement in self.all(ast.Assign):
            assert isinstance(statement, ast.Assign)
            target, value = statement.targets[0], statement.value
            if not isinstance(target, ast.Name):
                continue
            if isinstance(value, ast.Dict):
                tables[target.id].append(value)
            elif isinstance(value, ast.Subscript) and target.id in self.calls_by_name:
                taken.append((target.id, value.value))
        names: dict[str, set[str]] = defaultdict(set)
        for name, holder in taken:
            written = [holder] if isinstance(holder, ast.Dict) else []
            if isinstance(holder, ast.Name):
                written = tables[holder.id]
            for value in (v for table in written for v in table.values):
                names[name].add((dotted(value) or "").rpartition(".")[2])
        return names

    @cached_property
    def renamed(self) -> dict[str, set[str]]:
        """Names that are called and given elsewhere: `Net = Small`, then `Net()`."""
        names: dict[str, set[str]] = defaultdict(set)
        for statement in self.all(ast.Assign):
            assert isinstance(statement, ast.Assign)
            given, target = dotted(statement.value), statement.targets[0]
            called = isinstance(target, ast.Name) and target.id in self.calls_by_name
            if given is not None and called:
                assert isinstance(target, ast.Name)
                names[target.id].add(given.rpartition(".")[2])
        return names

    @cached_property
    def called_names(self) -> frozenset[str]:
        """Qualified names that are called somewhere."""
        return frozenset(self.calls)

    @cached_property
    def packages(self) -> frozenset[str]:
        """Packages that the file imports something of: `tensorflow`, `numpy`."""
        origins = (*self.imported, *self.stars)
        return frozenset(origin.partition(".")[0] for origin in origins)

    @cached_property
    def functions(self) -> list[Function]:
        """All function definitions, methods included, in source order."""
        both: list[Function] = [
            *self.all(ast.FunctionDef),
            *self.all(ast.AsyncFunctionDef),
        ]
        return sorted(both, key=lambda f: (f.lineno, f.col_offset))

    @cached_property
    def function_names(self) -> frozenset[str]:
        """Names of all functions and methods."""
        return frozenset(f.name for f in self.functions)

    @cached_property
    def uses_project(self) -> bool:
        """Whether anything is imported from other files of the project."""
        return any(map(self.owns, (*self.imported, *self.stars)))

    def owns(self, dotted: str) -> bool:
        """Whether a dotted name of this file is one of its project."""
        return self.project is not None and self.project.modules.owns(self, dotted)

    def member(self, dotted: str) -> Member | None:
        """The module of the project to which a dotted name leads, and what is left."""
        if self.project is None:
            return None
        return self.project.modules.resolve(self, dotted)

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """Classes by name (the last one wins, as at run time)."""
        return {c.name: c for c in self.all(ast.ClassDef)}

    @cached_property
    def bound_names(self) -> frozenset[str]:
        """Names that the file itself binds by assignment, parameter or definition."""
        names = {n.id for n in self.all(ast.Name) if not isinstance(n.ctx, ast.Load)}
        names.update(a.arg for a in self.all(ast.arg))
        names.update(f.name for f in self.functions)
        names.update(self.classes)
        return frozenset(names)

    @cached_property
    def makes_names(self) -> bool:
        """Whether code binds names out of sight: `exec`, `%run`."""
        return self.source.has(_MAKES_NAMES, _MAKING)

    @cached_property
    def unbound_names(self) -> frozenset[str]:
        """Names that are read, and that no line of the file nor Python itself binds.

        None where they may come from elsewhere: `import *`, `exec`, `%run`.
        """
        return frozenset() if self.stars else self.free_names

    @cached_property
    def free_names(self) -> frozenset[str]:
        """The same, but for what `import *` may bind."""
        if self.makes_names:
            return frozenset()
        read = {n.id for n in self.all(ast.Name) if isinstance(n.ctx, ast.Load)}
        read -= self.bound_names | self.imports.keys() | _GIVEN
        read -= {handler.name for handler in self.all(ast.ExceptHandler)}
        read -= {matched.name for matched in self.all(ast.MatchAs)}
        read -= {matched.name for matched in self.all(ast.MatchStar)}
        return frozenset(
            read - {matched.rest for matched in self.all(ast.MatchMapping)}
        )

    def qualified(self, node: ast.AST | None) -> str | None:
        """`torch.utils.data.DataLoader` for a name or attribute chain.

        Aliases of imports are followed; a chain on another name is given as it is
        written. None for anything that is not a chain.
        """
        if node in self._names:
            return self._names[node]
        home = self.home(node) if node is not None else self
        if home is not self:
            return home.qualified(node)
        self._names[node] = found = self._qualified(node)
        return found

    def _qualified(self, node: ast.AST | None) -> str | None:
        name = dotted(node)
        if name is None:
            return None
        head, dot, rest = name.partition(".")
        origin = self.imports.get(head)
        if origin is not None:
            if node is not None and self._shadows.hide(head, node):
                return name
            name = origin + dot + rest
        elif not dot and self.stars and head not in self.bound_names:
            for star in self.stars:
                if f"{star}.{head}" in _STAR_NAMES:
                    name = f"{star}.{head}"
        return _CANONICAL.get(name, name)

    def is_import(self, node: ast.AST) -> bool:
        """Whether the first name of a chain is an import's, and nothing nearer's."""
        while isinstance(node, ast.Attribute):
            node = node.value
        if not isinstance(node, ast.Name):
            return False
        home = self.home(node)
        return node.id in home.imports and not home._shadows.hide(node.id, node)

    @cached_property
    def _shadows(self) -> Shadows:
        return Shadows(self)

    def parent(self, node: ast.AST) -> ast.AST | None:
        """The node that holds this one; None for the module."""
        return self.home(node).parents.get(node)

    def ancestors(self, node: ast.AST) -> list[ast.AST]:
        """All nodes that hold this one, innermost first."""
        found = []
        parents = self.home(node).parents
        above = parents.get(node)
        while above is not None:
            found.append(above)
            above = parents.get(above)
        return found

    def scope(self, node: ast.AST) -> Scope:
        """The innermost function, lambda, class or module that runs this node."""
        known = self._scopes.get(node)
        if known is None:
            home = self.home(node)
            if home is not self:
                return home.scope(node)
            known = self._scopes[node] = self._find_scope(node)
        return known

    def _find_scope(self, node: ast.AST) -> Scope:
        child, above = node, self.parents.get(node)
        while above is not None:
            if type(above) in _SCOPES and runs_in(above, child):
                return above  # type: ignore[return-value]
            if isinstance(above, ast.stmt) and above in self._scopes:
                return self._scopes[above]
            child, above = above, self.parents.get(above)
        return self.tree

    def calls_below(self, runner: Runner) -> list[ast.Call]:
        """The calls in the body of a loop or function, what it defines left out."""
        home = self.home(runner)
        if runner not in home._calls_below:
            nodes = walk_scope(*runner.body)
            home._calls_below[runner] = [n for n in nodes if isinstance(n, ast.Call)]
        return home._calls_below[runner]

    def function(self, node: ast.AST) -> Function | None:
        """The innermost function whose body holds this node."""
        scope = self.scope(node)
        while not isinstance(scope, ast.Module):
            if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
                return scope
            scope = self.scope(scope)
        return None

    def owner(self, node: ast.AST) -> ast.ClassDef | None:
        """The class in whose method (or nested function of one) the node stands."""
        for above in self.ancestors(node):
            if isinstance(above, ast.ClassDef):
                return above
        return None

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds this node (itself, if it is one)."""
        parents = self.home(node).parents
        current: ast.AST | None = node
        while current is not None and not isinstance(current, ast.stmt):
            current = parents.get(current)
        if current is None:
            raise ValueError(f"{type(node).__name__} stands in no statement")
        return current

    def inside(self, node: ast.AST, outer: ast.AST) -> bool:
        """Whether `outer` is `node` or holds it."""
        parents = self.home(node).parents
        current: ast.AST | None = node
        while current is not None:
            if current is outer:
                return True
            current = parents.get(current)
        return False

    def qualname(self, node: ast.AST) -> str:
        """Dotted path of the definitions around a node, `Trainer.fit`."""
        names = [
            above.name
            for above in [node, *self.ancestors(node)]
            if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        ]
        return ".".join(reversed(names))


def last_name(call: ast.Call) -> str:
    """`step` for `step()` and `trainer.step()`, empty for other callees."""
    func = call.func
    if isinstance(func, ast.Attribute):
        return func.attr
    return func.id if isinstance(func, ast.Name) else ""


def build_index(source: Source, tree: ast.Module | None = None) -> FileIndex:
    """Index one file. SyntaxError as `ast` raises it; SourceError: too deep."""
    tree = tree if tree is not None else ast.parse(source.text)
    index = FileIndex(source, tree, {}, defaultdict(list))
    nodes, parents, number = index.nodes, index.parents, index.number
    tree._file = number  # type: ignore[attr-defined]
    links: dict[ast.AST, int] = {}
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        kind = node.__class__
        nodes[kind].append(node)
        getter = GETTERS[kind]
        if getter is None:
            continue
        if kind in _LINKS:
            length = links.get(parents[node], 0) + 1
            links[node] = length
            if length > MAX_LINKS:
                _refuse(node)
        elif kind is ast.If and _elif_chain(node) > MAX_LINKS:
            _refuse(node)
        below: list[ast.AST] = []  # `children(node)`, in line as most nodes come here
        for value in getter(node):
            if value.__class__ is list:
                below += filter(None, value) if kind in WITH_GAPS else value
            elif value is not None:
                below.append(value)
        below.reverse()
        for child in below:
            parents[child] = node
            child._file = number  # type: ignore[attr-defined]
        stack += below
    _read_imports(index)
    return index


def _refuse(node: ast.AST) -> None:
    raise SourceError(
        f"not analysed: an expression of more than {MAX_LINKS} links",
        getattr(node, "lineno", 1),
    )


def _elif_chain(node: ast.AST) -> int:
    length = 1
    while isinstance(node, ast.If) and len(node.orelse) == 1:
        node = node.orelse[0]
        length += 1
        if length > MAX_LINKS:
            break
    return length


def _read_imports(index: FileIndex) -> None:
    stars: list[str] = []
    every: list[str] = []
    for statement in index.all(ast.Import):
        for alias in statement.names:
            head = alias.name.partition(".")[0]
            meant = canonical(alias.name if alias.asname else head)
            index.imports[alias.asname or head] = meant
            every.append(meant)
    for origin in index.all(ast.ImportFrom):
        for alias in origin.names:
            if alias.name == "*":
                module = "." * origin.level + (origin.module or "")
                stars.append(RUNTIME if is_vendored(module) else module)
            else:
                name, meant = _imported_as(origin, alias)
                index.imports[name] = meant
                every.append(meant)
    index.stars = tuple(stars)
    index.imported = tuple(dict.fromkeys(every))


def _imported_as(statement: ast.ImportFrom, alias: ast.alias) -> tuple[str, str]:
    """`N` and `nets.Net` of `from nets import Net as N`."""
    module = "." * statement.level + (statement.module or "")
    dot = "" if module.endswith(".") else "."
    return alias.asname or alias.name, canonical(module + dot + alias.name)


# Names under which the same thing can be reached.
_CANONICAL = {
    "torch.utils.data.dataloader.DataLoader": "torch.utils.data.DataLoader",
    "gpulint.runtime.TensorLoader": "torch.utils.data.DataLoader",
    "torch.utils.data.dataset.Dataset": "torch.utils.data.Dataset",
    "torch.utils.data.dataset.TensorDataset": "torch.utils.data.TensorDataset",
    "torch.amp.autocast": "torch.autocast",
    "torch.amp.autocast_mode.autocast": "torch.autocast",
    "torch.autograd.grad_mode.no_grad": "torch.no_grad",
    "torch.autograd.no_grad": "torch.no_grad",
    "torch.nn.utils.clip_grad.clip_grad_norm_": "torch.nn.utils.clip_grad_norm_",
    "torch.cuda.amp.autocast_mode.autocast": "torch.cuda.amp.autocast",
    "torch.cuda.amp.grad_scaler.GradScaler": "torch.cuda.amp.GradScaler",
    "torch.amp.grad_scaler.GradScaler": "torch.amp.GradScaler",
}
_STAR_NAMES = frozenset(
    [
        *(f"torch.utils.data.{n}" for n in ("DataLoader", "Dataset", "TensorDataset")),
        "torch.autograd.Variable",
        "torch.cuda.amp.autocast",
        "torch.cuda.amp.GradScaler",
    ]
)
