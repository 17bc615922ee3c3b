"""Branches of which nothing shows that a program ever takes them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index.walk import walk
from gpulint.script.switches import is_switched_off

if TYPE_CHECKING:
    from gpulint.script.model import Script


def may_never_run(script: Script, node: ast.AST) -> bool:
    """Whether a node stands behind a constant, or a test of a parameter's type.

    Which types a function is given is not known: one of them may be for an export.
    """
    if is_switched_off(script, node):
        return True
    function = script.index.function(node)
    child = node
    for above in script.index.ancestors(node):
        if above is function:
            break
        test = above.test if isinstance(above, (ast.If, ast.IfExp)) else None
        parts = walk(test) if test is not None and test is not child else ()
        if any(_asks_for_type(script, part) for part in parts):
            return True
        child = above
    return False


def _asks_for_type(script: Script, node: ast.AST) -> bool:
    """`isinstance(offset, int)` of a parameter."""
    if not isinstance(node, ast.Call) or not node.args:
        return False
    asked = node.args[0]
    if script.index.qualified(node.func) != "isinstance":
        return False
    reached = script.definitions(asked) if isinstance(asked, ast.Name) else ()
    return any(d.kind == "parameter" for d in reached)
