"""What things are called where the modules that define them become one."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable

from gpulint.vendor.modules import CannotVendor, Defined, Imported, Runtime, Thing, Unit

BUILTINS = frozenset(dir(builtins))


class Names:
    """Gives each thing a name of its own: the one it has, unless another has it too.

    Public helpers keep theirs in any case, then what is imported, then what comes
    first. The others get their module's: `_read` of `_tuned.py` is `_read_of_tuned`.
    A constant that several modules define alike is one thing.
    """

    def __init__(
        self,
        runtime: Runtime,
        units: Iterable[Unit],
        kept: Iterable[str],
        imports: Iterable[Imported],
    ) -> None:
        """`kept`, `imports`: what the one file itself has besides."""
        self._runtime = runtime
        self._same: dict[Thing, Thing] = {}
        self._names: dict[Thing, str] = {thing: thing.wanted for thing in imports}
        self.repeated: set[Unit] = set()
        units = list(units)
        used = {name for unit in units for name in words(unit)}
        self._taken = {*kept, *self._names.values()}
        self._taken |= {w for w in used & BUILTINS if self._is_read(w, units)}
        self._merge(units)
        defined = [Defined(u.module, name) for u in units for name in sorted(u.binds)]
        public = [d for d in defined if d in runtime.helpers.values()]
        read = {self._meaning(u, n.id) for u in units for n in u.names}
        imported = [t for t in read if isinstance(t, Imported)]
        imported.sort(key=lambda t: (t.module, t.name or ""))
        things: list[Thing] = [*public, *imported, *defined]
        for thing in things:
            if self._same.get(thing, thing) not in self._names:
                self._names[thing] = self._choose(thing, used)

    def of(self, module: str, name: str) -> str:
        """What the one file calls that which a module calls `name`."""
        thing = self._runtime.meaning(module, name)
        return name if thing is None else self.name(thing)

    def name(self, thing: Thing) -> str:
        """What the one file calls a thing."""
        return self._names[self._same.get(thing, thing)]

    def _meaning(self, unit: Unit, name: str) -> Thing | None:
        return self._runtime.meaning(unit.module, name)

    def _is_read(self, word: str, units: list[Unit]) -> bool:
        """Whether a name is read somewhere as the builtin that it is."""
        reads = [u for u in units if any(n.id == word for n in u.names)]
        return any(self._meaning(u, word) is None for u in reads)

    def _merge(self, units: list[Unit]) -> None:
        """Find constants that are defined alike in several modules."""
        known: dict[tuple[object, ...], Defined] = {}
        for unit in units:
            [name] = unit.binds if len(unit.binds) == 1 else [""]
            constant = isinstance(unit.node, ast.Assign) and name.isupper()
            if not constant:
                continue
            reads = tuple(
                self._same.get(t, t) if (t := self._meaning(unit, n.id)) else n.id
                for n in unit.names
                if n.id != name
            )
            key = (ast.dump(unit.node), reads)
            thing = Defined(unit.module, name)
            first = known.get(key)
            if first is None:
                known[key] = thing
            elif first.module not in self._runtime.lazy:
                self._same[thing] = first
                self.repeated.add(unit)

    def _choose(self, thing: Thing, used: set[str]) -> str:
        wanted = thing.wanted if isinstance(thing, Imported) else thing.name
        name = wanted
        if name in self._taken:
            if thing in self._runtime.helpers.values():
                raise CannotVendor(f"a helper has the name of a builtin: {name}")
            module = thing.module.strip("_").replace(".", "_")
            name = _joined(wanted, module)
            while name in self._taken or name in used:
                name += "_"
        self._taken.add(name)
        return name


def _joined(name: str, module: str) -> str:
    """`_read_of_tuned`, `MODULES_OF_SPLIT`, `BatchOfTuned`."""
    if name.isupper():
        return f"{name}_OF_{module.upper()}"
    if name.lstrip("_")[:1].isupper():
        return f"{name}Of{module.title().replace('_', '')}"
    return f"{name}_of_{module}"


def words(unit: Unit) -> set[str]:
    """All names and parameters in a statement."""
    nodes = list(ast.walk(unit.node))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.arg for node in nodes if isinstance(node, ast.arg)}
