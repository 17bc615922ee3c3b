"""Which values are surely numbers of Python, whatever the tensors beside them."""

from __future__ import annotations

import ast

from gpulint.index.build import last_name
from gpulint.index.resolve import Origin

_NUMBERS = frozenset("item float int len bool round".split())


def is_number(origins: tuple[Origin, ...]) -> bool:
    """Whether a value is surely a number of Python, or a dict of such: as they log."""
    return bool(origins) and all(
        origin.expression is not None
        and (_is_one_number(origin.expression) or _holds_numbers(origin.expression))
        for origin in origins
    )


def _is_one_number(node: ast.expr) -> bool:
    """A constant, `int(x)` and the like, a length."""
    if isinstance(node, ast.Call) and last_name(node) in _NUMBERS:
        return True
    return isinstance(node, ast.Constant) or _is_length(node)


def is_computed_number(node: ast.expr | None) -> bool:
    """`loss.item() / float(len(losses))`: numbers alone, and what they give."""
    if isinstance(node, ast.BinOp):
        return is_computed_number(node.left) and is_computed_number(node.right)
    if isinstance(node, ast.UnaryOp):
        return is_computed_number(node.operand)
    return node is not None and _is_one_number(node)


def _is_length(node: ast.expr | None) -> bool:
    """`images.size(0)`, `images.shape[0]`."""
    if isinstance(node, ast.Call):
        return last_name(node) == "size" and len(node.args) == 1
    whole = node.value if isinstance(node, ast.Subscript) else None
    return isinstance(whole, ast.Attribute) and whole.attr == "shape"


def _holds_numbers(node: ast.expr) -> bool:
    """`{"loss": loss.item()}`, `(int(top), 0)`: all that it holds are such numbers."""
    if not isinstance(node, (ast.List, ast.Tuple, ast.Dict)):
        return False
    held = node.values if isinstance(node, ast.Dict) else node.elts
    return bool(held) and all(_is_one_number(v) or _holds_numbers(v) for v in held)
