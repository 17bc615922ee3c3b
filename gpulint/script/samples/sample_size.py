"""How many numbers a sample of tensors in memory has, where their sizes are written."""

from __future__ import annotations

import ast
import math

from gpulint.index import Evaluator
from gpulint.script.samples.datasets import IN_MEMORY

MAX_DEPTH = 6
_MAKERS = frozenset(f"torch.{n}" for n in "rand randn zeros ones empty".split())
_RANGES = frozenset(f"torch.{n}" for n in "arange linspace randperm".split())
_LISTED = frozenset(["torch.tensor", "torch.Tensor", "torch.FloatTensor"])
# Methods that give no more numbers than they get.
_NO_MORE = frozenset(
    "to long float int double bool type clone detach contiguous sum mean abs pow "
    "square sqrt exp sin cos round squeeze argmax".split()
)


def numbers_of_sample(made: ast.AST, evaluator: Evaluator) -> int | None:
    """How many numbers a sample has of tensors that are made where we can see it.

    Of a `TensorDataset`, or of a class that indexes attributes. None: not known.
    """
    if not isinstance(made, ast.Call):
        return None
    if evaluator.index.qualified(made.func) in IN_MEMORY:
        return _total([_numbers(given, evaluator, 0) for given in made.args])
    owner = evaluator.resolver.classes.named(made.func)
    method = (
        evaluator.resolver.classes.methods(owner).get("__getitem__") if owner else None
    )
    returns = evaluator.resolver.flow(method).returns if method is not None else []
    if len(returns) != 1 or returns[0] is None:
        return None
    its = returns[0]
    parts = its.elts if isinstance(its, (ast.Tuple, ast.List)) else [its]
    return _total([_numbers_of_part(part, evaluator) for part in parts])


def _total(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _numbers_of_part(part: ast.expr, evaluator: Evaluator) -> int | None:
    """Of `self.inputs[index]`."""
    counts: list[int | None] = []
    for origin in evaluator.resolver.origins(part):
        node = origin.expression
        if not isinstance(node, ast.Subscript) or isinstance(node.slice, ast.Slice):
            return None
        counts.append(_numbers(node.value, evaluator, 0))
    return _most(counts)


def _numbers(given: ast.expr, evaluator: Evaluator, depth: int) -> int | None:
    """The numbers in a row of a tensor: all its sizes but the first, multiplied."""
    if depth > MAX_DEPTH:
        return None
    counts: list[int | None] = []
    for origin in evaluator.resolver.origins(given):
        changed = evaluator.index.parent(origin.node)
        if isinstance(changed, ast.AugAssign) and changed.target is origin.node:
            continue  # in place
        node = origin.expression
        known = _numbers_of_row(node, evaluator, depth) if node is not None else None
        counts.append(known)
    return _most(counts)


def _most(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return max(known) if known and len(known) == len(counts) else None


def _numbers_of_row(made: ast.expr, evaluator: Evaluator, depth: int) -> int | None:
    if isinstance(made, ast.Compare) and len(made.comparators) == 1:
        number = whole(evaluator.constant(made.comparators[0]))
        return _numbers(made.left, evaluator, depth + 1) if number is not None else None
    if not isinstance(made, ast.Call):
        return None
    name = evaluator.index.qualified(made.func) or ""
    if name in _MAKERS or name == "torch.randint":
        sizes = _sizes(made, name)
        counts = [whole(evaluator.constant(size)) for size in sizes[1:]]
        known = [count for count in counts if count is not None]
        return math.prod(known) if sizes and len(known) == len(counts) else None
    if name in _RANGES:
        return 1
    if name in _LISTED and made.args:
        return _listed(made.args[0])
    if isinstance(made.func, ast.Attribute) and _keeps_rows(made, made.func.attr):
        return _numbers(made.func.value, evaluator, depth + 1)
    return None


def _keeps_rows(call: ast.Call, method: str) -> bool:
    """Whether rows stay rows, with no more numbers; `unsqueeze(0)` makes one of all."""
    if method == "unsqueeze":
        return bool(call.args) and ast.unparse(call.args[0]) in ("1", "-1")
    return method in _NO_MORE


def _sizes(made: ast.Call, name: str) -> list[ast.expr]:
    """The sizes of `rand(9, 2)`, `rand((9, 2))` and `randint(0, 2, (9, 2))`."""
    given = next((k.value for k in made.keywords if k.arg == "size"), None)
    if given is None and name == "torch.randint":
        given = made.args[-1] if len(made.args) > 1 else None
        return list(given.elts) if isinstance(given, (ast.Tuple, ast.List)) else []
    if given is None and len(made.args) == 1:
        given = made.args[0]
    if isinstance(given, (ast.Tuple, ast.List)):
        starred = any(isinstance(size, ast.Starred) for size in given.elts)
        return [] if starred else list(given.elts)
    return made.args


def _listed(rows: ast.expr) -> int | None:
    """The numbers in the first row of a list that is written out."""
    if not isinstance(rows, (ast.List, ast.Tuple)) or not rows.elts:
        return None
    first, count = rows.elts[0], 1
    while isinstance(first, (ast.List, ast.Tuple)) and first.elts:
        count *= len(first.elts)
        first = first.elts[0]
    return count if isinstance(first, (ast.Constant, ast.UnaryOp)) else None


def whole(value: object) -> int | None:
    return value if type(value) is int else None
