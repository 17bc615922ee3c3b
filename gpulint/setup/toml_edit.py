"""Adds a table or an entry of a list to a TOML file; everything else stays as it is."""

from __future__ import annotations

import copy
from typing import Any

from gpulint.settings import parse_toml
from gpulint.setup import EditError, appended

MISSING = "editing TOML needs tomlkit, which the extra `gpulint[init]` brings"


def tables(text: str) -> dict[str, Any]:
    """What a file holds. EditError: it is not TOML."""
    try:
        return parse_toml(text.encode())
    except ValueError as error:
        raise EditError(f"not TOML: {error}") from None


def table(data: dict[str, Any], *keys: str) -> dict[str, Any] | None:
    """The table that stands under these keys, if one does."""
    for key in keys:
        found = data.get(key)
        if not isinstance(found, dict):
            return None
        data = found
    return data


def add_table(text: str, block: str) -> str:
    """The text with a new table at its end."""
    after = appended(text, block)
    _prove(after, _merged(tables(text), tables(block)), block)
    return after


def add_to_list(text: str, keys: tuple[str, ...], word: str) -> str:
    """The text with `word` in the list under `keys`, which is made where it lacks."""
    try:
        import tomlkit
        from tomlkit.exceptions import TOMLKitError
    except ImportError:
        raise EditError(MISSING) from None
    expected = tables(text)
    *outer, last = keys
    holder = expected
    for key in outer:
        holder = holder.setdefault(key, {})
        if not isinstance(holder, dict):
            raise EditError(f"`{key}` is no table")
    what = f'{last} = ["{word}"] in [{".".join(outer)}]'
    if not isinstance(holder.setdefault(last, []), list):
        raise EditError(f"`{'.'.join(keys)}` is no list")
    holder[last].append(word)
    try:
        document = tomlkit.parse(text)
        its: Any = document
        for key in outer:
            if key not in its:
                its[key] = tomlkit.table()
            its = its[key]
        its.setdefault(last, tomlkit.array()).append(word)
        after = tomlkit.dumps(document)
    except (TOMLKitError, TypeError, AttributeError, KeyError):
        raise _by_hand(what) from None
    _prove(after, expected, what)
    return after


def _prove(text: str, expected: dict[str, Any], what: str) -> None:
    try:
        found = tables(text)
    except EditError:
        found = {}
    if found != expected:
        raise _by_hand(what)


def _by_hand(what: str) -> EditError:
    shown = " ".join(what.split())
    return EditError(f"cannot be edited safely; add this by hand: {shown}")


def _merged(data: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Both, where tables of one name become one."""
    result = copy.copy(data)
    for key, its in more.items():
        old = result.get(key)
        both = isinstance(old, dict) and isinstance(its, dict)
        result[key] = _merged(old, its) if both and old is not None else its
    return result
