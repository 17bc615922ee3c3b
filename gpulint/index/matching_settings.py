"""Settings files of unknown path, found by the keys that a script reads from them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index.build import last_name
from gpulint.index.settings_file import Dialect
from gpulint.index.walk import dotted

if TYPE_CHECKING:
    from gpulint.index.build import FileIndex
    from gpulint.index.resolve import Resolver

MIN_KEYS = 3  # fewer stand in files of all kinds
MAX_FILES = 20
MAX_IMPORTS = 60
_MERGES = ("merge", "unsafe_merge")
_NOT_LOADED = ("from_cli", "from_dotlist", "create", "structured")
_SUFFIXES = {Dialect.JSON: (".json",)}
Keys = tuple[str, ...]


def matching(resolver: Resolver, load: ast.Call, dialect: Dialect) -> list[ast.expr]:
    """What the files hold that have every key which is read from a loaded one.

    Any of them may be the one; a script is run with another one at times, so that what
    they hold is no more than a default.
    """
    home = resolver.index.home(load)
    project = home.project
    if project is None:
        return []
    keys = _keys_read(resolver, home, load, dialect)
    if len(keys) < MIN_KEYS:
        return []
    found = []
    suffixes = _SUFFIXES.get(dialect, (".yaml", ".yml"))
    having = project.having_keys({key for path in keys for key in path})
    paths = [path for path in having if path.suffix in suffixes]
    for path in paths if len(paths) <= MAX_FILES else ():
        index = project.settings(path, dialect)
        statement = index.tree.body[0] if index is not None else None
        if isinstance(statement, ast.Expr) and all(
            _has(statement.value, path) for path in keys
        ):
            found.append(statement.value)
    return found


def _keys_read(
    resolver: Resolver, home: FileIndex, load: ast.Call, dialect: Dialect
) -> set[Keys]:
    """The keys, from the root, that must be there: `config["data"]["workers"]`."""
    assert home.project is not None
    found: set[Keys] = set()
    loaded: dict[tuple[ast.AST, str], bool] = {}
    for file in dict.fromkeys((home, *home.project.users(home), *_imported(home))):
        for keys, root in _reads(file, dialect):
            kept = isinstance(root, ast.Attribute)  # by an object, in whatever method
            scope = file.owner(root) if kept else file.scope(root)
            key = (scope or file.tree, dotted(root) or "")
            if key not in loaded:
                loaded[key] = _is_of(resolver, root, load)
            if loaded[key]:
                found.add(keys)
    return found


def _imported(home: FileIndex) -> Iterator[FileIndex]:
    """The files that a file imports, whose functions it may give what it has loaded."""
    for origin in sorted(home.imported)[:MAX_IMPORTS]:
        member = home.member(origin)
        if member is not None and member[0] is not home:
            yield member[0]


def _is_of(resolver: Resolver, node: ast.expr, load: ast.Call, depth: int = 1) -> bool:
    """Whether an expression is what is loaded, or that merged with something else.

    `OmegaConf.merge(loaded, OmegaConf.from_cli())`; not with another file, which may
    say the opposite.
    """
    origins = resolver.origins(node)
    if any(origin.node is load for origin in origins):
        return True
    merged = [o.call.args for o in origins if o.call and last_name(o.call) in _MERGES]
    return depth > 0 and any(
        sum(_may_be_loaded(resolver, given) for given in parts) == 1
        and any(_is_of(resolver, given, load, depth - 1) for given in parts)
        for parts in merged
    )


def _may_be_loaded(resolver: Resolver, node: ast.expr) -> bool:
    """Whether a part may come from a file: not from a command line or a dict."""
    return not all(
        isinstance(origin.node, ast.Dict)
        or (origin.call is not None and last_name(origin.call) in _NOT_LOADED)
        for origin in resolver.origins(node)
    )


def _reads(
    file: FileIndex, dialect: Dialect
) -> Iterator[tuple[Keys, ast.Name | ast.Attribute]]:
    """Keys that are read of a name, or of what an object keeps: `self.config`."""
    attributes = file.all(ast.Attribute) if dialect is Dialect.OMEGACONF else []
    for node in (*file.all(ast.Subscript), *attributes):
        above = file.parent(node)
        assert isinstance(node, (ast.Subscript, ast.Attribute))
        if not isinstance(node.ctx, ast.Load) or _key(above, dialect) is not None:
            continue
        keys, root = _chain(node, dialect)
        if isinstance(above, ast.Call) and above.func is node:
            keys = keys[:-1]  # a method of the value: `config.model.name.lower()`
        if keys and (isinstance(root, ast.Name) or _is_kept(root)):
            assert isinstance(root, (ast.Name, ast.Attribute))
            yield keys, root


def _is_kept(node: ast.expr) -> bool:
    """`self.config`"""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def _chain(node: ast.expr, dialect: Dialect) -> tuple[Keys, ast.expr]:
    keys: list[str] = []
    while isinstance(node, (ast.Subscript, ast.Attribute)) and not _is_kept(node):
        key = _key(node, dialect)
        if key is None:
            return (), node
        keys.append(key)
        node = node.value
    return tuple(reversed(keys)), node


def _key(node: ast.AST | None, dialect: Dialect) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr if dialect is Dialect.OMEGACONF else None
    key = node.slice if isinstance(node, ast.Subscript) else None
    constant = key.value if isinstance(key, ast.Constant) else None
    return constant if isinstance(constant, str) else None


def _has(node: ast.expr, keys: Keys) -> bool:
    for key in keys:
        if not isinstance(node, ast.Dict):
            return False
        pairs = zip(node.keys, node.values, strict=True)
        inner = [v for k, v in pairs if isinstance(k, ast.Constant) and k.value == key]
        if not inner:
            return False
        node = inner[-1]
    return True
