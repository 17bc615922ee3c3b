"""Where what is copied to the device is changed on the host, behind the copy."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import FileIndex, Function
from gpulint.index.walk import FUNCTIONS, walk
from gpulint.script.loops import Loop
from gpulint.script.reads import SHARES, changes_argument

if TYPE_CHECKING:
    from gpulint.script.copying.transfers import Transfer
    from gpulint.script.model import Script

MAX_CALLERS = 3  # functions between the one that copies and the loop
MAX_FILES = 20  # that call a method of a name
_ASKED = frozenset("shape size dim device dtype ndim numel get keys".split())


def changed_later(script: Script, transfer: Transfer) -> ast.AST | None:
    """Where the host tensor is changed in place while the copy may be under way.

    In the loop, in the function that copies it, or in those that hand it on to that.
    """
    roots = _roots(script, transfer.source)
    return _first_change(script, transfer.call, roots, transfer.loop, 0)


def may_be_changed_unseen(script: Script, transfer: Transfer) -> bool:
    """Whether the source of a copy may be changed by what is not looked into.

    By a generator that goes on with what it gave. Or, where the copy stands in another
    file than its loop: its function, or one on the way from the loop, may be called by
    others, out of sight, or the loop does more with the batch than to hand it on.
    """
    if _goes_on(script.of(transfer.loop.node), transfer.loop):
        return True
    if script.index.holds(transfer.loop.node):
        return False
    roots = _roots(script, transfer.source)
    return _is_unclear(script, transfer.call, roots, transfer.loop, 0)


def _goes_on(script: Script, loop: Loop) -> bool:
    """Whether a loop goes over a generator that uses a batch behind its `yield`."""
    over = getattr(loop.node, "iter", None)
    calls = [n for n in walk(*filter(None, [over])) if isinstance(n, ast.Call)]
    functions = [f for call in calls for f in script.resolver.calls.callees(call)]
    for function in functions:
        home = script.index.home(function)
        for node in walk(function):
            if isinstance(node, ast.Yield):
                given = {n.id for n in walk(node) if isinstance(n, ast.Name)}
                statement = home.statement(node)
                block = getattr(home.parent(statement), "body", [])
                number = block.index(statement) if statement in block else len(block)
                behind = walk(*block[number + 1 :])
                if any(isinstance(n, ast.Name) and n.id in given for n in behind):
                    return True
    return False


def _is_unclear(
    script: Script, place: ast.Call, roots: list[ast.Name], loop: Loop, depth: int
) -> bool:
    if script.index.inside(place, loop.node):
        return any(_is_used_beside(script, root, place, loop) for root in roots)
    function = script.index.function(place)
    if function is None or depth >= MAX_CALLERS:
        return True
    if _is_value(script, function) or _may_be_called(script, function):
        return True
    names = [n for root in roots for n in (root, *_made_of(script, root))]
    if any(_is_kept(script, name, place) for name in names):
        return True
    return any(
        _is_unclear(
            its, call, list(_given(script, call, function, roots)), loop, depth + 1
        )
        for call in script.resolver.calls.callers(function)
        for its in [script.of(call)]
    )


def _is_value(script: Script, function: Function) -> bool:
    """Whether a function is named otherwise than to call it: `partial(step, model)`."""
    home = script.index.home(function)
    if isinstance(home.parent(function), ast.ClassDef):
        return False
    users: list[FileIndex] | None = []
    if home.project is not None:
        users = home.project.importers(home, function.name, function.name)
    if users is None:
        return True  # of too many files
    for its in (home, *users):
        named = {function.name, *its.local_names.get(function.name, ())}
        for name in named:
            for node in its.reads.get(name, ()):
                above = its.parent(node)
                if not (isinstance(above, ast.Call) and above.func is node):
                    return True
    return False


def _may_be_called(script: Script, function: Function) -> bool:
    """Whether an object that is not known may be asked for a method, by its name."""
    home = script.index.home(function)
    if home.project is None or not isinstance(home.parent(function), ast.ClassDef):
        return False
    name = function.name
    if any(map(home.project.mentions, (f'"{name}"', f"'{name}'"))):
        return True  # `getattr(trainer, "step")`
    files = home.project.mentioning(f".{name}(")
    others = map(home.project.index, files[:MAX_FILES])
    return len(files) > MAX_FILES or any(
        not script.resolver.calls.callees(call)
        for its in others
        if its is not None
        for call in its.calls_by_name.get(name, ())
    )


def _is_used_beside(
    script: Script, root: ast.Name, place: ast.Call, loop: Loop
) -> bool:
    """Whether a loop uses a batch otherwise than in a call, and to ask what it is."""
    mine = set(script.definitions(root))
    return any(
        isinstance(use, ast.Name)
        and use.id == root.id
        and isinstance(use.ctx, ast.Load)
        and not script.index.inside(use, place)
        and not mine.isdisjoint(script.definitions(use))
        and not _asks(script, use)
        for use in walk(loop.node)
    ) or any(
        isinstance(above, FUNCTIONS) and script.index.inside(above, loop.node)
        for above in script.index.ancestors(place)
    )


def _is_kept(script: Script, name: ast.Name, place: ast.Call) -> bool:
    """Whether a function hands what it was given to others as well, or keeps it."""
    function = script.index.function(place)
    mine = set(script.definitions(name))
    parameter = any(definition.kind == "parameter" for definition in mine)
    return parameter and any(
        isinstance(use, ast.Name)
        and use.id == name.id
        and isinstance(script.index.parent(use), (ast.Call, ast.keyword))
        and not script.index.inside(use, place)
        and not mine.isdisjoint(script.definitions(use))
        and not _asks(script, use)
        for use in (walk(function) if function is not None else ())
    )


def _asks(script: Script, use: ast.Name) -> bool:
    """`len(batch)`, `batch.shape`, `batch["size"]`, `"label" in batch`."""
    above = script.index.parent(use)
    if isinstance(above, ast.Attribute):
        return above.attr in _ASKED
    if isinstance(above, ast.Call):
        return isinstance(above.func, ast.Name) and above.func.id in (
            "len",
            "isinstance",
        )
    return isinstance(above, ast.Compare)


def _first_change(
    script: Script, place: ast.Call, roots: list[ast.Name], loop: Loop, depth: int
) -> ast.AST | None:
    """The first change of what some names stand for, behind a copy or a call."""
    for root in roots:
        changed = _change_here(script, place, root, loop)
        if changed is not None:
            return changed
    function = script.index.function(place)
    if function is None or depth > MAX_CALLERS or script.index.inside(place, loop.node):
        return None
    for call in script.resolver.calls.callers(function):
        its = script.of(call)
        given = list(_given(script, call, function, roots))
        changed = _first_change(its, call, given, loop, depth + 1)
        if changed is not None:
            return changed
    return None


def _given(
    script: Script, call: ast.Call, function: Function, roots: list[ast.Name]
) -> Iterator[ast.Name]:
    """The names that a call passes for what a function copies a part of."""
    taken = {
        definition.name
        for root in roots
        for name in (root, *_made_of(script, root))
        for definition in script.definitions(name)
        if definition.kind == "parameter"
    }
    for parameter in sorted(taken):
        for node in script.resolver.calls.given(call, function, parameter)[0]:
            yield from _roots(script.of(call), node)


def _made_of(script: Script, root: ast.Name) -> list[ast.Name]:
    """`batch`, of `images, labels = batch`."""
    values = [d.value for d in script.definitions(root) if d.kind == "assign"]
    return [n for n in walk(*filter(None, values)) if isinstance(n, ast.Name)]


def _roots(script: Script, source: ast.expr) -> list[ast.Name]:
    """The names whose tensors the source may be a part of."""
    names = [n for n in walk(source) if isinstance(n, ast.Name)]
    batch = [n for n in names if script.batches.loop_of(n) is not None]
    return batch or names[:1]


def _change_here(
    script: Script, place: ast.Call, root: ast.Name, loop: Loop
) -> ast.AST | None:
    """A change behind a place in the same function; in a loop, also in front of it."""
    mine = set(script.definitions(root))
    within = script.index.scope(place)
    in_loop = script.index.inside(place, loop.node)
    inside = {d for d in mine if script.index.inside(d.node, loop.node)}
    for node in script.mutations(root.id, within):
        around = script.loops_around(node)
        if isinstance(node, ast.Name) or (in_loop and not around):
            continue
        if _sets_key(script, node):
            continue
        names = [n for n in walk(node) if isinstance(n, ast.Name) and n.id == root.id]
        if any(not mine.isdisjoint(script.definitions(n)) for n in names):
            end = (place.end_lineno or 0, place.end_col_offset or 0)
            later = (node.lineno, node.col_offset) >= end  # type: ignore[attr-defined]
            if later or (mine != inside and around):
                return node
    for use in walk(loop.node if in_loop else within):
        named = isinstance(use, ast.Name) and use.id == root.id
        if named and not mine.isdisjoint(script.definitions(use)):
            assert isinstance(use, ast.Name)
            changed = _through_another_name(script, use)
            if changed is not None:
                return changed
    return None


def _sets_key(script: Script, node: ast.AST) -> bool:
    """`batch["image"] = image`, which changes no tensor but puts another in a dict."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Constant):
        return False
    named = isinstance(node.slice.value, str)
    return named and isinstance(script.index.parent(node), ast.Assign)


def _through_another_name(script: Script, use: ast.expr) -> ast.AST | None:
    """Where a view of a host tensor is changed in place, or a function changes it."""
    node, above = use, script.index.parent(use)
    while isinstance(above, (ast.Attribute, ast.Subscript)) and above.value is node:
        call = script.index.parent(above)
        if isinstance(above, ast.Attribute) and above.attr in SHARES:
            called = isinstance(call, ast.Call) and call.func is above
            node = call if called else above  # type: ignore[assignment]
        elif isinstance(above, ast.Subscript) and isinstance(above.ctx, ast.Load):
            node = above
        else:
            return None
        above = script.index.parent(node)
    if isinstance(above, ast.Call) and node in above.args:
        return above if changes_argument(script, above) else None
    if not isinstance(above, ast.Assign):
        return None
    within = script.index.scope(use)
    for target in above.targets:
        if isinstance(target, ast.Name) and node is not use:
            for change in script.mutations(target.id, within):
                if not isinstance(change, ast.Name):
                    return change
    return None
