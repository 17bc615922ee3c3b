"""Loops that `runtime.Monitor` measures: their items come through as they are."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpulint.index.resolve import Resolver

_METHODS = frozenset(["epochs", "batches"])


def measured(resolver: Resolver, call: ast.Call) -> ast.expr | None:
    """`x` of `monitor.epochs(x)` and `monitor.batches(x)`; None: another call."""
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr not in _METHODS:
        return None
    makers = (o.call for o in resolver.origins(func.value) if o.call is not None)
    names = (resolver.index.qualified(maker.func) or "" for maker in makers)
    its = any(name.endswith("runtime.Monitor") for name in names)
    return call.args[0] if its and call.args else None
