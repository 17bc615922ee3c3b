"""The semantic model of one training script, built lazily and shared by all rules."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from gpulint.finding import Place
from gpulint.index import (
    Definition,
    Evaluator,
    FileIndex,
    Function,
    Move,
    Resolver,
    Target,
    Tensors,
    Where,
)
from gpulint.releases import Range
from gpulint.script.batches import Batches
from gpulint.script.copying.asked_device import uses_answer
from gpulint.script.copying.columns import Columns, find_columns
from gpulint.script.copying.transfers import Transfer, find_transfers
from gpulint.script.frameworks.lightning_steps import LightningSteps
from gpulint.script.frameworks.ms_pipelines import MsPipelines
from gpulint.script.frameworks.tf_pipelines import Pipelines
from gpulint.script.identity import identity
from gpulint.script.invariants import Invariants
from gpulint.script.loading.loader_classes import LOADER
from gpulint.script.loading.loaders import Loader, find_loaders
from gpulint.script.loading.measured import is_only_measured
from gpulint.script.loading.prepared import may_be_fed, uses_accelerator
from gpulint.script.loops import Loop, Loops
from gpulint.script.mutations import mutations_by_name
from gpulint.script.no_grad import without_grad
from gpulint.script.numerics.precision import Precision
from gpulint.script.outside import handed_to, is_shown
from gpulint.script.reaching.doubts import is_doubtful
from gpulint.script.reaching.old_packages import newest_by_imports
from gpulint.script.reaching.test_code import is_test_code
from gpulint.script.rewriting.names import Names
from gpulint.script.runners import Runners
from gpulint.script.saving.checkpoints import Checkpoint, find_checkpoints
from gpulint.script.scalars import Scalars
from gpulint.script.training.backpropagated import Backpropagated
from gpulint.source import Source, node_span

if TYPE_CHECKING:
    from gpulint.script.modelling.network import Network
    from gpulint.script.rewriting.compiler import Compiler

FRAMEWORKS = {
    "pytorch_lightning": "lightning",
    "lightning": "lightning",
    "transformers": "transformers",
    "accelerate": "accelerate",
    "deepspeed": "deepspeed",
    "fastai": "fastai",
    "ignite": "ignite",
    "torch_xla": "xla",
    "mindspore": "mindspore",
}

# The first torch for the second major release of a package, and the last of its first.
NEEDS_TORCH = {"lightning": ((1, 11), (1, 9))}


class Script:
    """One file with all facts that rules ask for.

    Rules match on `ast` nodes and plain facts; the LibCST tree is parsed only when
    a fix replaces an expression.
    """

    def __init__(
        self,
        source: Source,
        index: FileIndex,
        torch_version: tuple[int, int] | None = None,
        beside: Script | None = None,
        newest_torch: tuple[int, int] | None = None,
        vendor: bool = False,
        packages: tuple[tuple[str, Range], ...] = (),
        protect: tuple[str, ...] = (),
    ) -> None:
        self.source = source
        self.index = index
        self.torch_version = torch_version
        self.newest_torch = newest_torch
        self.vendor = vendor
        self.packages = packages
        self.protect = protect
        self._all: dict[FileIndex, Script] = beside._all if beside else {}
        self._all[index] = self
        resolver = Resolver(index)
        self.resolver: Resolver = beside.resolver.beside(index) if beside else resolver
        self.evaluator = Evaluator(self.resolver)
        self.tensors = Tensors(self.resolver, self.evaluator)
        self.devices = self.tensors.devices
        self.modules = self.tensors.modules
        self.names = Names(index, vendor)
        self._receivers: dict[FileIndex, tuple[FileIndex, ...]] = {}
        self.changed_names: dict[FileIndex, dict[str, list[ast.AST]]] = {}
        # Whether statements raise: by the question, the calls followed, and names.
        self.raising: dict[tuple[str, ast.stmt, int, bool], bool] = {}
        self.networks: dict[ast.AST, Network] = {}  # by what makes them

    def of(self, node: ast.AST) -> Script:
        """The script model of the file in which a node stands: this one or another."""
        index = self.index.home(node)
        if index not in self._all:
            Script(
                index.source,
                index,
                self.torch_version,
                self,
                self.newest_torch,
                self.vendor,
                self.packages,
                self.protect,
            )
        return self._all[index]

    def called_only_by(self, callers: dict[Function, list[ast.Call]]) -> Script:
        """The same, as if only these calls were made of these functions."""
        other = copy.copy(self)
        other._all = {self.index: other}
        other.resolver = self.resolver.called_only_by(callers)
        other.evaluator = Evaluator(other.resolver)
        other.tensors = Tensors(other.resolver, other.evaluator)
        other.tensors.assumed = self.tensors.assumed
        other.tensors.beside = self.tensors.beside
        other.devices = other.tensors.devices
        other.modules = other.tensors.modules
        other.raising, other.networks = {}, {}
        return other

    def releases(self, package: str) -> Range:
        """The releases that the project allows of a package other than torch.

        Packages as in `gpulint.dependencies.PACKAGES`; a bound that is None is none,
        and means the newest release where a rule must choose. An old torch leaves out
        those that it cannot be installed with, and imports those that lack something.
        """
        its = dict(self.packages).get(package, Range())
        newest, needed = self.newest_torch, NEEDS_TORCH.get(package)
        bounds = [its.highest, newest_by_imports(self, package)]
        if newest is not None and needed is not None and newest < needed[0]:
            bounds.append(needed[1])
        known = [bound for bound in bounds if bound is not None]
        return Range(its.lowest, min(known, default=None))

    # Text and places

    def text(self, node: ast.AST) -> str:
        """The source text of a node."""
        source = self.source_of(node)
        start, end = node_span(source, node)
        return source.text[start:end]

    def source_of(self, node: ast.AST) -> Source:
        """The text of the file in which a node stands: this one, or another."""
        return self.index.home(node).source

    def place(self, node: ast.AST, message: str = "") -> Place:
        """Where a node stands; a definition or compound statement: its first line."""
        source = self.source_of(node)
        start, end = node_span(source, node)
        compound = isinstance(node, ast.stmt) and hasattr(node, "body")
        if compound or isinstance(node, ast.With):
            row = source.position(start).row
            end = source.starts[row - 1] + len(source.line(row).rstrip())
        return Place(
            source.path,
            source.position(start),
            source.position(max(end, start)),
            message,
        )

    def context(self, node: ast.AST) -> str:
        """What identifies a finding when lines move and when layout changes."""
        return identity(self, node)

    @cached_property
    def compiler(self) -> Compiler:
        """What makes text edits of rewrites; it parses the file once, with LibCST."""
        from gpulint.script.rewriting.compiler import Compiler

        return Compiler(self.source, self.index.tree)

    # Facts

    @cached_property
    def frameworks(self) -> frozenset[str]:
        """Training frameworks that the file imports, or an accelerator it is given."""
        heads = {v.partition(".")[0] for v in self.index.imported}
        heads |= {s.partition(".")[0] for s in self.index.stars}
        found = {FRAMEWORKS[h] for h in heads if h in FRAMEWORKS}
        if "lightning" not in found and uses_accelerator(self.index):
            found.add("accelerate")  # Lightning's trainers have accelerators too
        return frozenset(found)

    @cached_property
    def _loops(self) -> Loops:
        loops = Loops(self.resolver)
        loops.classify(self._loaders)
        for loop in loops.by_node.values():
            for loader in loop.loaders:
                loader.here.append(loop)
        return loops

    @cached_property
    def _loaders(self) -> dict[ast.Call, Loader]:
        return find_loaders(self)

    def receivers(self, index: FileIndex) -> tuple[FileIndex, ...]:
        """Files that another one, or this one, gives something like data."""
        if index not in self._receivers:
            found = handed_to(self.resolver, index)
            self._receivers[index] = tuple(dict.fromkeys(found))
        return self._receivers[index]

    @cached_property
    def loaders(self) -> tuple[Loader, ...]:
        """DataLoaders built in this file, with the loops that iterate them."""
        assert self._loops is not None
        return tuple(
            loader
            for loader in self._loaders.values()
            if not is_shown(self, loader) and not is_only_measured(self, loader)
        )

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """All loops in source order."""
        return tuple(self._loops.by_node.values())

    @property
    def training_loops(self) -> tuple[Loop, ...]:
        """Loops an iteration of which trains: backward and step."""
        return tuple(loop for loop in self.loops if loop.train)

    @property
    def eval_loops(self) -> tuple[Loop, ...]:
        """Loops that run a model over batches without training it."""
        return tuple(loop for loop in self.loops if loop.eval)

    def loop_of(self, node: ast.AST) -> Loop | None:
        """The innermost loop of the same function around a node."""
        return self.of(node)._loops.loop_of(node)

    def loop_at(self, statement: ast.AST) -> Loop | None:
        """The loop that a `for` or `while` statement is."""
        return self._loops.by_node.get(statement)

    def loops_around(self, node: ast.AST) -> list[Loop]:
        """All loops of the same function around a node, innermost first."""
        found = []
        loop = self.loop_of(node)
        while loop is not None:
            found.append(loop)
            loop = loop.parent
        return found

    def without_grad(self, node: ast.AST) -> bool:
        """Whether a node runs under `no_grad`, `inference_mode` or a decorator."""
        return without_grad(self.index, node)

    def step_loop(self, node: ast.AST) -> Loop | None:
        """The training or evaluation loop that runs a node once or more a step.

        Directly, or because the loop calls the function that holds the node.
        """
        around = [x for x in self.loops_around(node) if x.train or x.eval]
        if around:
            return around[-1] if around[-1].batches else around[0]
        function = self.index.function(node)
        for loop in self.loops:
            if function in loop.helpers and (loop.train or loop.eval):
                return loop
        return None

    @cached_property
    def invariants(self) -> Invariants:
        """What stays the same while a loop runs."""
        return Invariants(self)

    @cached_property
    def backpropagated(self) -> Backpropagated:
        """What may be differentiated anywhere in the file."""
        return Backpropagated(self)

    @cached_property
    def runners(self) -> Runners:
        """What makes a node run in every step: a loop, or a step function."""
        return Runners(self)

    def step_owner(self, loop: Loop) -> Loop | None:
        """The loop that a step loop's own steps are counted in; None for no such."""
        if not (loop.train or loop.eval):
            return None
        around = [x for x in self.loops_around(loop.node) if x.train or x.eval]
        outer = [x for x in around if x.batches and x.train and loop.train]
        return outer[-1] if outer else loop

    @cached_property
    def step_loops(self) -> tuple[Loop, ...]:
        """Loops whose iterations are steps of their own, those that train first.

        Not where each iteration is an epoch: one step with all the data.
        """
        own = [x for x in self.loops if self.step_owner(x) is x and not x.counts_epochs]
        return tuple(sorted(own, key=lambda x: not x.train))

    @cached_property
    def batches(self) -> Batches:
        """Which expressions are parts of a batch."""
        return Batches(
            self.resolver,
            self.loops,
            self.loader_of,
            self._is_sent,
            lambda node: self.of(node).batches,
        )

    def loader_of(self, call: ast.Call) -> Loader | None:
        """The loader that a call of this or another file makes."""
        if self.index.qualified(call.func) != LOADER:
            return None
        return self.of(call)._loaders.get(call)

    def _is_sent(self, loop: Loop) -> bool:
        """Whether Accelerate has moved what a loop takes, or may have."""
        return "ccelerator" in self.source.text and may_be_fed(self, loop)

    @cached_property
    def moves(self) -> tuple[Move, ...]:
        """All calls that move something to a device, in source order."""
        found = map(self.devices.move, self.move_calls)
        return tuple(m for m in found if m is not None)

    @cached_property
    def move_calls(self) -> tuple[ast.Call, ...]:
        """Calls that may be moves, by their name alone, in source order."""
        return tuple(
            call
            for call in self.index.all(ast.Call)
            if isinstance(call.func, ast.Attribute) and call.func.attr in ("to", "cuda")
        )

    @cached_property
    def batch_moves(self) -> tuple[tuple[Move, Loop], ...]:
        """Moves of a part of a batch from the host to an accelerator, each step."""
        found = []
        for move in self.moves:
            loop = self.batches.loop_of(move.receiver)
            if loop is None or move.target is Target.CPU:
                continue
            if self.batches.is_told_a_device(loop):
                continue
            if not self._is_behind(move.call, loop):
                found.append((move, loop))
        return tuple(found)

    def _is_behind(self, node: ast.AST, loop: Loop) -> bool:
        """Whether a node of a loop's function stands outside it: its last batch."""
        function = self.index.function(node)
        inside = self.index.inside(node, loop.node)
        return not inside and function is self.index.function(loop.node)

    def moves_in(self, loops: Iterable[Loop]) -> list[Move]:
        """The moves of batch parts in some loops, of this and other files."""
        wanted = {id(loop) for loop in loops}
        runners = [n for loop in loops for n in (loop.node, *loop.helpers)]
        scripts = dict.fromkeys(map(self.of, runners))
        return [
            move
            for script in scripts
            for move, loop in script.batch_moves
            if id(loop) in wanted
        ]

    @cached_property
    def columns(self) -> tuple[Columns, ...]:
        """Slices of one host tensor that are moved one by one."""
        return find_columns(self)

    @cached_property
    def transfers(self) -> tuple[Transfer, ...]:
        """Copies of batch parts that the host waits for, in step loops."""
        return find_transfers(self)

    @cached_property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """Calls that save in a loop which trains."""
        return tuple(find_checkpoints(self))

    def where(self, node: ast.AST) -> Where:
        """Host, device, plain Python or unknown, for one expression."""
        assert self.batches is not None
        if not self.tensors.assumed:
            self.tensors.assumed = dict(self.batches.assumed) or {
                self.index.tree: Where.PLAIN
            }
            self.tensors.beside = lambda node: self.of(node).batches.assumed
            self.tensors.forget()
        return self.tensors.where(node)

    @cached_property
    def scalars(self) -> Scalars:
        """Which tensors surely have no dimensions, or hold whole numbers."""
        return Scalars(self)

    @cached_property
    def lightning_steps(self) -> LightningSteps:
        """What steps of Lightning modules get, and compute."""
        return LightningSteps(self)

    @cached_property
    def ms_pipelines(self) -> MsPipelines:
        """MindSpore's datasets, and the loops over them."""
        return MsPipelines(self)

    @cached_property
    def precision(self) -> Precision:
        """Mixed precision and TF32 as the file sets them."""
        return Precision(self.index, self.evaluator)

    @cached_property
    def uses_gpu(self) -> bool:
        """Whether anything is moved to an accelerator, or a device is asked for."""
        return uses_answer(self.index) or self.sends_modules or self.sends_anything

    @cached_property
    def sends_anything(self) -> bool:
        """Whether the file moves anything to a GPU."""
        moved = {move.target for move in self.moves}
        spread = filter(None, map(self.devices.spread_target, self.move_calls))
        return not moved.union(spread) <= {Target.CPU, Target.OTHER}

    @cached_property
    def steps_on_gpu(self) -> bool:
        """The same, of a file or of what its steps run, or of files that run them."""
        return self.uses_gpu or any(map(self.sends_around, self.step_loops))

    def sends_around(self, loop: Loop) -> bool:
        """Whether what a loop runs moves anything to a GPU, or who runs the loop."""
        calls = self.resolver.calls
        callers = calls.callers(loop.function) if loop.function is not None else ()
        if any(its.sends_anything for its in dict.fromkeys(map(self.of, callers))):
            return True
        return any(self.of(f).sends_in(f) for f in loop.helpers)

    def sends_in(self, function: Function) -> bool:
        """Whether a function moves anything to a GPU."""
        calls = [c for c in self.move_calls if self.index.inside(c, function)]
        moved = {m.target for m in map(self.devices.move, calls) if m is not None}
        spread = filter(None, map(self.devices.spread_target, calls))
        return not moved.union(spread) <= {Target.CPU, Target.OTHER}

    @cached_property
    def sends_modules(self) -> bool:
        """Whether a framework or wrapper in this file does the moving."""
        return bool(
            self.frameworks & {"lightning", "accelerate", "deepspeed", "fastai"}
        )

    @cached_property
    def pipelines(self) -> Pipelines:
        """Datasets of `tf.data`, their operations and what takes them."""
        return Pipelines(self)

    @cached_property
    def is_test(self) -> bool:
        """Whether the file tests a program: its loops are no training runs."""
        return is_test_code(self.index)

    # Small questions that several rules ask

    def mentions(self, part: str) -> bool:
        """Whether the text, also of a notebook, or one of the project has a string."""
        project = self.index.project
        if part in self.source.text:
            return True
        return project is not None and project.mentions(part)

    def is_doubtful(self, node: ast.AST) -> bool:
        """Whether a place of this file is one that a usual run may not come to."""
        return self.index.holds(node) and is_doubtful(self, node)

    def definitions(self, node: ast.AST) -> tuple[Definition, ...]:
        """The definitions that can reach a name where it is read."""
        return self.resolver.definitions(node)

    def readers(self, made: ast.Call) -> list[ast.AST] | None:
        """The reads of the one name that gets what a call makes, in any scope.

        None where something else than a name of its own gets it.
        """
        statement = self.index.parent(made)
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            return None
        name = statement.targets[0]
        if not isinstance(name, ast.Name):
            return None
        return [
            use
            for use in self.index.reads.get(name.id, ())
            if any(d.value is made for d in self.definitions(use))
        ]

    def uses(self, definition: Definition) -> list[ast.AST]:
        """Where one definition of a name is read, in its own scope."""
        flow = self.resolver.flow(self.index.scope(definition.node))
        return [node for node, reached in flow.uses.items() if definition in reached]

    def mutations(self, name: str, within: ast.AST) -> list[ast.AST]:
        """Places below a node that change `name`'s tensor in place or rebind it."""
        known = self.of(within)._mutations.get(name, ())
        return [node for node in known if self.index.inside(node, within)]

    @cached_property
    def _mutations(self) -> dict[str, list[ast.AST]]:
        return mutations_by_name(self.index)
