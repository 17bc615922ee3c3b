"""Where values that a model returns in half precision go, and whether they may."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.walk import walk, walk_scope
from gpulint.script.numerics.half import Formats
from gpulint.script.training.training_step import is_loss, runs_model

if TYPE_CHECKING:
    from gpulint.script.model import Script


class Outputs:
    """Follows what a model returns in half precision to where it is used.

    `widened` are the uses of tensors outside the region that want float32 instead.
    """

    _SAFE = frozenset(
        "argmax argmin argsort eq ne gt lt ge le float double long int bool item size "
        "dim shape dtype device ndim numel type_as nelement isnan isfinite isinf any "
        "all".split()
    )
    _PAIRS = frozenset({"max", "min", "topk", "sort"})  # values and indices
    _PRODUCTS = frozenset("mm bmm matmul mv dot addmm baddbmm inner outer lerp".split())
    _OF_TENSORS = frozenset(
        "detach data view reshape size shape mean cpu sigmoid softmax "
        "log_softmax".split()
    )
    # In bfloat16 a sigmoid of 6.3 is 1, and so is that of 8: which is larger is lost.
    _COARSE = frozenset("sigmoid softmax log_softmax exp log".split())
    _TORCH = frozenset(
        "mean sum abs sqrt exp log stack cat round sigmoid softmax log_softmax norm "
        "squeeze unsqueeze tanh relu std var clamp isnan isfinite max min".split()
    )

    def __init__(
        self, script: Script, formats: Formats, region: tuple[ast.stmt, ...]
    ) -> None:
        self.script = script
        self.formats = formats
        self.region = region
        self._half: set[ast.AST] = set()
        self.widened: list[ast.Name] = []

    def misuse(self, calls: Iterable[ast.Call], scope: ast.AST) -> str | None:
        """The first place where a result of these calls may fail, as text."""
        for call in calls:
            bad = self._follow(call)
            if bad is not None:
                return bad
        before = -1
        while before < len(self._half):
            before = len(self._half)
            for node in walk_scope(scope):
                if isinstance(node, ast.Name) and self._is_half(node):
                    if self._is_coarse(node) and self._widens(node):
                        continue
                    bad = self._follow(node)
                    if bad is not None and not self._widens(node):
                        return bad
        return None

    def _widens(self, use: ast.Name) -> bool:
        """Whether a use may be of `x.float()`: `x` is a tensor, and not in a text."""
        index = self.script.index
        if self._inside(use) or any(
            isinstance(above, (ast.JoinedStr, ast.Lambda, ast.Return))
            for above in index.ancestors(use)
        ):
            return False
        made = self.script.resolver.definitions(use)
        known = (
            isinstance(above := index.parent(other), ast.Attribute)
            and above.attr in self._OF_TENSORS
            for definition in made
            for other in self.script.uses(definition)
        )
        calls = all(isinstance(d.value, ast.Call) and not d.path for d in made)
        given = index.parent(use)
        taken = isinstance(given, ast.Call) and self._of_torch(given) in self._COARSE
        if not calls or not (taken or any(known)):
            return False
        if use not in self.widened:
            self.widened.append(use)
        return True

    def _is_coarse(self, use: ast.Name) -> bool:
        """Whether a use outside the region is in a function of few values."""
        above = self.script.index.parent(use)
        if isinstance(above, ast.Attribute):
            return above.attr in self._COARSE
        return isinstance(above, ast.Call) and self._of_torch(above) in self._COARSE

    def _of_torch(self, call: ast.Call) -> str:
        """The name of a function of torch's that a call runs."""
        name = self.script.index.qualified(call.func) or ""
        head, _, last = name.rpartition(".")
        return last if head in ("torch", "torch.nn.functional") else ""

    def _is_half(self, node: ast.Name) -> bool:
        return isinstance(node.ctx, ast.Load) and any(
            d.node in self._half for d in self.script.resolver.definitions(node)
        )

    def _follow(self, node: ast.AST) -> str | None:
        index = self.script.index
        while True:
            above = index.parent(node)
            if isinstance(above, ast.Attribute):
                if above.attr in self._SAFE:
                    return None
                if above.attr == "numpy":
                    return self.script.text(above)
            elif isinstance(above, ast.Call) and node is above.func:
                name = node.attr if isinstance(node, ast.Attribute) else ""
                if name == "sigmoid" and not self._inside(above):
                    return self.script.text(above).splitlines()[0]
                if name in self._PAIRS and above.args:
                    return None
                if name in self._PRODUCTS and not self._inside(above):
                    return self.script.text(above).splitlines()[0]
            elif isinstance(above, ast.BinOp) and isinstance(above.op, ast.MatMult):
                if not self._inside(above):
                    return self.script.text(above).splitlines()[0]
            elif isinstance(above, ast.Call):
                if self._of_torch(above) == "sigmoid" and not self._inside(above):
                    return self.script.text(above).splitlines()[0]
                if self._takes(above):
                    return None
                if not self._computes(above):
                    return self.script.text(above).splitlines()[0]
            elif isinstance(above, (ast.Return, ast.Yield, ast.YieldFrom)):
                return self.script.text(above).splitlines()[0]
            elif isinstance(above, (ast.Compare, ast.FormattedValue)):
                return None
            elif isinstance(above, ast.stmt) or above is None:
                return self._stored(above)
            elif not isinstance(above, (ast.expr, ast.keyword)):
                return self.script.text(node).splitlines()[0]
            node = above

    def _stored(self, statement: ast.AST | None) -> str | None:
        """An assignment hands the value on; into an attribute it may go anywhere."""
        if isinstance(statement, ast.For):
            self._half.update(n for n in walk(statement.target))
        if not isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            return None
        targets = (
            statement.targets
            if isinstance(statement, ast.Assign)
            else [statement.target]
        )
        for part in walk(*targets):
            if isinstance(part, ast.Name):
                if not self._is_float32(part):
                    self._half.add(part)
            elif not isinstance(part, (ast.Tuple, ast.List, ast.Starred)):
                return self.script.text(statement).splitlines()[0]
        return None

    def _is_float32(self, target: ast.Name) -> bool:
        flow = self.script.resolver.flow(self.script.index.scope(target))
        made = [d for d in flow.definitions.get(target.id, ()) if d.node is target]
        return bool(made) and all(
            d.value is not None and self.formats.unpacked(d.value, d.path) for d in made
        )

    def _takes(self, call: ast.Call) -> bool:
        """Calls that only look: `print(x)`, `torch.argmax(x)`, `torch.max(x, 1)`."""
        name = self.script.index.qualified(call.func) or ""
        last = name.rpartition(".")[2]
        if name in ("print", "len", "float", "int", "type", "isinstance"):
            return True
        if isinstance(call.func, ast.Attribute) and call.func.attr == "format":
            return isinstance(call.func.value, ast.Constant)
        if self.formats.known_loss(call):
            return True
        if name.startswith("torch."):
            pair = last in self._PAIRS and len(call.args) + len(call.keywords) > 1
            return last in self._SAFE or pair
        function = self.script.resolver.calls.callee(call)
        return function is not None and not self._has_numpy(function)

    def _computes(self, call: ast.Call) -> bool:
        """Calls that give half precision on: of torch, and any model in the region."""
        name = self.script.index.qualified(call.func) or ""
        if name in ("zip", "enumerate", "list", "tuple", "reversed"):
            return True
        of_torch = self._of_torch(call)
        if self._inside(call):
            model = runs_model(self.script, call) or is_loss(self.script, call.func)
            return model or bool(of_torch)
        return of_torch in self._TORCH

    def _inside(self, node: ast.AST) -> bool:
        return any(self.script.index.inside(node, s) for s in self.region)

    def _has_numpy(self, function: Function) -> bool:
        for node in walk(function):
            if isinstance(node, ast.Attribute) and node.attr in ("numpy", "append"):
                return True
            name = (
                self.script.index.qualified(node) if isinstance(node, ast.Name) else ""
            )
            if name and name.startswith("numpy"):
                return True
        return False
