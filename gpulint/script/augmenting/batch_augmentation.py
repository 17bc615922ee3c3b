"""How the end of a training set's transform moves to the batches of its loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpulint.script.augmenting.augmentations import Augmentation
from gpulint.script.augmenting.hand_augmentation import move_samples_to_batches
from gpulint.script.augmenting.split_transform import Split
from gpulint.script.rewriting.edits import CannotFix, Rewrite

if TYPE_CHECKING:
    from gpulint.script.model import Script

TITLE = "Augment batches on the GPU"
NAMES = ("augment", "augment_batch")
# What batches can go through, and what a transform may end with beside it.
_MOVED = frozenset(
    "RandomHorizontalFlip RandomVerticalFlip RandomRotation RandomAffine ColorJitter "
    "RandomGrayscale RandomErasing".split()
)
_ALONG = frozenset(
    "ToTensor PILToTensor ToImage ConvertImageDtype ToDtype Normalize".split()
)
_SIZING = frozenset("CenterCrop RandomResizedCrop RandomCrop".split())


def move_to_batches(
    script: Script, found: Augmentation, taken: set[str]
) -> tuple[Rewrite | None, str | None]:
    """The rewrite, or why there is none; lines after the first are to be put in.

    `taken`: names that rewrites of the same file give, and this one adds to.
    """
    if found.by_hand:
        return move_samples_to_batches(script, found, taken)
    try:
        return _rewrite(script, found, taken), None
    except CannotFix as reason:
        return None, str(reason)


def _rewrite(script: Script, found: Augmentation, taken: set[str]) -> Rewrite:
    if found.others:
        raise CannotFix("samples that are not trained on go through it as well")
    split = Split(script, found.loader, found.whole)
    _check_moves(split)
    size = ", same_size=True" if split.same_size() else ""
    return split.rewrite(TITLE, NAMES, size, taken)


def _check_moves(split: Split) -> None:
    """That something random stands behind the last operation that must stay."""
    names = [split.operation(node) for node in split.steps]
    moves = False
    for number in reversed(range(len(names))):
        name = names[number]
        sized = split.same_size() or not _SIZING.isdisjoint(names[:number])
        if name in _MOVED or (name == "RandomCrop" and sized):
            moves = True
        elif name not in _ALONG:
            break
    if not moves:
        raise CannotFix("what draws cannot move without what stands behind it")
