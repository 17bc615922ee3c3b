"""Values that go from the device to the host and back, in every step."""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Definition, Function, Target, Where
from gpulint.index.flow import enclosing_function
from gpulint.index.walk import walk
from gpulint.script.every_step import EveryStep, Part
from gpulint.script.training.sides import is_of_evaluation
from gpulint.script.waiting.located import on_device
from gpulint.script.waiting.reading import bare
from gpulint.script.waiting.waits import acts

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

MAX_DEPTH = 6  # names followed
_DATA = frozenset(
    f"torch.{n}"
    for n in "tensor as_tensor from_numpy scalar_tensor Tensor FloatTensor LongTensor "
    "IntTensor BoolTensor DoubleTensor ByteTensor HalfTensor".split()
)
_FETCHES = frozenset("cpu numpy tolist item".split())
_PASSED_ON = frozenset(
    "float int bool abs round min max sum list tuple sorted torch.autograd.Variable "
    "copy.copy copy.deepcopy".split()
)
# What these give is made of the sizes they are given, not of the values.
_SIZES = re.compile(
    r"\.random\.|_like$|\.(zeros|ones|empty|full|eye|arange|linspace|shape|ndim|size|"
    r"numel|rand\w*|tri[lu]_indices|cuda\..*|no_grad)$"
)


class RoundTrip(NamedTuple):
    """`back` copies to the device what `fetch` has copied from it."""

    fetch: ast.Call
    back: ast.Call
    at: ast.Call


def find_round_trips(script: Script, loop: Loop) -> Iterator[RoundTrip]:
    """Those of each step of a training or evaluation loop, in source order."""
    parts = list(EveryStep(script, loop).parts())
    if _acts(parts):
        return
    here = {part.node: number for number, part in enumerate(parts)}
    for number, part in enumerate(parts):
        if loop.train and is_of_evaluation(part.branches):
            continue  # one function trains and evaluates
        sent = _sent(script, part.node) if isinstance(part.node, ast.Call) else None
        fetch = _Trace(script, loop, here).fetched(sent) if sent is not None else None
        if fetch is not None and here.get(fetch, number) < number:
            assert isinstance(part.node, ast.Call)
            yield RoundTrip(fetch, part.node, part.call or part.node)


def _acts(parts: list[Part]) -> bool:
    return acts([p.node for p in parts if isinstance(p.node, ast.Call)])


def _sent(script: Script, call: ast.Call) -> ast.expr | None:
    """What a call copies from the host to the device; None if it does not."""
    move = script.devices.move(call)
    if move is not None:
        there = move.target is Target.CPU or script.where(move.receiver).device
        return None if there else move.receiver
    name = script.index.qualified(call.func) or ""
    if not call.args:
        return None
    typed = name.startswith("torch.cuda.") and name.endswith("Tensor")
    placed = any(k.arg == "device" for k in call.keywords) and name in _DATA
    if typed or (placed and script.where(call).device):
        return call.args[0]
    return None


class _Trace:
    """Follows a value on the host back to where it left the device."""

    def __init__(self, script: Script, loop: Loop, here: Container[ast.AST]) -> None:
        self.script = script
        self.loop = loop
        self.here = here
        self._seen: set[ast.AST] = set()

    def fetched(self, node: ast.AST, depth: int = 0) -> ast.Call | None:
        """The call that fetched a value, or something that it is made of."""
        if node in self._seen or depth > MAX_DEPTH:
            return None
        self._seen.add(node)
        if isinstance(node, ast.Call) and self._is_fetch(node):
            return node
        depth += isinstance(node, ast.Name)
        found = (self.fetched(source, depth) for source in self._sources(node))
        return next((f for f in found if f is not None), None)

    def _is_fetch(self, call: ast.Call) -> bool:
        func = call.func
        if not isinstance(func, ast.Attribute):
            return False
        move = self.script.devices.move(call)
        fetches = move is not None and move.target is Target.CPU
        fetches = fetches or (func.attr in _FETCHES and not call.args)
        return fetches and on_device(self.script, bare(func.value), self.loop)

    def _sources(self, node: ast.AST) -> list[ast.expr]:
        """What the values of an expression are made of, as far as it is known."""
        if isinstance(node, ast.Name):
            return [v for d in self.script.definitions(node) for v in self._given(d)]
        if isinstance(node, ast.Subscript):
            return [node.value]
        if isinstance(node, ast.Attribute):
            return [node.value] if node.attr in ("T", "data", "real", "imag") else []
        if isinstance(node, ast.BinOp):
            return [node.left, node.right]
        if isinstance(node, ast.UnaryOp):
            return [node.operand]
        if isinstance(node, ast.IfExp):
            return [node.body, node.orelse]
        if isinstance(node, ast.Compare):
            return [node.left, *node.comparators]
        if isinstance(node, (ast.List, ast.Tuple)):
            return node.elts
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return self._of_comprehension(node)
        return self._of_call(node) if isinstance(node, ast.Call) else []

    def _given(self, definition: Definition) -> list[ast.expr]:
        """The values of a name; of a parameter, those that this step gives it."""
        if definition.kind == "parameter":
            function = enclosing_function(self.script.index, definition)
            if not isinstance(function, Function):
                return []
            given = (
                self.script.resolver.calls.arguments(function, definition.name) or []
            )
            return [argument for argument in given if argument in self.here]
        own = definition.kind in ("assign", "augment")
        return [definition.value] if own and definition.value is not None else []

    def _of_comprehension(
        self, node: ast.ListComp | ast.GeneratorExp
    ) -> list[ast.expr]:
        """Its elements, and what it iterates where they are computed in plain sight."""
        if any(isinstance(n, ast.Call) for n in walk(node.elt)):
            return [node.elt]
        return [node.elt, *(g.iter for g in node.generators)]

    def _of_call(self, call: ast.Call) -> list[ast.expr]:
        func = call.func
        name = self.script.index.qualified(func) or ""
        if name.startswith(("torch.", "numpy.")) or name in _PASSED_ON:
            return [] if _SIZES.search(name) else list(call.args)
        own = self.script.resolver.calls.callee(call) is not None
        if isinstance(func, ast.Attribute) and not own:
            where = self.script.where(func.value)
            return [func.value] if where.host or where == Where.PLAIN else []
        return []
