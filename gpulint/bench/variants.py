"""Make the rewritten text of a script, as `gpulint fix` would."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gpulint.engine import Fixed
    from gpulint.finding import Finding


class Rewritten(NamedTuple):
    """A text, and the fixes that made it."""

    texts: dict[Path, bytes]
    effects: frozenset[str]
    fixes: tuple[dict[str, object], ...]


def rewritten(fixed: Fixed, others: dict[Path, bytes]) -> Rewritten:
    """What a child is to read in the place of the script, and of `others`."""
    text = fixed.source.encode(fixed.text)
    return Rewritten(
        {fixed.source.path: text, **others},
        frozenset(_effect(f) for f in fixed.applied),
        _fixes(fixed.applied),
    )


def _effect(finding: Finding) -> str:
    return (finding.fix.effect if finding.fix else finding.effect).value


def _fixes(applied: Sequence[Finding]) -> tuple[dict[str, object], ...]:
    return tuple(
        {"code": f.code, "name": f.name, "row": f.place.start.row, "effect": _effect(f)}
        for f in applied
    )
