"""Performance switches in settings files that no code reads, or reads elsewhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpulint.script.settings.mapping_uses import Keys, MappingUses, item
from gpulint.script.settings.setting_values import is_meant

if TYPE_CHECKING:
    from gpulint.index import FileIndex
    from gpulint.script.model import Script

_SWITCHES = frozenset(
    "use_amp amp fp16 bf16 mixed_precision use_mixed_precision compile torch_compile "
    "use_compile channels_last tf32 allow_tf32 cudnn_benchmark pin_memory "
    "persistent_workers".split()
)
_NUMBERS = frozenset(("num_workers", "prefetch_factor"))
# Mappings with one of these keys describe an object that somebody makes by name.
_NAMES = frozenset("_target_ target type class_path class cls _partial_".split())


@dataclass(frozen=True, eq=False)
class Unread:
    """A switch that is on in a file which a call loads.

    `shadow` is the read of the same key in another place of the file, where it is not.
    """

    node: ast.Constant
    load: ast.Call
    shadow: ast.Call | None


def unread_settings(script: Script) -> list[Unread]:
    """Switches of the files that a script loads, of which no use can be found."""
    project = script.index.project
    if project is None or not project.lists(script.source.path):
        return []
    found: dict[ast.expr, Unread] = {}
    for call in script.index.all(ast.Call):
        root = script.evaluator.settings.root(call)
        for keys, node in _switches(root, ()) if root is not None else ():
            if not is_meant(script, node):
                unread = _unread(script, call, root, keys, node)
                if unread is not None:
                    found.setdefault(node, unread)
    return list(found.values())


def _switches(node: ast.expr | None, keys: Keys) -> Iterator[tuple[Keys, ast.Constant]]:
    """Values that make a run faster, with the keys that lead to them."""
    if not isinstance(node, ast.Dict):
        return
    pairs = [
        (k.value, v)
        for k, v in zip(node.keys, node.values, strict=True)
        if isinstance(k, ast.Constant) and isinstance(k.value, str)
    ]
    if _NAMES & {name for name, _ in pairs}:
        return
    for name, value in pairs:
        if isinstance(value, ast.Constant) and _is_fast(name, value.value):
            yield (*keys, name), value
        yield from _switches(value, (*keys, name))


def _is_fast(name: str, value: object) -> bool:
    if name in _NUMBERS:
        return isinstance(value, int) and value is not True and value > 1
    return name in _SWITCHES and (value is True or value in ("fp16", "bf16"))


def _unread(
    script: Script,
    load: ast.Call,
    root: ast.expr | None,
    keys: Keys,
    node: ast.Constant,
) -> Unread | None:
    mentions = _mentions(script, keys[-1])
    if mentions is None:
        return None
    uses = MappingUses(script, load, root)
    if uses.may_read(keys):
        return None
    for mention in mentions:
        path = uses.reads.get(mention)
        if path is None or path[-1] != keys[-1] or item(root, path) is not None:
            return None
    shadows = [uses.lookups.get(m) for m in mentions]
    if any(s is None or not _turns_off(script, s) for s in shadows):
        return None
    return Unread(node, load, shadows[0] if shadows else None)


def _turns_off(script: Script, read: ast.Call) -> bool:
    """`config.get("use_amp", False)`: a default that is certainly slow."""
    if len(read.args) != 2:
        return False
    return script.evaluator.values(read.args[1]).all_in(False, 0, 1, None)


def _mentions(script: Script, word: str) -> list[ast.AST] | None:
    """Where the project's code may read a key; None: it cannot be told."""
    project = script.index.project
    assert project is not None
    if not project.is_read:
        return None
    found: list[ast.AST] = []
    for path in project.mentioning(word):
        index = project.index(path)
        if index is None:
            return None
        its = list(_in_file(script, index, word))
        if None in its:
            return None
        found += [n for n in its if n is not None]
    return found


def _in_file(script: Script, index: FileIndex, word: str) -> Iterator[ast.AST | None]:
    """Strings and attributes of a name; None for a string that only contains it."""
    for constant in index.all(ast.Constant):
        if not isinstance(constant.value, str) or word not in constant.value:
            continue
        if isinstance(index.parent(constant), ast.Expr):
            continue  # a docstring
        yield constant if constant.value == word else None
    for attribute in index.all(ast.Attribute):
        if attribute.attr != word or not isinstance(attribute.ctx, ast.Load):
            continue
        if not script.resolver.definitions(attribute):
            yield attribute
