"""Whether workers could live on from one epoch to the next without a difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpulint.script.reuse import dataset_change, kept_iterator, runs_once
from gpulint.script.worker_state import changing_variable

if TYPE_CHECKING:
    from gpulint.script.loaders import Loader
    from gpulint.script.model import Script


def stays_the_same(script: Script, loader: Loader) -> bool:
    """Whether workers that live on would see what new ones see."""
    if runs_once(script, loader):
        return False
    if kept_iterator(script, loader) is not None:
        return False
    if changing_variable(script, loader) is not None:
        return False
    return dataset_change(script, loader) is None
