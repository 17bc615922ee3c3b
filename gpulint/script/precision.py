"""How a file sets floating-point precision: mixed precision, TF32, float64."""

from __future__ import annotations

import ast
import re
from functools import cached_property

from gpulint.index import Evaluator, FileIndex

_AMP = re.compile(
    r"autocast|GradScaler|(^|[._])amp($|[._])|apex|use_amp|fp16|bf16|bfloat16|float16|"
    r"mixed_precision|(^|_)half($|_)|precision_plugin|loss_scale|deepspeed",
)
_MATMUL = re.compile(r"float32_matmul_precision|allow_tf32|fp32_precision")
_DOUBLE = re.compile(r"float64|set_default_dtype|DoubleTensor|^double$")
_DETERMINISTIC = re.compile(r"use_deterministic_algorithms|^deterministic$")


class Precision:
    """Names in a file that concern precision, each with the first place it stands.

    A property is None when nothing of the kind is there.
    """

    def __init__(self, index: FileIndex, evaluator: Evaluator) -> None:
        self.index = index
        self.evaluator = evaluator

    @cached_property
    def _names(self) -> dict[str, ast.AST]:
        """Every name, attribute, keyword and option text, with its first place."""
        found: dict[str, ast.AST] = {}
        for name in self.index.all(ast.Name):
            found.setdefault(name.id, name)
        for attribute in self.index.all(ast.Attribute):
            found.setdefault(attribute.attr, attribute)
        for keyword in self.index.all(ast.keyword):
            found.setdefault(keyword.arg or "", keyword)
        for alias in self.index.all(ast.alias):
            found.setdefault(alias.name, alias)
        for parameter in self.index.all(ast.arg):
            found.setdefault(parameter.arg, parameter)
        return found

    def _first(self, pattern: re.Pattern[str]) -> ast.AST | None:
        return next((n for name, n in self._names.items() if pattern.search(name)), None)

    @cached_property
    def amp(self) -> ast.AST | None:
        """Where mixed or half precision is used, or a switch for it is read."""
        return self._first(_AMP)

    @cached_property
    def matmul(self) -> ast.AST | None:
        """Where the precision of float32 matrix products is set or read."""
        return self._first(_MATMUL)

    @cached_property
    def double(self) -> ast.AST | None:
        """Where float64 is asked for."""
        return self._first(_DOUBLE)

    @cached_property
    def deterministic(self) -> ast.AST | None:
        """Where deterministic algorithms are asked for."""
        return self._first(_DETERMINISTIC)

    @cached_property
    def second_order(self) -> tuple[ast.Call, ...]:
        """Calls that differentiate with `create_graph=True`, or functional ones."""
        return tuple(call for call in self.index.all(ast.Call) if self._second(call))

    def _second(self, call: ast.Call) -> bool:
        for keyword in call.keywords:
            if keyword.arg == "create_graph":
                is_off = isinstance(keyword.value, ast.Constant) and not keyword.value.value
                return not is_off
        name = self.index.qualified(call.func) or ""
        return name.startswith(("torch.func.", "functorch.")) or name in (
            "torch.autograd.functional.jacobian",
            "torch.autograd.functional.hessian",
        )
