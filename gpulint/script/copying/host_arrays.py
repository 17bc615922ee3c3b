"""Arrays on the host that a script indexes in every step and copies to the device."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from gpulint.index import NOT_CUDA, Definition, Move, Origin
from gpulint.index.walk import COMPREHENSIONS, dotted, walk
from gpulint.script.copying.creations import is_numpy_factory

if TYPE_CHECKING:
    from gpulint.script.model import Script

Kind = Literal["mapped", "hdf5", "memory", "tensor"]

_CONVERSIONS = frozenset(f"torch.{n}" for n in "from_numpy tensor as_tensor".split())
_LEGACY = frozenset(
    f"torch.{n}" for n in "Tensor FloatTensor LongTensor IntTensor DoubleTensor".split()
)
# On the device they give what they give on the host.
_SAME_ON_DEVICE = frozenset(
    "float double half bfloat16 long int short bool unsqueeze squeeze view reshape "
    "permute transpose contiguous detach".split()
)
_ARRAYS = frozenset(
    f"numpy.{n}"
    for n in "array asarray ascontiguousarray loadtxt genfromtxt fromfile frombuffer "
    "stack concatenate vstack hstack dstack column_stack repeat tile full_like "
    "zeros_like ones_like empty_like".split()
)
_CASTS = frozenset("float double half bfloat16 long int short bool to type".split())


class Opening(NamedTuple):
    """Where an array comes from: `node` makes it, `kind` says of what sort it is."""

    node: ast.expr
    kind: Kind


@dataclass(frozen=True, eq=False)
class Lookup:
    """`torch.from_numpy(array[index]).to(device)`, perhaps over several statements.

    `converted` is the call of torch, None for a tensor opened with `mmap=True`;
    `moves` copy what it gives; `chain` are methods between, `stored` is the name in
    between (`rows = array[index]`). `cast`: what NumPy does to the values on the way.
    """

    subscript: ast.Subscript
    openings: tuple[Opening, ...]
    converted: ast.Call | None
    moves: tuple[Move, ...]
    stored: Definition | None = None
    cast: ast.AST | None = None
    joined: ast.AST | None = None

    @property
    def array(self) -> ast.expr:
        """The name or attribute that is indexed."""
        return self.subscript.value


class HostArrays:
    """Finds the lookups of one file."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.index = script.index
        self.resolver = script.resolver
        self._opened: dict[ast.expr, tuple[Opening, ...]] = {}

    def lookups(self) -> Iterator[Lookup]:
        """Every indexing of an opened array whose result goes to the device."""
        for node in self._candidates():
            if not isinstance(node.ctx, ast.Load) or dotted(node.value) is None:
                continue
            if self._is_key(node.slice):
                continue
            openings = self.openings(node.value)
            if openings:
                found = self._follow(node, openings)
                if found is not None:
                    yield found

    def _candidates(self) -> list[ast.Subscript]:
        """Subscripts that stand in what torch converts, or make a name in it."""
        if "torch.load" in self.index.called_names:
            return self.index.all(ast.Subscript)
        found: dict[ast.Subscript, None] = {}
        for call in self.index.all(ast.Call):
            name = self.index.qualified(call.func)
            if name not in _CONVERSIONS | _LEGACY or not call.args:
                continue
            parts = list(walk(call.args[0]))
            for part in list(parts):
                if isinstance(part, ast.Name):
                    values = [d.value for d in self.script.definitions(part)]
                    parts += [n for v in values if v is not None for n in walk(v)]
            found.update((p, None) for p in parts if isinstance(p, ast.Subscript))
        return sorted(found, key=lambda n: (n.lineno, n.col_offset))

    @staticmethod
    def _is_key(index: ast.expr) -> bool:
        return isinstance(index, ast.Constant) and isinstance(index.value, str)

    # Where it is opened

    def openings(self, node: ast.expr) -> tuple[Opening, ...]:
        """Where an array is opened, all ways known; empty: one is not an array."""
        if node not in self._opened:
            self._opened[node] = ()  # `rest = rest[64:]` opens nothing
            found = [self._opening(origin) for origin in self.resolver.origins(node)]
            known = tuple(opening for opening in found if opening is not None)
            self._opened[node] = known if len(known) == len(found) else ()
        return self._opened[node]

    def _opening(self, origin: Origin) -> Opening | None:
        node = origin.expression
        kind = self._kind(node) if node is not None else None
        return None if node is None or kind is None else Opening(node, kind)

    def _kind(self, node: ast.expr) -> Kind | None:
        if isinstance(node, ast.Subscript):
            return self._kind_of_item(node)
        if not isinstance(node, ast.Call):
            return None
        name = self.index.qualified(node.func) or ""
        keywords = {k.arg: k.value for k in node.keywords}
        if name == "numpy.load":
            return self._loaded(node, keywords)
        if name in ("numpy.memmap", "numpy.lib.format.open_memmap"):
            return "mapped"
        if name == "torch.load":
            mapped = keywords.get("mmap")
            on = isinstance(mapped, ast.Constant) and mapped.value is True
            return "tensor" if on else None
        if isinstance(node.func, ast.Attribute) and node.func.attr in (
            "astype",
            "reshape",
        ):
            return "memory" if self._kind(node.func.value) else None
        made = name in _ARRAYS or is_numpy_factory(self.script, node)
        return "memory" if made else None

    def _loaded(
        self, call: ast.Call, keywords: dict[str | None, ast.expr]
    ) -> Kind | None:
        if "npz" in ast.dump(call):
            return None
        mode = call.args[1] if len(call.args) > 1 else keywords.get("mmap_mode")
        off = mode is None or (isinstance(mode, ast.Constant) and mode.value is None)
        return "memory" if off else "mapped"

    def _kind_of_item(self, node: ast.Subscript) -> Kind | None:
        """`h5py.File(path)["x"]`; with `[:]` it is read into memory."""
        if isinstance(node.slice, ast.Slice):
            inner = self.openings(node.value) if dotted(node.value) else ()
            kinds: set[Kind | None] = {o.kind for o in inner}
            kinds = kinds or {self._kind(node.value)}
            return "memory" if kinds == {"hdf5"} else None
        if not self._is_key(node.slice):
            return None
        holders = self.resolver.origins(node.value)
        names = {self.index.qualified(o.call.func) if o.call else None for o in holders}
        if names == {"h5py.File"}:
            return "hdf5"
        return "memory" if names == {"numpy.load"} else None

    # Where it goes

    def _follow(
        self, node: ast.Subscript, openings: tuple[Opening, ...]
    ) -> Lookup | None:
        if all(o.kind == "tensor" for o in openings):
            moves = self._moves(node, 0)
            return Lookup(node, openings, None, moves) if moves else None
        value, cast = self._numpy_chain(node)
        above = self.index.parent(value)
        if isinstance(above, ast.Call) and above.args[:1] == [value]:
            return self._converted(node, openings, above, None, cast)
        stored = self._stored(value)
        if stored is None:
            return None
        uses = [u for u in self.script.uses(stored) if isinstance(u, ast.Name)]
        for use in uses:
            inner, again = self._numpy_chain(use)
            call = self.index.parent(inner)
            if isinstance(call, ast.Call) and call.args[:1] == [inner]:
                found = self._converted(node, openings, call, stored, cast or again)
                if found is not None:
                    return found
        return None

    def _numpy_chain(self, node: ast.expr) -> tuple[ast.expr, ast.AST | None]:
        """Past `.astype(…)`, `.copy()` and `np.array(…)`: the value, and the cast."""
        cast: ast.AST | None = None
        while True:
            above = self.index.parent(node)
            call = self.index.parent(above) if above is not None else None
            method = isinstance(above, ast.Attribute) and isinstance(call, ast.Call)
            if method and above.attr in ("astype", "copy", "reshape"):  # type: ignore[union-attr]
                cast, node = call, call  # type: ignore[assignment]
                continue
            if isinstance(above, ast.Call) and above.args[:1] == [node]:
                name = self.index.qualified(above.func) or ""
                if name in ("numpy.array", "numpy.asarray", "numpy.ascontiguousarray"):
                    cast, node = above, above
                    continue
            return node, cast

    def _stored(self, value: ast.expr) -> Definition | None:
        """The definition of a plain name that a value is assigned to."""
        assign = self.index.parent(value)
        if not isinstance(assign, ast.Assign) or len(assign.targets) != 1:
            return None
        target = assign.targets[0]
        if not isinstance(target, ast.Name):
            return None
        flow = self.resolver.flow(self.index.scope(assign))
        its = [d for d in flow.definitions.get(target.id, ()) if d.node is target]
        return its[0] if its else None

    def _converted(
        self,
        node: ast.Subscript,
        openings: tuple[Opening, ...],
        call: ast.Call,
        stored: Definition | None,
        cast: ast.AST | None,
    ) -> Lookup | None:
        name = self.index.qualified(call.func) or ""
        if name not in _CONVERSIONS | _LEGACY:
            return None
        if name in _LEGACY or len(call.args) + len(call.keywords) > 1:
            cast = cast or call
        joined = self._joined(call)
        moves = self._moves(joined or call, 0)
        if not moves:
            return None
        return Lookup(node, openings, call, moves, stored, cast, joined)

    def _joined(self, call: ast.Call) -> ast.expr | None:
        """`torch.stack([torch.from_numpy(…) for i in …])` around a conversion."""
        for above in self.index.ancestors(call):
            if isinstance(above, ast.stmt):
                return None
            if isinstance(above, ast.Call) and self.index.qualified(above.func) in (
                "torch.stack", "torch.cat",
            ):  # fmt: skip
                inner = [n for n in walk(above) if isinstance(n, COMPREHENSIONS)]
                return above if inner else None
        return None

    def _moves(self, value: ast.expr, depth: int) -> tuple[Move, ...]:
        """The moves to an accelerator of a tensor, through methods and names."""
        node: ast.expr = value
        while True:
            method = self.index.parent(node)
            call = self.index.parent(method) if method is not None else None
            if not isinstance(method, ast.Attribute) or not isinstance(call, ast.Call):
                break
            if call.func is not method:
                break
            move = self.script.devices.move(call)
            if move is not None:
                wanted = move.target not in NOT_CUDA
                return (move,) if wanted else ()
            if method.attr not in (*_SAME_ON_DEVICE, "pin_memory", "to", "type"):
                break
            node = call
        stored = self._stored(node)
        if stored is None or depth > 2:
            return ()
        return tuple(m for use in self.script.uses(stored) if isinstance(use, ast.expr)
                     for m in self._moves(use, depth + 1))  # fmt: skip


def keeps_values(first: ast.expr, move: Move) -> bool:
    """Whether the methods between a tensor and its move do the same on the device."""
    node: ast.expr = move.receiver
    while node is not first:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return False
        if node.func.attr not in _SAME_ON_DEVICE:
            return False
        node = node.func.value
    return True


def casts(move: Move) -> bool:
    """Whether a method before a move converts the values."""
    return any(isinstance(n, ast.Attribute) and n.attr in _CASTS
               for n in walk(move.receiver))  # fmt: skip
