"""The statements of a training step that run under autocast, and whether they may."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.walk import dotted, walk, walk_scope
from gpulint.script.no_grad import disables_grad
from gpulint.script.numerics.half import Formats
from gpulint.script.numerics.half_outputs import Outputs
from gpulint.script.numerics.hazards import hazard
from gpulint.script.numerics.reached import reached
from gpulint.script.rewriting.edits import CannotFix, NotBorne
from gpulint.script.training.training_step import (
    Step,
    block_of,
    differentiates,
    model_calls,
    stores,
)

if TYPE_CHECKING:
    from gpulint.script.model import Script

Statements = tuple[ast.stmt, ...]
_LOSS = re.compile(r"(?i)(loss|criterion|lpips|ssim|ncc)$")


def autocast_regions(
    script: Script, step: Step, passes: list[Step]
) -> tuple[list[Statements], list[ast.Name]]:
    """For each backward pass, the statements from the forward call to the loss.

    And the uses of tensors outside these that need them in float32 as before.
    What computes second derivatives stays outside. CannotFix where a loss is not
    known to be float32, or where something may fail or go wrong in half precision.
    """
    formats = Formats(script)
    regions = [_region(script, made, formats) for made in passes]
    calls = [c for region in regions for s in region for c in model_calls(script, s)]
    outputs = Outputs(script, formats, tuple(s for region in regions for s in region))
    bad = outputs.misuse(calls, step.function or script.index.tree)
    if bad is not None:
        raise NotBorne(f"`{bad}` may not take half precision")
    return regions, outputs.widened


def _region(script: Script, step: Step, formats: Formats) -> Statements:
    if step.forward is None:
        raise CannotFix("the forward call is not recognised")
    if step.forward in walk(step.backward):
        raise CannotFix("the loss is made in the backward statement")
    if not formats.float32(step.loss):
        text = script.text(step.loss)
        raise CannotFix(f"`{text}` does not come from a known loss function alone")
    region = _bounds(script, step, formats)
    _check_flow(script, step, region)
    danger = hazard(script, region) or _foreign_loss(script, region)
    if danger is not None:
        raise NotBorne(danger)
    second = script.precision.second_order
    if second and any(n in second for n in walk(*reached(script, region))):
        raise CannotFix("the model computes second derivatives")
    return region


def _foreign_loss(script: Script, region: Statements) -> str | None:
    """A loss of another package, also one that a function of the step calls.

    Autocast knows PyTorch's own alone: others subtract what is nearly equal.
    """
    for root in reached(script, region):
        home = script.of(root)
        for call in walk(root):
            if isinstance(call, ast.Call) and _is_foreign(home, call):
                return f"`{home.text(call.func)}` is a loss of another package"
    return None


def _is_foreign(script: Script, call: ast.Call) -> bool:
    """`ssim(x, y)` of a package, or what is called is an object of its class."""
    head = (dotted(call.func) or "").partition(".")[0]
    imported = (
        head in script.index.imports and script.resolver.calls.callee(call) is None
    )
    if imported and _is_named_loss(script.index.qualified(call.func) or ""):
        return script.resolver.classes.named(call.func) is None
    for origin in script.resolver.origins(call.func):
        made = origin.call
        if made is None or script.resolver.classes.named(made.func) is not None:
            continue
        if _is_named_loss(script.index.home(made).qualified(made.func) or ""):
            return True
    return False


def _is_named_loss(name: str) -> bool:
    head, _, last = name.rpartition(".")
    torch = name.startswith("torch.")
    return bool(head) and not torch and _LOSS.search(last) is not None


def _bounds(script: Script, step: Step, formats: Formats) -> Statements:
    runs = [s for s in step.made_of if next(model_calls(script, s), None)]
    first = next((s for s in runs if not differentiates(script, s)), None)
    if first is None:
        raise CannotFix("the forward statement computes second derivatives")
    block = block_of(script, first)
    inside = [s for s in step.made_of if s in block]
    if any(s not in block for s in runs):
        raise CannotFix("models run in several blocks")
    rest = inside[inside.index(first) :]
    fence = next((n for n, s in enumerate(rest) if differentiates(script, s)), None)
    last = rest[-1]
    if fence is not None:
        _check_fence(script, formats, rest[:fence], rest[fence:])
        last = rest[fence - 1]
    return tuple(block[block.index(first) : block.index(last) + 1])


def _check_fence(
    script: Script, formats: Formats, before: list[ast.stmt], after: list[ast.stmt]
) -> None:
    """What follows takes float32 from the region, and runs no model but to derive."""
    known = frozenset[str]().union(*map(stores, before))
    for statement in after:
        for node in walk(statement):
            if not isinstance(node, ast.Name) or isinstance(node.ctx, ast.Store):
                continue
            if node.id in known and not formats.float32(node):
                raise CannotFix(f"`{node.id}` is used with second derivatives")
        runs = next(model_calls(script, statement), None)
        if runs is not None and not differentiates(script, statement):
            raise CannotFix("a model runs after second derivatives")


def _check_flow(script: Script, step: Step, region: Statements) -> None:
    """The region holds no backward, no way out, and no forward without gradients."""
    backward = script.index.statement(step.backward)
    if any(script.index.inside(backward, s) for s in region):
        raise CannotFix("the backward call stands among the forward statements")
    for statement in region:
        for node in walk_scope(statement):
            if isinstance(node, (ast.Return, ast.Yield)):
                raise CannotFix("the function returns among the forward statements")
    for root in (*region, *_called(script, region)):
        switches = [*getattr(root, "decorator_list", ())]
        for node in walk_scope(root):
            if isinstance(node, ast.With):
                switches += [item.context_expr for item in node.items]
        if any(disables_grad(script.index, switch) for switch in switches):
            raise CannotFix("a model runs under no_grad in the same step")


def _called(script: Script, region: Statements) -> list[Function]:
    """Functions of this file, methods of modules apart, that run a model."""
    found: list[Function] = []
    roots: list[ast.AST] = list(region)
    for root in roots:
        for call in model_calls(script, root):
            function = script.resolver.calls.callee(call)
            owner = script.index.parent(function) if function is not None else None
            if function is None or function in found or len(found) > 20:
                continue
            if isinstance(owner, ast.ClassDef) and script.modules.is_module_class(
                owner
            ):
                continue
            found.append(function)
            roots.append(function)
    return found
