"""Which expressions are parts of a batch that a loop takes from a loader."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from gpulint.index import Definition, Function, Resolver, Where
from gpulint.script.generators import yielded_whole
from gpulint.script.iterations import LOADER_NAME
from gpulint.script.loops import Loop

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader

# Methods that frameworks call, not loops of the project.
_BY_OTHERS = frozenset(
    "__init__ __call__ __getitem__ __iter__ __next__ __len__ forward".split()
)
_ON_DEVICE = re.compile(r"cuda|gpu|device|prefetch", re.IGNORECASE)
_ITERATORS = ("iter", "itertools.cycle")
_WRAPS_TENSOR = frozenset(
    "torch.autograd.Variable torch.from_numpy torch.tensor torch.as_tensor "
    "torch.Tensor torch.FloatTensor torch.LongTensor numpy.array numpy.asarray "
    "list tuple dict zip enumerate".split()
)


class Batches:
    """Follows names back to the target of a loop over batches.

    `any`: whether the file has a loop that can be one.
    `assumed` gives where the targets live as they come from the loader, and what
    `next` takes from a loader, for the tensor facts: on the host, unless the
    loader's name says that it moves them, its samples are made on a device, its class
    may do so, or a framework moves what a loop takes (`sent`). `beside` gives the
    batches of the file in which a node stands: a step may be a function that the loop
    of another file calls.
    """

    def __init__(
        self,
        resolver: Resolver,
        loops: tuple[Loop, ...],
        loader_of: Callable[[ast.Call], Loader | None],
        sent: Callable[[Loop], bool],
        beside: Callable[[ast.AST], Batches],
    ) -> None:
        self.resolver = resolver
        self._beside = beside
        self._loader_of = loader_of
        self._sent = sent
        self.index = resolver.index
        self._targets: dict[ast.AST, Loop] = {}
        self._loops: dict[ast.AST, Loop | None] = {}
        self._all_loops = loops
        self.any = any(x.batches or x.train or x.eval for x in loops)
        for loop in loops:
            if loop.batches or (loop.train and self._over_data(loop)):
                loop.batches = True
                for name in loop.targets:
                    self._targets[name] = loop

    def _over_data(self, loop: Loop) -> bool:
        """Whether a training loop iterates something other than numbers."""
        for iterable, _ in loop.items:
            name = ""
            if isinstance(iterable, ast.Call):
                name = self.index.qualified(iterable.func) or ""
            if name not in ("range", "itertools.count", "reversed", "numpy.arange"):
                return not isinstance(iterable, (ast.List, ast.Tuple, ast.Constant))
        return False

    @cached_property
    def assumed(self) -> dict[ast.AST, Where]:
        """Where each loop target lives when the iteration starts."""
        found: dict[ast.AST, Where] = {}
        for name, loop in self._targets.items():
            text = " ".join(ast.dump(i) for i, _ in loop.items)
            moved = any(x.dataset.device is not None for x in loop.loaders)
            unsure = moved or _ON_DEVICE.search(text) or self._sent(loop)
            unsure = unsure or self.is_told_a_device(loop)
            found[name] = Where.UNKNOWN if unsure else Where.HOST
        for call in self.index.calls.get("next", ()):
            loaders = self.taken_from(call)
            if loaders and not any(x.derived or x.dataset.device for x in loaders):
                found[call] = Where.HOST
        return found

    def is_told_a_device(self, loop: Loop) -> bool:
        """Whether a loop's batches are on a device already, by what makes them.

        `BucketIterator.splits(data, device=device)`.
        """
        made = [o.node for i, _ in loop.items for o in self.resolver.origins(i)]
        return any(
            keyword.arg == "device"
            for call in made
            if isinstance(call, ast.Call)
            for keyword in call.keywords
        )

    def taken_from(self, call: ast.Call) -> list[Loader]:
        """The loaders that `next(it)` takes batches from; none if one is not known."""
        origins = self.resolver.origins(call.args[0]) if call.args else ()
        found: list[Loader] = []
        for made in (origin.call for origin in origins):
            sources = self._sources(made) if made is not None else []
            known = [self._loader_of(s) if s is not None else None for s in sources]
            loaders = [loader for loader in known if loader is not None]
            if not sources or len(loaders) < len(sources):
                return []
            found += loaders
        return found

    def _sources(self, made: ast.Call) -> list[ast.Call | None]:
        """The calls that make what an iterator, or a generator of batches, goes over.

        None for what no call makes.
        """
        if self.index.qualified(made.func) in _ITERATORS and made.args:
            return [o.call for o in self.resolver.origins(made.args[0])]
        function = self.resolver.calls.callee(made)
        yielded = yielded_whole(self.resolver, function) if function else []
        return [o.call for node in yielded for o in self.resolver.origins(node)]

    def loop_of(self, node: ast.AST) -> Loop | None:
        """The loop whose batch an expression is a part of, on host or device."""
        if not (self.any or self.index.project):
            return None
        if node not in self._loops:
            self._loops[node] = None  # a cycle adds nothing
            self._loops[node] = self._find(node)
        return self._loops[node]

    def _find(self, node: ast.AST) -> Loop | None:
        if isinstance(node, ast.Name):
            return self._first_definition(self.resolver.definitions(node))
        if isinstance(node, ast.Attribute):
            return self.loop_of(node.value) or self._first_definition(
                self.resolver.definitions(node)
            )
        if isinstance(node, (ast.Subscript, ast.Starred, ast.Await, ast.NamedExpr)):
            return self.loop_of(node.value)
        if isinstance(node, ast.IfExp):
            return self.loop_of(node.body) or self.loop_of(node.orelse)
        if isinstance(node, ast.Call):
            return self._from_call(node)
        if isinstance(node, (ast.Tuple, ast.List)):
            return self._first(node.elts)
        if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
            return self.loop_of(node.elt)
        if isinstance(node, ast.DictComp):
            return self.loop_of(node.value)
        if isinstance(node, ast.Dict):
            return self._first(node.values)
        return None

    def _first(self, nodes: list[ast.expr]) -> Loop | None:
        return next((x for x in map(self.loop_of, nodes) if x is not None), None)

    def _first_definition(self, definitions: tuple[Definition, ...]) -> Loop | None:
        found = map(self._from_definition, definitions)
        return next((loop for loop in found if loop is not None), None)

    def _from_definition(self, definition: Definition) -> Loop | None:
        target = self._targets.get(definition.node)
        if target is not None:
            return target
        if definition.kind == "parameter":
            return self._from_parameter(definition)
        if definition.kind in ("assign", "for", "augment") and definition.value:
            return self.loop_of(definition.value)
        return None

    def _from_parameter(self, definition: Definition) -> Loop | None:
        function = self.index.parent(
            self.index.parent(definition.node) or definition.node
        )
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return None
        calls = self.resolver.calls
        near = calls.arguments_near(function, definition.name, self.index)
        found = self._first(near)
        if found is None and function.name not in _BY_OTHERS:
            found = self._from_elsewhere(function, definition.name)
        return found

    def _from_elsewhere(self, function: Function, name: str) -> Loop | None:
        """The loop of another file that calls a function with a part of its batch."""
        for call in self.resolver.calls.callers(function):
            if self.index.holds(call):
                continue
            its = self._beside(call)
            given = self.resolver.calls.given(call, function, name)[0]
            found = next(filter(None, map(its.loop_of, given if its.any else ())), None)
            if found is not None:
                return found
        return None

    def _from_call(self, call: ast.Call) -> Loop | None:
        name = self.index.qualified(call.func) or ""
        if name == "next" and call.args:
            return self._from_next(call)
        if name in _WRAPS_TENSOR and call.args:
            return self._first(call.args)
        function = self.resolver.calls.callee(call)
        if function is not None:
            return self._through(call, function)
        if isinstance(call.func, ast.Attribute):
            return self.loop_of(call.func.value)
        return None

    def _from_next(self, call: ast.Call) -> Loop | None:
        """`next(it)` of an iterator over a loader: the loop that asks for it."""
        text = ast.unparse(call.args[0])
        iterates = any(
            o.call is not None
            and self.index.qualified(o.call.func) in (*_ITERATORS, "cycle")
            for o in self.resolver.origins(call.args[0])
        )
        iterates = iterates or LOADER_NAME.search(text.rstrip("()")) is not None
        if not iterates and not self.taken_from(call):
            return None
        for loop in self._all_loops:
            if self.index.inside(call, loop.node) and (loop.train or loop.eval):
                return loop
        return None

    def _through(self, call: ast.Call, function: Function) -> Loop | None:
        """A helper such as `to_gpu(x)`: what it returns, if that is its argument."""
        for value in self.resolver.flow(function).returns:
            found = self.loop_of(value) if value is not None else None
            if found is not None:
                return found
        return None
