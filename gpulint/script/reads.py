"""Whether a value is only read, or may be changed in place where it goes."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.build import Scope

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_DEPTH = 4
_VIEWS = frozenset(
    "view reshape unsqueeze squeeze transpose permute t flatten expand expand_as "
    "detach contiguous narrow select split chunk unbind to float double half long int "
    "bool unflatten view_as reshape_as swapaxes movedim diagonal type cuda".split()
)
# Methods and attributes of a host tensor that may share its memory.
SHARES = (_VIEWS - {"type", "cuda", "to"}) | frozenset("numpy data T mT".split())
_VIEW_FUNCTIONS = frozenset(
    f"torch.{n}"
    for n in "squeeze unsqueeze reshape transpose permute flatten narrow select split "
    "chunk unbind as_tensor asarray from_numpy broadcast_to movedim swapaxes t "
    "diagonal autograd.Variable".split()
)
# NumPy's ways to write to an array.
_WRITES = frozenset("fill sort partition put itemset resize byteswap".split())
_WRITERS = frozenset(
    f"numpy.{n}"
    for n in "copyto put place putmask fill_diagonal put_along_axis "
    "random.shuffle".split()
)
_PLAIN = frozenset("shape dtype device ndim is_cuda requires_grad layout".split())
_PURE = frozenset("len print isinstance type id str repr float int bool range".split())


def changed_at(script: Script, value: ast.AST, depth: int = 0) -> ast.AST | None:
    """Where the tensor of an expression may be changed in place; None: nowhere.

    Follows views, names and functions of this file. What it does not know counts as
    a change.
    """
    above = script.index.parent(value)
    if depth > MAX_DEPTH or above is None:
        return value
    if isinstance(
        above, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Expr, ast.FormattedValue)
    ):
        return None
    if isinstance(above, ast.AugAssign) and value is above.value:
        return None
    if isinstance(above, ast.Subscript):
        if value is not above.value:
            return None
        stored = not isinstance(above.ctx, ast.Load)
        return above if stored else changed_at(script, above, depth)
    if isinstance(above, ast.Attribute):
        return _attribute(script, above, depth)
    if isinstance(above, (ast.keyword, ast.Starred)):
        return _argument(script, value, script.index.parent(above), depth)
    if isinstance(above, ast.Call):
        return _argument(script, value, above, depth)
    if isinstance(above, (ast.Tuple, ast.List)):
        return _listed(script, above)
    if isinstance(above, ast.Assign):
        return _bound(script, above, depth)
    return above


def changes_argument(script: Script, call: ast.Call) -> bool:
    """Whether a function of torch or NumPy writes to its first argument."""
    if any(k.arg == "inplace" for k in call.keywords):
        return True
    name = script.index.qualified(call.func) or ""
    return name in _WRITERS or (name.startswith("torch.") and name.endswith("_"))


def changed_through(
    script: Script, target: ast.AST, scope: Scope, depth: int = 0
) -> ast.AST | None:
    """The same for a name bound at `target`, over all its uses."""
    flow = script.resolver.flow(scope)
    for use, reached in flow.uses.items():
        if any(d.node is target for d in reached):
            if isinstance(getattr(use, "ctx", None), ast.Store):
                return use  # `x += …`
            found = changed_at(script, use, depth + 1)
            if found is not None:
                return found
    name = getattr(target, "id", getattr(target, "arg", None))
    inner = [
        n
        for n in script.index.all(ast.Name)
        if n.id == name and n not in flow.uses and script.index.inside(n, scope)
        and script.index.scope(n) is not scope and isinstance(n.ctx, ast.Load)
    ]  # fmt: skip
    return inner[0] if inner and not isinstance(scope, ast.Module) else None


def _attribute(script: Script, above: ast.Attribute, depth: int) -> ast.AST | None:
    call = script.index.parent(above)
    if not (isinstance(call, ast.Call) and call.func is above):
        if above.attr in ("T", "mT", "data", "real", "H"):
            return changed_at(script, above, depth)
        return None if above.attr in _PLAIN else above
    if above.attr.endswith("_") or above.attr in ("register_hook", "backward", "numpy"):
        return above
    if above.attr in _WRITES:
        return above
    return changed_at(script, call, depth) if above.attr in _VIEWS else None


def _argument(
    script: Script, value: ast.AST, call: ast.AST | None, depth: int
) -> ast.AST | None:
    if not isinstance(call, ast.Call):
        return value
    if any(k.arg in ("out", "inplace") for k in call.keywords):
        return call
    name = script.index.qualified(call.func) or ""
    if name in _PURE:
        return None
    if name in _VIEW_FUNCTIONS:
        return changed_at(script, call, depth)
    if name in _WRITERS:
        return call
    if name.startswith(("torch.", "numpy.", "math.")):
        return call if name.endswith("_") or _keeps(name, call) else None
    if _is_loss(script, call.func):
        return None
    if isinstance(call.func, ast.Attribute) and script.where(call.func.value).device:
        return call if call.func.attr.endswith("_") else None
    function = _called(script, call)
    parameter = parameter_given(script, function, call, value) if function else None
    if function is None or parameter is None:
        return call
    return changed_through(script, parameter, function, depth + 1)


def _keeps(name: str, call: ast.Call) -> bool:
    """Whether torch may write to a tensor later, or here: `F.relu(x, True)`."""
    if name.startswith(("torch.optim.", "torch.utils.", "torch.distributed.")):
        return True
    last = name.rpartition(".")[2]
    if name.startswith("torch.nn.functional."):
        return any(isinstance(a, ast.Constant) and a.value is True for a in call.args)
    made = last[:1].isupper() or last == "from_pretrained"
    return name.startswith("torch.nn.") and made and not last.endswith("Loss")


def _is_loss(script: Script, callee: ast.expr) -> bool:
    """Whether a callee is a loss module of torch, which changes no input."""
    made = [o.call for o in script.resolver.origins(callee)]
    names = [
        script.index.qualified(c.func) or "" if c is not None else "" for c in made
    ]
    return bool(names) and all(
        n.startswith("torch.nn.") and n.endswith("Loss") for n in names
    )


def _called(script: Script, call: ast.Call) -> Function | None:
    function = script.resolver.calls.callee(call)
    if function is not None:
        return function
    for owner in script.resolver.classes.of(call.func):
        return script.resolver.classes.methods(owner).get("forward")
    return None


def parameter_given(
    script: Script, function: Function, call: ast.Call, value: ast.AST
) -> ast.arg | None:
    """The parameter that gets an argument of a call; None if that is not clear."""
    every = [*function.args.posonlyargs, *function.args.args]
    for keyword in call.keywords:
        if keyword.value is value:
            named = [*every, *function.args.kwonlyargs]
            return next((a for a in named if a.arg == keyword.arg), None)
    if value not in call.args or any(isinstance(a, ast.Starred) for a in call.args):
        return None
    number = call.args.index(value) + (script.resolver.self_name(function) is not None)
    return every[number] if number < len(every) else None


def _listed(script: Script, above: ast.Tuple | ast.List) -> ast.AST | None:
    """`torch.cat([x, y])` and `a[x, y]` copy; any other container keeps."""
    outer = script.index.parent(above)
    if isinstance(outer, ast.Subscript) and outer.slice is above:
        return None
    if isinstance(outer, ast.Call):
        name = script.index.qualified(outer.func) or ""
        known = name.startswith("torch.") and not name.endswith("_")
        known = known and name not in _VIEW_FUNCTIONS and not _keeps(name, outer)
        return None if known else above
    return above


def _bound(script: Script, above: ast.Assign, depth: int) -> ast.AST | None:
    for target in above.targets:
        if not isinstance(target, ast.Name):
            return target
        scope = script.index.scope(target)
        if target.id in script.resolver.flow(scope).outer:
            return target
        found = changed_through(script, target, scope, depth)
        if found is not None:
            return found
    return None
