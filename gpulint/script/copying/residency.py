"""How an array that is indexed in every step moves to the device, if it can."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING

from gpulint.index import Definition
from gpulint.index.walk import dotted
from gpulint.script.copying.host_arrays import Lookup, Opening, casts, keeps_values
from gpulint.script.rewriting.edits import Build, Edit, Replace, Rewrite
from gpulint.script.rewriting.syntax import CallText, without_move
from gpulint.script.set_before import is_set_at

if TYPE_CHECKING:
    from gpulint.script.model import Script

_SHAPE = frozenset("shape ndim size nbytes itemsize dtype".split())


class Residency:
    """Lookups of one array in one function, and the rewrite of all its lookups."""

    def __init__(
        self, script: Script, lookups: list[Lookup], in_file: list[Lookup]
    ) -> None:
        self._in_file = in_file
        self.script = script
        self.index = script.index
        self.lookups = lookups
        self.first = lookups[0]

    @property
    def place(self) -> ast.AST:
        """The copy; the conversion where samples are converted one by one."""
        if self.first.joined is not None and self.first.converted is not None:
            return self.first.converted
        return self.first.moves[0].call

    @cached_property
    def reopened(self) -> list[Opening]:
        """Openings that run in every step."""
        return [o for o in self.first.openings if self.script.runners.of(o.node)]

    @property
    def short_lived(self) -> bool:
        """Whether it is an array in memory that a loop or step makes, as an order."""
        return all(
            o.kind == "memory"
            and (self.script.loop_of(o.node) or self.script.runners.of(o.node))
            for o in self.first.openings
        )

    @cached_property
    def written_in_steps(self) -> bool:
        """Whether the array is written where it is not made: a buffer, not data."""
        return any(
            node not in self._definitions
            and (self.script.runners.of(node) or self._elsewhere(node))
            for node in self._writes
        )

    def _elsewhere(self, node: ast.AST) -> bool:
        return self.index.scope(node) not in self._scopes

    @cached_property
    def _definitions(self) -> set[ast.AST]:
        return {d.node for d in self._defined}

    @cached_property
    def _scopes(self) -> set[ast.AST]:
        return set(map(self.script.invariants.scope_of, self._defined))

    @cached_property
    def _defined(self) -> list[Definition]:
        """All places where the name or attribute is bound."""
        array = self.first.array
        owner = self.index.owner(array) if isinstance(array, ast.Attribute) else None
        if owner is not None and isinstance(array, ast.Attribute):
            return self.script.resolver.classes.member(owner, array.attr)
        return list(self.script.definitions(array))

    @cached_property
    def _writes(self) -> list[ast.AST]:
        array = self.first.array
        if isinstance(array, ast.Attribute):
            names = {
                dotted(n) or ""
                for n in self.index.all(ast.Attribute)
                if n.attr == array.attr
            }
        else:
            names = {dotted(array) or ""}
        found = [w for n in names for w in self.script.mutations(n, self.index.tree)]
        return (
            found
            if isinstance(array, ast.Attribute)
            else list(filter(self._own, found))
        )

    def _own(self, node: ast.AST) -> bool:
        """Whether a node means the array's name, and no other function's local."""
        scope = self.index.scope(node)
        flow = self.script.resolver.flow(scope)
        local = dotted(self.first.array) in flow.definitions
        return not local or scope in self._scopes

    # The rewrite

    @cached_property
    def withheld(self) -> str | None:
        """Why there is no rewrite."""
        return self._hindrance()

    @cached_property
    def rewrite(self) -> Rewrite | None:
        """The opening wrapped, and every lookup without its copy."""
        if self.withheld is not None:
            return None
        opened = self._defined[0].value
        assert opened is not None
        local, imports = self.script.names.runtime
        device = self._device_text(self._every[0])
        edits: list[Edit] = [Replace(opened, _wrapped(f"{local}.resident", device))]
        for lookup in self._every:
            edits += self._lookup_edits(lookup)
        title = f"Keep `{self.script.text(self.first.array)}` on the device"
        return Rewrite(title, tuple(edits), imports)

    @cached_property
    def _every(self) -> list[Lookup]:
        """The lookups of this array in the whole file."""
        array = self.first.array
        return [
            x
            for x in self._in_file
            if type(x.array) is type(array) and self._is_same(x.array)
        ]

    def _is_same(self, other: ast.expr) -> bool:
        array = self.first.array
        if isinstance(array, ast.Attribute) and isinstance(other, ast.Attribute):
            return array.attr == other.attr
        mine = self.script.definitions(array)
        return set(mine) == set(self.script.definitions(other))

    def _lookup_edits(self, lookup: Lookup) -> list[Edit]:
        converted = lookup.converted
        edits: list[Edit] = [Replace(m.call, without_move) for m in lookup.moves]
        if converted is not None:
            edits.append(Replace(converted, _argument))
        return edits

    def _hindrance(self) -> str | None:
        if self.reopened:
            return "it is opened anew in every step"
        if len(self._defined) != 1 or self._defined[0].kind != "assign":
            return "it is not opened in one place of this file"
        definition = self._defined[0]
        if definition.value is None or definition.path or len(self.first.openings) != 1:
            return "it is not opened in one place of this file"
        if self.first.openings[0].node is not definition.value:
            return "it has another name as well"
        if self.script.loop_of(definition.node) is not None:
            return "it is opened in a loop"
        for lookup in self._every:
            reason = self._lookup_hindrance(lookup)
            if reason is not None:
                return reason
        return self._other_use() or self._device_hindrance()

    def _lookup_hindrance(self, lookup: Lookup) -> str | None:
        if lookup.joined is not None:
            return "samples are converted one by one"
        if not self._surely_array(lookup):
            return "what is loaded may be a collection, no array"
        if lookup.cast is not None:
            return "NumPy converts the values on the way"
        if self.script.runners.in_worker(lookup.subscript):
            return "a dataset reads it, perhaps in a worker process"
        if len(lookup.moves) != 1:
            return "the rows are used on the host as well"
        if any(
            k.arg in ("copy", "memory_format") for k in lookup.moves[0].call.keywords
        ):
            return "the copy has options of its own"
        stored = lookup.stored
        if stored is not None and len(self.script.uses(stored)) != 1:
            return f"`{stored.name}` is used on the host as well"
        mps = '"mps"' in self.script.source.text or "'mps'" in self.script.source.text
        if mps and (lookup.moves[0].dtype or casts(lookup.moves[0])):
            return "the rows are cast, and MPS has no float64"
        first: ast.expr = lookup.converted or lookup.subscript
        if not keeps_values(first, lookup.moves[0]):
            return "the rows are copied in another statement, or pinned before"
        return None

    def _surely_array(self, lookup: Lookup) -> bool:
        """Whether a loaded object cannot be an archive or a dict of arrays."""
        opened = lookup.openings[0]
        call = opened.node
        name = self.index.qualified(call.func) if isinstance(call, ast.Call) else ""
        if opened.kind == "mapped" or name not in ("numpy.load", "torch.load"):
            return True
        index = lookup.subscript.slice
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        return any(
            isinstance(part, ast.Slice) or self.script.where(part).host
            for part in parts
        )

    def _other_use(self) -> str | None:
        """A use of the array that needs it on the host."""
        if self._writes and any(w not in self._definitions for w in self._writes):
            return "it is written to"
        written = self._written_mapping()
        if written is not None:
            return f"line {written.lineno} writes to a mapped file, perhaps the same"
        known = {id(x.array) for x in self._every}
        for node in self._reads():
            if id(node) not in known and not self._asks_shape(node):
                line = getattr(node, "lineno", 0)
                return f"it is used as an array as well (line {line})"
        return None

    def _written_mapping(self) -> ast.Call | None:
        """Another mapping in this file that is written to in each step."""
        for call in self.index.all(ast.Call):
            if call is self.first.openings[0].node or not self._maps(call):
                continue
            statement = self.index.statement(call)
            targets = statement.targets if isinstance(statement, ast.Assign) else []
            for name in filter(None, map(dotted, targets)):
                for node in self.script.mutations(name, self.index.tree):
                    stored = not isinstance(node, ast.Name)
                    if stored and self.script.runners.of(node) is not None:
                        return call
        return None

    def _maps(self, call: ast.Call) -> bool:
        """Whether a call maps a file into memory, so that it can be written to."""
        name = self.index.qualified(call.func) or ""
        if not name.startswith("numpy.") or name.rpartition(".")[2] not in (
            "load",
            "memmap",
            "open_memmap",
        ):
            return False
        modes = [k.value for k in call.keywords if k.arg in ("mode", "mmap_mode")]
        modes += call.args[1:]
        given = {m.value for m in modes if isinstance(m, ast.Constant)}
        return not given & {"r", "c"}

    def _reads(self) -> list[ast.expr]:
        array = self.first.array
        if isinstance(array, ast.Attribute):
            return [
                n
                for n in self.index.all(ast.Attribute)
                if n.attr == array.attr and isinstance(n.ctx, ast.Load)
            ]
        name = dotted(array)
        return [
            n
            for n in self.index.all(ast.Name)
            if n.id == name
            and isinstance(n.ctx, ast.Load)
            and self.script.definitions(n)
            and not self._definitions.isdisjoint(
                d.node for d in self.script.definitions(n)
            )
        ]

    def _asks_shape(self, node: ast.expr) -> bool:
        above = self.index.parent(node)
        if isinstance(above, ast.Attribute):
            return above.attr in _SHAPE
        if isinstance(above, ast.Call):
            return dotted(above.func) == "len"
        return isinstance(above, ast.Compare) and all(
            isinstance(o, (ast.Is, ast.IsNot)) for o in above.ops
        )

    # The device

    def _device_text(self, lookup: Lookup) -> str:
        device = lookup.moves[0].device
        return '"cuda"' if device is None else self.script.text(device)

    def _device_hindrance(self) -> str | None:
        if len({self._device_text(x) for x in self._every}) != 1:
            return "the rows go to several devices"
        unknown = f"`{self._device_text(self.first)}` is not known where it is opened"
        for lookup in self._every:
            device = lookup.moves[0].device
            if device is None:
                if "torch.cuda.set_device" in self.index.called_names:
                    return "the current device changes"
                continue
            if not self._same_device(device):
                return unknown
        return None

    def _same_device(self, device: ast.expr) -> bool:
        """Whether the device's name has the same value at the opening."""
        opened = self._defined[0].node
        if isinstance(device, ast.Constant):
            return True
        if isinstance(device, ast.Attribute):
            return self._same_attribute(device, opened)
        if not isinstance(device, ast.Name) or not is_set_at(
            self.script, device, opened
        ):
            return False
        here, there = self.index.scope(device), self.index.scope(opened)
        definitions = self.script.definitions(device)
        if len(definitions) != 1:
            return False
        of = self.script.invariants.scope_of(definitions[0])
        local = device.id in self.script.resolver.flow(there).definitions
        if there is not of and local:
            return False
        return of in (here, self.index.tree) and (there is of or of is self.index.tree)

    def _same_attribute(self, device: ast.Attribute, opened: ast.AST) -> bool:
        """`self.device`, bound once, in the class that opens the array."""
        name = dotted(device) or ""
        own = self.script.resolver.self_name(self.index.scope(opened))
        owner = self.index.owner(opened)
        if owner is None or own is None or name != f"{own}.{device.attr}":
            return False
        if self.index.owner(device) is not owner:
            return False
        bound = self.script.resolver.classes.member(owner, device.attr)
        return len(bound) == 1 and is_set_at(self.script, device, opened)


def _wrapped(helper: str, device: str) -> Build:
    return lambda text: f"{helper}({text}, {device})"


def _argument(text: str) -> str:
    """`x` for `torch.from_numpy(x)`."""
    call = CallText.of(text)
    return call.in_place(call.arguments[0].value)
