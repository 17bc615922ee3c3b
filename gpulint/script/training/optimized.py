"""What the optimizers of a file hold: the weights of modules, or plain tensors."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index.build import last_name
from gpulint.script.training.training_step import find_steps

if TYPE_CHECKING:
    from gpulint.script.model import Script

_SAME = frozenset(
    "requires_grad_ to cuda float normal_ uniform_ zero_ fill_ view unsqueeze "
    "squeeze".split()
)
_NEW = frozenset(
    "clone detach repeat mean sum expand new_zeros new_ones new_tensor new_empty "
    "contiguous".split()
)
_WEIGHTS = ("weight", "bias")
_BUFFERS = ("buffers", "named_buffers")
_GROWS = ("append", "extend", "insert")
MAX_STEPS = 6


def searches_lines(script: Script) -> bool:
    """Whether L-BFGS, which searches by the last digits of losses, trains a model.

    In the rounding of shorter formats it soon finds no descent, and stops. What fits a
    few numbers of a list beside another optimizer, `LBFGS([temperature])`, trains none.
    """
    made = [
        (name, call)
        for name, calls in script.index.calls.items()
        if name.startswith("torch.optim.") or name.endswith("LBFGS")
        for call in calls
        if last_name(call)[:1].isupper()
    ]
    searching = [call for name, call in made if name.endswith("LBFGS")]
    return bool(searching) and (
        len(searching) == len(made)
        or not all(
            _fits_numbers(script.evaluator.argument(call, "params", 0).direct)
            for call in searching
        )
    )


def _fits_numbers(given: ast.expr | None) -> bool:
    """`[self.temperature]`, a list of tensors that are no module's weights."""
    return isinstance(given, (ast.List, ast.Tuple)) and all(
        isinstance(item, ast.Name)
        or (isinstance(item, ast.Attribute) and item.attr not in _WEIGHTS)
        for item in given.elts
    )


def optimizes_tensors(script: Script) -> bool:
    """Whether the optimizers hold tensors alone, as of a picture that is drawn.

    A network that judges them is run, and not trained.
    """
    if not any(step.forward is not None for step in find_steps(script)):
        return False
    made = [
        call
        for name, calls in script.index.calls.items()
        if name.startswith("torch.optim.") and name.count(".") == 2
        for call in calls
        if name.rpartition(".")[2][0].isupper()
    ]
    return bool(made) and all(_holds_tensors(script, call) for call in made)


def _holds_tensors(script: Script, optimizer: ast.Call) -> bool:
    given = script.evaluator.argument(optimizer, "params", 0).direct
    parts = list(_parts(script, given, 0)) if given is not None else [None]
    return bool(parts) and all(
        part is not None and _is_tensor(script, part, 0) for part in parts
    )


def _parts(script: Script, node: ast.expr, depth: int) -> Iterator[ast.expr | None]:
    """The elements of a list; None where one is not known."""
    if isinstance(node, (ast.List, ast.Tuple)):
        yield from node.elts
    elif isinstance(node, ast.ListComp):
        yield node.elt
    elif isinstance(node, ast.DictComp):
        yield node.value
    elif (inner := _listed(node)) is not None and depth < MAX_STEPS:
        yield from _parts(script, inner, depth + 1)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _parts(script, node.left, depth)
        yield from _parts(script, node.right, depth)
    elif isinstance(node, ast.Name) and depth < MAX_STEPS:
        for definition in script.definitions(node):
            plain = definition.kind == "assign" and not definition.path
            value = definition.value if plain else None
            yield from [None] if value is None else _parts(script, value, depth + 1)
        yield from _added(script, node)
    else:
        yield None


def _listed(node: ast.expr) -> ast.expr | None:
    """What holds the elements of `list(tensors.values())`."""
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Name) and node.func.id == "list" and node.args:
        return node.args[0]
    of_dict = isinstance(node.func, ast.Attribute) and node.func.attr == "values"
    return node.func.value if of_dict and not node.args else None  # type: ignore[attr-defined]


def _added(script: Script, name: ast.Name) -> Iterator[ast.expr | None]:
    """What is put into a list after it was made."""
    for call in (c for n in _GROWS for c in script.index.calls_by_name.get(n, ())):
        holder = call.func.value if isinstance(call.func, ast.Attribute) else None
        if isinstance(holder, ast.Name) and holder.id == name.id:
            grown = isinstance(call.func, ast.Attribute) and call.func.attr == "append"
            yield call.args[0] if grown and len(call.args) == 1 else None


def _is_tensor(script: Script, node: ast.expr, depth: int) -> bool:
    """Whether an expression makes a tensor that belongs to no module."""
    if isinstance(node, ast.Call):
        return _makes_tensor(script, node, depth)
    if not isinstance(node, (ast.Name, ast.Attribute)) or depth > MAX_STEPS:
        return False
    if isinstance(node, ast.Name) and _is_buffer(script, node):
        return True
    origins = script.resolver.origins(node)
    calls = [origin.call for origin in origins]
    return bool(calls) and all(
        call is not None and _makes_tensor(script, call, depth + 1) for call in calls
    )


def _is_buffer(script: Script, name: ast.Name) -> bool:
    """`buffer` of `for name, buffer in model.named_buffers()`: no weight."""
    found = script.definitions(name)
    values = [d.value for d in found if d.kind == "for"]
    return len(values) == len(found) > 0 and all(
        isinstance(value, ast.Call) and last_name(value) in _BUFFERS for value in values
    )


def _makes_tensor(script: Script, call: ast.Call, depth: int) -> bool:
    name = script.index.qualified(call.func) or ""
    if name in ("torch.nn.Parameter", "torch.autograd.Variable"):
        return bool(call.args) and _is_tensor(script, call.args[0], depth + 1)
    if name.startswith("torch."):
        return name.count(".") == 1 and name != "torch.load"
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr in _NEW:
        return True
    return call.func.attr in _SAME and _is_tensor(script, call.func.value, depth + 1)
