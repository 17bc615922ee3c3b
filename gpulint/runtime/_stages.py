"""Augment batches of images and masks, by stages of a training. Imports torch."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ._augment import BYTES, Augment, Step, chosen, each

EXACT = (torch.float32, torch.float64)  # what coordinates and colours are exact in


class Sometimes(Step):
    """A step that changes only a part of the images, others are left as they are."""

    def __init__(self, step: Step, p: float) -> None:
        self.step, self.p = step, p
        self.spatial, self.bounded = step.spatial, step.bounded
        self.needs_floats = step.needs_floats

    def draw(self, images: Tensor) -> tuple[Tensor, Any]:
        return chosen(images, self.p), self.step.draw(images)

    def apply(
        self, images: Tensor, drawn: tuple[Tensor, Any], *, mask: bool = False
    ) -> Tensor:
        on, its = drawn
        changed = self.step.apply(images, its, mask=mask)
        return torch.where(each(on), changed, images)


class Augmentation(nn.Module):
    """What `runtime.augmentation` returns: `augment(images, masks=None, epoch=None)`.

    Images are (N, C, H, W), bytes or floats, for flips alone of any type; what comes
    back has their type. Masks are
    (N, H, W) or (N, 1, H, W) and get the geometry of their images, of the nearest
    pixel and 0 from outside; with masks, `(images, masks)` comes back. The batch
    itself is left as it is, and nothing is differentiated. Under `eval()`, and where
    `on_batches` is false, it comes back as it was given.

    `epoch` counts from 0; it is needed where there are several stages.
    """

    def __init__(
        self, stages: Mapping[int, Sequence[Step]], *, on_batches: bool = True
    ) -> None:
        super().__init__()
        self.on_batches = on_batches
        self._starts = sorted(stages)
        self._stages = [tuple(stages[start]) for start in self._starts]
        self._checked = False

    @torch.no_grad()
    def forward(
        self, images: Tensor, masks: Tensor | None = None, epoch: int | None = None
    ) -> Any:
        if not (self.on_batches and self.training):
            return images if masks is None else (images, masks)
        steps = self._steps(epoch)
        self._check(images, masks, steps)
        if not any(step.needs_floats for step in steps):
            return Augment(steps)(images, masks)
        result = Augment(steps)(_as_floats(images), masks)
        if masks is None:
            return _as_before(result, images)
        return _as_before(result[0], images), result[1]

    def _steps(self, epoch: int | None) -> tuple[Step, ...]:
        if len(self._starts) == 1:
            return self._stages[0]
        if epoch is None:
            raise ValueError("a schedule needs the epoch: augment(images, epoch=epoch)")
        if epoch < 0:
            raise ValueError(f"epochs count from 0: {epoch}")
        return self._stages[bisect.bisect_right(self._starts, epoch) - 1]

    def _check(
        self, images: Tensor, masks: Tensor | None, steps: Sequence[Step]
    ) -> None:
        if images.dim() != 4:
            raise ValueError(f"images are (N, C, H, W), not {tuple(images.shape)}")
        whole = images.dtype is not torch.uint8 and not images.is_floating_point()
        if whole and any(step.needs_floats for step in steps):
            raise ValueError(f"images are uint8 or floats, not {images.dtype}")
        if masks is not None:
            number, _, *sides = images.shape
            if tuple(masks.shape) not in ((number, *sides), (number, 1, *sides)):
                raise ValueError(
                    f"masks of {tuple(images.shape)} images are (N, H, W) or "
                    f"(N, 1, H, W), not {tuple(masks.shape)}"
                )
        self._check_colours(images, steps)

    def _check_colours(self, images: Tensor, steps: Sequence[Step]) -> None:
        """Look at the first batch of floats: later ones are not waited for."""
        bounded = any(step.bounded for step in steps) and images.numel()
        if self._checked or not bounded or images.dtype is torch.uint8:
            return
        low, high = torch.stack(images.aminmax()).tolist()
        if not (low >= 0 and high <= 1):
            raise ValueError(
                "brightness and contrast are for bytes, or floats from 0 to 1, not "
                f"from {low:g} to {high:g}: augment before Normalize"
            )
        self._checked = True


def _as_floats(images: Tensor) -> Tensor:
    """Return bytes from 0 to 1, halves in float32."""
    if images.dtype is torch.uint8:
        return images.to(torch.float32).div(BYTES)
    return images if images.dtype in EXACT else images.float()


def _as_before(augmented: Tensor, images: Tensor) -> Tensor:
    """Return what was computed in floats in the type of the batch."""
    if images.dtype is torch.uint8:
        augmented = augmented.mul(BYTES).round().clamp(0, BYTES)
    return augmented.to(images.dtype)
