"""Loops of which each round is a whole training."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpulint.script.loops import Loop
    from gpulint.script.model import Script


def holds_runs(script: Script, loop: Loop) -> bool:
    """Whether an iteration is a whole run of training: a fold, a seed, a stage."""
    return any(
        (other.kind == "epoch" or (other.train and other.counts_epochs))
        and other is not loop
        and (
            script.index.inside(other.node, loop.node) or other.function in loop.helpers
        )
        for other in script.loops
    )
