"""Paths that a script computes from constants and its own place."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from gpulint.index.walk import dotted

if TYPE_CHECKING:
    from gpulint.index.build import FileIndex

_OTHER_WAYS = re.compile(r"\b(sys\.modules|PYTHONPATH|site\.addsitedir)\b")
_SAME = ("abspath", "realpath", "normpath", "expanduser", "resolve", "absolute")
_SAME_CALLS = ("str", "Path", "PurePath", "fspath", "to_absolute_path")


def added_to_path(index: FileIndex, root: Path) -> list[Path]:
    """What a file puts on `sys.path`, where the paths are constant."""
    return [path for paths in added_calls(index, root).values() for path in paths]


def added_calls(index: FileIndex, root: Path) -> dict[ast.Call, list[Path]]:
    """The calls that do so, with where the path of each may lead."""
    found = {}
    for call in _adding(index):
        paths = candidates(index, call.args[-1], root)
        if paths:
            found[call] = paths
        else:
            found |= _added_for_others(index, call, root)
    return found


def _adding(index: FileIndex) -> list[ast.Call]:
    """`sys.path.insert(0, path)` and `sys.path.append(path)`."""
    calls = [*index.calls_by_name["append"], *index.calls_by_name["insert"]]
    return [
        call
        for call in (calls if "sys" in index.imports else ())
        if dotted(call.func) in ("sys.path.append", "sys.path.insert") and call.args
    ]


def _added_for_others(
    index: FileIndex, call: ast.Call, root: Path
) -> dict[ast.Call, list[Path]]:
    """The calls of `def add_path(path): sys.path.insert(0, path)`, with their paths."""
    function = index.function(call)
    taken = function.args.args if function is not None else []
    if len(taken) != 1 or dotted(call.args[-1]) != taken[0].arg:
        return {}
    its = index.calls_by_name.get(getattr(function, "name", ""), ())
    given = {c: candidates(index, c.args[0], root) for c in its if len(c.args) == 1}
    return {c: paths for c, paths in given.items() if paths}


def adds_known_folders(index: FileIndex, root: Path) -> bool:
    """Whether a file adds folders to `sys.path`, all by constant paths."""
    if index.source.has(_OTHER_WAYS):
        return False
    paths = [n for n in index.all(ast.Attribute) if dotted(n) == "sys.path"]
    changed = [n for n in paths if not isinstance(index.parent(n), ast.Compare)]
    return bool(changed) and len(added_calls(index, root)) == len(changed)


def candidates(index: FileIndex, node: ast.expr, root: Path) -> list[Path]:
    """Where a path may lead: as it is, from the script's folder, from the root."""
    path = constant_path(index, node)
    if path is None:
        return []
    if path.is_absolute():
        return [Path(os.path.normpath(path))]
    bases = [index.source.path.parent, *index.source.path.parents]
    inside = [b for b in bases if b == root or root in b.parents]
    return [
        Path(os.path.normpath(base / path)) for base in dict.fromkeys([*inside, root])
    ]


def constant_path(index: FileIndex, node: ast.expr, depth: int = 0) -> Path | None:
    """The path that an expression of constants and `__file__` gives, else None."""
    if depth > 8:
        return None
    if isinstance(node, ast.Constant):
        return Path(node.value) if isinstance(node.value, str) else None
    if isinstance(node, ast.Name):
        if node.id == "__file__":
            return index.source.path
        return _named(index, node, depth)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        left = constant_path(index, node.left, depth + 1)
        right = constant_path(index, node.right, depth + 1)
        return left / right if left is not None and right is not None else None
    if isinstance(node, ast.Attribute) and node.attr == "parent":
        inner = constant_path(index, node.value, depth + 1)
        return inner.parent if inner is not None else None
    if isinstance(node, ast.Subscript):
        return _parents(index, node, depth)
    return _called(index, node, depth) if isinstance(node, ast.Call) else None


def _named(index: FileIndex, node: ast.Name, depth: int) -> Path | None:
    """A variable of the module that is assigned once."""
    values = [
        statement.value
        for statement in index.tree.body
        if isinstance(statement, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == node.id for t in statement.targets)
    ]
    return constant_path(index, values[0], depth + 1) if len(values) == 1 else None


def _parents(index: FileIndex, node: ast.Subscript, depth: int) -> Path | None:
    """`Path(__file__).parents[1]`."""
    holder = node.value
    number = node.slice.value if isinstance(node.slice, ast.Constant) else None
    if not isinstance(holder, ast.Attribute) or holder.attr != "parents":
        return None
    inner = constant_path(index, holder.value, depth + 1)
    if inner is None or not isinstance(number, int) or isinstance(number, bool):
        return None
    return inner.parents[number] if 0 <= number < len(inner.parents) else None


def _called(index: FileIndex, call: ast.Call, depth: int) -> Path | None:
    func = call.func
    last = func.attr if isinstance(func, ast.Attribute) else (dotted(func) or "")
    given = [constant_path(index, a, depth + 1) for a in call.args]
    if last in ("join", "joinpath", "Path") and len(given) > 1:
        return Path(*given) if None not in given else None  # type: ignore[arg-type]
    if last in ("getcwd", "cwd", "get_original_cwd"):
        return Path()
    if last == "dirname" and given and given[0] is not None:
        return given[0].parent
    if last == "joinpath" and isinstance(func, ast.Attribute):
        inner = constant_path(index, func.value, depth + 1)
        whole = [inner, *given]
        return Path(*whole) if None not in whole else None  # type: ignore[arg-type]
    if last in _SAME and not given and isinstance(func, ast.Attribute):
        return constant_path(index, func.value, depth + 1)
    if last in (*_SAME, *_SAME_CALLS) and given:
        return given[0]
    return None
