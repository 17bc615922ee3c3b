"""What a rule says: findings, their places, and fixes as edits of the text."""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, overload

from gpulint.releases import ANY_MINOR


class Effect(enum.Enum):
    """What may differ in a training run after a fix; the user allows a set."""

    EXACT = "exact"
    RANDOM = "random"
    NUMERICS = "numerics"
    HYPERPARAMS = "hyperparams"
    NONE = "none"

    @property
    def rank(self) -> int:
        """Position in the order in which fixes are applied, least change first."""
        return list(Effect).index(self)


class Severity(enum.Enum):
    """How bad a finding is; notes never fail a build by default."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """0 for a note, 1 for a warning, 2 for an error."""
        return list(Severity).index(self)


class Confidence(enum.Enum):
    """How sure the facts behind a finding are."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"

    @property
    def rank(self) -> int:
        """0 for low, 2 for high."""
        return list(Confidence).index(self)


class Position(NamedTuple):
    """A place in a text: row and column, both 1-based, in code points."""

    row: int
    column: int


class Place(NamedTuple):
    """A range of a file with what is said about it (empty for the finding itself)."""

    path: Path
    start: Position
    end: Position
    message: str = ""


class Evidence(NamedTuple):
    """A fact that the finding rests on, and the row where it is written."""

    path: Path
    row: int
    note: str


class TextEdit(NamedTuple):
    """Replace `text[start:end]` by `content`; offsets in code points."""

    start: int
    end: int
    content: str


class LazyEdits(Sequence[TextEdit]):
    """Edits that are made when somebody looks at them."""

    def __init__(self, make: Callable[[], tuple[TextEdit, ...]]) -> None:
        self._make = make

    @cached_property
    def _edits(self) -> tuple[TextEdit, ...]:
        return self._make()

    @overload
    def __getitem__(self, index: int) -> TextEdit: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[TextEdit]: ...
    def __getitem__(self, index: int | slice) -> TextEdit | Sequence[TextEdit]:
        return self._edits[index]

    def __len__(self) -> int:
        return len(self._edits)


class Fix(NamedTuple):
    """One rewrite: all its edits are applied, or none.

    `imports` are statements the rewritten text needs (`import torch`); the engine
    adds those that are missing, once per file.
    """

    title: str
    effect: Effect
    edits: Sequence[TextEdit]
    imports: tuple[str, ...] = ()


class Finding(NamedTuple):
    """A place where a script wastes time or memory, and the fix if there is one.

    `effect` is that of the fix, or of the rule where the fix is withheld;
    `fix_withheld` names the guard that failed; lines after its first are code that
    does the same by hand. `context` is what identifies it when lines move, `ordinal`
    its number among those of the same rule and context.
    """

    code: str
    name: str
    message: str
    severity: Severity
    effect: Effect
    confidence: Confidence
    place: Place
    related: tuple[Place, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    fix: Fix | None = None
    fix_withheld: str | None = None
    context: str = ""
    suppressed: str | None = None
    ordinal: int = 0

    @property
    def path(self) -> Path:
        """The file it was found in."""
        return self.place.path

    @property
    def likeness(self) -> str:
        """The same for all that look alike: rule, enclosing definition, source text."""
        return _digest(self.code, self.context)

    @property
    def fingerprint(self) -> str:
        """Stable under line moves; tells those apart that look alike."""
        if not self.ordinal:
            return self.likeness
        return _digest(self.code, self.context, str(self.ordinal))

    @property
    def order(self) -> tuple[str, Position, str]:
        """Sort key: file, place, code."""
        return (str(self.path), self.place.start, self.code)


def too_old(needed: tuple[int, ...], allowed: tuple[int, ...]) -> str:
    """Why a fix is withheld: what it emits needs another torch."""
    wanted, has = map(_written, (needed, allowed))
    return f"needs torch {wanted}, the project allows {has}"


def _written(release: tuple[int, ...]) -> str:
    """`1.13`, or `1.x` for the last of a series."""
    major, minor = release
    return f"{major}.x" if minor == ANY_MINOR else f"{major}.{minor}"


def torch_allowed(withheld: str | None) -> str | None:
    """The torch for which a fix is withheld, where that is the reason."""
    found = _TOO_OLD.fullmatch(withheld or "")
    return found[1] if found else None


_TOO_OLD = re.compile(r"needs torch [\d.]+, the project allows ([\d.x]+)")


def _digest(*parts: str) -> str:
    key = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(key).hexdigest()[:16]
