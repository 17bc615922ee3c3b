"""What is known of a value: the constants that can arrive, and where they stand."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple


class Value(NamedTuple):
    """A constant that can reach a place, and the expression where it is written.

    `default`: a user or caller may replace it (parameter or command-line default).
    """

    constant: object
    node: ast.expr
    default: bool = False


class Values(NamedTuple):
    """The constants that can reach a place; `complete`: there are no others."""

    known: tuple[Value, ...] = ()
    complete: bool = True

    def all_in(self, *constants: object) -> bool:
        """Whether it is certain that only these constants can arrive."""
        return (
            self.complete
            and bool(self.known)
            and all(_among(v.constant, constants) for v in self.known)
        )

    def replaceable(self) -> Values:
        """The same, as defaults that a user or caller may replace."""
        return Values(
            tuple(v._replace(default=True) for v in self.known), self.complete
        )

    def any_in(self, *constants: object) -> bool:
        """Whether one of these constants can arrive."""
        return any(_among(v.constant, constants) for v in self.known)


def _among(constant: object, choices: Iterable[object]) -> bool:
    return any(constant is c or (type(constant) is type(c) and constant == c)
               for c in choices)  # fmt: skip


@dataclass(frozen=True)
class Mapping:
    """What is known of a dict: for each key the expressions it can hold.

    `maybe`: keys set on some paths only; `complete`: no other key can be there;
    `replaced`: any key may have been given a value that is not known.
    """

    items: dict[str, list[ast.expr]] = field(default_factory=dict)
    maybe: frozenset[str] = frozenset()
    complete: bool = True
    replaced: bool = False


class Argument(NamedTuple):
    """An argument of a call: given, absent, or not known (through `**kwargs`).

    `maybe`: one of `nodes` on some paths, nothing on others. `nodes` are the
    expressions that can arrive; `direct` is the one written in the
    call itself.
    """

    state: Literal["given", "absent", "maybe", "unknown"]
    nodes: tuple[ast.expr, ...] = ()
    direct: ast.expr | None = None

    @property
    def given(self) -> bool:
        """Whether it is certain that the caller passes it."""
        return self.state == "given"

    @property
    def absent(self) -> bool:
        """Whether it is certain that the caller leaves it out."""
        return self.state == "absent"


def joined(parts: Iterable[Values], complete: bool) -> Values:
    """All constants of several ways; complete if every way is."""
    known: list[Value] = []
    for part in parts:
        complete = complete and part.complete
        known += [v for v in part.known if v not in known]
    return Values(tuple(known), complete)
