"""Networks with weights for frequencies that learn to solve differential equations."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpulint.index.walk import dotted, walk
from gpulint.script.modelling.models import makers
from gpulint.script.numerics.half import COMPLEX
from gpulint.script.numerics.reached import reached_from

if TYPE_CHECKING:
    from gpulint.script.model import Script
    from gpulint.script.training.training_step import Step

_TRANSFORM = "torch.fft."
_COMPLEX = COMPLEX | {"torch.complex", "torch.view_as_complex"}


def solves_equation(script: Script, step: Step) -> bool:
    """Whether a Fourier operator is trained on derivatives of what it gives.

    Its weights are complex numbers, its products wait for transforms, and derivatives
    magnify what is rounded: it gains nothing by formats with fewer bits.
    """
    made = list(makers(script, step.forward.func)) if step.forward is not None else []
    its: list[ast.AST] = []
    for call in made:
        parts = reached_from(script, [call]) if call is not None else []
        names = set(_names(script, parts))
        if not names & _COMPLEX or not any(n.startswith(_TRANSFORM) for n in names):
            return False
        its += parts
    if not made:
        return False
    others = [r for r in reached_from(script, step.made_of) if r not in its]
    return _differentiates(script, others)


def _names(script: Script, roots: Iterable[ast.AST]) -> Iterable[str]:
    """The qualified names that code reads."""
    for root in roots:
        home = script.index.home(root)
        for node in walk(root):
            if isinstance(node, (ast.Name, ast.Attribute)):
                yield home.qualified(node) or ""


def _differentiates(script: Script, roots: list[ast.AST]) -> bool:
    """Whether code takes derivatives: by gradients, by frequencies, by differences."""
    return any(
        name == "torch.autograd.grad" or name.startswith(_TRANSFORM)
        for name in _names(script, roots)
    ) or any(map(_is_quotient, walk(*roots)))


def _is_quotient(node: ast.AST) -> bool:
    """`(u[2:] - u[:-2]) / (2 * dx)`."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
        return False
    above = node.left
    if not isinstance(above, ast.BinOp) or not isinstance(above.op, ast.Sub):
        return False
    parts = (above.left, above.right)
    of = [dotted(p.value) for p in parts if isinstance(p, ast.Subscript)]
    return len(of) == 2 and of[0] is not None and of[0] == of[1]
