"""The update of a training step: what runs between `backward` and `optimizer.step`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpulint.index.walk import LOOPS, dotted, walk
from gpulint.script.numerics.reached import reached_from
from gpulint.script.rewriting.edits import CannotFix
from gpulint.script.training.step_calls import is_step
from gpulint.script.training.training_step import (
    Step,
    block_of,
    clips,
    loads,
    model_calls,
    step_after,
)
from gpulint.script.training.update_groups import Group, groups_of

if TYPE_CHECKING:
    from gpulint.script.model import Script

_GRADIENTS = re.compile(
    r"optim|(^|_)opt|^(model|net|module)|_(model|net)$|parameters|params", re.IGNORECASE
)


@dataclass(eq=False)
class Update:
    """One `optimizer.step()`.

    `unscale_at` is the statement that clips, before which gradients must be unscaled.
    """

    call: ast.Call
    group: Group
    unscale_at: ast.stmt | None = None

    @property
    def optimizer(self) -> ast.expr:
        """What `step` is called on."""
        assert isinstance(self.call.func, ast.Attribute)
        return self.call.func.value


class ScaledUpdate:
    """The optimizer steps of a training step, fit for scaled gradients.

    `updates` are the optimizer steps and `passes` the backward passes, in order;
    `end` is the statement after which the scaler is updated, once an iteration.
    CannotFix where anything else looks at gradients.
    """

    def __init__(self, script: Script, step: Step) -> None:
        self.script = script
        self.index = script.index
        self.step = step
        self._check_calls()
        groups = self._groups()
        self.updates = [Update(call, group) for group in groups for call in group.steps]
        self.passes = list(self._passes(groups))
        for update in self.updates:
            self._check_optimizer(update)
            for node in self._between(update):
                self._check_between(node)
        self._find_clips()
        for number, update in enumerate(self.updates):
            if len(self.updates) > 1:
                self._check_gradients(update)
            shared = any(self._overlap(update, o) for o in self.updates[:number])
            if len(groups) > 1:
                self._check_zeroed(update, shared)
            if shared and update.call is not update.group.steps[0]:
                raise CannotFix("two optimizers may share parameters")

    def _check_calls(self) -> None:
        """Plain calls, in one function."""
        backward, steps = self.step.loop.backward, self.step.loop.steps
        kept = {"retain_graph"} if len(backward) > 1 else set()
        for call in backward:
            if call.args or any(k.arg not in kept for k in call.keywords):
                raise CannotFix(f"`{self.script.text(call)}` has arguments")
            if not isinstance(self.index.parent(call), ast.Expr):
                raise CannotFix("the result of `backward` is used")
        if not steps:
            raise CannotFix("not one optimizer step in a training step")
        if any(not isinstance(self.index.parent(call), ast.Expr) for call in steps):
            raise CannotFix("the optimizer steps inside another expression")
        for call in (*backward, *steps):
            if self.index.function(call) is not self.step.function:
                raise CannotFix(
                    "the optimizer steps in another function than the backward"
                )

    def _groups(self) -> tuple[Group, ...]:
        loop = self.step.loop
        if len(loop.backward) > 1 or len(loop.steps) > 1:
            found = groups_of(self.script, self.step)
            self.block, self.end = found.block, found.last
            return found.groups
        self.end = self.index.statement(loop.steps[0])
        self.block = block_of(self.script, self.index.statement(self.step.backward))
        self._check_order()
        return (Group(self.block, loop.backward, loop.steps),)

    def _check_order(self) -> None:
        """The update follows in the same block, or in an `if` of it."""
        backward = self.index.statement(self.step.backward)
        rest = self.block[self.block.index(backward) + 1 :]
        below = [s.body for s in rest if isinstance(s, ast.If)]
        if not any(self.end in b for b in (rest, *below)):
            raise CannotFix("the optimizer's step does not follow the backward call")

    def _passes(self, groups: tuple[Group, ...]) -> Iterator[Step]:
        """One step for each backward call, made of what follows the call before it."""
        row = 0
        for group in groups:
            for call in group.backward:
                yield step_after(self.script, self.step, call, row)
                row = call.end_lineno or call.lineno
            row = group.steps[-1].end_lineno or row

    def _check_optimizer(self, update: Update) -> None:
        """One of torch's optimizers, which steps nowhere else."""
        origins = self.script.resolver.origins(update.optimizer)
        for origin in origins:
            if origin.call is None or not self._makes_optimizer(origin.call):
                text = self.script.text(update.optimizer)
                raise CannotFix(f"`{text}` is not known to be one of torch.optim")
        mine = {o.node for o in origins}
        for call in self.index.all(ast.Call):
            if call is not update.call and is_step(call):
                assert isinstance(call.func, ast.Attribute)
                others = self.script.resolver.origins(call.func.value)
                if mine & {o.node for o in others}:
                    raise CannotFix("the optimizer steps in several places")

    def _makes_optimizer(self, call: ast.Call) -> bool:
        """`torch.optim.Adam(…)`, `getattr(torch.optim, name)(…)`."""
        func: ast.expr = call.func
        if isinstance(func, ast.Call) and dotted(func.func) == "getattr" and func.args:
            return self.index.qualified(func.args[0]) == "torch.optim"
        return (self.index.qualified(func) or "").startswith("torch.optim.")

    # Between backward and step

    def _between(self, update: Update) -> Iterator[ast.stmt]:
        """Statements that run between the first backward call and the update."""
        block = update.group.block
        end = self.index.statement(update.call)
        made_of = {s for p in self.passes for s in p.made_of}
        others = [*self.step.loop.backward, *self.step.loop.steps]
        apart = made_of | {self.index.statement(c) for c in others}
        first = self.index.statement(update.group.backward[0])
        for statement in block[block.index(first) + 1 :]:
            if not self.index.inside(end, statement):
                if statement not in apart:
                    yield statement
                continue
            if isinstance(statement, ast.If):
                yield from statement.body[: statement.body.index(end)]
            return

    def _check_between(self, statement: ast.stmt) -> None:
        """Nothing but clipping may look at gradients while they are scaled."""
        for node in walk(statement):
            if not isinstance(node, ast.Call):
                continue
            chain = [node, *self.index.ancestors(node)]
            if any(isinstance(a, ast.Call) and clips(self.index, a) for a in chain):
                continue
            values = [*node.args, *(k.value for k in node.keywords)]
            holds = any(map(self.script.modules.is_module, values))
            reads = map(loads, reached_from(self.script, [node]))
            if holds or any(
                _holds_gradients(name) for names in reads for name in names
            ):
                text = self.script.text(node).splitlines()[0]
                raise CannotFix(f"`{text}` runs between backward and step")

    # Clipping

    def _find_clips(self) -> None:
        """Set before which statements gradients are unscaled."""
        for call in self.step.loop.calls:
            if clips(self.index, call):
                update, holder = self._clipped(call)
                first = update.unscale_at
                if first is None or holder.lineno < first.lineno:
                    update.unscale_at = holder
            elif "clip_grad" in (dotted(call.func) or ""):
                raise CannotFix("gradients are clipped by another function")

    def _clipped(self, call: ast.Call) -> tuple[Update, ast.stmt]:
        """The optimizer whose gradients a call clips, and the statement of it."""
        near = False
        for update in self.updates:
            statement = self.index.statement(update.call)
            block = block_of(self.script, statement)
            last = self.index.statement(update.group.backward[-1])
            start = block.index(last) + 1 if last in block else 0
            before = block[start : block.index(statement)]
            holder = next((s for s in before if self.index.inside(call, s)), None)
            if holder is None or isinstance(holder, LOOPS):
                continue
            near = True
            if self._clips_its_own(call, update):
                return update, holder
        if near:
            raise CannotFix("it is not clear that all clipped gradients are unscaled")
        raise CannotFix("gradients are clipped apart from the optimizer's step")

    def _clips_its_own(self, call: ast.Call, update: Update) -> bool:
        """Whether what is clipped is what the optimizer updates, hence unscales."""
        owner = _parameters_of(call.args[0] if call.args else None)
        origins = self.script.resolver.origins(update.optimizer)
        return owner is not None and all(
            o.call is not None and o.call.args and self._is_over(o.call.args[0], owner)
            for o in origins
        )

    def _is_over(self, given: ast.expr, module: ast.expr) -> bool:
        """Whether an optimizer's first argument is the parameters of a module."""
        owner = _parameters_of(given)
        return owner is not None and self._same(owner, module)

    def _same(self, one: ast.expr, other: ast.expr) -> bool:
        names = {self.script.text(n).rpartition(".")[2] for n in (one, other)}
        its = {o.node for o in self.script.resolver.origins(one)}
        made = {o.node for o in self.script.resolver.origins(other)}
        return len(names) == 1 or bool(its & made)

    # Several optimizers

    def _check_gradients(self, update: Update) -> None:
        """A scaler refuses to step an optimizer that no gradient has come to."""
        owners = self._modules(update)
        for made in self.passes:
            if made.backward not in update.group.backward:
                continue
            for statement in made.made_of:
                for call in model_calls(self.script, statement):
                    if self._runs(call, owners) and not self._is_detached(call):
                        return
        text = self.script.text(update.optimizer)
        raise CannotFix(f"it is not clear that `{text}` gets gradients in each step")

    def _modules(self, update: Update) -> list[ast.expr]:
        """The modules whose parameters an optimizer is given."""
        made = [o.call for o in self.script.resolver.origins(update.optimizer)]
        given = [c.args[0] for c in made if c is not None and c.args]
        if len(given) != len(made):
            return []
        calls = (n for n in walk(*given) if isinstance(n, ast.Call))
        owners = (_parameters_of(call) for call in calls)
        return [owner for owner in owners if owner is not None]

    def _runs(self, call: ast.Call, owners: list[ast.expr]) -> bool:
        return any(self._same(owner, call.func) for owner in owners)

    def _is_detached(self, call: ast.Call) -> bool:
        above = self.index.parent(call)
        detached = isinstance(above, ast.Attribute) and above.attr in ("detach", "data")
        return detached or self.script.without_grad(call)

    def _overlap(self, one: Update, other: Update) -> bool:
        """Whether two optimizers may hold the same parameters."""
        mine, its = self._modules(one), self._modules(other)
        return not (mine and its) or any(
            self._holds(a, b) or self._holds(b, a) for a in mine for b in its
        )

    def _holds(self, outer: ast.expr, inner: ast.expr) -> bool:
        """Whether a module may be another, or a part of it: `net`, `net.head`."""
        if f"{self.script.text(inner)}.".startswith(f"{self.script.text(outer)}."):
            return True
        its = {o.node for o in self.script.resolver.origins(inner)}
        return bool(its & {o.node for o in self.script.resolver.origins(outer)})

    def _check_zeroed(self, update: Update, shared: bool) -> None:
        """Gradients of other backward calls, in another scale, must not be left over.

        They go in the same iteration before the first backward call of the group, or
        behind all calls; where an optimizer before may have unscaled them, after it.
        """
        block, group = self.block, update.group
        first = self.index.statement(group.backward[0])
        at = next(s for s in block if self.index.inside(first, s))
        places = [*block[: block.index(at)], *block[block.index(self.end) + 1 :]]
        if shared:
            steps = [u.call for u in self.updates[: self.updates.index(update)]]
            row = max(call.lineno for call in steps)
            places = [s for s in places if row < s.lineno < first.lineno]
        if group.block is not block:
            places += group.block[: group.block.index(first)]
        if not any(self._zeroes(place, update) for place in places):
            text = self.script.text(update.optimizer)
            raise CannotFix(f"it is not clear where gradients of `{text}` are zeroed")

    def _zeroes(self, statement: ast.stmt, update: Update) -> bool:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            return False
        cleared = call.func.value
        if call.func.attr != "zero_grad":
            function = self.script.resolver.calls.callee(call)
            return function is not None and any(
                self._zeroes(inner, update) for inner in function.body
            )
        mine = {o.node for o in self.script.resolver.origins(update.optimizer)}
        if mine & {o.node for o in self.script.resolver.origins(cleared)}:
            return True
        made = [o.call for o in self.script.resolver.origins(update.optimizer)]
        return all(c and c.args and self._is_over(c.args[0], cleared) for c in made)


def _holds_gradients(name: str) -> bool:
    return bool(_GRADIENTS.search(name.rpartition(".")[2])) or name.endswith(".grad")


def _parameters_of(node: ast.expr | None) -> ast.expr | None:
    """`model` of `model.parameters()`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        plain = not node.args and not node.keywords
        return node.func.value if plain and node.func.attr == "parameters" else None
    return None
