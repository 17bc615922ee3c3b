"""The runtime's modules as statements: what each binds and reads, and its text."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from gpulint.source import Source, read_source
from gpulint.vendor.scopes import bound, module_names

RUNTIME = Path(__file__).resolve().parent.parent / "runtime"
ENTRY = "__init__"


class CannotVendor(Exception):
    """The runtime has something that one file cannot hold; a bug of this package."""


class Imported(NamedTuple):
    """What an import statement gives: a module, or a name of one."""

    module: str
    name: str | None
    wanted: str  # under which its module has it

    @property
    def standard(self) -> bool:
        """Whether it is of the standard library."""
        return self.module.partition(".")[0] in sys.stdlib_module_names


class Defined(NamedTuple):
    """What a module of the runtime defines under a name."""

    module: str
    name: str


Thing = Imported | Defined


@dataclass(frozen=True, eq=False)
class Unit:
    """One statement of a module's own level, with the comment above it.

    `first`, `last`: its rows. `typing`: it stands under `if TYPE_CHECKING:`.
    """

    module: str
    node: ast.stmt
    first: int
    last: int
    typing: bool = False
    binds: frozenset[str] = frozenset()
    names: tuple[ast.Name, ...] = ()
    inner: tuple[ast.ImportFrom, ...] = ()  # from modules beside, in functions

    @property
    def is_definition(self) -> bool:
        """Whether it is a function or class, with empty lines around it."""
        return hasattr(self.node, "body")


@dataclass(frozen=True, eq=False)
class Module:
    """One module of the runtime: `lazy` where it imports torch when it is imported."""

    name: str
    source: Source
    docstring: str
    units: list[Unit] = field(default_factory=list)
    imports: dict[str, Imported] = field(default_factory=dict)  # by local name
    for_typing: set[str] = field(default_factory=set)  # imported for annotations only
    beside: dict[str, Defined] = field(default_factory=dict)  # from other modules
    needs: set[str] = field(default_factory=set)  # modules that it imports at once

    def binders(self, name: str) -> list[Unit]:
        """The statements that bind a name."""
        return [unit for unit in self.units if name in unit.binds]


class Runtime:
    """All modules of the runtime."""

    def __init__(self, folder: Path) -> None:
        self.modules = {p.stem: _read(p) for p in sorted(folder.glob("*.py"))}
        entry = self.modules[ENTRY]
        self.docstring = entry.docstring
        self.helpers = {name: entry.beside[name] for name in _all(entry)}
        self.lazy = self._find_lazy()

    def meaning(self, module: str, name: str) -> Thing | None:
        """What a name stands for in a module; None: a builtin."""
        its = self.modules[module]
        if name in its.beside:
            return self.meaning(*its.beside[name])
        if its.binders(name):
            return Defined(module, name)
        return its.imports.get(name)

    def _find_lazy(self) -> frozenset[str]:
        """Modules that import more than the standard library, or import such ones."""
        lazy: set[str] = set()
        for name in self.in_order():
            its = self.modules[name]
            outside = (i for n, i in its.imports.items() if n not in its.for_typing)
            if its.needs & lazy or not all(i.standard for i in outside):
                lazy.add(name)
        return frozenset(lazy)

    def in_order(self) -> list[str]:
        """The modules' names, each after those that it imports."""
        done: dict[str, None] = {}

        def visit(name: str) -> None:
            for needed in sorted(self.modules[name].needs):
                visit(needed)
            done[name] = None

        for name in sorted(self.modules.keys() - {ENTRY}):
            visit(name)
        return list(done)


@functools.cache
def runtime() -> Runtime:
    """The runtime that this package brings along."""
    return Runtime(RUNTIME)


def _all(entry: Module) -> list[str]:
    [unit] = entry.binders("__all__")
    assert isinstance(unit.node, ast.Assign)
    names = ast.literal_eval(unit.node.value)
    assert isinstance(names, list)
    return names


def _read(path: Path) -> Module:
    source = read_source(path)
    tree = ast.parse(source.text)
    module = Module(path.stem, source, ast.get_docstring(tree) or "")
    last = tree.body[0].end_lineno or 0
    for statement in tree.body[1:]:
        assert statement.end_lineno is not None
        _take(module, statement, _first_row(source, last, statement))
        last = statement.end_lineno
    for name in module.beside:
        if module.binders(name):
            raise CannotVendor(f"{path.name}: `{name}` has two meanings")
    return module


def _take(module: Module, node: ast.stmt, first: int, typing: bool = False) -> None:
    """Take in a statement of the module's level."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        _take_import(module, node, typing)
    elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        last = node.lineno
        for statement in node.body:
            row = _first_row(module.source, last, statement)
            _take(module, statement, row, typing=True)
            last = statement.end_lineno or 0
    else:
        assert node.end_lineno is not None
        names = tuple(module_names(node))
        inner = tuple(_inner_imports(node))
        for statement in inner:
            _take_import(module, statement, typing=True)
        module.units.append(
            Unit(
                module.name,
                node,
                first,
                node.end_lineno,
                typing,
                frozenset(bound([node])),
                names,
                inner,
            )
        )


def _take_import(
    module: Module, node: ast.Import | ast.ImportFrom, typing: bool
) -> None:
    """Note what an import statement gives; `typing`: not when the module starts."""
    if isinstance(node, ast.ImportFrom) and node.level:
        if node.level != 1 or node.module is None:
            raise CannotVendor(f"{_place(module, node)}: `from ._module import name`")
        if not typing:
            module.needs.add(node.module)
        for alias in node.names:
            thing = Defined(node.module, alias.name)
            if module.beside.setdefault(alias.asname or alias.name, thing) != thing:
                raise CannotVendor(f"{_place(module, node)}: one name, two meanings")
        return
    origin = node.module if isinstance(node, ast.ImportFrom) else None
    if origin == "__future__":
        return
    for alias in node.names:
        local = alias.asname or alias.name
        if origin is None and "." in local:
            raise CannotVendor(f"{_place(module, node)}: a dotted name")
        name = alias.name if origin else None
        module.imports[local] = Imported(origin or alias.name, name, local)
        if typing:
            module.for_typing.add(local)


def _inner_imports(node: ast.stmt) -> Iterator[ast.ImportFrom]:
    return (n for n in ast.walk(node) if isinstance(n, ast.ImportFrom) and n.level)


def _first_row(source: Source, last: int, node: ast.stmt) -> int:
    """The row of the comment that stands right above a statement, or its own."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    row = min([node.lineno, *(d.lineno for d in decorators)])
    while row - 1 > last and source.line(row - 1).lstrip().startswith("#"):
        row -= 1
    return row


def _place(module: Module, node: ast.stmt) -> str:
    return f"gpulint/runtime/{module.name}.py:{node.lineno}"
