"""The update of a training step: what runs between `backward` and `optimizer.step`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index.walk import LOOPS, dotted, walk
from gpulint.script.edits import CannotFix
from gpulint.script.loops import is_step
from gpulint.script.training_step import Step, block_of, loads

if TYPE_CHECKING:
    from gpulint.script.model import Script

_GRADIENTS = re.compile(
    r"optim|(^|_)opt|^(model|net|module)|_(model|net)$|parameters|params", re.IGNORECASE
)
_CLIP = re.compile(r"^torch\.nn\.utils\.(clip_grad\.)?clip_grad_(norm|value)_?$")


class ScaledUpdate:
    """The one optimizer step of a training step, fit for scaled gradients.

    `call` is `optimizer.step()`; `unscale_at` the statement that clips, before which
    gradients must be unscaled. CannotFix where anything else looks at gradients.
    """

    def __init__(self, script: Script, step: Step) -> None:
        self.script = script
        self.index = script.index
        self.step = step
        self.backward = self.index.statement(step.backward)
        self.call = self._only_step()
        self.statement = self.index.statement(self.call)
        self._check_order()
        self._check_optimizer()
        for node in self._between():
            self._check_between(node)
        self.unscale_at = self._first_clip()

    @property
    def optimizer(self) -> ast.expr:
        """What `step` is called on."""
        assert isinstance(self.call.func, ast.Attribute)
        return self.call.func.value

    def _only_step(self) -> ast.Call:
        """The only `optimizer.step()`, after the only plain `loss.backward()`."""
        backward, loop = self.step.backward, self.step.loop
        if len(loop.backward) != 1:
            raise CannotFix("several backward calls in a step")
        if backward.args or backward.keywords:
            raise CannotFix(f"`{self.script.text(backward)}` has arguments")
        if not isinstance(self.index.parent(backward), ast.Expr):
            raise CannotFix("the result of `backward` is used")
        if len(loop.steps) != 1:
            raise CannotFix("not one optimizer step in a training step")
        update = loop.steps[0]
        if not isinstance(self.index.parent(update), ast.Expr):
            raise CannotFix("the optimizer steps inside another expression")
        if self.index.function(update) is not self.step.function:
            raise CannotFix("the optimizer steps in another function than the backward")
        return update

    def _check_order(self) -> None:
        """The update follows in the same block, or in an `if` of it."""
        block = block_of(self.script, self.backward)
        rest = block[block.index(self.backward) + 1 :]
        below = [s.body for s in rest if isinstance(s, ast.If)]
        if not any(self.statement in b for b in (rest, *below)):
            raise CannotFix("the optimizer's step does not follow the backward call")

    def _check_optimizer(self) -> None:
        """One of torch's optimizers, which steps nowhere else."""
        origins = self.script.resolver.origins(self.optimizer)
        for origin in origins:
            made = origin.call
            name = self.index.qualified(made.func) if made is not None else None
            if not (name or "").startswith("torch.optim."):
                text = self.script.text(self.optimizer)
                raise CannotFix(f"`{text}` is not known to be one of torch.optim")
        mine = {o.node for o in origins}
        for call in self.index.all(ast.Call):
            if call is not self.call and is_step(call):
                assert isinstance(call.func, ast.Attribute)
                others = self.script.resolver.origins(call.func.value)
                if mine & {o.node for o in others}:
                    raise CannotFix("the optimizer steps in several places")

    def _between(self) -> Iterator[ast.stmt]:
        """Statements that run between the backward call and the update."""
        block = block_of(self.script, self.backward)
        for statement in block[block.index(self.backward) + 1 :]:
            if not self.index.inside(self.statement, statement):
                yield statement
                continue
            if isinstance(statement, ast.If):
                yield from statement.body[: statement.body.index(self.statement)]
            return

    def _check_between(self, statement: ast.stmt) -> None:
        """Nothing but clipping may look at gradients while they are scaled."""
        for node in walk(statement):
            if not isinstance(node, ast.Call):
                continue
            chain = [node, *self.index.ancestors(node)]
            if any(isinstance(a, ast.Call) and self._is_clip(a) for a in chain):
                continue
            known = self.script.resolver.callee(node) is not None
            values = [*node.args, *(k.value for k in node.keywords)]
            known = known or any(map(self.script.tensors.is_module, values))
            if known or any(map(_holds_gradients, loads(node))):
                text = self.script.text(node).splitlines()[0]
                raise CannotFix(f"`{text}` runs between backward and step")

    # Clipping

    def _is_clip(self, call: ast.Call) -> bool:
        return bool(_CLIP.match(self.index.qualified(call.func) or ""))

    def _first_clip(self) -> ast.stmt | None:
        """The statement of the update's block that holds the first clipping."""
        block = block_of(self.script, self.statement)
        start = block.index(self.backward) + 1 if self.backward in block else 0
        before = block[start : block.index(self.statement)]
        found: list[ast.stmt] = []
        for call in self.step.loop.calls:
            if not self._is_clip(call):
                if "clip_grad" in (dotted(call.func) or ""):
                    raise CannotFix("gradients are clipped by another function")
                continue
            holder = next((s for s in before if self.index.inside(call, s)), None)
            if holder is None or isinstance(holder, LOOPS):
                raise CannotFix("gradients are clipped apart from the optimizer's step")
            self._check_clip(call)
            found.append(holder)
        return min(found, key=lambda s: s.lineno, default=None)

    def _check_clip(self, call: ast.Call) -> None:
        """What is clipped must be what the optimizer updates, hence unscales."""
        owner = _parameters_of(call.args[0] if call.args else None)
        origins = self.script.resolver.origins(self.optimizer)
        if owner is None or not all(
            o.call is not None and o.call.args and self._is_over(o.call.args[0], owner)
            for o in origins
        ):
            raise CannotFix("it is not clear that all clipped gradients are unscaled")

    def _is_over(self, given: ast.expr, module: ast.expr) -> bool:
        """Whether an optimizer's first argument is the parameters of a module."""
        owner = _parameters_of(given)
        if owner is None:
            return False
        names = {self.script.text(n).rpartition(".")[2] for n in (owner, module)}
        its = {o.node for o in self.script.resolver.origins(owner)}
        made = {o.node for o in self.script.resolver.origins(module)}
        return len(names) == 1 or bool(its & made)


def _holds_gradients(name: str) -> bool:
    return bool(_GRADIENTS.search(name.rpartition(".")[2]))


def _parameters_of(node: ast.expr | None) -> ast.expr | None:
    """`model` of `model.parameters()`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        plain = not node.args and not node.keywords
        return node.func.value if plain and node.func.attr == "parameters" else None
    return None
