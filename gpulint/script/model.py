"""The semantic model of one training script, built lazily and shared by all rules."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Collection, Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from gpulint.finding import Effect, Fix, Place
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
from gpulint.index.walk import dotted
from gpulint.inline_metadata import leaves_out
from gpulint.releases import Range
from gpulint.rule import Rule
from gpulint.runtime_name import RUNTIME, VENDORED
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
from gpulint.script.loading.prepared import forks_later, may_be_fed, uses_accelerator
from gpulint.script.loops import Loop, Loops
from gpulint.script.mutations import mutations_by_name
from gpulint.script.numerics.precision import Precision
from gpulint.script.outside import (
    handed_to,
    is_shown,
)
from gpulint.script.reaching.doubts import is_doubtful
from gpulint.script.reaching.old_packages import newest_by_imports
from gpulint.script.reaching.old_torch import runs_only_before
from gpulint.script.reaching.test_code import is_test_code
from gpulint.script.rewriting.edits import CannotFix, Rewrite, place_of
from gpulint.script.runners import Runners
from gpulint.script.saving.checkpoints import Checkpoint, find_checkpoints
from gpulint.script.scalars import Scalars
from gpulint.script.training.backpropagated import Backpropagated
from gpulint.source import Source, node_span

if TYPE_CHECKING:
    from gpulint.script.rewriting.compiler import Compiler

MAX_CALLERS = 3  # from a function back to the top of its file
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
_OURS = re.compile(r"(from|import) gpulint\b")
NOT_LISTED = (
    "the packages that the script lists in its own metadata have no gpulint: add it "
    "there, or use `--runtime vendor`"
)
RUNTIME_TORCH = (2, 3)  # the lowest release that `gpulint.runtime` works with


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
        self._imported: dict[str, ast.stmt] = {}
        self._receivers: dict[FileIndex, tuple[FileIndex, ...]] = {}
        self.changed_names: dict[FileIndex, dict[str, list[ast.AST]]] = {}

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
        other.devices = other.tensors.devices
        other.modules = other.tensors.modules
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

    # Fixes

    @cached_property
    def _compiler(self) -> Compiler:
        from gpulint.script.rewriting.compiler import Compiler

        return Compiler(self.source)

    def compile(
        self, rule: Rule, rewrite: Rewrite | None, effect: Effect
    ) -> tuple[Fix | None, str | None]:
        """A rewrite as text edits, or None and the reason why it cannot be."""
        if rewrite is None:
            return None, None
        ours = any(
            i.startswith(("from gpulint", "import gpulint")) for i in rewrite.imports
        )
        if ours and leaves_out(self.source.text, "gpulint"):
            return None, NOT_LISTED
        if rule.framework == "mindspore":
            return self._compiled(rewrite, effect)
        needed = rewrite.torch or rule.torch
        if any(i in self.runtime[1] for i in rewrite.imports):
            needed = max(needed, RUNTIME_TORCH)
        wanted = ".".join(map(str, needed))
        oldest = self.torch_version or self.newest_torch
        if oldest is not None and oldest < needed:
            has = ".".join(map(str, oldest))
            return None, f"needs torch {wanted}, the project allows {has}"
        if oldest is None and runs_only_before(self, needed):
            return None, f"needs torch {wanted}, for which an import is too old"
        return self._compiled(rewrite, effect)

    def _compiled(
        self, rewrite: Rewrite, effect: Effect
    ) -> tuple[Fix | None, str | None]:
        try:
            fix = self._compiler.compile(rewrite, effect)
        except CannotFix as error:
            return None, str(error)
        reason = self._too_early(rewrite, fix)
        return (None, reason) if reason else (fix, None)

    def _too_early(self, rewrite: Rewrite, fix: Fix) -> str | None:
        """Why new code at the top level would run before what it needs, or too soon."""
        rows = [
            node.lineno
            for node in map(place_of, rewrite.edits)
            if self.index.function(node) is None
            and not isinstance(node, (ast.Import, ast.ImportFrom))
        ]
        for name, statement in self._imported.items():
            if any(row < statement.lineno for row in rows):
                limit = self.source.starts[statement.lineno - 1]
                used = re.compile(rf"(?<![\w.])(?<!import ){name}\b")
                if any(e.start < limit and used.search(e.content) for e in fix.edits):
                    return f"`{name}` is imported further down"
        if rows and forks_later(self.index):
            asks = (f"{self.torch[0]}.cuda.", f"{self.runtime[0]}.")
            if any(word in e.content for e in fix.edits for word in asks):
                return "`notebook_launcher` forks, before which CUDA must be left alone"
        return None

    def name_for(self, module: str, preferred: str) -> tuple[str, tuple[str, ...]]:
        """The local name of a module, and the import statement if it lacks one.

        `name_for("torch", "torch")` → `("th", ())` in a file with
        `import torch as th`; `("torch", ("import torch",))` in one without.
        """
        written: list[ast.Import | ast.ImportFrom] = [
            *self.index.all(ast.Import),
            *self.index.all(ast.ImportFrom),
        ]
        for statement in written:
            if self._always_runs(statement):
                for alias in statement.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    same = self.index.imports.get(name) == module
                    if same and not self._is_shadowed(name):
                        self._imported[name] = statement
                        return name, ()
        parent, _, last = module.rpartition(".")
        taken = preferred in self.index.bound_names or preferred in self.index.imports
        name = f"gpulint_{preferred}" if taken else preferred
        renamed = f" as {name}" if name != last else ""
        if parent:
            return name, (f"from {parent} import {last}{renamed}",)
        return name, (f"import {module}{renamed}",)

    def _always_runs(self, statement: ast.stmt) -> bool:
        """Whether the module runs a statement, under no condition."""
        index = self.index
        conditions = (a for a in index.ancestors(statement) if isinstance(a, ast.If))
        return index.scope(statement) is index.tree and not any(conditions)

    def _is_shadowed(self, name: str) -> bool:
        """Whether a function has a parameter or variable of a module's name."""
        index = self.index
        return any(a.arg == name for a in index.all(ast.arg)) or any(
            n.id == name
            and not isinstance(n.ctx, ast.Load)
            and index.scope(n) is not index.tree
            for n in index.all(ast.Name)
        )

    @cached_property
    def torch(self) -> tuple[str, tuple[str, ...]]:
        """Local name of `torch`, and the import it lacks."""
        return self.name_for("torch", "torch")

    @cached_property
    def runtime(self) -> tuple[str, tuple[str, ...]]:
        """Local name of `gpulint.runtime`, and the import it lacks.

        A file that imports it already, as a package or vendored, keeps its form.
        """
        name, imports = self.name_for(RUNTIME, "runtime")
        if imports and self.vendor:
            imports = (f"import {VENDORED} as {name}",)
        return name, imports

    def free_name(self, *names: str, given: Collection[str] = ()) -> str:
        """The first of some names that the file uses for nothing, or CannotFix.

        `given`: names that other rewrites of the same file give.
        """
        index = self.index
        taken = set(given) | {a.attr for a in index.all(ast.Attribute)}
        taken |= {n.id for n in index.all(ast.Name)} | index.bound_names
        taken |= set(index.imports)
        for name in names:
            if name not in taken:
                return name
        raise CannotFix(f"the name `{names[-1]}` is taken")

    # Facts

    @cached_property
    def frameworks(self) -> frozenset[str]:
        """Training frameworks that the file imports, or an accelerator it is given."""
        heads = {v.partition(".")[0] for v in self.index.imports.values()}
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
        return tuple(x for x in self._loaders.values() if not is_shown(self, x))

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
        return self._loops.without_grad(node)

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
        return Batches(self.resolver, self.loops, self.loader_of, self._is_sent)

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
        for move in self.moves if self.batches.any else ():
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
        scripts = dict.fromkeys(self.of(loop.node) for loop in loops)
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
        if uses_answer(self.index) or self.sends_modules:
            return True
        return any(m.target is not Target.CPU for m in self.moves)

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

    def device_condition(self, device: ast.expr | None) -> tuple[str, tuple[str, ...]]:
        """Code that is true on CUDA: `device.type == "cuda"`, and imports it needs."""
        torch, imports = self.torch
        if device is None:
            return f"{torch}.cuda.is_available()", imports
        if self.devices.target(device) is Target.CUDA:
            return "True", ()
        if self.may_be_none(device):
            return f"{torch}.cuda.is_available()", imports
        text = self.text(device)
        if self.is_torch_device(device):
            return f'{text}.type == "cuda"', ()
        return f'{torch}.device({text}).type == "cuda"', imports

    def may_be_none(self, device: ast.expr) -> bool:
        """Whether a device is None on some path, and the script never asks."""
        if not isinstance(device, ast.Name) or not any(
            isinstance(o.node, ast.Constant) and o.node.value is None
            for o in self.resolver.origins(device)
        ):
            return False
        scope = self.index.scope(device)
        asks = (ast.Compare, ast.UnaryOp, ast.BoolOp, ast.If, ast.IfExp)
        return not any(
            n.id == device.id
            and isinstance(self.index.parent(n), asks)
            and self.index.scope(n) is scope
            for n in self.index.all(ast.Name)
        )

    def device_at(self, at: ast.AST, loops: Iterable[Loop]) -> ast.expr | None:
        """The device to which loops move their batches, if it can be named at `at`.

        None when there is no move, several devices, or the name means nothing there.
        """
        devices = {
            self.text(move.device): move.device
            for move in self.moves_in(loops)
            if move.device is not None
        }
        if len(devices) != 1:
            return None
        device = next(iter(devices.values()))
        if not self.index.holds(device) and not isinstance(device, ast.Constant):
            return None
        return device if self.is_set_at(device, at) else None

    def is_set_at(self, node: ast.expr, at: ast.AST) -> bool:
        """Whether a name (or `self.x`) surely has its value where `at` runs."""
        if isinstance(node, ast.Constant):
            return True
        name = dotted(node)
        if name is None:
            return False
        head, _, rest = name.partition(".")
        scope = self.index.scope(at)
        if rest and self.resolver.self_name(scope) == head:
            owner = self.index.owner(at)
            defined = (
                self.resolver.classes.member(owner, rest) if owner is not None else []
            )
            inside = [d for d in defined if self.index.scope(d.node) is scope]
            if not inside:
                return bool(defined) and getattr(scope, "name", "") != "__init__"
            return any(self.precedes(d.node, at) for d in inside)
        local = self.resolver.flow(scope).definitions.get(name if rest else head, [])
        if local:
            return any(self.precedes(d.node, at) for d in local)
        if head in self.resolver.flow(scope).definitions or rest:
            return False
        top = self.resolver.flow(self.index.tree).definitions.get(head, [])
        return any(
            d.kind == "assign"
            and self._unconditional(d.node)
            and not self._runs_before(scope, d.node, MAX_CALLERS)
            for d in top
        )

    def _runs_before(self, scope: ast.AST, definition: ast.AST, depth: int) -> bool:
        """Whether the file may call a function before a line at its top has run."""
        if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        row = getattr(definition, "lineno", 0)
        for read in self.index.reads.get(scope.name, ()):  # called, or handed on
            around = self.index.scope(read)
            if around is self.index.tree:
                if read.lineno < row:
                    return True
            elif depth and self._runs_before(around, definition, depth - 1):
                return True
        return False

    def precedes(self, definition: ast.AST, at: ast.AST) -> bool:
        """Whether a definition has run, on every path, when `at` runs."""
        if isinstance(definition, ast.arg):
            return True
        before = self.index.statement(definition)
        block = self.index.parent(before)
        if not self.index.inside(at, block or self.index.tree) or block is None:
            return False
        for body in ("body", "orelse", "finalbody"):
            statements = getattr(block, body, None)
            if isinstance(statements, list) and before in statements:
                holder = [s for s in statements if self.index.inside(at, s)]
                return bool(holder) and before.lineno < holder[0].lineno
        return False

    def _unconditional(self, definition: ast.AST) -> bool:
        return self.index.parent(self.index.statement(definition)) is self.index.tree

    def is_torch_device(self, node: ast.expr) -> bool:
        """Whether an expression is proven to be a `torch.device` on every path."""
        origins = self.resolver.origins(node)
        return bool(origins) and all(
            o.expression is not None and self._makes_device(o.expression)
            for o in origins
        )

    def _makes_device(self, node: ast.expr) -> bool:
        """`torch.device(…)`, `runtime.device()`, or the `device` of a tensor."""
        if isinstance(node, ast.Call):
            name = self.index.qualified(node.func) or ""
            return name == "torch.device" or name.endswith("runtime.device")
        if isinstance(node, ast.Attribute) and node.attr == "device":
            return bool(self.where(node.value) & (Where.HOST | Where.DEVICE))
        return False

    def mutations(self, name: str, within: ast.AST) -> list[ast.AST]:
        """Places below a node that change `name`'s tensor in place or rebind it."""
        known = self.of(within)._mutations.get(name, ())
        return [node for node in known if self.index.inside(node, within)]

    @cached_property
    def _mutations(self) -> dict[str, list[ast.AST]]:
        return mutations_by_name(self.index)
