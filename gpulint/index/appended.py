"""What is put into a list that a program writes empty."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index.walk import dotted

if TYPE_CHECKING:
    from gpulint.index.build import FileIndex

# The position of the element, or of what has elements.
_PLACES = {"append": 0, "extend": 0, "insert": 1}
_GROWS = ("extend", "insert", "update", "setdefault", "add")


def appended_to(index: FileIndex, empty: ast.List) -> list[ast.expr]:
    """What is appended to `losses`, or extends it, of `losses = []`.

    In the same function; to an attribute of `self`, in any method of its class.
    """
    home = index.home(empty)
    name = _assigned(home, empty)
    if name is None:
        return []
    around = home.owner if "." in name else home.scope
    return [
        call.args[place]
        for method, place in _PLACES.items()
        for call in home.calls_by_name.get(method, ())
        if len(call.args) == place + 1
        and isinstance(call.func, ast.Attribute)
        and dotted(call.func.value) == name
        and around(call) is around(empty)
    ]


def grows(index: FileIndex, made: ast.expr) -> bool:
    """Whether a written list, set or dict gets more by other ways than `append`.

    `xs.extend(ys)`, `xs += ys`, `sizes["large"] = 3`, `sizes.update(others)`, under the
    name that it is given, anywhere in its file.
    """
    home = index.home(made)
    name = _assigned(home, made)
    if name is None:
        return False
    return (
        name in home.item_writes
        or any(
            isinstance(call.func, ast.Attribute) and dotted(call.func.value) == name
            for method in _GROWS
            for call in home.calls_by_name.get(method, ())
        )
        or any(dotted(added.target) == name for added in home.all(ast.AugAssign))
    )


def elements_of(index: FileIndex, made: ast.expr) -> list[ast.expr]:
    """The elements of a written list, with what is put into it later; else itself."""
    if not isinstance(made, (ast.List, ast.Tuple)):
        return [made]
    more = appended_to(index, made) if isinstance(made, ast.List) else []
    return [*made.elts, *more]


def _assigned(home: FileIndex, value: ast.expr) -> str | None:
    """`losses` of `losses = []`, and of `losses, hits = [], []`."""
    above = home.parent(value)
    if isinstance(above, ast.AnnAssign):
        return dotted(above.target)
    place = None
    if isinstance(above, ast.Tuple):
        place, above = above.elts.index(value), home.parent(above)
    if not isinstance(above, ast.Assign) or len(above.targets) != 1:
        return None
    target = above.targets[0]
    if place is not None:
        parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else []
        return dotted(parts[place]) if place < len(parts) else None
    return dotted(target)
