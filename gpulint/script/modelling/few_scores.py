"""Attention whose scores are few beside its tokens: of one query, or among channels."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index.build import last_name

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_STEPS = 12  # operations between the input of a layer and its queries
_OF_TENSORS = frozenset(
    "view reshape permute transpose unbind chunk split unsqueeze contiguous flatten "
    "float half to type_as mul div softmax".split()
)

# Behind all others, as a layer, the dimensions may stand in another order.
_KEEPS_ORDER = _OF_TENSORS - {"permute", "transpose"} | {"normalize"}


def are_few(script: Script, query: ast.expr) -> bool:
    """Whether a query is one token, a number a token, or has its tokens last.

    With tokens last the scores are among channels (cross-covariance attention): their
    number does not grow with that of the tokens.
    """
    turned = False
    for node in _made_from(script, query):
        if isinstance(node, ast.Subscript) and _takes_one(node):
            return True
        if isinstance(node, ast.Call):
            if last_name(node) == "unsqueeze" or _puts_tokens_last(node, turned):
                return True
            turned = turned or last_name(node) not in _KEEPS_ORDER
    return False


def _puts_tokens_last(node: ast.Call, turned: bool) -> bool:
    """Whether a call gives its dimensions this order; `turned`: others change it on."""
    name, args = last_name(node), [_constant(a) for a in node.args]
    if name == "unbind":
        return args == [-1]
    if turned:
        return False
    if name in ("view", "reshape"):
        return _multiplies(node.args)
    if name == "permute":  # of (batch, tokens, 3, heads, width)
        return len(args) == 5 and args[-1] == 1
    return name == "rearrange" and len(args) > 1 and str(args[1]).rstrip()[-1:] == ")"


def _made_from(script: Script, node: ast.expr) -> Iterator[ast.expr]:
    """An expression, and then what each of its operations is applied to in turn."""
    nodes = [node]
    for _ in range(MAX_STEPS):
        origins = [o for n in nodes for o in script.resolver.origins(n)]
        made = [o.node for o in origins if o.kind == "expression"]
        nodes = []
        for expression in made:
            assert isinstance(expression, ast.expr)
            yield expression
            nodes += _given(expression)


def _given(node: ast.expr) -> list[ast.expr]:
    """`x` of `x[0]`, of `x * scale`, of `x.view(…)` and of `self.layer(x)`."""
    if isinstance(node, ast.Subscript):
        return [node.value]
    if isinstance(node, ast.BinOp):
        return [node.left]
    if not isinstance(node, ast.Call):
        return []
    if isinstance(node.func, ast.Attribute) and node.func.attr in _OF_TENSORS:
        return [node.func.value]
    return node.args[:1]


def _takes_one(node: ast.Subscript) -> bool:
    """`x[:, 0:1]`, `x[:, :1]`, `x[:, -1:]`, `x[:, None]`."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
    return any(_is_one(part) for part in parts[1:])


def _is_one(part: ast.expr) -> bool:
    if not isinstance(part, ast.Slice):
        return isinstance(part, ast.Constant) and part.value is None
    first, after = _constant(part.lower), _constant(part.upper)
    return (first or 0, after) in ((0, 1), (-1, None)) and part.step is None


def _multiplies(shape: list[ast.expr]) -> bool:
    """`(batch, channels, height * width)`."""
    last = shape[-1] if shape else None
    if isinstance(last, (ast.Tuple, ast.List)) and last.elts:
        last = last.elts[-1]
    return isinstance(last, ast.BinOp) and isinstance(last.op, ast.Mult)


def _constant(node: ast.expr | None) -> object:
    try:
        return ast.literal_eval(node) if node is not None else None
    except ValueError:
        return None
