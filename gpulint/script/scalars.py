"""Which tensors have no dimensions, and which hold whole numbers, for certain."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index import Where
from gpulint.index.walk import dotted

if TYPE_CHECKING:
    from gpulint.script.model import Script

_REDUCTIONS = frozenset(
    "sum mean prod min max std var norm median amin amax logsumexp".split()
)
_ELEMENTWISE = frozenset(
    "detach clone float double half bfloat16 long int abs exp log log2 sqrt neg to cpu "
    "cuda type contiguous requires_grad_ item".split()
)
_LOSSES = frozenset(
    "cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss "
    "binary_cross_entropy binary_cross_entropy_with_logits kl_div poisson_nll_loss "
    "gaussian_nll_loss "
    "cosine_embedding_loss hinge_embedding_loss margin_ranking_loss multi_margin_loss "
    "multilabel_margin_loss multilabel_soft_margin_loss soft_margin_loss ctc_loss "
    "triplet_margin_loss triplet_margin_with_distance_loss".split()
)
_COMPARES = frozenset("eq ne gt lt ge le isnan isfinite logical_and logical_or".split())
_SAME_NUMBERS = frozenset(
    "view view_as reshape flatten masked_select squeeze unsqueeze expand_as detach cpu "
    "cuda to t all any bool long int sum".split()
)
MAX_DEPTH = 8


class Scalars:
    """Answers for the expressions of one file; False where there is no proof."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def without_dimensions(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether a value surely is a tensor of shape `()` or a Python number."""
        if depth > MAX_DEPTH:
            return False
        if isinstance(node, ast.Constant):
            return isinstance(node.value, (int, float))
        if isinstance(node, ast.BinOp):
            sides = (node.left, node.right)
            return all(self.without_dimensions(s, depth + 1) for s in sides)
        if isinstance(node, ast.UnaryOp):
            return self.without_dimensions(node.operand, depth + 1)
        if self.script.where(node) is Where.PLAIN:
            return not isinstance(node, (ast.List, ast.Tuple, ast.Dict))
        if isinstance(node, ast.Attribute) and node.attr == "data":
            return self.without_dimensions(node.value, depth + 1)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._named(node, depth)
        return isinstance(node, ast.Call) and self._called(node, depth)

    def _named(self, node: ast.Name | ast.Attribute, depth: int) -> bool:
        reached = self.script.definitions(node)
        return bool(reached) and all(
            d.kind in ("assign", "augment")
            and not d.path
            and d.value is not None
            and self.without_dimensions(d.value, depth + 1)
            for d in reached
        )

    def _called(self, call: ast.Call, depth: int) -> bool:
        name = self.script.index.qualified(call.func) or ""
        head, _, last = name.rpartition(".")
        if head == "torch.nn.functional":
            return last in _LOSSES and self._reduced(call)
        if head == "torch" and last in _REDUCTIONS:
            return len(call.args) == 1 and not _has_dimension(call)
        if head == "torch" and last in _ELEMENTWISE and len(call.args) == 1:
            return self.without_dimensions(call.args[0], depth + 1)
        function = self.script.resolver.calls.callee(call)
        if function is not None:
            values = self.script.resolver.flow(function).returns
            return bool(values) and all(
                v is not None and self.without_dimensions(v, depth + 1) for v in values
            )
        if self._is_loss(call, depth):
            return True
        func = call.func
        if isinstance(func, ast.Attribute) and dotted(func) != f"torch.{func.attr}":
            if func.attr in _REDUCTIONS:
                return not call.args and not _has_dimension(call)
            if func.attr in _ELEMENTWISE:
                return self.without_dimensions(func.value, depth + 1)
        return False

    def _is_loss(self, call: ast.Call, depth: int) -> bool:
        """`criterion(…)` where the criterion is a loss that reduces to one number."""
        origins = self.script.resolver.origins(call.func)
        return bool(origins) and all(
            o.call is not None and self._makes_loss(o.call, depth) for o in origins
        )

    def _makes_loss(self, made: ast.Call, depth: int) -> bool:
        while isinstance(made.func, ast.Attribute) and made.func.attr in ("to", "cuda"):
            if not isinstance(made.func.value, ast.Call):
                return False
            made = made.func.value
        name = self.script.index.qualified(made.func) or ""
        if name.startswith("torch.nn.") and name.endswith("Loss"):
            return self._reduced(made)
        owner = self.script.resolver.classes.named(made.func)
        forward = None
        if owner is not None and self.script.modules.is_module_class(owner):
            forward = self.script.resolver.classes.methods(owner).get("forward")
        if forward is None:
            return False
        values = self.script.resolver.flow(forward).returns
        return bool(values) and all(
            v is not None and self.without_dimensions(v, depth + 1) for v in values
        )

    def _reduced(self, call: ast.Call) -> bool:
        if any(k.arg in (None, "reduce") for k in call.keywords):
            return False
        if any(isinstance(a, ast.Starred) for a in call.args):
            return False
        given = [k.value for k in call.keywords if k.arg == "reduction"]
        positional = [a.value for a in call.args if isinstance(a, ast.Constant)]
        if any(isinstance(value, (str, bool)) for value in positional):
            return False
        values = self.script.evaluator.values
        return all(values(v).all_in("mean", "sum", "batchmean") for v in given)

    def floating(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether a tensor surely holds floating-point numbers."""
        if depth > MAX_DEPTH:
            return False
        if isinstance(node, ast.BinOp):
            sides = (node.left, node.right)
            divides = isinstance(node.op, ast.Div)
            return divides or any(self.floating(s, depth + 1) for s in sides)
        if isinstance(node, ast.Name):
            reached = self.script.definitions(node)
            return bool(reached) and all(
                not d.path and d.value is not None and self.floating(d.value, depth + 1)
                for d in reached
            )
        if not isinstance(node, ast.Call):
            return False
        name = self.script.index.qualified(node.func) or ""
        head, _, last = name.rpartition(".")
        if (head == "torch.nn.functional" and last in _LOSSES) or name == "torch.mean":
            return True
        func = node.func
        if isinstance(func, ast.Attribute):
            if func.attr in ("mean", "std", "var", "norm", "float", "double"):
                return True
            if func.attr in _SAME_NUMBERS - {"long", "int", "bool", "any", "all", "to"}:
                return self.floating(func.value, depth + 1)
        origins = self.script.resolver.origins(func)
        return bool(origins) and all(
            o.call is not None
            and (self.script.index.qualified(o.call.func) or "").startswith("torch.nn.")
            and (dotted(o.call.func) or "").endswith("Loss")
            for o in origins
        )

    def whole(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether a tensor surely holds whole numbers (or truth values)."""
        if depth > MAX_DEPTH:
            return False
        if isinstance(node, ast.Compare):
            return True
        if isinstance(node, ast.BinOp) and isinstance(
            node.op, (ast.BitAnd, ast.BitOr, ast.Mult, ast.Add)
        ):
            sides = (node.left, node.right)
            return all(self.whole(s, depth + 1) for s in sides)
        if isinstance(node, ast.UnaryOp):
            return isinstance(node.op, ast.Invert) and self.whole(
                node.operand, depth + 1
            )
        if isinstance(node, ast.Attribute) and node.attr == "data":
            return self.whole(node.value, depth + 1)
        if isinstance(node, ast.Subscript):
            return self.whole(node.value, depth + 1)
        if isinstance(node, ast.Name):
            reached = self.script.definitions(node)
            return bool(reached) and all(
                d.kind == "assign"
                and not d.path
                and d.value is not None
                and self.whole(d.value, depth + 1)
                for d in reached
            )
        return isinstance(node, ast.Call) and self._whole_call(node, depth)

    def _whole_call(self, call: ast.Call, depth: int) -> bool:
        name = self.script.index.qualified(call.func) or ""
        head, _, last = name.rpartition(".")
        if head == "torch":
            if last in _COMPARES or last == "count_nonzero":
                return True
            same = last in ("sum", "masked_select") and bool(call.args)
            same = same and not any(k.arg == "dtype" for k in call.keywords)
            return same and self.whole(call.args[0], depth + 1)
        func = call.func
        if not isinstance(func, ast.Attribute):
            return False
        if func.attr in _COMPARES or func.attr in (
            "count_nonzero",
            "long",
            "int",
            "bool",
        ):
            return True
        if func.attr == "to":
            move = self.script.devices.move(call)
            if move is None or move.dtype:
                return False
        if func.attr == "sum" and any(
            "type" in (k.arg or "") or self.script.devices.is_dtype(k.value)
            for k in call.keywords
        ):
            return False
        return func.attr in _SAME_NUMBERS and self.whole(func.value, depth + 1)


def _has_dimension(call: ast.Call) -> bool:
    """Whether a reduction may name a dimension or another tensor."""
    starred = any(isinstance(a, ast.Starred) for a in call.args)
    return starred or any(k.arg != "dtype" for k in call.keywords)
