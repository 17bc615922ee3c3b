"""Second derivatives that are taken under autocast, and how they are kept out of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpulint.index.walk import FUNCTIONS, walk
from gpulint.script.numerics.reached import reached_from
from gpulint.script.rewriting.edits import CannotFix, Edit, ReplaceCode, Wrap
from gpulint.script.training.training_step import block_of, model_calls, runs_model

if TYPE_CHECKING:
    from gpulint.script.model import Script

_AUTOCAST = {"torch.autocast": 2, "torch.cuda.amp.autocast": 0}
_OF_TENSOR = frozenset({"detach", "clone"})


@dataclass(frozen=True, eq=False)
class Derived:
    """`autograd.grad(…, create_graph=True)` under autocast.

    `autocast` is the call that switches it on, and `at` the call inside its block that
    leads to the derivatives: `grad` itself, or that of a function of the file.
    Not `sure`: nobody sees whether `autocast` is on.
    """

    grad: ast.Call
    autocast: ast.Call
    region: ast.With
    at: ast.Call
    sure: bool


def derived_in_half(script: Script) -> Iterator[Derived]:
    """Each such call once."""
    for grad in script.precision.second_order:
        if script.index.qualified(grad.func) != "torch.autograd.grad":
            continue
        if not _is_scaled(script, grad):
            found = next(_ways(script, grad), None)
            if found is not None:
                yield found


def _is_scaled(script: Script, grad: ast.Call) -> bool:
    """Whether what is derived is scaled, as PyTorch's examples do it."""
    outputs = grad.args[0] if grad.args else None
    made = [outputs, *(k.value for k in grad.keywords if k.arg == "outputs")]
    values = [node for node in made if node is not None]
    values += [
        d.value
        for node in values
        for d in script.definitions(node)
        if d.value is not None
    ]
    return any(
        isinstance(node, ast.Attribute) and node.attr == "scale"
        for node in walk(*values)
    )


def _ways(script: Script, grad: ast.Call) -> Iterator[Derived]:
    region = _around(script, grad)
    if region is not None:
        call = _autocast(script, region)
        if call is not None and _is_on(script, call):
            yield Derived(grad, call, region, grad, _is_known(script, call))
        return
    function = script.index.function(grad)
    if function is None or function.decorator_list:
        return
    for call in script.index.all(ast.Call):
        above = _around(script, call)
        opened = _autocast(script, above) if above is not None else None
        if opened is None or above is None or not _is_on(script, opened):
            continue
        if script.resolver.calls.callee(call) is not None and any(
            part is function for part in reached_from(script, [call])
        ):
            yield Derived(grad, opened, above, call, _is_known(script, opened))


def _around(script: Script, node: ast.AST) -> ast.With | None:
    """The innermost `with` of autocast around a node, in its own function."""
    for above in script.index.ancestors(node):
        if isinstance(above, FUNCTIONS):
            return None
        if isinstance(above, ast.With) and _mentions_autocast(script, above):
            return above
    return None


def _mentions_autocast(script: Script, node: ast.With) -> bool:
    return any("autocast" in script.text(item.context_expr) for item in node.items)


def _autocast(script: Script, node: ast.With) -> ast.Call | None:
    """The call of autocast that a `with` enters; None for any other form."""
    calls = [i.context_expr for i in node.items if isinstance(i.context_expr, ast.Call)]
    names = (script.index.qualified(call.func) for call in calls)
    found = (c for c, n in zip(calls, names, strict=True) if n in _AUTOCAST)
    return next(found, None)


def _is_on(script: Script, call: ast.Call) -> bool:
    """Whether autocast may be on, on a GPU."""
    switch = _switch(script, call)
    if isinstance(switch, ast.Constant) and not switch.value:
        return False
    device = call.args[0] if call.args else None
    return not (isinstance(device, ast.Constant) and device.value in ("cpu", "mps"))


def _switch(script: Script, call: ast.Call) -> ast.expr | None:
    name = script.index.qualified(call.func) or ""
    return script.evaluator.argument(call, "enabled", _AUTOCAST[name]).direct


def _is_known(script: Script, call: ast.Call) -> bool:
    """Whether what switches autocast on is seen: a setting may be off everywhere."""
    switch = _switch(script, call)
    return switch is None or bool(script.evaluator.values(switch).known)


def fenced(script: Script, derived: Derived) -> tuple[Edit, ...]:
    """Edits that take the derivatives in float32. CannotFix where it is not clear how.

    What is derived is computed behind the fence as well, from float32.
    """
    statement = script.index.statement(derived.at)
    block = block_of(script, statement)
    if block is not derived.region.body or not isinstance(
        statement, (ast.Assign, ast.AugAssign)
    ):
        raise CannotFix("the derivatives are not a statement of their own")
    if script.index.qualified(derived.autocast.func) == "torch.autocast":
        device = script.text(derived.autocast.args[0]) if derived.autocast.args else ""
    else:
        device = '"cuda"'
    if not device:
        raise CannotFix("the device of autocast is not written out")
    torch = script.names.torch[0]
    header = f"with {torch}.autocast({device}, enabled=False):"
    if derived.at is derived.grad:
        first, inputs = _made_by(script, derived, block)
        statements = tuple(block[block.index(first) : block.index(statement) + 1])
        if any(next(model_calls(script, s), None) for s in statements[1:]):
            raise CannotFix("models run between what is derived and the derivatives")
    else:
        statements = (statement,)
        inputs = list(_halves(script, derived))
    edits = [ReplaceCode(node, f"{script.text(node)}.float()") for node in inputs]
    return (Wrap(statements, header), *edits)


def _made_by(
    script: Script, derived: Derived, block: list[ast.stmt]
) -> tuple[ast.stmt, list[ast.expr]]:
    """The statement that computes what is derived, and what the model takes there."""
    grad = derived.grad
    given = dict(enumerate(grad.args[:2]))
    given |= {
        ("outputs", "inputs").index(k.arg): k.value
        for k in grad.keywords
        if k.arg in ("outputs", "inputs")
    }
    outputs, variables = given.get(0), given.get(1)
    while isinstance(outputs, ast.Call) and isinstance(outputs.func, ast.Attribute):
        outputs = outputs.func.value  # `u.sum()`
    made = script.definitions(outputs) if isinstance(outputs, ast.Name) else ()
    value = made[0].value if len(made) == 1 and not made[0].path else None
    if not isinstance(value, ast.Call) or not runs_model(script, value):
        raise CannotFix("it is not clear what is derived")
    first = script.index.statement(value)
    derived_by = walk(variables) if variables is not None else ()
    names = {n.id for n in derived_by if isinstance(n, ast.Name)}
    known = all(isinstance(a, ast.Name) and a.id in names for a in value.args)
    if first not in block or not known or value.keywords or not value.args:
        raise CannotFix("it is not clear what is derived")
    return first, value.args


def _halves(script: Script, derived: Derived) -> Iterator[ast.expr]:
    """Arguments of a function that come out of a model under autocast."""
    for given in (*derived.at.args, *(k.value for k in derived.at.keywords)):
        name = given
        if isinstance(name, ast.Call) and isinstance(name.func, ast.Attribute):
            name = name.func.value if name.func.attr in _OF_TENSOR else name
        if isinstance(name, ast.Constant):
            continue
        if not isinstance(name, (ast.Name, ast.Attribute)):
            raise CannotFix(f"`{script.text(given)}` may be in half precision")
        made = script.definitions(name)
        inside = [d for d in made if script.index.inside(d.node, derived.region)]
        if not inside:
            continue
        if len(inside) != len(made) or not all(
            isinstance(d.value, ast.Call) and not d.path and runs_model(script, d.value)
            for d in inside
        ):
            raise CannotFix(f"`{script.text(given)}` may be in half precision")
        yield given
