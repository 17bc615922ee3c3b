"""One thing that was looked at, and how it stands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from gpulint.runtime._hardware import in_units

Value: TypeAlias = "str | int | float | bool | None"


class Status(Enum):
    """From fine to broken; `warn` costs time or breaks soon, `error` is broken now."""

    OK = "ok"
    NOTE = "note"
    WARN = "warn"
    ERROR = "error"


@dataclass(frozen=True)
class Check:
    """One line of the report; `advice` says what to do, None where nothing is."""

    id: str
    subject: str
    status: Status
    text: str
    value: Value = None
    advice: str | None = None


def ok(id: str, subject: str, text: str, value: Value = None) -> Check:
    """A check that needs no advice."""
    return Check(id, subject, Status.OK, text, value)


def size(count: int | None) -> str:
    """Bytes in the unit that suits them; `n/a` where they are not known."""
    return "n/a" if count is None else in_units(count)


def dotted(capability: Iterable[int]) -> str:
    """A compute capability as NVIDIA writes it."""
    return ".".join(map(str, capability))
