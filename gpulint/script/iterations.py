"""What an iteration of a loop calls: its own calls, and the functions they run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import TYPE_CHECKING

from gpulint.index import FileIndex, Function, Resolver
from gpulint.index.build import last_name
from gpulint.index.walk import LOOPS, dotted, walk, walk_scope
from gpulint.script.training.step_calls import is_backward, is_step, optimizers_of

if TYPE_CHECKING:
    from gpulint.index.project import Project
    from gpulint.script.loops import Loop

LoopNode = ast.For | ast.AsyncFor | ast.While

MAX_HELPERS = 12  # functions that one iteration is followed into
MAX_NAMES = 3  # of one iterable, one after another
LOADER_NAME = re.compile(
    r"(^|[._])(loader|loaders|dataloader|dataloaders|dl|train_iter|test_iter|val_iter|"
    r"data_iter|valid_iter|dev_iter|batches|data_loader|iterator|train_loader\w*|"
    r"trainloader|testloader|valloader|train_data|training_data|validation_data|"
    r"trainset_loader|batch_iter\w*|(data)?loader_\w+)$|loader$|Loader$",
)


class Iterations:
    """Follows the loops of one file into the functions that they call."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.index = resolver.index
        self._loops: dict[Function, list[ast.For]] = {}

    def of(self, loop: Loop) -> tuple[list[ast.Call], list[Function]]:
        """Calls of the body, and of the functions that it calls, loops apart.

        Where neither batches are iterated nor gradients computed, only functions
        that may train have been followed into other files.
        """
        project = self.index.project if not loop.batches else None
        calls, helpers = self._followed(loop, project)
        if project is not None and any(map(is_backward, calls)):
            more, others = self._followed(loop, None)  # may end before what trains
            calls = list(dict.fromkeys([*calls, *more]))
            helpers = list(dict.fromkeys([*helpers, *others]))
        return calls, helpers

    def _followed(
        self, loop: Loop, project: Project | None
    ) -> tuple[list[ast.Call], list[Function]]:
        """The calls and helpers of an iteration; `project`: of those that may train."""
        calls: list[ast.Call] = []
        helpers: list[Function] = []
        todo: list[LoopNode | Function] = [loop.node]
        for runner in todo:  # near ones first
            for node in self.index.calls_below(runner):
                calls.append(node)
                if project is not None and not self._may_train(node, project):
                    continue
                for function in self.resolver.calls.callees(node):
                    if function in helpers or len(helpers) >= MAX_HELPERS:
                        continue
                    helpers.append(function)
                    whole = self._is_whole_training(function)
                    if not whole and (loop.batches or not self.counts_steps(function)):
                        todo.append(function)
        return calls, helpers

    def _may_train(self, call: ast.Call, project: Project) -> bool:
        """A cheap look at a call's name: what is defined here, or beside `backward`."""
        name = last_name(call)
        return name in self.index.function_names or project.trains(name)

    def _is_whole_training(self, function: Function) -> bool:
        """Whether a function has a training loop, or an optimizer of its own."""
        home = self.index.home(function)
        if any(home.inside(made, function) for made in optimizers_of(home)):
            return True
        for name in ("backward", "manual_backward"):
            for call in home.calls_by_name.get(name, ()):
                around = takewhile(lambda n: n is not function, home.ancestors(call))
                loops = [n for n in around if isinstance(n, LOOPS)]
                if not is_backward(call) or not home.inside(call, function):
                    continue
                if any(not _is_over_parts(home, loop) for loop in loops):
                    return True
        return self.steps_through(function)

    def steps_through(self, function: Function) -> bool:
        """Whether it goes over batches, and calls what goes backward for each."""
        home = self.index.home(function)
        calls = (
            call
            for loop in self._loops_of(function)
            if self._names_loader(loop.iter) or _draws_batches(home, loop)
            for call in home.calls_below(loop)
        )
        return any(map(is_backward, self._below(calls)))

    def _names_loader(self, iterable: ast.expr, depth: int = MAX_NAMES) -> bool:
        """Whether a loop is over what has a loader's name, or is made of that.

        `batches = enumerate(train_loader)`, `batches = tqdm(batches)`.
        """
        parts = list(walk(iterable))
        if any(LOADER_NAME.search(dotted(part) or "") for part in parts):
            return True
        return depth > 0 and any(
            d.value is not None and self._names_loader(d.value, depth - 1)
            for part in parts
            if isinstance(part, ast.Name)
            for d in self.resolver.definitions(part)
            if d.kind == "assign"
        )

    def counts_steps(self, function: Function) -> bool:
        """`for _ in range(batches): train_batch(model, optimizer)`, a step for each.

        Nothing around it goes backward, as where a GAN's other network is trained.
        """
        home = self.index.home(function)
        loops = self._loops_of(function)
        stepping = [x for x in loops if _counts(x) and self._takes_steps(home, x)]
        around = [
            call
            for call in home.calls_below(function)
            if not any(home.inside(call, loop) for loop in stepping)
        ]
        return bool(stepping) and not any(
            map(is_backward, (*around, *self._below(around)))
        )

    def _loops_of(self, function: Function) -> list[ast.For]:
        """The `for` loops of a function itself."""
        if function not in self._loops:
            its = walk_scope(function) if self.index.home(function).all(ast.For) else ()
            self._loops[function] = [n for n in its if isinstance(n, ast.For)]
        return self._loops[function]

    def _takes_steps(self, home: FileIndex, loop: ast.For) -> bool:
        """Whether functions that a loop calls go backward and step an optimizer."""
        reached = list(self._below(home.calls_below(loop), depth=2))
        return any(map(is_backward, reached)) and any(map(is_step, reached))

    def _below(self, calls: Iterable[ast.Call], depth: int = 1) -> Iterator[ast.Call]:
        """What functions call that are called, and at `depth` 2 those below them."""
        for call in calls:
            for function in self.resolver.calls.callees(call):
                inner = self.index.calls_below(function)
                yield from inner
                if depth > 1:
                    yield from self._below(inner, depth - 1)


def _is_over_parts(index: FileIndex, loop: LoopNode) -> bool:
    """`for i in range(0, len(x), size)` that adds up gradients and takes no step."""
    over = loop.iter if isinstance(loop, ast.For) else None
    if not isinstance(over, ast.Call) or dotted(over.func) != "range":
        return False
    return len(over.args) == 3 and not any(map(is_step, index.calls_below(loop)))


def _counts(loop: ast.For) -> bool:
    """`for _ in range(batches)`, of a number that is not written there."""
    over = loop.iter
    if not isinstance(over, ast.Call) or dotted(over.func) != "range":
        return False
    return not all(isinstance(argument, ast.Constant) for argument in over.args)


def _draws_batches(index: FileIndex, loop: ast.For) -> bool:
    """`for step in range(steps): batch = next(loader)`."""
    return any(
        dotted(call.func) == "next"
        and call.args
        and LOADER_NAME.search(dotted(call.args[0]) or "")
        for call in index.calls_below(loop)
    )
