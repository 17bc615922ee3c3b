"""What makes a node run in every step of training or evaluation."""

from __future__ import annotations

import ast
import re
from functools import cached_property
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.walk import LOOPS, dotted, walk, walk_scope
from gpulint.script.branches import all_of, branches_of, in_body
from gpulint.script.call_modes import may_lead_to
from gpulint.script.given import is_always_given, is_only_called
from gpulint.script.intervals import is_due, is_remainder
from gpulint.script.reaching.doubtful import may_never_run
from gpulint.script.reaching.drawn import holds_seldom
from gpulint.script.reaching.once import holds_once, is_kept
from gpulint.script.reaching.seldom_called import is_seldom_called
from gpulint.script.training.step_calls import is_backward

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script

# Methods that a framework, or a loop in another file, calls for each batch.
_STEP_METHODS = frozenset(
    "forward training_step validation_step test_step predict_step __next__ "
    "compute_loss".split()
)
# Classes whose objects are called once in each step.
_LOSS = re.compile(r"(Loss|Criterion|Objective)(?!y|less|\w*(ory|er|eter|ry)$)")
_PLAIN_BASES = frozenset("object ABC abc.ABC".split())
_PER_SAMPLE = frozenset("__getitem__ __getitems__ collate_fn collate".split())
_TESTS = (ast.If, ast.IfExp)
# What a loop goes over that evaluates each of a few, not batches.
_FEW = re.compile(r"(?i)(loaders|datasets|splits|phases|folds)(\.(items|values)\(\))?$")


class Runners:
    """Finds the loop or function that makes a node run in every step."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.index = script.index
        self._functions: dict[Function, ast.stmt | None] = {}

    def of(self, node: ast.AST) -> ast.stmt | None:
        """The loop that runs a node each step, or a step function; None: neither.

        Code behind `if step % n` does not count, nor what a loader's workers run.
        """
        found = self._runs(node)
        return found if found is not None and self._is_led_to(node) else None

    def _runs(self, node: ast.AST) -> ast.stmt | None:
        """The same, whatever its function is given."""
        found = self._around(node)
        if found is None or self.is_rare(node) or self.in_worker(node):
            return None
        return None if may_never_run(self.script, node) else found

    def _around(self, node: ast.AST) -> ast.stmt | None:
        around = self.script.loops_around(node)
        hot = next((x for x in around if x.train or x.eval), None)
        if hot is not None:
            return hot.node
        within_epochs = any(x.kind == "epoch" for x in around[1:])
        if within_epochs and around[0].kind != "epoch":
            return None if self._counts_few(around[0]) else around[0].node
        function = self.index.function(node)
        if function is None:
            return None
        if around and self._trains_whole(around[0]):
            return None  # once an epoch, whatever calls it
        found = self._function(function)
        if self.prepares_run(node) and not isinstance(found, LOOPS):
            return None  # else a step runs that, as it looks for an attack
        return found

    def _is_led_to(self, node: ast.AST) -> bool:
        """Whether a call that runs in steps may come to a place in its function.

        By the constants that it gives, and the defaults of what it leaves out.
        """
        function = self.index.function(node)
        if function is None or self.script.loops_around(node):
            return True
        if not any(isinstance(b, _TESTS) for b, _ in branches_of(self.index, node)):
            return True
        callers = self.script.resolver.calls.callers(function)
        running = [c for c in callers if self._runs(c) is not None]
        if not running or not is_only_called(self.script, function, callers):
            return True
        return any(may_lead_to(self.script, node, function, call) for call in running)

    def _trains_whole(self, loop: Loop) -> bool:
        """Whether a loop runs epochs, and its steps are a loop right below it."""
        return loop.kind == "epoch" and any(
            its.parent is loop and its.train for its in self.script.loops
        )

    def _counts_few(self, loop: Loop) -> bool:
        """Whether a loop is over what an option lists, a written list, or loaders.

        `for name, loader in test_loaders.items():`, for each of which it evaluates.
        """
        line = self.script.evaluator.command_line
        return bool(loop.items) and all(
            isinstance(over, (ast.List, ast.Tuple))
            or _FEW.search(ast.unparse(over)) is not None
            or (
                isinstance(over, ast.Attribute)
                and line.option(over.value, over.attr) is not None
            )
            for over, _ in loop.items
        )

    def prepares_run(self, node: ast.AST) -> bool:
        """Whether a place is in a function that trains by itself, before its loop."""
        function = self.index.function(node)
        return function is not None and any(
            loop.function is function and loop.train and loop.steps
            for loop in self.script.loops
            if loop.node.lineno > getattr(node, "lineno", 0)
        )

    def is_rare(self, node: ast.AST, within: ast.AST | None = None) -> bool:
        """Whether a node runs in some iterations of its loops, or of one, only.

        Behind `step % n == 0`, a test that holds once (`if step == 0:`) or at random
        in few steps, or one of the batch that spares its step the backward pass; or
        where what it makes is kept for the next time.
        """
        around = [x.node for x in self.script.loops_around(node)]
        outermost = within or (around[-1] if around else None)
        child = node
        for above in self.index.ancestors(node):
            if isinstance(above, (ast.If, ast.IfExp)) and child is not above.test:
                taken = in_body(above, child)
                if any(map(is_remainder, walk(above.test))):
                    return True
                if taken and is_due(self.script, above.test):
                    return True
                if taken and holds_once(self.script, above):
                    return True
                if not taken and any(
                    is_always_given(self.script, part, holds=False)
                    for part in all_of(above.test, False)
                ):
                    return True
                if holds_seldom(self.script, above.test, taken):
                    return True
                if isinstance(above, ast.If) and self._is_spared(above, taken):
                    return True
            if above is outermost:
                break
            child = above
        return not around and is_kept(self.script, node)

    def _is_spared(self, branch: ast.If, holds: bool) -> bool:
        """Whether other steps do the backward pass: `if loss.isnan(): … else: …`.

        What is asked must come from the batch: phases of an epoch all count.
        """
        loop = self.script.loop_of(branch)
        if loop is None or not loop.train:
            return False
        others = branch.orelse if holds else branch.body
        trains = any(is_backward(n) for n in walk(*others) if isinstance(n, ast.Call))
        return trains and any(
            self.index.inside(d.node, loop.node)
            and self.index.statement(d.node) is not loop.node
            for name in walk(branch.test)
            if isinstance(name, ast.Name)
            for d in self.script.definitions(name)
        )

    def in_worker(self, node: ast.AST) -> bool:
        """Whether a node belongs to a dataset's `__getitem__` or a collate function."""
        function = self.index.function(node)
        if function is None:
            return False
        return function.name in _PER_SAMPLE or function in self._collates

    @cached_property
    def _collates(self) -> frozenset[ast.AST]:
        return frozenset(
            origin.node
            for loader in self.script.loaders
            for given in loader.argument("collate_fn").nodes
            for origin in self.script.resolver.origins(given)
        )

    def _function(self, function: Function) -> ast.stmt | None:
        if function not in self._functions:
            self._functions[function] = None  # recursion adds nothing
            self._functions[function] = self._find(function)
        return self._functions[function]

    def _find(self, function: Function) -> ast.stmt | None:
        owner = self.index.parent(function)
        if function.name == "__init__" and (
            not isinstance(owner, ast.ClassDef)
            or self.script.modules.is_module_class(owner)
        ):
            return None  # networks are made once, or now and then
        method = isinstance(owner, ast.ClassDef)
        if isinstance(owner, ast.ClassDef) and function.name == "forward":
            method = self._may_be_a_module(owner)
        if method and function.name in _STEP_METHODS:
            return None if is_seldom_called(self.script, function) else function
        called = isinstance(owner, ast.ClassDef) and function.name == "__call__"
        if called and _LOSS.search(owner.name):  # type: ignore[union-attr]
            return function
        callers = self.script.resolver.calls.callers(function)
        users = [c for c in callers if not self.script.of(c).is_test]
        if not users and self._is_step(function):
            return function  # who calls it is not known
        return next((r for r in map(self.of, users) if r is not None), None)

    def _may_be_a_module(self, owner: ast.ClassDef) -> bool:
        """Whether a class may be one: not if its bases are other classes of here.

        One without a base is not, unless another class of the file has it as one.
        """
        resolver = self.script.resolver
        if not owner.bases:
            heirs = (c for c in self.index.all(ast.ClassDef) if c is not owner)
            return any(owner in resolver.classes.bases(heir) for heir in heirs)
        bases = [b for known in resolver.classes.bases(owner) for b in known.bases]
        unseen = (b for b in bases if resolver.classes.named(b) is None)
        return any(dotted(b) not in _PLAIN_BASES for b in unseen)

    def _is_step(self, function: Function) -> bool:
        """Whether a function does the backward pass of one step, without a loop.

        Not one that makes its own optimizer: that is a run of one step.
        """
        if any(loop.function is function for loop in self.script.loops):
            return False
        calls = [n for n in walk_scope(function) if isinstance(n, ast.Call)]
        names = [self.index.qualified(call.func) or "" for call in calls]
        alone = any(name.startswith("torch.optim.") for name in names)
        test = function.name.startswith("test_")
        return not (alone or test) and any(map(is_backward, calls))
