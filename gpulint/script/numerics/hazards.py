"""Operations of a step that half precision would break."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from gpulint.index.walk import dotted, walk
from gpulint.script.neighbours import run_together
from gpulint.script.numerics.half import Formats, needs_digits
from gpulint.script.numerics.reached import reached, runs_a_model

if TYPE_CHECKING:
    from gpulint.script.model import Script

_WRITES = frozenset(
    "scatter_ scatter_add_ scatter_reduce_ index_add_ index_copy_ index_put_ "
    "masked_scatter_ lerp lerp_ scatter scatter_add index_add index_copy".split()
)
# Take float32 and float64 only, or want two tensors of one format.
_PICKY = frozenset(
    "quantile nanquantile bucketize searchsorted histc MultivariateNormal "
    "LowRankMultivariateNormal".split()
)
_FILLS = ("masked_fill", "full_like", "where", "fill_", "new_full", "index_fill")
# Functions of numpy that are for numbers and shapes, never for tensors.
_OF_NUMBERS = re.compile(r"^numpy\.(random\.|(prod|eye|arange|linspace|zeros|ones)$)")
_REARRANGES = frozenset("transpose permute t view reshape".split())
_PRODUCTS = frozenset("bmm matmul mm".split())
_LOGARITHMS = frozenset("log log2 log10".split())
_LARGEST = 65504.0  # of float16
_SMALLEST = 5.97e-8
_NEAREST_TO_1 = 0.9961  # the last number before 1 in bfloat16


def hazard(script: Script, statements: tuple[ast.stmt, ...]) -> str | None:
    """Why statements, or modules of their file, may go wrong in half precision."""
    formats = Formats(script)
    for node in walk(*reached(script, statements)):
        reason = _hazard(script, formats, node)
        if reason is not None:
            return f"`{script.text(node).splitlines()[0]}` {reason}"
    return None


def hazard_in_modules(script: Script) -> str | None:
    """Why modules of the program's own files may fail or go wrong in half precision."""
    of_files = (hazard(script.of(i.tree), ()) for i in run_together(script))
    return next((reason for reason in of_files if reason is not None), None)


def is_gram(script: Script, node: ast.AST) -> bool:
    """Whether a tensor is multiplied by itself: sums of squares leave float16."""
    factors: list[ast.expr] = []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        factors = [node.left, node.right]
    elif isinstance(node, ast.Call):
        name = script.index.qualified(node.func) or ""
        if getattr(node.func, "attr", name) in _PRODUCTS:
            factors = [*node.args, *(k.value for k in node.keywords)]
            if isinstance(node.func, ast.Attribute) and not name.startswith("torch."):
                factors.insert(0, node.func.value)
    made = [_untransposed(script, factor, 0) for factor in factors[:2]]
    return len(made) == 2 and made[0] is not None and made[0] == made[1]


def _untransposed(script: Script, node: ast.expr, depth: int) -> object:
    """What identifies the tensor that a view or transposition is of."""
    if isinstance(node, ast.Attribute) and node.attr in ("T", "mT", "H", "mH"):
        return _untransposed(script, node.value, depth)
    func = node.func if isinstance(node, ast.Call) else None
    if isinstance(func, ast.Attribute) and func.attr in _REARRANGES:
        given = func.value
        if (script.index.qualified(func) or "").startswith("torch."):
            values = getattr(node, "args", [])
            given = values[0] if values else given
        return _untransposed(script, given, depth)
    if not isinstance(node, ast.Name) or depth > 4:
        return None
    found = script.definitions(node)
    only = found[0] if len(found) == 1 else None
    if only is not None and only.kind == "assign" and only.value and not only.path:
        return _untransposed(script, only.value, depth + 1) or only
    return only


def _subtracts_neighbours(script: Script, node: ast.AST) -> bool:
    """`u[:, 2:] - u[:, :-2]`: finite differences, and the sizes of boxes."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub):
        return False
    left, right = node.left, node.right
    if not isinstance(left, ast.Subscript) or not isinstance(right, ast.Subscript):
        return False
    sliced = any(isinstance(n, ast.Slice) for n in walk(left.slice, right.slice))
    same = script.text(left.value) == script.text(right.value)
    return sliced and same and script.text(left.slice) != script.text(right.slice)


def _hazard(script: Script, formats: Formats, node: ast.AST) -> str | None:
    if is_gram(script, node):
        return "may exceed the largest number of float16"
    if _subtracts_neighbours(script, node):
        return "is a difference that half precision rounds away"
    if isinstance(node, (ast.BinOp, ast.AugAssign)):
        added = isinstance(node.op, (ast.Add, ast.Sub))
        terms = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.value]
        vanishes = added and any(_vanishes(script, term) for term in terms)
        return "adds what is 0 in float16" if vanishes else None
    if isinstance(node, ast.Assign):
        written = any(isinstance(t, ast.Subscript) for t in node.targets)
        too_large = written and _overflows(script, node.value)
        return "holds a number that float16 cannot" if too_large else None
    if not isinstance(node, ast.Call):
        return None
    name = script.index.qualified(node.func) or ""
    last = name.rpartition(".")[2] or getattr(node.func, "attr", "")
    values = [*node.args, *(k.value for k in node.keywords)]
    if needs_digits(script, node):
        return "has no half-precision form"
    if last == "apply" and isinstance(node.func, ast.Attribute):
        owner = script.resolver.classes.named(node.func.value)
        if owner and "torch.autograd.Function" in script.resolver.classes.base_names(
            owner
        ):
            return "is a custom autograd.Function"
    if last == "numpy" or (name.startswith("numpy.") and not _OF_NUMBERS.match(name)):
        return "makes an array of what may be bfloat16"
    if "sparse" in name or "sparse" in last or last == "spmm":
        return "has no half-precision form"
    if last in _PICKY:
        return "does not take half precision"
    if name == "torch.autograd.grad" or last == "backward":
        return "makes gradients that are not scaled"
    return _bad_numbers(script, formats, node, last, values)


def _bad_numbers(
    script: Script, formats: Formats, node: ast.Call, last: str, values: list[ast.expr]
) -> str | None:
    """Why numbers in a call, or what it is applied to, do not suit half precision."""
    if last in _WRITES and not isinstance(values[-1] if values else None, ast.Constant):
        return "writes values of another precision into a tensor"
    fills = last.startswith(_FILLS) or last in _WRITES or last == "pad"
    if fills and any(_overflows(script, v) for v in values):
        return "holds a number that float16 cannot"
    if last.startswith(("clamp", "clip")):
        if any(_vanishes(script, v) for v in values):
            return "has a limit that is 0 in float16"
        if any(_is_nearly_1(script, v) for v in values):
            return "has a limit that is 1 in half precision"
    if last in ("add", "sub", "add_", "sub_") and any(
        _vanishes(script, v) for v in values
    ):
        return "adds what is 0 in float16"
    if last in _LOGARITHMS:
        name = script.index.qualified(node.func) or ""
        of = node.args[0] if name.startswith("torch.") and node.args else None
        if of is None and isinstance(node.func, ast.Attribute) and not node.args:
            of = node.func.value
        half = of is not None and not formats.float32(of)
        if half and of is not None and _is_probability(script, formats, of):
            return "is infinite where half precision rounds to 0"
    return None


def _is_probability(script: Script, formats: Formats, node: ast.expr) -> bool:
    """Whether a logarithm is taken of what comes from a sigmoid in half precision."""
    todo: list[ast.AST] = [node]
    for root in todo:
        for part in walk(root):
            if not isinstance(part, (ast.Call, ast.Name)):
                continue
            if isinstance(part, ast.Call):
                last = (dotted(part.func) or "").rpartition(".")[2]
                last = last or getattr(part.func, "attr", "")
                if last == "float":
                    continue
                made = (o.call for o in script.resolver.origins(part.func))
                kinds = [dotted(c.func) or "" for c in made if c is not None]
                if "sigmoid" in " ".join([last, *kinds]).lower() and "log" not in last:
                    return True
                if runs_a_model(script, part) and not formats.float32(part):
                    return True
            elif len(todo) < 30:
                for found in script.resolver.definitions(part):
                    if found.value is not None and found.value not in todo:
                        todo.append(found.value)
                    elif found.kind == "parameter" and _gives_output(script, part):
                        return True
    return False


def _gives_output(script: Script, parameter: ast.Name) -> bool:
    """Whether a caller gives what a model returns, as the unseen ones of losses do."""
    scope = script.index.home(parameter).scope(parameter)
    if script.resolver.self_name(scope) == parameter.id:
        return False
    for origin in script.resolver.origins(parameter):
        made = origin.call
        owner = script.index.home(parameter).owner(parameter)
        if origin.kind == "parameter" and owner and "loss" in owner.name.lower():
            return True
        if made is not None:
            its = script.of(made)
            if runs_a_model(its, made) and not Formats(its).float32(made):
                return True
    return False


def _number(script: Script, node: ast.expr) -> float | None:
    if isinstance(node, ast.BinOp):
        left, right = _number(script, node.left), _number(script, node.right)
        if left is None or right is None:
            return None
        return _computed(node.op, left, right)
    value = script.evaluator.constant(node)
    known = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if known else None  # type: ignore[arg-type]


def _computed(operator: ast.operator, left: float, right: float) -> float | None:
    """`10 ** -9`, `1 - eps`, `-2 ** 32 + 1`."""
    try:
        if isinstance(operator, ast.Pow):
            return float(left**right)
        if isinstance(operator, (ast.Mult, ast.Div)):
            return left * right if isinstance(operator, ast.Mult) else left / right
        if isinstance(operator, (ast.Add, ast.Sub)):
            return left + right if isinstance(operator, ast.Add) else left - right
    except (ArithmeticError, TypeError):
        pass
    return None


def _vanishes(script: Script, node: ast.expr) -> bool:
    number = _number(script, node)
    return number is not None and 0.0 < abs(number) < _SMALLEST


def _is_nearly_1(script: Script, node: ast.expr) -> bool:
    number = _number(script, node)
    return number is not None and _NEAREST_TO_1 < number < 1.0


def _overflows(script: Script, node: ast.expr) -> bool:
    number = _number(script, node)
    if number is not None:
        return _LARGEST < abs(number) < float("inf")
    return any(
        script.index.qualified(n.func) in ("torch.finfo", "numpy.finfo")
        and not any(isinstance(a, ast.Attribute) and a.attr == "dtype" for a in n.args)
        for n in walk(node)
        if isinstance(n, ast.Call)
    )
