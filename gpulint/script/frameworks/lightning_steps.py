"""What steps of Lightning modules get as a batch, and compute from it on the device."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index import Definition, Target
from gpulint.index.build import last_name
from gpulint.index.flow import Step, enclosing_function
from gpulint.script.frameworks.lightning import (
    BATCH_HOOKS,
    MODULES,
    hooks_above,
    is_lightning,
)

if TYPE_CHECKING:
    from gpulint.script.model import Script

Path = tuple[Step, ...]
Way = tuple[ast.AST, Path]
_GIVEN_BY_HAND = frozenset({"dataloader_iter"})  # nothing is taken from it, or moved
# What leaves a tensor on its device, and a collection as it is.
_SAME_DEVICE = frozenset(
    "float double half bfloat16 long int bool view reshape flatten squeeze unsqueeze "
    "permute transpose contiguous clone detach items values get pop".split()
)
_LOOKS_UP = frozenset({"get", "pop"})
_PASSED_ON = frozenset("list tuple reversed".split())
_TO_HOST = frozenset("item tolist cpu numpy size dim numel keys".split())
_PLAIN = frozenset("shape device dtype ndim requires_grad is_cuda".split())
_LIBRARIES = ("torch.", "torchmetrics.")
_NOT_TENSORS = ("torch.nn.utils.", "torch.optim.", "torch.utils.", "torch.device")


class LightningSteps:
    """Answers for the expressions of one file; False where there is no proof."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.index = script.index
        self._parts: dict[Way, bool] = {}
        self._computed: dict[Way, bool] = {}

    # Batches

    def is_part_of_batch(self, node: ast.AST, path: Path = ()) -> bool:
        """Whether an expression surely is a batch that a hook gets, or a part of one.

        Also where it is indexed, unpacked or cast first. An attribute of a batch is not
        followed: objects of which Lightning knows nothing stay as they are. `path` is
        what is unpacked from the expression.
        """
        way = (node, path)
        if way not in self._parts:
            self._parts[way] = False  # a cycle proves nothing
            self._parts[way] = self._is_part(node, path)
        return self._parts[way]

    def _is_part(self, node: ast.AST, path: Path) -> bool:
        part = self.is_part_of_batch
        if isinstance(node, (ast.Subscript, ast.Starred)):
            return part(node.value)
        if isinstance(node, ast.NamedExpr):
            return part(node.value, path)
        if isinstance(node, ast.IfExp):
            return part(node.body, path) and part(node.orelse, path)
        if isinstance(node, ast.Name):
            found = self.script.definitions(node)
            return bool(found) and all(self._is_part_as(d, path) for d in found)
        if isinstance(node, ast.DictComp):
            return part(node.value)
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return part(node.elt, path[1:])
        if isinstance(node, (ast.Tuple, ast.List)):
            chosen = _chosen(node, path)
            if chosen is not None:
                return part(chosen, path[1:])
            return bool(node.elts) and all(part(item) for item in node.elts)
        return isinstance(node, ast.Call) and self._is_part_called(node, path)

    def _is_part_called(self, call: ast.Call, path: Path) -> bool:
        func = call.func
        name = self.index.qualified(func) or ""
        if name in _PASSED_ON and len(call.args) == 1:
            return self.is_part_of_batch(call.args[0], path)
        move = self.script.devices.move(call)
        same = move is not None and move.target is not Target.CPU
        if not isinstance(func, ast.Attribute):
            return False
        if func.attr in _LOOKS_UP and any(map(_is_something, call.args[1:])):
            return False  # something else where the batch lacks it
        return (same or func.attr in _SAME_DEVICE) and self.is_part_of_batch(func.value)

    def _is_part_as(self, definition: Definition, path: Path) -> bool:
        if definition.kind == "parameter":
            return self.is_given_batch(definition)
        value = definition.value
        path = (*definition.path, *path)
        if definition.kind == "for" and isinstance(value, ast.Call):
            name = self.index.qualified(value.func)
            step = path[0] if path else None
            if name == "zip":
                known = isinstance(step, int) and step < len(value.args)
                args = [value.args[step]] if known else value.args  # type: ignore[index]
                return bool(args) and all(map(self.is_part_of_batch, args))
            if name == "enumerate":
                return step == 1 and self.is_part_of_batch(value.args[0])
        if definition.kind == "for" and value is not None:
            return self.is_part_of_batch(value)
        made = definition.kind == "assign" and value is not None
        return made and self.is_part_of_batch(value or definition.node, path)

    def is_given_batch(self, definition: Definition) -> bool:
        """Whether a parameter always is a batch, or a part, as Lightning gives it."""
        function = enclosing_function(self.index, definition)
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        if definition.path or definition.name in _GIVEN_BY_HAND:
            return False
        its = self.script.of(function)
        if not hooks_above(its, function.body[0]):
            return False
        if function.name in BATCH_HOOKS:
            position = its.resolver.calls.position(function, definition.name)
            return position == BATCH_HOOKS[function.name]
        if definition.value is not None:
            return False
        given = its.resolver.calls.arguments(function, definition.name)
        return bool(given) and all(
            self.script.of(n).lightning_steps.is_part_of_batch(n) for n in given or ()
        )

    # What is computed

    def is_computed(self, node: ast.AST, path: Path = ()) -> bool:
        """Whether a value surely comes from a batch on the device, and stays there.

        Of calls those are known that PyTorch, torchmetrics, this project and the
        modules and metrics of `self` have. An array, or a number that was read before,
        is not.
        """
        way = (node, path)
        if way not in self._computed:
            self._computed[way] = False  # a cycle proves nothing
            self._computed[way] = self._is_computed(node, path)
        return self._computed[way]

    def _is_computed(self, node: ast.AST, path: Path) -> bool:
        computed = self.is_computed
        if isinstance(node, ast.Name):
            found = self.script.definitions(node)
            return bool(found) and all(self._is_computed_as(d, path) for d in found)
        if isinstance(node, ast.Attribute):
            return node.attr not in _PLAIN and computed(node.value)
        if isinstance(node, (ast.Subscript, ast.NamedExpr, ast.Starred)):
            return computed(node.value)
        if isinstance(node, ast.UnaryOp):
            return not isinstance(node.op, ast.Not) and computed(node.operand)
        if isinstance(node, ast.BinOp):
            return computed(node.left) or computed(node.right)
        if isinstance(node, ast.Compare):
            return any(map(computed, (node.left, *node.comparators)))
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return computed(node.elt, path[1:])
        if isinstance(node, ast.DictComp):
            return computed(node.value)
        if isinstance(node, (ast.Tuple, ast.List)):
            chosen = _chosen(node, path)
            if chosen is not None:
                return computed(chosen, path[1:])
            return bool(node.elts) and all(map(computed, node.elts))
        return isinstance(node, ast.Call) and self._is_called(node, path)

    def _is_computed_as(self, definition: Definition, path: Path) -> bool:
        value = definition.value
        if definition.kind == "parameter":
            return self.is_given_batch(definition) or self._is_given(definition)
        if definition.kind not in ("assign", "for", "augment") or value is None:
            return False
        if definition.kind == "for":
            return self.is_computed(value)
        return self.is_computed(value, (*definition.path, *path))

    def _is_given(self, definition: Definition) -> bool:
        """Whether all callers pass something computed for a parameter."""
        function = enclosing_function(self.index, definition)
        if not isinstance(function, ast.FunctionDef) or definition.value is not None:
            return False
        given = self.script.resolver.calls.arguments(function, definition.name)
        return bool(given) and all(
            self.script.of(n).lightning_steps.is_computed(n) for n in given or ()
        )

    def _is_called(self, call: ast.Call, path: Path) -> bool:
        move = self.script.devices.move(call)
        if move is not None:
            return move.target is not Target.CPU and self.is_computed(move.receiver)
        func = call.func
        name = self.index.qualified(func) or ""
        if isinstance(func, ast.Attribute) and last_name(call) in _TO_HOST:
            return False
        function = self.script.resolver.calls.callee(call)
        if function is not None:
            returned = self.script.resolver.flow(function).returns
            its = self.script.of(function).lightning_steps
            return bool(returned) and all(
                v is not None and its.is_computed(v, path) for v in returned
            )
        given = [*call.args, *(k.value for k in call.keywords)]
        takes = any(map(self.is_computed, given))
        if name.startswith(_LIBRARIES):
            return takes and not name.startswith(_NOT_TENSORS)
        if self._is_own_module(func):
            return takes
        return isinstance(func, ast.Attribute) and self.is_computed(func.value)

    def _is_own_module(self, func: ast.expr) -> bool:
        """`self(…)`, `self.net(…)`, `self.net.encoder(…)`: a module, loss or metric."""
        while isinstance(func, (ast.Attribute, ast.Subscript)):
            func = func.value
        owner = self.index.owner(func)
        own = self.script.resolver.self_name(self.index.scope(func))
        mine = isinstance(func, ast.Name) and func.id == own
        return mine and is_lightning(self.script, owner, *MODULES)


def _chosen(node: ast.Tuple | ast.List, path: Path) -> ast.expr | None:
    """The item of a written sequence that is unpacked."""
    step = path[0] if path else None
    plain = not any(isinstance(item, ast.Starred) for item in node.elts)
    if not plain or not isinstance(step, int) or step >= len(node.elts):
        return None
    return node.elts[step]


def _is_something(node: ast.expr) -> bool:
    return not (isinstance(node, ast.Constant) and node.value is None)
