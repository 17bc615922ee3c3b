"""DataLoaders of a script: options, dataset, and which loops iterate them."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from gpulint.index import Argument, Evaluator, FileIndex, Function, Resolver, Values
from gpulint.index.walk import LOOPS, dotted
from gpulint.script.loading.collation import with_collation
from gpulint.script.loading.epochs import iterated_again
from gpulint.script.loading.loader_classes import (
    LOADER,
    builds,
    calls_of_base,
    constructions,
)
from gpulint.script.outside import files_around, outside_loops
from gpulint.script.samples.datasets import Dataset, read_dataset

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

POSITIONS = {
    name: number
    for number, name in enumerate(
        "dataset batch_size shuffle sampler batch_sampler num_workers collate_fn "
        "pin_memory drop_last timeout worker_init_fn multiprocessing_context "
        "generator".split()
    )
}
MAX_DEPTH = 4  # of calls that are followed up to a loop
_TRAIN = re.compile(r"train", re.IGNORECASE)
_EVAL = re.compile(r"test|val|eval|dev|infer|pred", re.IGNORECASE)


@dataclass(eq=False)
class Loader:
    """One call of `torch.utils.data.DataLoader`, or of a class derived from it.

    `here` are the loops of its own file that iterate it; `names` are what it is
    assigned to, as written. `derived`: it is of a class of this project; `maker` is
    that class where the call is its `super().__init__`. `changes`: what `changes.py`
    found for a script that asked.
    """

    call: ast.Call
    script: Script
    names: tuple[str, ...] = ()
    derived: bool = False
    maker: ast.ClassDef | None = None
    here: list[Loop] = field(default_factory=list)
    changes: dict[tuple[Script, ast.AST | None], tuple[ast.AST, ...]] = field(
        default_factory=dict
    )
    _elsewhere: list[Loop] | None = None

    @property
    def evaluator(self) -> Evaluator:
        """Of the script that builds it."""
        return self.script.evaluator

    @cached_property
    def files(self) -> tuple[FileIndex, ...]:
        """Those in which it, its dataset or its loops are seen."""
        return files_around(self.script, self)

    @cached_property
    def files_of_dataset(self) -> tuple[FileIndex, ...]:
        """The same, with those of functions that are given the dataset."""
        resolver, files = self.evaluator.resolver, list(self.files)
        found = dict.fromkeys(files)
        for node in self.argument("dataset").nodes:
            origins = resolver.origins(node)
            found.update(
                dict.fromkeys(resolver.outside.receivers(files, node, origins))
            )
        return tuple(found)

    @property
    def loops(self) -> list[Loop]:
        """The loops that iterate it, those of other files last."""
        if self._elsewhere is None:
            self._elsewhere = []  # a cycle adds nothing
            self._elsewhere = outside_loops(self.script, self)
        return [*self.here, *self._elsewhere]

    def is_made_by(self, node: ast.AST) -> bool:
        """Whether a node makes the loader: its call, or one of the class it is in."""
        if node is self.call or self.maker is None:
            return node is self.call
        resolver = self.evaluator.resolver
        return isinstance(node, ast.Call) and builds(resolver, node, self.maker)

    def argument(self, name: str) -> Argument:
        """An option by keyword, position or through `**kwargs`."""
        return self.evaluator.argument(self.call, name, POSITIONS.get(name))

    def values(self, name: str) -> Values:
        """The constants that can reach an option; the default where it is absent."""
        argument = self.argument(name)
        if argument.absent:
            return Values()
        known: list[Values] = [self.evaluator.values(n) for n in argument.nodes]
        complete = argument.given and all(v.complete for v in known)
        flat = tuple(value for v in known for value in v.known)
        return Values(flat, complete and bool(known))

    @cached_property
    def dataset(self) -> Dataset:
        """What is known of the dataset and its work per sample."""
        found = read_dataset(self.argument("dataset"), self.evaluator)
        return with_collation(found, self.argument("collate_fn"), self.evaluator)

    @property
    def decided_by_runtime(self) -> bool:
        """Whether `**runtime.loader_kwargs(…)` already stands in the call."""
        return self.runtime_call is not None

    @property
    def runtime_call(self) -> ast.Call | None:
        """The `runtime.loader_kwargs(…)` that is unpacked in the call."""
        for keyword in self.call.keywords:
            if keyword.arg is None and isinstance(keyword.value, ast.Call):
                name = self.evaluator.index.qualified(keyword.value.func) or ""
                if name.endswith("loader_kwargs"):
                    return keyword.value
        return None

    @property
    def train(self) -> bool | None:
        """True for training data, False for evaluation, None if not clear."""
        if any(loop.train for loop in self.loops):
            return True
        if any(loop.eval for loop in self.loops):
            return False
        words = " ".join([*self.names, dotted(self.argument("dataset").direct) or ""])
        if _TRAIN.search(words):
            return True
        if _EVAL.search(words):
            return False
        return True if self.values("shuffle").all_in(True) else None

    @property
    def reused(self) -> bool:
        """Whether it is iterated again, epoch after epoch."""
        return iterated_again(self)


def in_loop(resolver: Resolver, node: ast.AST) -> bool:
    """Whether a node runs in a loop, here or in a caller of its function."""
    looped, function = _around(resolver, node)
    if looped or function is None:
        return looped
    if function not in resolver.repeated:
        resolver.repeated[function] = _is_repeated(resolver, function)
    return resolver.repeated[function]


def _is_repeated(resolver: Resolver, function: Function) -> bool:
    """Whether a call of a function, or of one that calls it, stands in a loop."""
    todo = [(function, 1)]
    seen = {function}
    for current, depth in todo:
        for call in resolver.calls.callers(current):
            looped, caller = _around(resolver, call)
            if looped:
                return True
            if caller is not None and caller not in seen and depth < MAX_DEPTH:
                seen.add(caller)
                todo.append((caller, depth + 1))
    return False


def _around(resolver: Resolver, node: ast.AST) -> tuple[bool, Function | None]:
    """Whether a loop of its function holds a node, and that function."""
    parents = resolver.index.home(node).parents
    above = parents.get(node)
    while above is not None:
        if isinstance(above, LOOPS):
            return True, None
        if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False, above
        above = parents.get(above)
    return False, None


def find_loaders(script: Script) -> dict[ast.Call, Loader]:
    """All loaders that a file builds, by their calls."""
    index, evaluator = script.index, script.evaluator
    found: dict[ast.Call, Loader] = {}
    for call in index.calls.get(LOADER, ()):
        found[call] = Loader(call, script, tuple(_assigned(evaluator, call)))
    for call in constructions(evaluator.resolver):
        names = tuple(_assigned(evaluator, call))
        found[call] = Loader(call, script, names, derived=True)
    for call, owner in calls_of_base(evaluator.resolver):
        found[call] = Loader(call, script, derived=True, maker=owner)
    return found


def _assigned(evaluator: Evaluator, call: ast.Call) -> list[str]:
    """Names, attributes and keys that a call's result is put under."""
    parent = evaluator.index.parent(call)
    if isinstance(parent, ast.Assign):
        return [n for n in map(dotted, parent.targets) if n]
    if isinstance(parent, ast.Return):
        function = evaluator.index.function(call)
        return [function.name] if function is not None else []
    if isinstance(parent, ast.Dict):
        keys = [k for k, v in zip(parent.keys, parent.values, strict=True) if v is call]
        return [str(k.value) for k in keys if isinstance(k, ast.Constant)]
    return []
