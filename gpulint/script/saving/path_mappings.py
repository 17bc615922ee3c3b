"""Paths that a dict of the program keeps, `files["weights"]`, and who has the dict."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gpulint.index import FileIndex
from gpulint.index.build import last_name
from gpulint.index.walk import dotted
from gpulint.script.saving.path_parts import key

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_NAMES = 10  # names that one dict goes by, those of parameters included
_VIEWS = frozenset({"values", "items", "popitem", "copy"})
_READS = frozenset({"get", "pop", "setdefault"})


def values_for(script: Script, lookup: ast.Subscript) -> list[ast.expr]:
    """What dict displays of the program have for the key of `files["weights"]`."""
    wanted = key(lookup)
    found = []
    for origin in script.resolver.origins(lookup.value):
        display = origin.node
        if isinstance(display, ast.Dict) and not origin.path:
            found += [
                value
                for name, value in zip(display.keys, display.values, strict=True)
                if isinstance(name, ast.Constant) and name.value == wanted
            ]
        elif isinstance(display, ast.Call) and last_name(display) == "dict":
            found += [k.value for k in display.keywords if k.arg == wanted]
    return found


def lookups(files: Iterable[FileIndex], word: str | None) -> Iterator[ast.expr]:
    """All reads of a key: `files["weights"]`, `files.get("weights")`."""
    for index in files:
        for node in index.all(ast.Subscript):
            if key(node) == word and isinstance(node.ctx, ast.Load):
                yield node
        for name in _READS:
            for call in index.calls_by_name.get(name, ()):
                first = call.args[0] if call.args else None
                if isinstance(first, ast.Constant) and first.value == word:
                    yield call


def taken_whole(
    script: Script, files: Iterable[FileIndex], mapping: ast.expr, quiet: frozenset[str]
) -> ast.expr | None:
    """Where a dict is used as a whole, so that its paths may go anywhere.

    As an argument of the program's own functions it is followed by its parameters'
    names; calls of a `quiet` name only show it.
    """
    files = list(files)
    names = [dotted(mapping) or ""]
    names[0] = names[0].rpartition(".")[2]
    for number, name in enumerate(names):
        if not name or number == MAX_NAMES:
            return mapping
        for index in files:
            for node in index.reads.get(name, ()):
                use = _use(index, node, quiet)
                if isinstance(use, ast.Call):
                    given = _parameters(script, use, node)
                    if not given:
                        return node
                    names += [n for n in given if n not in names]
                elif use is not None:
                    return use
    return None


def _use(index: FileIndex, node: ast.expr, quiet: frozenset[str]) -> ast.expr | None:
    """A use that may give all of a dict away: a call that gets it, a view of it."""
    above = index.parent(node)
    if isinstance(above, ast.Attribute):
        return above if above.attr in _VIEWS else None
    spread = isinstance(above, ast.keyword) and above.arg is None
    if isinstance(above, (ast.Starred, ast.For, ast.comprehension)) or spread:
        return node
    if isinstance(above, ast.keyword):
        above = index.parent(above)
    if isinstance(above, ast.Call) and above.func is not node:
        return None if last_name(above) in quiet else above
    return None


def _parameters(script: Script, call: ast.Call, argument: ast.expr) -> list[str]:
    """The names of the parameters that an argument is for; none: not known."""
    calls = script.resolver.calls
    return [
        arg.arg
        for function in calls.callees(call)
        for args in [function.args]
        for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs]
        if argument in calls.given(call, function, arg.arg)[0]
    ]
