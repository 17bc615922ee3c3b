"""Loops of a training script: what they iterate, and whether they train."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from gpulint.index import FileIndex, Function, Origin, Resolver
from gpulint.index.build import last_name
from gpulint.index.measured import measured
from gpulint.index.walk import LOOPS, dotted, walk, walk_scope
from gpulint.script.generators import yielded_whole
from gpulint.script.iterations import LOADER_NAME, Iterations, LoopNode
from gpulint.script.no_grad import without_grad
from gpulint.script.training.step_calls import (
    is_backward,
    is_step,
    is_update,
    optimizers_of,
    zeroes_gradients,
)
from gpulint.script.training.trials import is_trial

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader

Kind = Literal["train", "eval", "epoch", "other"]

WRAPPERS = frozenset(
    "enumerate tqdm iter islice cycle track progress_bar log_every reversed prefetcher "
    "Bar trange notebook_tqdm prefetch ProgressBar progressbar alive_it".split()
)
_GRADIENTS_AGAIN = re.compile(r"enable_grad|inference_mode\(False\)")
_EVAL_NAME = re.compile(
    r"eval|valid|test|infer|predict|(^|_)val(_|$)|score|accuracy|metric|(^|_)dev(_|$)",
    re.IGNORECASE,
)
_TRAIN_NAME = re.compile(r"(^|_)(train|fit)(_|$)", re.IGNORECASE)  # `train_validation`
_BATCH_FUNCTION = re.compile(
    r"^_?((get|next|sample|load|fetch|make|draw|read)_?)?(mini_?)?batch(es)?$",
    re.IGNORECASE,
)


@dataclass(eq=False)
class Loop:
    """A `for` or `while` statement and what its iterations do.

    `items`: pairs of what is iterated (wrappers such as `enumerate` and `tqdm` taken
    off) and the target that each item is bound to. `backward` and `steps` are calls
    that run in an iteration, in this file, directly or through a step helper;
    `updates` those that do both out of sight, `scaler(loss, optimizer)`; `no_grad`
    whether the loop runs without building a graph.
    """

    node: LoopNode
    items: tuple[tuple[ast.expr, ast.expr], ...]
    function: Function | None
    parent: Loop | None
    loaders: tuple[Loader, ...] = ()
    batches: bool = False
    no_grad: bool = False
    kind: Kind = "other"
    backward: tuple[ast.Call, ...] = ()
    steps: tuple[ast.Call, ...] = ()
    updates: tuple[ast.Call, ...] = ()
    calls: tuple[ast.Call, ...] = ()
    helpers: tuple[Function, ...] = field(default=())

    @property
    def train(self) -> bool:
        """Whether an iteration is (at least) one training step."""
        return self.kind == "train"

    @property
    def eval(self) -> bool:
        """Whether it runs a model over batches without training it."""
        return self.kind == "eval"

    @property
    def counts_epochs(self) -> bool:
        """Whether each iteration is an epoch, and takes all the data at once."""
        return not self.batches and any("epoch" in t.id.lower() for t in self.targets)

    @cached_property
    def targets(self) -> tuple[ast.Name, ...]:
        """Names that hold parts of the batch."""
        return tuple(
            part
            for _, target in self.items
            for part in walk(target)
            if isinstance(part, ast.Name)
        )


class Loops:
    """Finds and classifies the loops of one file."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.index: FileIndex = resolver.index
        self.iterations = Iterations(resolver)
        self.by_node: dict[ast.AST, Loop] = {}
        for node in self._nodes():
            self.by_node[node] = Loop(
                node=node,
                items=tuple(self._items(node)),
                function=self.index.function(node),
                parent=self._outer(node),
            )

    def _nodes(self) -> list[LoopNode]:
        found: list[LoopNode] = [
            *self.index.all(ast.For),
            *self.index.all(ast.AsyncFor),
            *self.index.all(ast.While),
        ]
        return sorted(found, key=lambda n: (n.lineno, n.col_offset))

    def _outer(self, node: ast.AST) -> Loop | None:
        """The loop around, in the same function."""
        scope = self.index.scope(node)
        child: ast.AST = node
        for above in self.index.ancestors(node):
            if above is scope:
                break
            if above in self.by_node and child in above.body:  # type: ignore[attr-defined]
                return self.by_node[above]
            child = above
        return None

    def loop_of(self, node: ast.AST) -> Loop | None:
        """The innermost loop of the same function in whose body a node stands."""
        statement = self.index.statement(node)
        if isinstance(statement, ast.While) and node is not statement:
            return self.by_node[statement]  # its test runs in each round
        return self._outer(statement)

    # What is iterated

    def _items(self, node: LoopNode) -> Iterator[tuple[ast.expr, ast.expr]]:
        if isinstance(node, ast.While):
            return
        yield from self.unwrap(node.iter, node.target)

    def unwrap(
        self, iterable: ast.expr, target: ast.expr, depth: int = 0
    ) -> Iterator[tuple[ast.expr, ast.expr]]:
        """Pairs of iterated expression and target, through wrappers and `zip`."""
        call = iterable if isinstance(iterable, ast.Call) else None
        handed = self._handed_on(call) if call is not None and depth < 6 else None
        if handed is not None:
            yield from self.unwrap(handed, target, depth + 1)
            return
        if call is None and depth < 6 and self._keeps_wrapped:
            for origin in self.resolver.origins(iterable):
                if origin.call is not None and self._wraps(origin.call):
                    call = origin.call
        if call is None or not self._wraps(call) or depth >= 6:
            yield iterable, target
            return
        name = last_name(call)
        inner = self._element(target, 1) if name == "enumerate" else target
        if name == "zip":
            for number, argument in enumerate(call.args):
                its = self._element(target, number)
                yield from self.unwrap(argument, its, depth + 1)
        else:
            first = call.args[0] if call.args else call.keywords[0].value
            yield from self.unwrap(first, inner, depth + 1)

    def _handed_on(self, call: ast.Call) -> ast.expr | None:
        """`loader` of `cycle(loader)`, a generator that gives each batch as it is."""
        function = self.resolver.calls.callee(call)
        if function is None or not call.args:
            return None
        given = [
            node
            for whole in yielded_whole(self.resolver, function)
            for definition in self.resolver.definitions(whole)
            if definition.kind == "parameter"
            for node in self.resolver.calls.given(call, function, definition.name)[0]
        ]
        return given[0] if len(given) == 1 else None

    @cached_property
    def _keeps_wrapped(self) -> bool:
        """Whether the file wraps an iterable elsewhere than in a loop's head."""
        for call in self.index.all(ast.Call):
            if self._wraps(call):
                above = self.index.parent(call)
                while isinstance(above, ast.Call):
                    above = self.index.parent(above)
                if not isinstance(above, (*LOOPS, ast.comprehension)):
                    return True
        return False

    def _wraps(self, call: ast.Call) -> bool:
        name = last_name(call)
        if name == "zip":
            return bool(call.args)
        has_input = bool(call.args) or any(k.arg == "iterable" for k in call.keywords)
        if measured(self.resolver, call) is not None:
            return True
        return name in WRAPPERS and has_input

    @staticmethod
    def _element(target: ast.expr, number: int) -> ast.expr:
        if isinstance(target, (ast.Tuple, ast.List)) and number < len(target.elts):
            return target.elts[number]
        return target

    # Classification

    def classify(self, loaders: dict[ast.Call, Loader]) -> None:
        """Fill in kinds; needs the loaders that the file builds."""
        for loop in self.by_node.values():
            loop.loaders = tuple(self._loaders(loop, loaders))
            loop.batches = self._iterates_batches(loop)
            loop.no_grad = without_grad(self.index, loop.node)
            calls, helpers = self.iterations.of(loop)
            loop.calls, loop.helpers = tuple(calls), tuple(helpers)
            loop.backward = tuple(c for c in calls if is_backward(c))
            loop.steps = tuple(c for c in calls if is_step(c) and not self._trains(c))
            loop.updates = tuple(c for c in calls if is_update(c))
        for loop in reversed(list(self.by_node.values())):
            loop.kind = self._kind(loop)
        for loop in filter(self._fits_each, self.by_node.values()):
            loop.batches, loop.kind = False, "other"
        for loop in self.by_node.values():
            if loop.train and is_trial(self.resolver, loop):
                loop.kind = "other"
            if loop.eval and isinstance(loop.node.body[-1], (ast.Break, ast.Return)):
                loop.kind = "other"  # it shows what the model makes of one batch
            if loop.train and not any(
                map(is_backward, self.index.calls_below(loop.node))
            ):
                loop.kind = "other" if self._runs_training(loop) else "train"
        for loop in self.by_node.values():
            if loop.kind == "other" and self._runs_training(loop):
                loop.kind = "epoch"

    def _trains(self, call: ast.Call) -> bool:
        """Whether `self.step(batch)` runs a step of training, not an optimizer's."""
        if not call.args:
            return False
        return any(
            any(map(is_backward, self.index.home(function).calls_below(function)))
            for function in self.resolver.calls.callees(call)
        )

    def _loaders(self, loop: Loop, loaders: dict[ast.Call, Loader]) -> Iterator[Loader]:
        made = [x for x in loaders.values() if x.maker is not None]
        for iterable, _ in loop.items if loaders else ():
            for origin in iterated(self.resolver, iterable):
                found = loaders.get(origin.node)  # type: ignore[call-overload]
                if found is not None:
                    yield found
                yield from (x for x in made if x.is_made_by(origin.node))

    def _iterates_batches(self, loop: Loop) -> bool:
        if loop.loaders:
            return True
        if any("loader" in target.id.lower() for target in loop.targets):
            return False  # of `for loader in val_loaders:`
        for iterable, _ in loop.items:
            name = dotted(iterable) or ""
            if isinstance(iterable, ast.Subscript):
                name = dotted(iterable.value) or ""
            if isinstance(iterable, ast.Call) and not iterable.args:
                name = dotted(iterable.func) or ""
            if LOADER_NAME.search(name):
                return True
            owners = self.resolver.classes.of(iterable)
            if owners and all(map(self._gives_batches, owners)):
                return True
        return False

    def _gives_batches(self, owner: ast.ClassDef) -> bool:
        """Whether iterating an object goes over a loader that it holds."""
        its = self.resolver.classes.methods(owner).get("__iter__")
        for node in walk_scope(its) if its is not None else ():
            over: ast.expr | None = None
            if isinstance(node, ast.For):
                over = next((o for o, _ in self.unwrap(node.iter, node.target)), None)
            elif isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
                given = node.value.args if last_name(node.value) == "iter" else []
                over = given[0] if given else None
            if over is not None and LOADER_NAME.search(dotted(over) or ""):
                return True
        return False

    def _kind(self, loop: Loop) -> Kind:
        inner = [other for other in self.by_node.values() if other.parent is loop]
        nested = [*inner, *self._of_inner_functions(loop)]
        while nested:
            child = nested.pop()
            if child.kind == "train" and (child.batches or not loop.batches):
                return "other"  # an epoch loop, or a loop around the training loop
            nested += [o for o in self.by_node.values() if o.parent is child]
        if loop.backward and self._shares_a_step(loop):
            return "eval"
        if loop.backward and (loop.batches or loop.steps):
            return "train"
        if loop.batches and loop.updates and not loop.no_grad:
            return "train"
        if loop.backward or any(map(zeroes_gradients, loop.calls)):
            return "other"
        taken = not inner and not loop.steps and _takes_batches(loop)
        if (loop.batches or taken) and self._evaluates(loop):
            return "eval"
        return "other"

    def _of_inner_functions(self, loop: Loop) -> list[Loop]:
        """The loops of functions that are defined in a loop, and run there."""
        return [
            other
            for other in self.by_node.values()
            if other.parent is None
            and other.function is not loop.function
            and self.index.inside(other.node, loop.node)
        ]

    def _shares_a_step(self, loop: Loop) -> bool:
        """Whether it evaluates by a function that goes backward for others.

        `_forward(batch, backprop=False)` under `no_grad`, where nothing could.
        """
        if any(self.index.inside(call, loop.node) for call in loop.backward):
            return False
        if loop.no_grad:
            homes = {self.index.home(helper) for helper in loop.helpers}
            return not any(home.source.has(_GRADIENTS_AGAIN) for home in homes)
        stepping = [
            call
            for call in self.index.calls_below(loop.node)
            for function in self.resolver.calls.callees(call)
            if any(self.index.home(b).inside(b, function) for b in loop.backward)
        ]
        return bool(stepping) and all(
            without_grad(self.index, node) for node in stepping
        )

    def _evaluates(self, loop: Loop) -> bool:
        if loop.no_grad:
            return True
        function = loop.function
        its = function is not None and not _TRAIN_NAME.search(function.name)
        names = [function.name] if function is not None and its else []
        names += [dotted(i) or "" for i, _ in loop.items]
        if any(_EVAL_NAME.search(n) for n in names):
            return True
        scope = self.index.scope(loop.node)
        return (
            any(
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "eval"
                and not node.args
                and node.lineno < loop.node.lineno
                for node in walk_scope(scope)
            )
            and not loop.steps
        )

    def _fits_each(self, loop: Loop) -> bool:
        """Whether an iteration is a whole run of training, with its own optimizer.

        As where a picture is fitted or an inverse problem solved for each sample: the
        loop inside trains, and what stands around it runs once for a sample. So too
        where it steps over the parts of a file, by the length of what is loaded.
        """
        if not loop.batches:
            return False
        runs = [
            run
            for run in self.by_node.values()
            if run.train and not run.batches and self._holds(loop, run.node)
        ]
        if any(not any(self._holds(r, c) for r in runs) for c in loop.backward):
            return False
        if runs and all(self._steps_over_parts(loop, run) for run in runs):
            return True
        return any(
            self._holds(loop, made) and not self._holds(run, made)
            for run in runs
            for made in optimizers_of(self.index)
        )

    def _steps_over_parts(self, loop: Loop, run: Loop) -> bool:
        """`for i in range(0, text.size(0), length)`, with a step for each part."""
        ranges = (
            iterable
            for iterable, _ in run.items
            if isinstance(iterable, ast.Call)
            and self.index.qualified(iterable.func) == "range"
        )
        lengths = [its.args[1] for its in ranges if len(its.args) == 3]
        return bool(run.steps) and any(
            self.index.inside(definition.node, loop.node)
            for name in walk(*lengths)
            if isinstance(name, ast.Name)
            for definition in self.resolver.definitions(name)
        )

    def _holds(self, loop: Loop, node: ast.AST) -> bool:
        """Whether an iteration runs a node, or a helper that the node stands in."""
        if loop.node is node:
            return False
        inside = self.index.inside(node, loop.node)
        return inside or self.index.function(node) in loop.helpers

    def _runs_training(self, loop: Loop) -> bool:
        """Whether a training loop runs inside, here or in a function it calls."""
        for other in self.by_node.values():
            if other is loop or other.kind != "train":
                continue
            inside = self.index.inside(other.node, loop.node)
            if inside or other.function in loop.helpers:
                return True
        elsewhere = [f for f in loop.helpers if not self.index.holds(f)]
        if any(self.iterations.steps_through(f) for f in elsewhere):
            return True
        return not loop.batches and any(map(self.iterations.counts_steps, elsewhere))


def iterated(resolver: Resolver, iterable: ast.expr) -> Iterator[Origin]:
    """What a loop iterates; of `loaders[phase]`, each value that the dict has."""
    yield from _members(resolver, iterable)
    for origin in resolver.origins(iterable):
        yield origin
        if origin.expression is not None and origin.expression is not iterable:
            yield from _members(resolver, origin.expression)


def _members(resolver: Resolver, node: ast.expr) -> Iterator[Origin]:
    """What a dict has under a key: `data["train"]`."""
    if isinstance(node, ast.Subscript):
        for holder in resolver.origins(node.value):
            for value in _values_of(resolver, holder.expression, node.slice):
                yield from resolver.origins(value)


def _values_of(
    resolver: Resolver, node: ast.expr | None, key: ast.expr
) -> list[ast.expr]:
    """The values of a dict for a key, all where the key is not written."""
    if isinstance(node, ast.DictComp):
        return [node.value]
    made = isinstance(node, ast.Call) and last_name(node) in ("dict", "OrderedDict")
    if not made and not isinstance(node, ast.Dict):
        return []
    assert node is not None
    pairs = [*_stored(resolver.index.home(node), node)]
    if isinstance(node, ast.Dict):
        pairs += zip(node.keys, node.values, strict=True)
    if not isinstance(key, ast.Constant):
        return [value for _, value in pairs]
    return [
        value
        for name, value in pairs
        if not isinstance(name, ast.Constant) or name.value == key.value
    ]


def _stored(
    home: FileIndex, made: ast.expr
) -> Iterator[tuple[ast.expr | None, ast.expr]]:
    """What is put into a dict where it is made: `data = {}`, `data["train"] = …`."""
    statement = home.parent(made)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    for member in home.all(ast.Subscript) if names else ():
        if isinstance(member.ctx, ast.Store) and isinstance(member.value, ast.Name):
            put = home.parent(member)
            same = home.scope(member) is home.scope(made)
            if same and member.value.id in names and isinstance(put, ast.Assign):
                yield member.slice, put.value


def _takes_batches(loop: Loop) -> bool:
    """Whether each iteration asks a function for its batch: `x, y = get_batch(i)`."""
    return any(
        isinstance(statement, ast.Assign)
        and isinstance(statement.value, ast.Call)
        and _BATCH_FUNCTION.search(last_name(statement.value))
        for statement in loop.node.body
    )
