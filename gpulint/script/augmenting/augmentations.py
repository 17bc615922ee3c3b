"""Random augmentation that the CPU does for each sample of a training loop on a GPU."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import FileIndex, Function
from gpulint.index.build import last_name
from gpulint.index.taken import Taken
from gpulint.index.walk import dotted, walk
from gpulint.script.augmenting.image_operations import (
    draws_for_each,
    is_container,
    written_by_hand,
)
from gpulint.script.branches import branches_of
from gpulint.script.loading.device_batches import yields_device
from gpulint.script.loading.loaders import Loader
from gpulint.script.loading.training_loaders import loaders_around, trains_on_gpu_with
from gpulint.script.samples.reachable import reachable

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_DEPTH = 7  # from a loader's dataset to an operation of its transform
_ENTRIES = ("__getitem__", "__iter__", "__call__", "forward")
_ADDS = {"append": 0, "extend": 0, "insert": 1}
_OBJECTS = re.compile(
    r"\b\w*(bbox|boxes|_box\b|keypoint|kpts|landmark|joints|heatmap|intrinsic|xyxy|xywh)",
    re.IGNORECASE,
)
_ON_DEVICE = ("kornia", "torchaug", "nvidia.dali", "ffcv")


class Augmentation(NamedTuple):
    """Operations that a training loader's samples go through, of one pipeline.

    `whole` is the `Compose(…)`, list, single operation or function that holds them;
    `by_hand` whether they are code of a function; `others` loaders that do not train
    and use the same.
    """

    operations: tuple[ast.expr, ...]
    whole: ast.AST
    by_hand: bool
    loader: Loader
    others: tuple[Loader, ...]


def find_augmentations(script: Script) -> list[Augmentation]:
    """Those whose operations stand in this file, in source order."""
    users: dict[ast.expr, list[Loader]] = {}
    for loader in loaders_around(script):
        for operation in _operations(script, loader):
            if script.index.holds(operation):
                users.setdefault(operation, []).append(loader)
    groups: dict[ast.AST, list[ast.expr]] = {}
    for operation in sorted(users, key=lambda n: (n.lineno, n.col_offset)):
        groups.setdefault(_whole(script, operation), []).append(operation)
    found = (_of_group(w, its, users) for w, its in groups.items())
    return [augmentation for augmentation in found if augmentation is not None]


def _operations(script: Script, loader: Loader) -> list[ast.expr]:
    """What draws in a loader's samples; kept for the other files of a project."""

    def found() -> list[ast.expr]:
        return list(Samples(script.of(loader.call), loader).operations())

    project = script.index.project
    if project is None:
        return found()
    return project.remembered("draws in samples", loader.call, found)


def _of_group(
    whole: ast.AST,
    operations: list[ast.expr],
    users: dict[ast.expr, list[Loader]],
) -> Augmentation | None:
    loaders = dict.fromkeys(x for node in operations for x in users[node])
    training = [x for x in loaders if feeds_training(x)]
    if not training:
        return None
    return Augmentation(
        tuple(operations),
        whole,
        isinstance(whole, (ast.FunctionDef, ast.AsyncFunctionDef)),
        training[0],
        tuple(x for x in loaders if x.train is not True),
    )


def feeds_training(loader: Loader) -> bool:
    """Whether a loop trains on a GPU with what a loader makes on the CPU."""
    script = loader.script
    if not trains_on_gpu_with(loader) or yields_device(script, loader):
        return False
    indexes = dict.fromkeys(
        [script.index, *(script.index.home(x.node) for x in loader.loops)]
    )
    return not any(_augments_on_device(index) for index in indexes)


def _augments_on_device(index: FileIndex) -> bool:
    return any(v.startswith(_ON_DEVICE) for v in index.imported)


def _whole(script: Script, operation: ast.expr) -> ast.AST:
    """The pipeline that an operation is a part of; the function of one by hand."""
    if not (isinstance(operation, ast.Call) and draws_for_each(script, operation)):
        function = script.index.function(operation)
        assert function is not None
        return function
    whole: ast.AST = operation
    above = script.index.parent(operation)
    while above is not None:
        holds = isinstance(above, (ast.List, ast.Tuple, ast.keyword, ast.BinOp))
        if not holds and not (
            isinstance(above, ast.Call) and is_container(script, above)
        ):
            break
        whole = above if isinstance(above, ast.expr) else whole
        above = script.index.parent(above)
    return whole


# What samples go through


class Samples:
    """The operations that the samples of one loader surely go through.

    Those that draw for each image, or that are `wanted`: calls that make an operation.
    """

    def __init__(
        self,
        script: Script,
        loader: Loader,
        wanted: Callable[[Script, ast.Call], bool] = draws_for_each,
    ) -> None:
        self.script = script
        self.loader = loader
        self.wanted = wanted
        self.resolver = script.resolver
        self.index = script.index
        self._seen: set[tuple[ast.AST, ast.Call | None]] = set()

    def operations(self) -> Iterator[ast.expr]:
        """All of them, of this and other files."""
        for node in self.loader.argument("dataset").nodes:
            yield from self._of(node, 0)

    def _of(self, node: ast.AST, depth: int) -> Iterator[ast.expr]:
        if depth > MAX_DEPTH:
            return
        if isinstance(node, ast.expr) and not isinstance(node, ast.Constant):
            yield from self._added_later(node, depth)
            for origin in self.resolver.origins(node):
                if (origin.node, None) not in self._seen:
                    self._seen.add((origin.node, None))
                    yield from self._of_origin(origin.node, depth)

    def _of_origin(self, node: ast.AST, depth: int) -> Iterator[ast.expr]:
        if self._is_off(node):
            return
        parts: list[ast.expr] = []
        if isinstance(node, ast.Call):
            yield from self._of_call(node, depth)
        elif isinstance(node, (ast.List, ast.Tuple)):
            parts = node.elts
        elif isinstance(node, ast.BinOp):
            parts = [node.left, node.right]
        elif isinstance(node, ast.Subscript):
            parts = self._looked_up(node)
        elif isinstance(node, (ast.DictComp, ast.Starred)):
            parts = [node.value]
        elif isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            parts = [node.elt]
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from self._by_hand(node)
        for part in parts:
            yield from self._of(part, depth + 1)

    def _of_call(self, call: ast.Call, depth: int) -> Iterator[ast.expr]:
        if self.wanted(self.script, call):
            yield call
            return
        if last_name(call) == "split_augmentation":
            return  # the runtime decides
        owner = self.resolver.classes.named(call.func)
        if owner is not None:
            if _has_objects(self.script, owner) or self._is_cached(owner):
                return
            yield from self._of_class(owner, call, depth)
        for value in [*call.args, *(k.value for k in call.keywords)]:
            if owner is None or not self._runs_at_once(owner, call, value):
                yield from self._of(value, depth + 1)

    def _looked_up(self, node: ast.Subscript) -> list[ast.expr]:
        """`transforms["train"]`, and all that a key that is not known may give."""
        key = self.script.evaluator.constant(node.slice)
        items = self.script.evaluator.mapping(node.value).items
        if isinstance(key, str) and key in items:
            return list(items[key])
        if isinstance(key, int):
            return [node.value]
        return [v for values in items.values() for v in values] or [node.value]

    def _added_later(self, node: ast.expr, depth: int) -> Iterator[ast.expr]:
        """What `steps.append(…)` adds to a list of operations."""
        if not isinstance(node, ast.Name):
            return
        scope = self.index.scope(node)
        home = self.index.home(node)
        for name, position in _ADDS.items():
            for call in home.calls_by_name.get(name, ()):
                func = call.func
                if (
                    isinstance(func, ast.Attribute)
                    and isinstance(func.value, ast.Name)
                    and func.value.id == node.id
                    and home.scope(call) is scope
                    and position < len(call.args)
                    and self._is_on(call)
                ):
                    yield from self._of(call.args[position], depth + 1)

    # Classes of this project

    def _of_class(
        self, owner: ast.ClassDef, call: ast.Call, depth: int
    ) -> Iterator[ast.expr]:
        """Operations in the methods that make a sample, or apply a transform."""
        if (owner, call) in self._seen:
            return
        self._seen.add((owner, call))
        init = self.resolver.classes.methods(owner).get("__init__")
        bodies = self._bodies(owner)
        taken = Taken(self.resolver, call, init)
        for function in dict.fromkeys(bodies):
            yield from self._by_hand(function)
        for function in dict.fromkeys([*([init] if init else []), *bodies]):
            for node in walk(*function.body):
                if (
                    isinstance(node, ast.Call)
                    and self._is_pipeline(node)
                    and taken.may_reach(node)
                    and not self._is_off(node)
                ):
                    yield from self._of(node, depth + 1)

    def _bodies(self, owner: ast.ClassDef) -> list[Function]:
        """The methods that make a sample or apply a transform, and what they call."""
        methods = self.resolver.classes.methods(owner)
        entries = [methods[name] for name in _ENTRIES if name in methods]
        return [f for e in entries for f in reachable(e, self.script.evaluator)]

    def _is_cached(self, owner: ast.ClassDef) -> bool:
        """Whether results of its methods are kept, so that each sample is made once."""
        marks = (d for f in self._bodies(owner) for d in f.decorator_list)
        return any("cache" in ast.unparse(mark) for mark in marks)

    def _is_pipeline(self, call: ast.Call) -> bool:
        return is_container(self.script, call) or self.wanted(self.script, call)

    def _by_hand(self, function: Function) -> Iterator[ast.expr]:
        if self.wanted is not draws_for_each:
            return
        if not any(_OBJECTS.search(t) for t in _words(function)):
            for node in written_by_hand(self.script, function):
                if not self._is_off(node):
                    yield node

    def _runs_at_once(
        self, owner: ast.ClassDef, call: ast.Call, value: ast.expr
    ) -> bool:
        """Whether a class calls what it is given when it is made: once a sample."""
        init = self.resolver.classes.methods(owner).get("__init__")
        if init is None:
            return False
        names = [a.arg for a in (*init.args.args, *init.args.kwonlyargs)]
        mine = [
            name
            for name in names
            if value in self.resolver.calls.given(call, init, name)[0]
        ]
        calls = (n for n in walk(*init.body) if isinstance(n, ast.Call))
        return any(dotted(c.func) in mine for c in calls)

    # Options

    def _is_off(self, node: ast.AST) -> bool:
        """Whether a test of constants or defaults keeps a node from running."""
        return any(
            value is not holds
            for value, holds in self._tests(node)
            if value is not None
        )

    def _is_on(self, node: ast.AST) -> bool:
        """Whether all tests around a node hold, as far as constants tell."""
        return all(value is holds for value, holds in self._tests(node))

    def _tests(self, node: ast.AST) -> Iterator[tuple[bool | None, bool]]:
        """What the tests around a node give, and what they must give for it to run."""
        for branch, holds in branches_of(self.index, node):
            if isinstance(branch, (ast.If, ast.IfExp)):
                yield self._value(branch.test), holds

    def _value(self, test: ast.expr) -> bool | None:
        """What a test gives for the constants and defaults that reach it."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._value(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.BoolOp):
            decides = isinstance(test.op, ast.Or)  # what one part alone decides
            return decides if decides in map(self._value, test.values) else None
        if not isinstance(test, (ast.Name, ast.Attribute, ast.Constant, ast.Subscript)):
            return None
        if isinstance(test, ast.Attribute) and self._runtime_decides(test.attr):
            return True
        values = self.script.evaluator.values(test)
        found = {bool(v.constant) for v in values.known}
        return found.pop() if values.complete and len(found) == 1 else None

    def _runtime_decides(self, name: str) -> bool:
        """Whether `train_set.on_batches = augment.on_batches` sets an attribute."""
        homes = (self.index, self.loader.script.index)
        writes = (w for home in homes for w in home.attribute_writes.get(name, ()))
        above = (self.index.parent(write) for write in writes)
        return any(
            isinstance(a, ast.Assign)
            and (dotted(a.value) or "").endswith(".on_batches")
            for a in above
        )


def _has_objects(script: Script, owner: ast.ClassDef) -> bool:
    """Whether a dataset has boxes or points that move with its images."""
    return _OBJECTS.search(script.text(owner)) is not None


def _words(function: Function) -> Iterator[str]:
    for node in walk(*function.body):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
