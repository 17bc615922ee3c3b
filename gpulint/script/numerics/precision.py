"""How a file sets floating-point precision: mixed precision and TF32."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from gpulint.index import Evaluator, FileIndex
from gpulint.index.build import last_name
from gpulint.index.walk import dotted
from gpulint.script.neighbours import may_be_run, run_together

if TYPE_CHECKING:
    from gpulint.script.model import Script

_AMP = re.compile(
    r"autocast|GradScaler|(^|[._])amp($|[._])|use_amp|fp16|bf16|bfloat16|float16|"
    r"mixed_precision|half_precision|use_half|HalfTensor|precision_plugin|loss_scale|"
    r"deepspeed|load_in_[48]bit|torch_dtype",
    re.IGNORECASE,
)
_MATMUL = re.compile(r"float32_matmul_precision|fp32_precision")
# Also by a function of MONAI, and one of transformers.
_DETERMINISTIC = re.compile(
    r"use_deterministic_algorithms|^deterministic$"
    r"|^(set|make|enable_full)_determinis(m$|tic)"
)
# Whose keyword `deterministic` is about algorithms, and not how a policy acts.
_SETS_UP = re.compile(
    r"^(dict|run)|^[A-Z]|(?i:train|launch|fabric|seed|init|set_?up|config|flags)"
)
_SETTERS = ("allow_tf32", "float32_matmul_precision", "fp32_precision")


def matmul_set_nearby(script: Script) -> bool:
    """Whether another file of the program sets the precision of matrix products."""
    project = script.index.project
    if project is None or not any(map(project.mentions, _SETTERS)):
        return False
    return any(
        Precision(index, script.evaluator).matmul is not None
        for index in run_together(script)
        if any(word in index.source.text for word in _SETTERS)
    )


def runs_deterministic(script: Script) -> bool:
    """Whether a file of the program asks for deterministic algorithms.

    At its top, or in what any of them names: `set_seed(args.seed)`, `runner(set_seed)`.
    """
    if script.precision.deterministic is not None:
        return True
    project = script.index.project
    if project is None or not project.mentions("deterministic"):
        return False
    together = run_together(script)
    return any(
        may_be_run(script, node, together)
        for index in together
        if index is not script.index and "deterministic" in index.source.text
        for node in _asks_for_determinism(index)
    )


def _asks_for_determinism(index: FileIndex) -> Iterator[ast.AST]:
    """`cudnn.deterministic = True`, calls and options; not what they give as False."""
    for target in index.attribute_writes.get("deterministic", ()):
        if not _is_false(getattr(index.parent(target), "value", None)):
            yield target
    for keyword in index.all(ast.keyword):
        call = index.parent(keyword)
        if keyword.arg != "deterministic" or not isinstance(call, ast.Call):
            continue
        if _SETS_UP.search(last_name(call)) and not _is_false(keyword.value):
            yield call
    for name, calls in index.calls_by_name.items():
        for call in calls if _DETERMINISTIC.search(name) else ():
            modes = [k.value for k in call.keywords if k.arg == "mode"]
            if not any(map(_is_false, [*call.args[:1], *modes])):
                yield call


def _is_false(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is False


def names_half(node: ast.AST) -> bool:
    """Whether a name, attribute or keyword is about mixed or half precision."""
    name = getattr(node, "id", None) or getattr(node, "attr", None)
    name = name or getattr(node, "arg", None)  # of a keyword or parameter
    return isinstance(name, str) and _AMP.search(name) is not None


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
        return next(
            (n for name, n in self._names.items() if pattern.search(name)), None
        )

    @cached_property
    def amp(self) -> ast.AST | None:
        """Where mixed or half precision is used, or a switch for it is read.

        An import that nothing uses, and a key of a dict that no code looks up, are
        no use.
        """
        return self.named_amp or next(iter(self.halves), None)

    @cached_property
    def named_amp(self) -> ast.AST | None:
        """The same, without tensors and models that `half()` makes float16."""
        for name, node in self._names.items():
            dead = isinstance(node, ast.alias) and not self._is_read(node)
            if _AMP.search(name) and not dead:
                return node
        return self._looked_up(_AMP)

    @cached_property
    def halves(self) -> list[ast.Attribute]:
        """Where `half` of a tensor or model stands."""
        return [a for a in self.index.all(ast.Attribute) if a.attr == "half"]

    def _is_read(self, alias: ast.alias) -> bool:
        local = (alias.asname or alias.name).partition(".")[0]
        return any(n.id == local for n in self.index.all(ast.Name))

    def _looked_up(self, pattern: re.Pattern[str]) -> ast.AST | None:
        """A setting that is read by such a key: `config["use_amp"]`, `.get(…)`."""
        keys: list[ast.AST] = [
            s.slice
            for s in self.index.all(ast.Subscript)
            if isinstance(s.ctx, ast.Load)
        ]
        for call in self.index.all(ast.Call):
            func = call.func
            last = func.attr if isinstance(func, ast.Attribute) else dotted(func)
            if last in ("get", "pop", "getattr", "setdefault"):
                keys += call.args
        texts = (k for k in keys if isinstance(k, ast.Constant))
        return next((k for k in texts if pattern.search(str(k.value))), None)

    @cached_property
    def matmul(self) -> ast.AST | None:
        """Where the precision of float32 matrix products is set or read.

        `torch.backends.cudnn.allow_tf32` is about convolutions only.
        """
        for attribute in self.index.all(ast.Attribute):
            if attribute.attr == "allow_tf32":
                name = self.index.qualified(attribute) or ""
                if "cudnn" not in name:
                    return attribute
        return self._first(_MATMUL)

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
                is_off = (
                    isinstance(keyword.value, ast.Constant) and not keyword.value.value
                )
                return not is_off
        name = self.index.qualified(call.func) or ""
        return name.startswith(("torch.func.", "functorch.")) or name in (
            "torch.autograd.functional.jacobian",
            "torch.autograd.functional.hessian",
        )
