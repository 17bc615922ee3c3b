"""Build nested batches anew with other parts."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

Change = Callable[[Any], Any]


def rebuilt(value: Any, change: Change) -> Any:
    """Return the value with what `change` returns in the place of its parts.

    Where it returns NotImplemented, the parts of mappings, lists, tuples, named tuples
    and dataclasses are changed, which are built anew and keep their types; all else
    stays as it is.
    """
    changed = change(value)
    if changed is not NotImplemented:
        return changed
    if isinstance(value, Mapping):
        return _mapping(value, change)
    if isinstance(value, list):
        return _list(value, change)
    if isinstance(value, tuple):
        return _tuple(value, change)
    return _dataclass(value, change) if is_nest(value) else value


def is_nest(value: Any) -> bool:
    """Say whether `rebuilt` looks for parts in it."""
    if isinstance(value, Mapping | list | tuple):
        return True
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _mapping(value: Mapping[Any, Any], change: Change) -> Any:
    items = {key: rebuilt(item, change) for key, item in value.items()}
    if type(value) is dict or not isinstance(value, MutableMapping):
        return items
    moved = copy.copy(value)  # a subclass keeps what else it carries
    moved.update(items)
    return moved


def _list(value: list[Any], change: Change) -> Any:
    items = [rebuilt(item, change) for item in value]
    if type(value) is list:
        return items
    moved = copy.copy(value)
    moved[:] = items
    return moved


def _tuple(value: tuple[Any, ...], change: Change) -> Any:
    items = [rebuilt(item, change) for item in value]
    if hasattr(value, "_fields"):
        return type(value)(*items)
    return type(value)(items)


def _dataclass(value: Any, change: Change) -> Any:
    moved = copy.copy(value)
    for field in dataclasses.fields(value):
        if hasattr(value, field.name):
            item = rebuilt(getattr(value, field.name), change)
            object.__setattr__(moved, field.name, item)  # frozen ones too
    return moved
