"""What slices are used for: whether a strided view serves as well as a copy."""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index.walk import walk
from gpulint.script.copying.columns import SAME_VALUES, bound_to

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_DEPTH = 5
# Methods that need or tell the layout in memory.
LAYOUT = frozenset(
    "view view_as data_ptr storage untyped_storage as_strided is_contiguous "
    "stride".split()
)
_ELEMENTWISE = frozenset(
    "stack cat concat concatenate hstack vstack dstack column_stack where sin cos tan "
    "exp log sqrt square abs tanh sigmoid relu pow mul add sub div clamp eq ne lt gt "
    "le ge isnan isfinite round floor ceil log1p expm1 atan2 one_hot embedding".split()
)
_NO_TENSOR = frozenset(
    "shape size dim ndim dtype device numel nelement requires_grad".split()
)
_READS = frozenset("len print isinstance type".split())
# Their results share memory with the slice, and may be changed in place.
_VIEWS = frozenset(
    "chunk split tensor_split hsplit vsplit dsplit unbind narrow select diagonal "
    "unfold movedim moveaxis swapaxes swapdims expand_as view_as reshape_as "
    "unflatten squeeze unsqueeze transpose permute reshape flatten t "
    "atleast_1d atleast_2d broadcast_to as_tensor".split()
)


class Fate(enum.IntEnum):
    """The most demanding use of a slice."""

    ELEMENTWISE = 0  # stacked, indexed, computed with: strides do not matter
    REDUCED = 1  # an operation of torch: strides may change the order of a sum
    UNKNOWN = 2  # code that may need contiguous memory


class Fates:
    """Follows slices through names, returns and callers of one file."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.index = script.index

    def of(self, node: ast.AST, depth: int = 0) -> Fate:
        """The fate of one expression's value."""
        above = self.index.parent(node)
        if depth > MAX_DEPTH:
            return Fate.UNKNOWN
        if isinstance(above, ast.Attribute):
            return self._attribute(above, depth)
        if isinstance(above, ast.Subscript):
            if node is above.slice:
                return Fate.ELEMENTWISE
            stored = not isinstance(above.ctx, ast.Load)
            return Fate.UNKNOWN if stored else self.of(above, depth)
        if isinstance(above, (ast.List, ast.Tuple)):
            return self._element(above, node, depth)
        if isinstance(above, ast.keyword):
            above = self.index.parent(above)
        if isinstance(above, ast.Call):
            return self._argument(above)
        if isinstance(above, ast.Return):
            return self._returned(above, (), depth)
        if isinstance(above, ast.Assign):
            return self._assigned(node, above, depth)
        if isinstance(above, ast.AugAssign) and node is above.target:
            return Fate.UNKNOWN  # changed in place
        harmless = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.AugAssign, ast.Expr)
        return Fate.ELEMENTWISE if isinstance(above, harmless) else Fate.UNKNOWN

    def _attribute(self, above: ast.Attribute, depth: int) -> Fate:
        call = self.index.parent(above)
        if above.attr in _NO_TENSOR:
            return Fate.ELEMENTWISE
        if above.attr in LAYOUT or not isinstance(call, ast.Call):
            return Fate.UNKNOWN
        if above.attr in SAME_VALUES:
            return self.of(call, depth)
        if above.attr in _VIEWS or above.attr.endswith("_"):
            return Fate.UNKNOWN
        return Fate.ELEMENTWISE if above.attr in _ELEMENTWISE else Fate.REDUCED

    def _element(self, above: ast.expr, node: ast.AST, depth: int) -> Fate:
        """In a list or tuple: stacked, returned, or assigned name by name."""
        outer = self.index.parent(above)
        if isinstance(outer, ast.Call):
            return self._argument(outer)
        if isinstance(outer, ast.Return):
            number = above.elts.index(node)  # type: ignore[attr-defined]
            return self._returned(outer, (number,), depth)
        if isinstance(outer, ast.Assign):
            return self._assigned(node, outer, depth)
        return Fate.UNKNOWN

    def _argument(self, call: ast.Call) -> Fate:
        name = self.index.qualified(call.func) or ""
        if name in _READS:
            return Fate.ELEMENTWISE
        if _in_place(call):
            return Fate.UNKNOWN
        if name.startswith("torch."):
            last = name.rpartition(".")[2]
            if last in _VIEWS or last.endswith("_"):
                return Fate.UNKNOWN
            return Fate.ELEMENTWISE if last in _ELEMENTWISE else Fate.REDUCED
        made = [o.call for o in self.script.resolver.origins(call.func)]
        names = [self.index.qualified(c.func) or "" for c in made if c is not None]
        of_torch = len(names) == len(made) and bool(made)
        known = of_torch and all(n.startswith("torch.nn.") for n in names)
        if any(_in_place(c) for c in made if c is not None):
            return Fate.UNKNOWN
        return Fate.REDUCED if known else Fate.UNKNOWN

    def _assigned(self, node: ast.AST, statement: ast.Assign, depth: int) -> Fate:
        names = list(bound_to(self.script, node))
        plain = (ast.Name, ast.Tuple, ast.List)
        if not names or not all(isinstance(t, plain) for t in statement.targets):
            return Fate.UNKNOWN
        if not all(isinstance(name, ast.Name) for name in names):
            return Fate.UNKNOWN
        if any(self._in_closure(n) for n in names if isinstance(n, ast.Name)):
            return Fate.UNKNOWN
        return self._worst((u for n in names for u in self._uses(n)), depth)

    def _in_closure(self, target: ast.Name) -> bool:
        """Whether a function inside reads the name."""
        scope = self.index.scope(target)
        return any(
            isinstance(n, ast.Name)
            and n.id == target.id
            and self.index.scope(n) is not scope
            for n in walk(scope)
        )

    def _returned(
        self, statement: ast.Return, path: tuple[int, ...], depth: int
    ) -> Fate:
        """What callers in this file do with it."""
        function = self.index.function(statement)
        callers = self.script.resolver.calls.callers(function) if function else ()
        if not callers:
            return Fate.UNKNOWN
        uses: list[ast.AST] = []
        for call in callers:
            flow = self.script.resolver.flow(self.index.scope(call))
            bound = [
                d.node
                for its in flow.definitions.values()
                for d in its
                if d.value is call and d.path == path and isinstance(d.node, ast.Name)
            ]
            if not bound:
                return Fate.UNKNOWN
            uses += [u for node in bound for u in self._uses(node)]
        return self._worst(iter(uses), depth)

    def _worst(self, uses: Iterator[ast.AST], depth: int) -> Fate:
        fates = [self.of(use, depth + 1) for use in uses]
        return max(fates, default=Fate.ELEMENTWISE)

    def _uses(self, target: ast.AST) -> Iterator[ast.AST]:
        """Reads of the value that a name gets, in its own scope."""
        flow = self.script.resolver.flow(self.index.scope(target))
        for use, reached in flow.uses.items():
            if any(d.node is target for d in reached):
                yield use


def _in_place(call: ast.Call) -> bool:
    """Whether a call, or a module that it makes, may write to what it is given."""
    return any(
        isinstance(n, ast.keyword) and n.arg in ("inplace", "out") for n in walk(call)
    )
