"""Which calls act on one object of a class, where others act on its other objects."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index.build import Function

if TYPE_CHECKING:
    from gpulint.index.resolve import Resolver

Made = frozenset[ast.Call]
Callers = dict[Function, list[ast.Call]]


def made_by(resolver: Resolver, node: ast.expr) -> Made:
    """The calls of classes that made an object; empty where that is not clear."""
    found = set()
    for origin in resolver.origins(node):
        call = origin.call
        if call is None or origin.path or resolver.classes.named(call.func) is None:
            return frozenset()
        found.add(call)
    return frozenset(found)


def callers_of(resolver: Resolver, made: Made) -> Callers:
    """The calls of a class's methods that act on some of its objects.

    Methods are left out whose calls all do, and all of them where one call acts on an
    object that is not clear. Calls by the methods of the class itself stay.
    """
    owners = {resolver.classes.named(call.func) for call in made}
    owner = owners.pop() if len(owners) == 1 else None
    if owner is None:
        return {}
    found: Callers = {}
    for method in resolver.classes.methods(owner).values():
        callers = resolver.calls.callers(method)
        if method.name == "__init__":
            own = [call for call in callers if call in made]
        else:
            its = {call: _receiver(resolver, call) for call in callers}
            if any(receiver == frozenset() for receiver in its.values()):
                return {}
            own = [c for c in callers if its[c] is None or made & (its[c] or set())]
        if len(own) < len(callers):
            found[method] = own
    return found


def _receiver(resolver: Resolver, call: ast.Call) -> Made | None:
    """The object that a method is called on; None: the one that calls."""
    if not isinstance(call.func, ast.Attribute):
        return frozenset()
    value = call.func.value
    if isinstance(value, ast.Name):
        function = resolver.index.home(call).function(call)
        if function is not None and resolver.self_name(function) == value.id:
            return None
    return made_by(resolver, value)
