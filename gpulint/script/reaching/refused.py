"""Calls of one of several functions or classes, which this one does not take."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.script.decorators import has_plain_decorators
from gpulint.script.reaching.surely_called import made_by

if TYPE_CHECKING:
    from gpulint.script.model import Script


def is_refused(script: Script, call: ast.Call, function: Function) -> bool:
    """Whether a call raises if it is of a function, or makes the class of a method.

    `Model(width, depth=4)`, where `Model` is imported in several branches, and only
    the classes of the others have a depth.
    """
    owner, resolver = script.index.parent(function), script.resolver
    if not isinstance(owner, ast.ClassDef):
        run = function in resolver.calls.callees(call)
        plain = run and has_plain_decorators(script.index, function)
        return plain and not resolver.calls.takes(function, call)
    made = resolver.classes.methods(owner).get("__init__")
    owners = [
        its
        for its in resolver.classes.of(call.func)
        if made is not None and resolver.classes.methods(its).get("__init__") is made
    ]
    return (
        made is not None
        and bool(owners)
        and all(made_by(script, its) == [made] for its in owners)
        and not resolver.calls.takes(made, call)
    )
