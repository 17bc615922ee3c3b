"""Whether workers would all augment alike: albumentations has draws of its own.

From 1.4.21 on each `Compose` keeps generators that it makes when it is made. Workers
that are forked have copies of these, which nothing seeds: all draw the same numbers,
and the same again in each epoch. Measured with 2.0.8, its last release.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from gpulint.index.walk import walk
from gpulint.script.augmenting.image_operations import ALBUMENTATIONS
from gpulint.script.neighbours import run_together

if TYPE_CHECKING:
    from gpulint.index import FileIndex
    from gpulint.script.model import Script

OWN_DRAWS = (1, 4)  # of which some releases have generators of their own
REPEATS = "albumentations draws the same numbers in all workers, in each epoch"
_SEEDS = "set_random_seed("  # of a `Compose`, in a `worker_init_fn`
# Operations that draw nothing.
_FIXED = frozenset(
    "Resize Normalize CenterCrop PadIfNeeded ToFloat FromFloat LongestMaxSize Crop "
    "SmallestMaxSize ToTensorV2 ToTensor NoOp BboxParams KeypointParams ToGray ToRGB "
    "Pad Compose".split()
)


def repeats_draws(script: Script) -> bool:
    """Whether workers would repeat the random operations of a program's `Compose`."""
    newest = script.releases("albumentations").highest
    if newest is not None and newest < OWN_DRAWS:
        return False
    files = [i for i in run_together(script) if "albumentations" in i.packages]
    if any(_SEEDS in index.source.text for index in files):
        return False
    made = (call for index in files for call in index.calls_by_name.get("Compose", ()))
    return any(_draws(script.index.home(call), call) for call in made)


def _draws(index: FileIndex, compose: ast.Call) -> bool:
    """Whether a `Compose` of albumentations has random operations, or unknown ones."""
    if not (index.qualified(compose.func) or "").startswith(ALBUMENTATIONS):
        return False
    given = compose.args[:1] or [k.value for k in compose.keywords][:1]
    if not all(isinstance(value, ast.List) for value in given):
        return True
    names = [index.qualified(c.func) for c in walk(*given) if isinstance(c, ast.Call)]
    return any((name or "").rpartition(".")[2] not in _FIXED for name in names)
