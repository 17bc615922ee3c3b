"""Paths of files: how they begin and end, and what is made of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import FileIndex
from gpulint.index.build import last_name
from gpulint.index.walk import dotted

if TYPE_CHECKING:
    from gpulint.script.model import Script

MAX_NAMES = 4  # names that an ending is followed through
# Calls that make a path of a path; the first ones give the same path.
_SAME = frozenset(
    "Path PurePath str fspath abspath realpath expanduser normpath".split()
)
_BUILD = _SAME | frozenset(
    "join dirname basename format joinpath with_suffix with_name with_stem absolute "
    "resolve as_posix rstrip strip expandvars".split()
)
_PARTS = frozenset("parent name stem suffix parts".split())
_MODULES = frozenset("os os.path osp path pathlib pathlib2".split())
# Beginnings that nothing else in the program leads to.
_OUTER = frozenset(
    "os.environ os.environ.get os.getenv os.getcwd tempfile.mkdtemp".split()
)
_FIELD = re.compile(r"%[-#0 +]*\d*(?:\.\d+)?[a-zA-Z]|\{[^{}]*\}")


def key(node: ast.expr) -> str | None:
    """The key of `config["folder"]`."""
    inner = node.slice if isinstance(node, ast.Subscript) else None
    value = inner.value if isinstance(inner, ast.Constant) else None
    return value if isinstance(value, str) else None


def plain(path: ast.expr) -> ast.expr:
    """`"last.pt"` of `Path("last.pt")`."""
    while isinstance(path, ast.Call) and len(path.args) == 1:
        if last_name(path) not in _SAME:
            break
        path = path.args[0]
    return path


# Beginnings


def beginnings(script: Script, path: ast.expr) -> Iterator[ast.expr | None]:
    """What a path begins with: a name, attribute, key or constant, perhaps one of more.

    None: something that is not known to be a path. Nothing for what only the
    environment says.
    """
    if isinstance(path, ast.JoinedStr) and path.values:
        yield from beginnings(script, path.values[0])
    elif isinstance(path, ast.FormattedValue):
        yield from beginnings(script, path.value)
    elif isinstance(path, ast.BinOp):
        yield from beginnings(script, path.left)
    elif isinstance(path, (ast.IfExp, ast.BoolOp)):
        either = (
            [path.body, path.orelse] if isinstance(path, ast.IfExp) else path.values
        )
        for choice in either:
            yield from beginnings(script, choice)
    elif isinstance(path, ast.Attribute) and path.attr in _PARTS:
        yield from beginnings(script, path.value)
    elif _is_outer(script, path):
        return
    elif isinstance(path, (ast.Name, ast.Attribute, ast.Constant)) or key(path):
        yield path
    elif isinstance(path, ast.Call) and last_name(path) in _BUILD:
        func = path.func
        module = not isinstance(func, ast.Attribute) or dotted(func.value) in _MODULES
        if not module:
            assert isinstance(func, ast.Attribute)
            yield from beginnings(script, func.value)
        elif path.args:
            yield from beginnings(script, path.args[0])
    else:
        yield None


def _is_outer(script: Script, path: ast.expr) -> bool:
    """A variable of the environment, the time, a new folder."""
    call = isinstance(path, ast.Call)
    node = path.func if isinstance(path, ast.Call) else path
    if isinstance(path, ast.Subscript):
        node = path.value
    name = script.index.home(path).qualified(node) or ""
    return name in _OUTER or (call and name.endswith("strftime"))


def is_folder(above: ast.AST | None) -> bool:
    """Whether the beginning of a path is a folder by itself, as `join` takes it."""
    if isinstance(above, ast.BinOp):
        return isinstance(above.op, ast.Div)
    return isinstance(above, ast.Call)


# Endings


def ending(script: Script, path: ast.expr, depth: int = 0) -> str | None:
    """What a path surely ends with; None: not known."""
    if isinstance(path, ast.Constant):
        return path.value if isinstance(path.value, str) else None
    if isinstance(path, ast.JoinedStr):
        return ending(script, path.values[-1]) if path.values else None
    if isinstance(path, ast.BinOp) and isinstance(path.op, ast.Mod):
        return _after_fields(script, path.left)
    if isinstance(path, ast.BinOp):
        return ending(script, path.right, depth)
    if isinstance(path, ast.Call) and last_name(path) in _BUILD:
        if last_name(path) == "format" and isinstance(path.func, ast.Attribute):
            return _after_fields(script, path.func.value)
        return ending(script, path.args[-1], depth) if path.args else None
    if isinstance(path, ast.Name) and depth < MAX_NAMES:
        value = _only_value(script, path)
        return ending(script, value, depth + 1) if value is not None else None
    return None


def _after_fields(script: Script, text: ast.expr) -> str | None:
    whole = ending(script, text)
    return _FIELD.split(whole)[-1] if whole is not None else None


def name_start(script: Script, path: ast.expr, depth: int = 0) -> str | None:
    """What a file's own name surely begins with; None: not known."""
    if isinstance(path, ast.Constant) and isinstance(path.value, str):
        return path.value.rpartition("/")[2]
    if isinstance(path, ast.JoinedStr):
        text = "".join(
            str(part.value) if isinstance(part, ast.Constant) else "{}"
            for part in path.values
        )
        return _before_fields(text)
    if isinstance(path, ast.BinOp) and isinstance(path.op, ast.Mod):
        return _before_fields(_text(path.left))
    if isinstance(path, ast.BinOp) and isinstance(path.op, ast.Div):
        return name_start(script, path.right, depth)
    func = path.func if isinstance(path, ast.Call) else None
    if isinstance(path, ast.Call) and last_name(path) in (*_SAME, "join", "joinpath"):
        return name_start(script, path.args[-1], depth) if path.args else None
    if isinstance(func, ast.Attribute) and func.attr == "format":
        return _before_fields(_text(func.value))
    if isinstance(path, ast.Name) and depth < MAX_NAMES:
        value = _only_value(script, path)
        return name_start(script, value, depth + 1) if value is not None else None
    return None


def _text(node: ast.expr) -> str:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else ""


def _before_fields(text: str) -> str:
    return _FIELD.split(text.rpartition("/")[2])[0]


def _only_value(script: Script, name: ast.Name) -> ast.expr | None:
    found = script.definitions(name)
    plain = len(found) == 1 and found[0].kind == "assign" and not found[0].path
    return found[0].value if plain else None


def may_be_same(script: Script, one: ast.expr, other: ast.expr) -> bool:
    """Whether two paths may be those of one file, by its own name."""
    starts = name_start(script, one), name_start(script, other)
    if all(starts) and not (
        starts[0].startswith(starts[1]) or starts[1].startswith(starts[0])  # type: ignore[union-attr, arg-type]
    ):
        return False
    return not differ(ending(script, one), ending(script, other))


def holds_blanks(path: ast.expr) -> bool:
    """Whether a string has blanks: `f"rsync {path} host:"` is no other path."""
    texts = (n.value for n in ast.walk(path) if isinstance(n, ast.Constant))
    return any(isinstance(text, str) and " " in text for text in texts)


def differ(one: str | None, other: str | None) -> bool:
    """Whether two paths with these endings are surely not the same."""
    if not one or not other:
        return False
    return not (one.endswith(other) or other.endswith(one))


def file_name(path: ast.expr) -> str | None:
    """The constant that is joined to a folder as a file's own name."""
    last = path
    while isinstance(last, (ast.Call, ast.BinOp)):
        if isinstance(last, ast.BinOp):
            last = last.right
        elif last.args and last_name(last) in _BUILD:
            last = last.args[-1]
        else:
            return None
    name = last.value if isinstance(last, ast.Constant) else None
    named = isinstance(name, str) and last is not path
    return str(name) if named and not str(name).startswith(".") else None


# What is made of them


def whole_path(index: FileIndex, node: ast.expr) -> ast.expr:
    """The whole path that an expression is a part of."""
    while (above := _made_of(index, node)) is not None:
        node = above
    return node


def _made_of(index: FileIndex, node: ast.expr) -> ast.expr | None:
    """The next larger path; None: something else is done with it."""
    above = index.parent(node)
    if isinstance(above, ast.Tuple):  # of `"%s/%d.pt" % (folder, step)`
        above = index.parent(above)
        return above if isinstance(above, ast.BinOp) else None
    if isinstance(above, ast.Attribute):
        call = index.parent(above)
        if isinstance(call, ast.Call) and call.func is above:
            return call if above.attr in _BUILD else None
        return above if above.attr in _PARTS else None
    if isinstance(above, ast.Call):
        return above if node in above.args and last_name(above) in _BUILD else None
    if isinstance(above, ast.IfExp):
        return above if node is not above.test else None
    joins = (ast.FormattedValue, ast.JoinedStr, ast.BinOp, ast.BoolOp)
    return above if isinstance(above, joins) else None
