"""What expressions ask tensors on the device for, which the host waits for."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index import Where
from gpulint.script.waiting.reading import READS, REDUCES
from gpulint.script.waiting.stops import MEASURING

if TYPE_CHECKING:
    from gpulint.script.model import Script

_TRUTHS = frozenset("isnan isinf isfinite".split())


def asked_of(script: Script, call: ast.Call) -> ast.expr | None:
    """What a call asks for its values, if that is a tensor on the device."""
    return _asked(call) or _judged(script, call) or _counted(script, call)


def picks_by_list(script: Script, node: ast.Subscript) -> bool:
    """`x[:, self.channels]`, of a list that is made a tensor on the host."""
    if not isinstance(node.ctx, ast.Load) or not isinstance(node.slice, ast.Tuple):
        return False
    if script.where(node.value) in (Where.HOST, Where.PLAIN):
        return False
    return any(
        bool(origins)
        and all(isinstance(o.expression, (ast.List, ast.ListComp)) for o in origins)
        for part in node.slice.elts
        if isinstance(part, (ast.Name, ast.Attribute))
        for origins in [script.resolver.origins(part)]
    )


def _asked(call: ast.Call) -> ast.expr | None:
    """`x`, which `max(x)`, `int(x.max())` or `x.item()` asks for its values."""
    func = call.func
    if isinstance(func, ast.Attribute):
        return func.value if func.attr in READS and not call.args else None
    named = isinstance(func, ast.Name) and func.id in ("max", "min", "int", "float")
    return call.args[0] if named and len(call.args) == 1 else None


def _judged(script: Script, call: ast.Call) -> ast.expr | None:
    """`x` of `if x.isnan().any():`, `assert x.max() < 8`, which ask for values."""
    above = script.index.parent(call)
    if isinstance(above, ast.Compare):
        above = script.index.parent(above)
    if not isinstance(above, (ast.If, ast.Assert)) or call.args:
        return None
    asked: ast.expr = call
    while isinstance(asked, ast.Call) and isinstance(asked.func, ast.Attribute):
        if asked.func.attr not in REDUCES | _TRUTHS or asked.args:
            return None
        asked = asked.func.value
    return asked if asked is not call else None


def _counted(script: Script, call: ast.Call) -> ast.expr | None:
    """`x` of `x.nonzero()` and `torch.unique(x)`, as large as its values say."""
    func = call.func
    name = script.index.qualified(func) or ""
    if name in MEASURING:
        joins = name == "torch.where" and len(call.args) + len(call.keywords) > 1
        return call.args[0] if call.args and not joins else None
    if isinstance(func, ast.Attribute) and func.attr != "where":
        return func.value if f"torch.{func.attr}" in MEASURING else None
    return None
