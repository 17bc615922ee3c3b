"""Attention that is written out: scores, softmax and sum, each a pass over memory."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index.build import last_name
from gpulint.index.walk import dotted
from gpulint.script.modelling.few_scores import are_few
from gpulint.script.reaching.old_torch import runs_only_before

if TYPE_CHECKING:
    from gpulint.script.model import Script

LOWEST = (2, 0)  # the first release of `scaled_dot_product_attention`
# A file that names one of these, in capitals or not, knows of the fused kernels.
FUSED = (
    *("scaled_dot_product_attention", "flash_attn", "flashattn", "flash_attention"),
    *("flashattention", "memory_efficient_attention", "flex_attention", "xformers"),
    *("need_weights", "output_attentions"),
)
_SPEC = re.compile(r"^(\w+),(\w+)->(\w+)$")
_MASK = re.compile(r"mask|tril|triu|causal", re.IGNORECASE)
_SOFTMAX = ("torch.softmax", "torch.nn.functional.softmax")
_PRODUCTS = ("torch.matmul", "torch.bmm")
_LAST_TWO = ((-1, -2), (-2, -1), (1, 2), (2, 1), (2, 3), (3, 2))
_TURNS = ((0, 2, 3, 1), (0, 1, 3, 2), (0, 2, 1))
MAX_STEPS = 8  # operations between the scores and the softmax


class Attention(NamedTuple):
    """A softmax over products of queries and keys, whose weights sum values.

    `scaled`: whether the scores are multiplied or divided by something; `masks` and
    `dropouts`: where that is done to them, and to the weights.
    """

    softmax: ast.Call
    scores: ast.expr
    scaled: bool
    masks: tuple[ast.expr, ...]
    dropouts: tuple[ast.Call, ...]


def find_attention(script: Script) -> Iterator[Attention]:
    """All such places in the methods of a file's modules, in source order."""
    text = script.source.text.lower()
    if any(name in text for name in FUSED) or runs_only_before(script, LOWEST):
        return
    layers = set(_softmax_layers(script))
    names = {"softmax", *(name.rpartition(".")[2] for name in layers)}
    calls = [c for n in names for c in script.index.calls_by_name.get(n, ())]
    for call in sorted(calls, key=lambda c: (c.lineno, c.col_offset)):
        owner = script.index.owner(call)
        if owner is None or not script.modules.is_module_class(owner):
            continue
        given = _normalised(script, call, layers)
        found = _Reader(script).read(call, given) if given is not None else None
        if found is not None:
            yield found


def _softmax_layers(script: Script) -> Iterator[str]:
    """`self.softmax` of `self.softmax = nn.Softmax(dim=-1)`."""
    for call in script.index.calls.get("torch.nn.Softmax", ()):
        statement = script.index.statement(call)
        if isinstance(statement, ast.Assign) and statement.value is call:
            name = dotted(statement.targets[0])
            if name is not None and _is_last(script, call, 0):
                yield name


def _is_last(script: Script, call: ast.Call, position: int) -> bool:
    """Whether a softmax is over the last dimension, by its option `dim`."""
    given = script.evaluator.argument(call, "dim", position)
    return given.given and all(
        script.evaluator.values(node).all_in(-1) for node in given.nodes
    )


def _normalised(script: Script, call: ast.Call, layers: set[str]) -> ast.expr | None:
    """What a call of softmax is given, where it is over the last dimension alone."""
    if any(k.arg not in ("dim", "input") for k in call.keywords):
        return None
    if script.index.qualified(call.func) in _SOFTMAX:
        return call.args[0] if call.args and _is_last(script, call, 1) else None
    if dotted(call.func) in layers:
        return call.args[0] if len(call.args) == 1 else None
    method = isinstance(call.func, ast.Attribute) and call.func.attr == "softmax"
    if not method or not _is_last(script, call, 0):
        return None
    assert isinstance(call.func, ast.Attribute)
    return call.func.value


class _Reader:
    """Follows scores back to their product, and weights on to their sum."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.scaled = False
        self.masks: list[ast.expr] = []
        self.dropouts: list[ast.Call] = []
        self.products: list[ast.expr] = []

    def read(self, softmax: ast.Call, given: ast.expr) -> Attention | None:
        """The attention that a softmax is a part of; None: it is not, or not alone."""
        if not self._back(given, 0) or not self._on(softmax, 0):
            return None
        if len(set(self.products)) != 1:
            return None
        scores, masks = self.products[0], tuple(dict.fromkeys(self.masks))
        dropouts = tuple(dict.fromkeys(self.dropouts))
        return Attention(softmax, scores, self.scaled, masks, dropouts)

    # Scores

    def _back(self, node: ast.expr, depth: int) -> bool:
        """Whether an expression is the product, scaled and masked at most."""
        if depth > MAX_STEPS:
            return False
        if _is_scores(self.script, node):
            self.products.append(node)
            return True
        if isinstance(node, ast.Name):
            return self._named(node, depth)
        if isinstance(node, ast.BinOp):
            return self._operated(node, depth)
        func = node.func if isinstance(node, ast.Call) else None
        if isinstance(func, ast.Attribute) and func.attr == "masked_fill":
            self.masks.append(node)
            return self._back(func.value, depth + 1)
        return False

    def _named(self, name: ast.Name, depth: int) -> bool:
        """All definitions of a name: the product, or the name before, masked."""
        definitions = self.script.definitions(name)
        return bool(definitions) and all(
            d.kind == "assign"
            and not d.path
            and d.value is not None
            and self._back(d.value, depth + 1)
            for d in definitions
        )

    def _operated(self, node: ast.BinOp, depth: int) -> bool:
        if isinstance(node.op, (ast.Mult, ast.Div)) and self._is_scale(node.right):
            self.scaled = True
            return self._back(node.left, depth + 1)
        if isinstance(node.op, ast.Mult) and self._is_scale(node.left):
            self.scaled = True
            return self._back(node.right, depth + 1)
        text = self.script.text(node.right)
        if isinstance(node.op, ast.Add) and _MASK.search(text):
            self.masks.append(node)
            return self._back(node.left, depth + 1)
        return False

    def _is_scale(self, node: ast.expr) -> bool:
        """Whether a factor is a number: `math.sqrt(d)`, `d**-0.5`, `self.scale`."""
        text = self.script.text(node)
        return bool(
            re.search(r"sqrt|\*\*\s*\(?-?\s*0?\.5|scal|temper|norm_fact", text)
        ) or isinstance(node, ast.Constant)

    # Weights

    def _on(self, weights: ast.expr, depth: int) -> bool:
        """Whether weights are used to sum values, and for nothing else."""
        above = self.script.index.parent(weights)
        if depth > MAX_STEPS or above is None:
            return False
        if _is_sum(self.script, above, weights):
            return True
        if isinstance(above, ast.Call) and weights in above.args:
            if "drop" in last_name(above).lower():
                self.dropouts.append(above)
                return self._on(above, depth + 1)
            return False
        if isinstance(above, ast.Assign) and len(above.targets) == 1:
            return self._stored(above.targets[0], depth)
        return False

    def _stored(self, target: ast.expr, depth: int) -> bool:
        """Whether all that read a name use it so."""
        if not isinstance(target, ast.Name):
            return False
        flow = self.script.resolver.flow(self.script.index.scope(target))
        made = [d for d in flow.definitions.get(target.id, ()) if d.node is target]
        uses = [use for d in made for use in self.script.uses(d)]
        return bool(uses) and all(
            isinstance(use, ast.expr) and self._on(use, depth + 1) for use in uses
        )


def _operands(script: Script, node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """`a` and `b` of `a @ b`, `a.matmul(b)` and `torch.bmm(a, b)`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return node.left, node.right
    if not isinstance(node, ast.Call) or node.keywords:
        return None
    if script.index.qualified(node.func) in _PRODUCTS and len(node.args) == 2:
        return node.args[0], node.args[1]
    func = node.func
    method = isinstance(func, ast.Attribute) and func.attr in ("matmul", "bmm")
    if method and len(node.args) == 1 and isinstance(func, ast.Attribute):
        return func.value, node.args[0]
    return None


def _is_scores(script: Script, node: ast.expr) -> bool:
    """Whether an expression multiplies queries with keys: `q @ k.transpose(-2, -1)`."""
    pair = _operands(script, node)
    if pair is not None:
        return _is_turned(script, pair[1]) and not are_few(script, pair[0])
    spec = _spec(node)
    if spec is None:
        return False
    left, right, out = spec
    same = len(left) == len(right) == len(out) >= 3
    return same and left[-1] == right[-1] and out == left[:-1] + right[-2]


def _is_turned(script: Script, node: ast.expr) -> bool:
    """Whether the last two dimensions of a tensor are exchanged, here or before."""
    if isinstance(node, ast.Name):
        values = [d.value for d in script.definitions(node) if not d.path]
        return bool(values) and all(
            value is not None and not isinstance(value, ast.Name) and _turns(value)
            for value in values
        )
    return _turns(node)


def _turns(node: ast.expr) -> bool:
    """`k.transpose(-2, -1)`, `k.permute(0, 2, 3, 1)`, `k.mT`."""
    if isinstance(node, ast.Attribute):
        return node.attr == "mT"
    if not isinstance(node, ast.Call):
        return False
    try:
        given = tuple(ast.literal_eval(a) for a in node.args)
    except ValueError:
        return False
    if last_name(node) == "permute":
        return given in _TURNS
    return last_name(node) in ("transpose", "swapaxes") and given in _LAST_TWO


def _is_sum(script: Script, node: ast.AST, weights: ast.expr) -> bool:
    """Whether a product or `einsum` sums values by weights."""
    pair = _operands(script, node)
    if pair is not None:
        return pair[0] is weights
    spec = _spec(node)
    if spec is None or not isinstance(node, ast.Call) or node.args[1] is not weights:
        return False
    left, right, out = spec
    same = len(left) == len(right) == len(out) >= 3
    return same and left[-1] == right[-2] and out == left[:-1] + right[-1]


def _spec(node: ast.AST) -> tuple[str, str, str] | None:
    """The letters of an `einsum` of two tensors."""
    if not isinstance(node, ast.Call) or len(node.args) != 3:
        return None
    first = node.args[0]
    if last_name(node) != "einsum" or not isinstance(first, ast.Constant):
        return None
    found = _SPEC.match(str(first.value).replace(" ", ""))
    return (found[1], found[2], found[3]) if found else None
