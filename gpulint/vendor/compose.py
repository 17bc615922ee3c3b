"""The statements that some helpers need, out of all modules, as one text."""

from __future__ import annotations

import ast
import itertools
import re
import textwrap
from collections.abc import Iterable, Iterator

from gpulint.source import Source, node_span
from gpulint.vendor.lazily import (
    ONCE,
    ONCE_IMPORTS,
    define_later,
    definer,
    get_later,
)
from gpulint.vendor.modules import (
    CannotVendor,
    Defined,
    Imported,
    Runtime,
    Thing,
    Unit,
    runtime,
)
from gpulint.vendor.names import Names, words

WIDTH = 88
TYPE_CHECKING = Imported("typing", "TYPE_CHECKING", "TYPE_CHECKING")
KEPT = ("__all__", "__getattr__", "_once")
_IMPORT = re.compile(r"from |import ")
Replacement = tuple[int, int, str]


def compose(helpers: Iterable[str], of: Runtime | None = None) -> str:
    """The code of a file with these helpers of `gpulint.runtime`, without a header.

    The same helpers give the same text, in whatever order. KeyError: no such helper.
    """
    return _Composition(of or runtime(), sorted(set(helpers))).text()


class _Composition:
    def __init__(self, its: Runtime, helpers: list[str]) -> None:
        self.runtime = its
        self.helpers = helpers
        units = _needed(its, [its.helpers[name] for name in helpers])
        order = sorted(its.in_order(), key=lambda name: name in its.lazy)
        self.modules = [m for m in order if any(u.module == m for u in units)]
        units.sort(key=lambda u: (order.index(u.module), u.first))
        self.lazy = [m for m in self.modules if m in its.lazy]
        kept = [*KEPT, *map(definer, self.lazy)]
        self.names = Names(its, units, kept, [*ONCE_IMPORTS, TYPE_CHECKING])
        self.units = [u for u in units if u not in self.names.repeated]

    def text(self) -> str:
        """The whole code."""
        parts = [
            self._beginning(),
            *(self._section(m) for m in self.modules if m not in self.lazy),
        ]
        if self.lazy:
            parts += [ONCE, *map(self._later, self.lazy), self._get_later()]
        return "\n\n".join(part for part in parts if part)

    def _beginning(self) -> str:
        """Docstring, imports and the list of helpers."""
        names = "".join(f'    "{name}",\n' for name in self.helpers)
        parts = [
            f'"""{self.runtime.docstring}\n"""\n',
            "from __future__ import annotations\n",
            self._imports(),
            self._typing(),
            f"__all__ = [\n{names}]\n",
        ]
        return "\n".join(part for part in parts if part)

    # Imports

    def _imports(self) -> str:
        """What the file imports when it is imported: the standard library alone."""
        things = {t for unit in self.units for t in self._imported(unit) if t.standard}
        if self.lazy:
            things |= set(ONCE_IMPORTS)
        if self._typing():
            things.add(TYPE_CHECKING)
        return "".join(f"{line}\n" for line in self._statements(things))

    def _typing(self) -> str:
        """What only annotations need."""
        blocks = ["\n".join(self._statements(self._typing_imports()))]
        blocks += [
            textwrap.dedent(self._code(unit)).rstrip("\n")
            for unit in self.units
            if unit.typing
        ]
        body = "\n\n".join(block for block in blocks if block)
        return f"if TYPE_CHECKING:\n{textwrap.indent(body, '    ')}\n" if body else ""

    def _typing_imports(self) -> set[Imported]:
        plain = (u for u in self.units if u.module not in self.runtime.lazy)
        return {t for unit in plain for t in self._imported(unit) if not t.standard}

    def _imported(self, unit: Unit) -> Iterator[Imported]:
        for node in unit.names:
            thing = self.runtime.meaning(unit.module, node.id)
            if isinstance(thing, Imported):
                yield thing

    def _statements(self, things: Iterable[Imported]) -> list[str]:
        """Import statements: whole modules first, then names by their modules."""
        named = {t: self.names.name(t) for t in things}
        lines = [
            f"import {t.module}" + _renamed(t.module, named[t])
            for t in sorted(named, key=lambda t: (t.module, t.wanted))
            if t.name is None
        ]
        for module in sorted({t.module for t in named if t.name is not None}):
            names = {t.name: named[t] for t in named if t.module == module and t.name}
            its = [n + _renamed(n, names[n]) for n in sorted(names, key=_import_order)]
            line = f"from {module} import {', '.join(its)}"
            if len(line) > WIDTH:
                listed = "".join(f"    {name},\n" for name in its)
                line = f"from {module} import (\n{listed})"
            lines.append(line)
        return lines

    # Statements

    def _section(self, module: str) -> str:
        """A module's statements, under what it says it is for."""
        units = [u for u in self.units if u.module == module and not u.typing]
        if not units:
            return ""
        return f"{self._title(module)}\n\n{self._body(units)}"

    def _title(self, module: str) -> str:
        first = self.runtime.modules[module].docstring
        return "\n".join(
            textwrap.wrap(
                f"{module.strip('_')}: {' '.join(first.split())}",
                WIDTH,
                initial_indent="# --- ",
                subsequent_indent="# ",
            )
        )

    def _body(self, units: list[Unit]) -> str:
        """The text of one module's statements, with the empty lines between them."""
        text = self._code(units[0])
        for before, unit in itertools.pairwise(units):
            wide = unit.is_definition or before.is_definition
            apart = unit.first - before.last > 1
            text += "\n" * (2 if wide else int(apart)) + self._code(unit)
        return text

    def _later(self, module: str) -> str:
        """A module that imports torch, as a function."""
        its = self.runtime.modules[module]
        units = [u for u in self.units if u.module == module and not u.typing]
        outside = {t for u in units for t in self._imported(u) if not t.standard}
        calls = [f"{definer(m)}()" for m in self.lazy if m in its.needs]
        imports = [*self._statements(outside), *([""] if calls else []), *calls]
        return define_later(
            module, its.docstring, self._bound(units), imports, self._body(units)
        )

    def _get_later(self) -> str:
        lazy = [unit for unit in self.units if unit.module in self.lazy]
        found = {name: u.module for u in lazy for name in self._bound([u])}
        return get_later(dict(sorted(found.items())))

    def _bound(self, units: list[Unit]) -> list[str]:
        return sorted({self.names.of(u.module, n) for u in units for n in u.binds})

    def _code(self, unit: Unit) -> str:
        """A statement's text with the comment above it, under the one file's names."""
        source = self.runtime.modules[unit.module].source
        start = source.starts[unit.first - 1]
        text = source.text[start : source.starts[unit.last]]
        edits = {*self._renamings(unit), *self._inner_imports(unit)}
        if unit.module in self.runtime.lazy and isinstance(unit.node, ast.AnnAssign):
            gone = _without_annotation(unit.node, source)
            edits = {e for e in edits if not gone[0] <= e[0] < gone[1]} | {gone}
        for begin, end, new in sorted(edits, reverse=True):
            text = text[: begin - start] + new + text[end - start :]
        return text

    def _renamings(self, unit: Unit) -> Iterator[Replacement]:
        source = self.runtime.modules[unit.module].source
        local = words(unit) - {node.id for node in unit.names}
        for node in unit.names:
            new = self.names.of(unit.module, node.id)
            if new in local:
                raise CannotVendor(f"{unit.module}: a variable is called `{new}`")
            if new != node.id:
                yield (*node_span(source, node), new)
        name = getattr(unit.node, "name", None)
        if name is not None and (new := self.names.of(unit.module, name)) != name:
            begin, end = node_span(source, unit.node)
            found = re.compile(rf"(?:def|class)\s+({name})\b").search(
                source.text, begin, end
            )
            assert found is not None
            yield (*found.span(1), new)
        for part in ast.walk(unit.node):
            if isinstance(part, ast.Global) and any(
                self.names.of(unit.module, n) != n for n in part.names
            ):
                raise CannotVendor(f"{unit.module}: `global` names one that clashes")

    def _inner_imports(self, unit: Unit) -> Iterator[Replacement]:
        """Imports of modules beside: lazy ones are defined then, others are there."""
        source = self.runtime.modules[unit.module].source
        for node in unit.inner:
            assert node.module is not None
            assert node.end_lineno is not None
            begin = source.starts[node.lineno - 1]
            if node.module in self.runtime.lazy:
                yield (*node_span(source, node), f"{definer(node.module)}()")
                continue
            row = node.end_lineno + 1  # with the empty line behind a group of its own
            above = source.line(node.lineno - 1).lstrip()
            alone = not (_IMPORT.match(above) or source.line(row).strip())
            yield begin, source.starts[row if alone else row - 1], ""


def _needed(its: Runtime, wanted: Iterable[Defined]) -> list[Unit]:
    """The statements that define what is wanted, and all that these need."""
    found: dict[Unit, None] = {}
    known: set[Thing] = set()
    todo = list(wanted)
    while todo:
        thing = todo.pop()
        if thing not in known:
            known.add(thing)
            for unit in its.modules[thing.module].binders(thing.name):
                found[unit] = None
                todo += _definitions(its, unit)
        if not todo:
            for unit in _acting(its, found, known):
                found[unit] = None
                todo += _definitions(its, unit)
    return list(found)


def _definitions(its: Runtime, unit: Unit) -> list[Defined]:
    meant = (its.meaning(unit.module, node.id) for node in unit.names)
    return [thing for thing in meant if isinstance(thing, Defined)]


def _acting(its: Runtime, found: Iterable[Unit], known: set[Thing]) -> list[Unit]:
    """Statements that define nothing but do something with what is defined."""
    more = []
    for module in {unit.module for unit in found}:
        for unit in its.modules[module].units:
            own = [d for d in _definitions(its, unit) if d.module == module]
            acts = not unit.binds and unit not in set(found)
            if acts and (not own or known & set(own)):
                more.append(unit)
    return more


def _without_annotation(node: ast.AnnAssign, source: Source) -> Replacement:
    """Python knows no annotation of a name that a function declares global."""
    if node.value is None:
        raise CannotVendor(f"{ast.unparse(node)}: a declaration without a value")
    _, begin = node_span(source, node.target)
    end, _ = node_span(source, node.value)
    return begin, end, " = "


def _import_order(name: str) -> tuple[bool, bool, str]:
    """Constants, classes and functions, each by the alphabet, as isort has them."""
    return not name.isupper(), not name[:1].isupper(), name


def _renamed(name: str, new: str) -> str:
    return "" if name == new else f" as {new}"
