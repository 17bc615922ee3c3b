"""What is differentiated in a loop: the loss, and the terms it is the sum of."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index import Definition

if TYPE_CHECKING:
    from gpulint.script.model import Script

# Methods and functions whose result carries the graph of their only tensor.
_KEEPS_GRAPH = frozenset(
    "mean sum scale squeeze clone float double half scale_loss".split()
)
_SUMS = frozenset("sum torch.mean torch.sum torch.stack torch.add".split())


def differentiated(script: Script, backward: ast.Call) -> set[Definition]:
    """Definitions of the loss of a `.backward()` call, and of the terms it sums.

    Followed through names, arithmetic, `mean()` and the like, and `scaler.scale(…)`.
    """
    assert isinstance(backward.func, ast.Attribute)
    roots = [backward.func.value, *backward.args]  # accelerator.backward(loss)
    return terms(script, roots)


def terms(script: Script, roots: list[ast.expr]) -> set[Definition]:
    """Definitions that expressions are computed from without leaving the graph."""
    found: set[Definition] = set()
    todo: list[ast.expr] = list(roots)
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.Name, ast.Attribute)):
            for definition in script.definitions(node):
                if definition in found:
                    continue
                found.add(definition)
                if definition.value is not None and _assigns(definition):
                    todo.append(definition.value)
        elif isinstance(node, ast.BinOp):
            todo += [node.left] if _counts(node) else [node.left, node.right]
        elif isinstance(node, ast.UnaryOp):
            todo.append(node.operand)
        elif isinstance(node, (ast.List, ast.Tuple)):
            todo += node.elts
        elif isinstance(node, ast.Call):
            todo += _inputs(script, node)
    return found


def _counts(node: ast.BinOp) -> bool:
    """`loss / batch_size`, by a name: how many there are, or a tensor that is known."""
    return isinstance(node.op, ast.Div) and isinstance(node.right, ast.Name)


def _assigns(definition: Definition) -> bool:
    plain = definition.kind in ("assign", "augment") and not definition.path
    return plain or definition.kind == "with"


def _inputs(script: Script, call: ast.Call) -> list[ast.expr]:
    """What a call that keeps the graph takes it from."""
    func = call.func
    if script.index.qualified(func) in _SUMS:
        return list(call.args)
    if isinstance(func, ast.Attribute) and func.attr in _KEEPS_GRAPH:
        return [func.value, *call.args]
    return []
