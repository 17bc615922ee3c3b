"""How functions use a gradient scaler: what is left out, or comes too early."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.walk import dotted, walk, walk_scope
from gpulint.script.training.step_calls import is_step
from gpulint.script.training.training_step import block_of, clips

if TYPE_CHECKING:
    from gpulint.script.model import Script

SCALERS = frozenset({"torch.cuda.amp.GradScaler", "torch.amp.GradScaler"})
_SWITCH = re.compile(r"amp|16|half|precision|scaler", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Unscaled:
    """Gradients that are clipped while they are scaled.

    `before` is the statement before which `unscale_` can stand: it runs whenever the
    scaler's `step`, which is of one optimizer, no loss is left as it is, and nothing
    else unscales.
    """

    scaler: str
    clip: ast.Call
    step: ast.Call
    backward: ast.Call
    before: ast.stmt | None


@dataclass(frozen=True, eq=False)
class Unfinished:
    """A `step` of a scaler, or of the optimizer itself, without what belongs to it.

    `fix` is whether the missing call can be written here.
    """

    scaler: str
    step: ast.Call
    backward: ast.Call
    fix: bool
    updated: bool = False


class LossScaling:
    """The `scaler.scale(loss).backward()` of one function, and what follows."""

    def __init__(
        self, script: Script, scope: ast.AST, backward: list[ast.Call]
    ) -> None:
        self.script = script
        self.index = script.index
        self.scope = scope
        self.backward = backward
        holder = _scaler_of(backward[0])
        assert holder is not None
        self.holder = holder

    @cached_property
    def name(self) -> str:
        """The scaler as it is written."""
        return self.script.text(self.holder)

    @cached_property
    def calls(self) -> list[ast.Call]:
        """All calls of the function, in order."""
        found = (n for n in walk_scope(self.scope) if isinstance(n, ast.Call))
        return sorted(found, key=lambda c: (c.lineno, c.col_offset))

    def of_scaler(self, method: str) -> list[ast.Call]:
        """Calls of a method of the scaler in this function."""
        return [
            call
            for call in self.calls
            if isinstance(call.func, ast.Attribute)
            and call.func.attr == method
            and self.script.text(call.func.value) == self.name
        ]

    @cached_property
    def known(self) -> bool:
        """Whether it is a scaler of torch, which is not off for good."""
        made = [o.call for o in self.script.resolver.origins(self.holder)]
        calls = [call for call in made if call is not None]
        kinds = {self.index.home(c).qualified(c.func) or "" for c in calls}
        if not all(kind in SCALERS for kind in kinds):
            return False
        for call in calls:
            switch = next((k.value for k in call.keywords if k.arg == "enabled"), None)
            if isinstance(switch, ast.Constant) and not switch.value:
                return False
        last = (dotted(self.holder) or "").rpartition(".")[2]
        return bool(calls) or "scaler" in last.lower()

    # Clipping

    def clipped(self) -> Iterator[Unscaled]:
        """The first clipping of each `scaler.step` that comes without `unscale_`."""
        steps, seen = self.of_scaler("step"), set[ast.Call]()
        for clip in self._clips:
            scaled = [b for b in self.backward if self._follows(clip, b)]
            after = [s for s in steps if self._follows(s, clip)]
            if not scaled or not after or after[0] in seen:
                continue
            backward, step = scaled[-1], after[0]
            if self._is_unscaled(backward, clip) or self._is_switched(clip, backward):
                continue
            seen.add(step)
            alone = len({self.script.text(a) for s in steps for a in s.args}) == 1
            alone = alone and not self.of_scaler("unscale_")  # twice raises
            fix = self._always(clip, backward) and self._together(clip, step) and alone
            before = self._first(clip, step) if fix else None
            yield Unscaled(self.name, clip, step, backward, before)

    @cached_property
    def _clips(self) -> list[ast.Call]:
        return [call for call in self.calls if clips(self.index, call)]

    def _first(self, clip: ast.Call, step: ast.Call) -> ast.stmt:
        """The clipping, or what is around it and not around others before the step."""
        holder = self._meeting(step, clip)[1]
        later = self._clips[self._clips.index(clip) + 1 :]
        others = (c for c in later if self._follows(step, c))
        alone = all(self.index.inside(other, holder) for other in others)
        return self.index.statement(clip) if alone else holder

    def _follows(self, later: ast.Call, earlier: ast.Call) -> bool:
        """Whether a call comes after another on one way through the function."""
        above, holder = self._meeting(earlier, later)
        return above is not holder and above.lineno <= holder.lineno

    def _meeting(self, one: ast.Call, other: ast.Call) -> tuple[ast.stmt, ast.stmt]:
        """The statements of one block that hold two calls; the same: of no block."""
        chain = [self.index.statement(one)]
        chain += [a for a in self.index.ancestors(chain[0]) if isinstance(a, ast.stmt)]
        for statement in chain:
            block = block_of(self.script, statement)
            holder = next((s for s in block if self.index.inside(other, s)), None)
            if holder is not None:
                return statement, holder
        return chain[0], chain[0]

    def _is_unscaled(self, backward: ast.Call, clip: ast.Call) -> bool:
        """Whether anything between may unscale, or take another way to do it."""
        rows = range(backward.lineno, clip.lineno + 1)
        for call in self.calls:
            if call.lineno not in rows:
                continue
            last = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if last in ("unscale_", "get_scale", "step"):
                if self._is_of_another(call, clip):
                    continue
                return True
            if self._hands_on([call]):
                return True
            function = self.script.resolver.calls.callee(call)
            if function is not None and _mentions(function, "unscale_", "grad"):
                return True
        return _reads_gradients(self.scope, rows)

    def _is_of_another(self, call: ast.Call, clip: ast.Call) -> bool:
        """Whether a call stands in a branch of its own, with another clipping."""
        for above in self.index.ancestors(call):
            if self.index.inside(clip, above):
                return False
            if isinstance(above, ast.If):
                return any(self.index.inside(other, above) for other in self._clips)
        return False

    def _is_switched(self, clip: ast.Call, backward: ast.Call) -> bool:
        """Whether a test that is about the scaler decides on the clipping alone."""
        for above in self.index.ancestors(clip):
            if self.index.inside(backward, above):
                return False
            if isinstance(above, ast.If) and _SWITCH.search(
                self.script.text(above.test)
            ):
                return True
        return False

    def _always(self, later: ast.Call, backward: ast.Call) -> bool:
        """Whether the scaled backward has run whenever a later call does."""
        above, _ = self._meeting(backward, later)
        return above is self.index.statement(backward)

    def _together(self, clip: ast.Call, step: ast.Call) -> bool:
        """Whether clipping stands in the block of the step, or in an `if` of it."""
        block = block_of(self.script, self.index.statement(step))
        holder = next((s for s in block if self.index.inside(clip, s)), None)
        plain = isinstance(self.index.parent(clip), (ast.Expr, ast.Assign))
        return plain and isinstance(holder, (ast.Expr, ast.Assign, ast.If))

    # Steps

    def unfinished(self) -> Iterator[Unfinished]:
        """`scaler.step(optimizer)` where no `scaler.update()` is seen anywhere."""
        steps = self.of_scaler("step")
        if not steps or self._is_updated() or not self._repeats():
            return
        plain = isinstance(self.index.parent(steps[0]), ast.Expr)
        yield Unfinished(
            self.name, steps[0], self.backward[0], plain and len(steps) == 1
        )

    def direct(self) -> Iterator[Unfinished]:
        """`optimizer.step()` with gradients that are scaled."""
        if self._may_unscale():
            return
        for call in self.calls:
            if not is_step(call) or call.args or call.keywords:
                continue
            assert isinstance(call.func, ast.Attribute)
            scaled = [b for b in self.backward if self._follows(call, b)]
            if not scaled or self._is_switched(call, scaled[-1]):
                continue
            if self._is_of_torch(call.func.value):
                plain = isinstance(self.index.parent(call), ast.Expr)
                fix = plain and self._always(call, scaled[-1])
                updated = bool(self.of_scaler("update"))
                yield Unfinished(self.name, call, scaled[-1], fix, updated)

    def _may_unscale(self) -> bool:
        """Whether the function, or what it calls, may look after the scale itself."""
        if any(map(self.of_scaler, ("step", "unscale_", "get_scale"))):
            return True
        if _reads_gradients(self.scope) or self._hands_on(self.calls):
            return True
        functions = (self.script.resolver.calls.callee(call) for call in self.calls)
        return any(
            f is not None and _mentions(f, "grad", "unscale_") for f in functions
        )

    def _is_of_torch(self, optimizer: ast.expr) -> bool:
        made = [o.call for o in self.script.resolver.origins(optimizer)]
        kinds = [self.index.home(c).qualified(c.func) or "" for c in made if c]
        known = bool(kinds) and len(kinds) == len(made)
        return known and all(kind.startswith("torch.optim.") for kind in kinds)

    def _repeats(self) -> bool:
        """Whether more than one step is taken with this scaler: it is not local."""
        inside = bool(self.script.loops_around(self.backward[0]))
        made = self.script.definitions(self.holder)
        local = any(self.index.scope(d.node) is self.scope for d in made)
        return inside or not local

    def _is_updated(self) -> bool:
        """Whether `update` is called, or the scaler handed on, anywhere in reach."""
        definitions = self.script.definitions(self.holder)
        last = (dotted(self.holder) or "").rpartition(".")[2]
        if not last or any(d.kind == "parameter" for d in definitions):
            return True
        project = self.index.project
        if project is not None and project.mentions(f"{last}.update("):
            return True
        written = f"{last}.update(" in self.script.source.text
        return written or self._hands_on(self.index.all(ast.Call))

    def _hands_on(self, calls: Iterable[ast.Call]) -> bool:
        """Whether any of these calls is given the scaler."""
        last = (dotted(self.holder) or "").rpartition(".")[2]
        return any(
            (dotted(value) or "").rpartition(".")[2] == last
            for call in calls
            for value in (*call.args, *(k.value for k in call.keywords))
        )


def loss_scalings(script: Script) -> list[LossScaling]:
    """The functions that scale a loss, once for each scaler."""
    found: dict[tuple[ast.AST, str], list[ast.Call]] = {}
    for call in script.index.all(ast.Call):
        holder = _scaler_of(call)
        if holder is not None:
            key = script.index.scope(call), script.text(holder)
            found.setdefault(key, []).append(call)
    made = (LossScaling(script, scope, calls) for (scope, _), calls in found.items())
    return [scaling for scaling in made if scaling.known]


def _scaler_of(call: ast.Call) -> ast.expr | None:
    """`scaler` of `scaler.scale(loss).backward()`."""
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr != "backward":
        return None
    scaled = func.value
    if isinstance(scaled, ast.Call) and isinstance(scaled.func, ast.Attribute):
        return scaled.func.value if scaled.func.attr == "scale" else None
    return None


def _mentions(function: Function, *names: str) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr in names
        for node in walk(function)
    )


def _reads_gradients(scope: ast.AST, rows: range | None = None) -> bool:
    """Whether `.grad` stands in a function, or in some of its rows."""
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == "grad"
        and dotted(node) != "torch.autograd.grad"
        and (rows is None or node.lineno in rows)
        for node in walk_scope(scope)
    )
