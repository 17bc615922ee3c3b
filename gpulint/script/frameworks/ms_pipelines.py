"""MindSpore's datasets: their sources and stages, and which of them are trained on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Argument, Function, Values
from gpulint.index.build import last_name
from gpulint.index.known import joined
from gpulint.index.walk import walk, walk_scope
from gpulint.script.loading.worker_state import main_guard
from gpulint.script.neighbours import find_programs, run_alone

if TYPE_CHECKING:
    from gpulint.script.model import Script

DATA = "mindspore.dataset"
GENERATOR = "GeneratorDataset"
WORKERS = "num_parallel_workers"
# Position of the number of workers, or of the first argument that rules ask for.
_POSITIONS = {
    ("map", WORKERS): 3, ("batch", WORKERS): 2, (GENERATOR, WORKERS): 5,
    ("batch", "batch_size"): 0, ("map", "operations"): 0, (GENERATOR, "source"): 0,
}  # fmt: skip
_STAGES = frozenset(
    "map batch padded_batch shuffle repeat project rename take skip filter flat_map "
    "concat zip apply bucket_batch_by_length sync_wait".split()
)
_ITERATORS = ("create_tuple_iterator", "create_dict_iterator")
_WRAPPERS = frozenset("enumerate tqdm trange zip iter list".split())
_STEP = re.compile(r"train_?one_?step|train_?step|train_?net|net_?train", re.IGNORECASE)
_TRAINS = re.compile(
    r"TrainOneStep|value_and_grad|GradOperation|\bgrad\(|\.(train|fit)\(|set_train\((?!False)",
)
MAX_CALLERS = 3  # functions between where a dataset is made and where it is used


class Stage(NamedTuple):
    """A call that makes a dataset (`kind` is its class) or goes on from one."""

    script: Script
    call: ast.Call
    kind: str

    def argument(self, name: str) -> Argument:
        """What the call is given under a name, by keyword or position."""
        position = _POSITIONS.get((self.kind, name))
        return self.script.evaluator.argument(self.call, name, position)

    def values(self, name: str) -> Values:
        """The constants that can reach an argument; none where it is left out."""
        argument = self.argument(name)
        parts = [self.script.evaluator.values(n) for n in argument.nodes]
        return joined(parts, argument.given)


class TrainLoop(NamedTuple):
    """A loop over a dataset, and the call in it that updates the weights."""

    node: ast.For
    step: ast.Call


class MsPipelines:
    """The datasets of one file."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._known: dict[ast.Call, str | None] = {}
        self._trained: set[ast.AST] | None = None

    @property
    def stages(self) -> Iterator[Stage]:
        """The sources and stages of this file, in source order."""
        for call in self.script.index.all(ast.Call):
            kind = self.kind(call)
            if kind is not None:
                yield Stage(self.script, call, kind)

    def kind(self, call: ast.Call) -> str | None:
        """`GeneratorDataset`, `map`, `batch` …; None for what is no dataset."""
        if call not in self._known:
            self._known[call] = None  # a dataset made in a loop out of itself
            self._known[call] = self._find_kind(call)
        return self._known[call]

    def _find_kind(self, call: ast.Call) -> str | None:
        name = self.script.index.qualified(call.func) or ""
        last = last_name(call)
        if name.startswith(f"{DATA}.") and last.endswith("Dataset"):
            return last
        func = call.func
        if last not in _STAGES or not isinstance(func, ast.Attribute):
            return None
        origins = self.script.resolver.origins(func.value)
        before = (o.call for o in origins if o.call is not None)
        return last if any(self.kind(made) for made in before) else None

    def is_batched(self, call: ast.Call) -> bool:
        """Whether what a stage is given may be batches already."""
        found: set[ast.AST] = set()
        assert isinstance(call.func, ast.Attribute)
        self._upstream(call.func.value, found)
        kinds = (self.kind(c) for c in found if isinstance(c, ast.Call))
        return any("batch" in kind for kind in kinds if kind is not None)

    # What is trained on

    def is_trained(self, call: ast.Call) -> bool:
        """Whether what a stage makes is trained on, here or where it is returned."""
        index = self.script.index
        scripts = {index: self.script}
        functions = [index.function(call)]
        for _ in range(MAX_CALLERS):
            callers = [
                c
                for f in functions
                if f is not None
                for c in self.script.resolver.calls.callers(f)
            ]
            scripts |= {self.script.index.home(c): self.script.of(c) for c in callers}
            functions = [index.function(c) for c in callers]
        return any(call in s.ms_pipelines.trained for s in scripts.values())

    def may_be_trained(self, call: ast.Call) -> bool:
        """Whether a stage is trained on, or nobody is known who uses it otherwise.

        Programs that never update weights prepare files, or evaluate.
        """
        if self.is_trained(call):
            return True
        function = self.script.index.function(call)
        callers = (
            () if function is None else self.script.resolver.calls.callers(function)
        )
        if function is not None and not callers:
            return True
        if main_guard(self.script, call) is not None:
            files = run_alone(self.script)  # whoever imports the file leaves it out
        else:
            using = [self.script.of(call) for call in callers] or [self.script]
            files = [index for its in using for index in find_programs(its)]
        return any(index.source.has(_TRAINS) for index in files)

    @property
    def trained(self) -> set[ast.AST]:
        """The sources and stages, of all files, that training here goes through."""
        if self._trained is None:
            self._trained = set()
            for node in self._training_inputs():
                self._upstream(node, self._trained)
        return self._trained

    def _training_inputs(self) -> Iterator[ast.expr]:
        for call in train_calls(self.script):
            position = 1
            name = "train_dataset"
            yield from self.script.evaluator.argument(call, name, position).nodes
        for loop in self.train_loops:
            yield loop.node.iter

    def _upstream(self, node: ast.AST, found: set[ast.AST]) -> None:
        """The calls through which data come to an expression."""
        origins = self.script.resolver.origins(node)
        for call in (o.node for o in origins if isinstance(o.node, ast.Call)):
            if call in found:
                continue
            found.add(call)
            inner = call.args if last_name(call) in _WRAPPERS else []
            if isinstance(call.func, ast.Attribute):
                inner = [call.func.value, *inner]
            for value in inner:
                self._upstream(value, found)

    # Loops

    @property
    def train_loops(self) -> Iterator[TrainLoop]:
        """Loops over a dataset that update weights in each iteration."""
        for loop in self.script.index.all(ast.For):
            step = self._step(loop) if self.iterates(loop.iter) else None
            if step is not None:
                yield TrainLoop(loop, step)

    def iterates(self, node: ast.expr) -> bool:
        """Whether an expression gives the batches of a dataset."""
        if isinstance(node, ast.Call) and last_name(node) in _WRAPPERS:
            return any(map(self.iterates, node.args))
        for origin in self.script.resolver.origins(node):
            made = origin.call
            if made is None:
                continue
            if last_name(made) in _ITERATORS or self.kind(made):
                return True
            if made is not node and last_name(made) in _WRAPPERS:
                return self.iterates(made)
        return False

    def _step(self, loop: ast.For) -> ast.Call | None:
        for node in walk_scope(*loop.body):
            if isinstance(node, ast.Call) and self._updates(node):
                return node
        return None

    def _updates(self, call: ast.Call) -> bool:
        """Whether a call runs a training step: a cell or function that updates."""
        script = self.script
        function = script.resolver.calls.callee(call)
        if function is not None:
            return is_step(script, function)
        for origin in script.resolver.origins(call.func):
            made = origin.call
            if made is not None and _STEP.search(last_name(made)):
                return True
            if isinstance(origin.node, ast.FunctionDef) and is_step(
                script, origin.node
            ):
                return True
        name = script.index.qualified(call.func) or ""
        return bool(_STEP.search(name.rpartition(".")[2]))


def is_step(script: Script, function: Function) -> bool:
    """Whether a function computes gradients and hands them to an optimizer."""
    calls = [n for n in walk(*function.body) if isinstance(n, ast.Call)]
    gradients = any("grad" in last_name(c).lower() for c in calls)
    return gradients and any(_is_optimizer(script, c.func) for c in calls)


def _is_optimizer(script: Script, func: ast.expr) -> bool:
    """`opt` in `opt(grads)`: an optimizer of MindSpore, or called so."""
    for origin in script.resolver.origins(func):
        made = origin.call
        name = script.index.qualified(made.func) or "" if made is not None else ""
        if OPTIMIZER.match(name):
            return True
    name = script.index.qualified(func) or ""
    return bool(re.search(r"(^|\.|_)opt(im|imizer)?(_?\w)?$", name))


OPTIMIZER = re.compile(
    r"mindspore\.(?:nn|experimental\.optim)\.(?:\w+\.)*"
    r"(Adam\w*|SGD|Momentum|RMSProp|Adagrad|Lamb|LARS|AdaMax|Adadelta|ASGD|Rprop|FTRL|"
    r"LazyAdam|ProximalAdagrad)$"
)
MODEL = re.compile(r"mindspore\.(?:train\.)?(?:model\.)?Model$")


def models(script: Script) -> list[ast.Call]:
    """Calls of `mindspore.Model`, in source order."""
    calls = script.index.calls.items()
    found = [c for name, its in calls if MODEL.match(name) for c in its]
    return sorted(found, key=lambda c: (c.lineno, c.col_offset))


def train_calls(script: Script) -> list[ast.Call]:
    """`model.train(…)` and `model.fit(…)` of MindSpore's models."""
    by_name = script.index.calls_by_name
    return [
        call
        for call in (*by_name.get("train", ()), *by_name.get("fit", ()))
        if model_of(script, call) is not None
    ]


def model_of(script: Script, call: ast.Call) -> ast.Call | None:
    """The `Model(…)` that a method is called on, if that is what it is."""
    if not isinstance(call.func, ast.Attribute):
        return None
    made = [o.call for o in script.resolver.origins(call.func.value)]
    found = [
        m
        for m in made
        if m is not None and MODEL.match(script.index.qualified(m.func) or "")
    ]
    return found[0] if found else None
