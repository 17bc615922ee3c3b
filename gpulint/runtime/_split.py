"""Split a transform of torchvision: what samples need, and what batches may get."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ._hardware import introduce
from ._log import decide
from ._placement import usable_kind
from ._settings import settings

if TYPE_CHECKING:
    from ._augment import Step
    from ._placement import DeviceLike

Transform = Callable[[Any], Any]
MODULES = ("torchvision.transforms.transforms", "torchvision.transforms.v2._")
# What gives images of any size one; `Resize` does where it names both sides.
SIZING = ("CenterCrop", "RandomResizedCrop", "RandomCrop")
CONVERTING = ("ToTensor", "PILToTensor", "ToImage")
SCALING = ("ConvertImageDtype", "ToDtype")
BYTES = 255


class Plan(NamedTuple):
    """What stays with the samples, and what batches go through.

    `scales`: bytes become floats on the way.
    """

    kept: list[Any]
    moved: list[Step]
    scales: bool


def identity(images: Any) -> Any:
    """Return a batch as it is."""
    return images


def split_augmentation(
    transform: Any, device: DeviceLike, *, same_size: bool = False
) -> tuple[Any, Transform]:
    """Return a transform for each sample and one for batches on the GPU.

    `transform` is a `Compose` of torchvision (`transforms` or `transforms.v2`). The end
    of it that batches can go through as well (flips, crops of padded images, rotations,
    colours, erasing, `Normalize`) becomes the second, in the same order and with draws
    for each image; samples stay bytes where `ToTensor` made floats of them. What stands
    before the last operation that is not known stays with the samples. Call the second
    on batches of training only.

    `same_size`: all images of the dataset have one size. Without it, crops stay with
    the samples unless something before them gives the images one.

    (`transform`, identity) without a GPU, where nothing random can move, under
    GPULINT_DEBUG and when switched off. The GPU's own generator makes the draws there.
    """
    introduce()
    if settings().off:
        return transform, identity
    reason = _reason_against(device)
    plan = None if reason else plan_split(_steps_of(transform), same_size=same_size)
    if plan is None:
        why = reason or "nothing random in it can move"
        decide("augmentation", f"on the CPU, as before ({why})")
        return transform, identity

    from ._augment import Augment

    names = ", ".join(type(step).__name__.lower() for step in plan.moved)
    decide("augmentation", f"{names}: on batches, on {usable_kind(device)}")
    kept = type(transform)(plan.kept) if plan.kept else identity
    return kept, Augment(plan.moved, scales=plan.scales)


def _reason_against(device: DeviceLike) -> str:
    if settings().debug:
        return "GPULINT_DEBUG"
    return "no GPU" if usable_kind(device) == "cpu" else ""


def _steps_of(transform: Any) -> list[Any]:
    """Return what a Compose of torchvision consists of; nothing for others."""
    if not is_own(transform) or _name(transform) != "Compose":
        return []
    return list(transform.transforms)


def is_own(step: Any) -> bool:
    """Say whether a class is torchvision's, and not derived from one."""
    return type(step).__module__.startswith(MODULES)


def _name(step: Any) -> str:
    return type(step).__name__


def plan_split(steps: Sequence[Any], *, same_size: bool) -> Plan | None:
    """Return the split that moves most, None where nothing random can move."""
    plans = (_plan_at(steps, at, same_size) for at in range(len(steps)))
    return next((plan for plan in plans if plan is not None), None)


def _plan_at(steps: Sequence[Any], at: int, same_size: bool) -> Plan | None:
    """Return the plan that moves all from a place on; None where that cannot be."""
    from ._augment import Crop
    from ._torchvision import as_step

    kept, moved = list(steps[:at]), []
    sized = same_size or any(map(_gives_size, kept))
    floats = any(_makes_floats(step) for step in kept)
    scales = not floats and any(_makes_floats(step) for step in steps[at:])
    bytes_now = scales
    for step in steps[at:]:
        if is_own(step) and _name(step) in CONVERTING:
            kept.append(Bytes(step) if _name(step) == "ToTensor" else step)
            bytes_now = bytes_now and _name(step) != "ToTensor"
        elif _makes_floats(step):
            bytes_now = False
        else:
            its = as_step(step, 1 / BYTES if bytes_now else 1.0)
            unknown = its is None or (its.needs_floats and not (floats or scales))
            if its is None or unknown or (isinstance(its, Crop) and not sized):
                return None
            moved.append(its)
    return Plan(kept, moved, scales) if any(s.random for s in moved) else None


def _gives_size(step: Any) -> bool:
    if not is_own(step):
        return False
    if _name(step) == "Resize":
        return isinstance(step.size, Sequence) and len(step.size) == 2
    return _name(step) in SIZING


def _makes_floats(step: Any) -> bool:
    """Say whether a step makes floats from 0 to 1 of bytes, in the default dtype."""
    import torch

    if not is_own(step) or _name(step) not in ("ToTensor", *SCALING):
        return False
    if _name(step) == "ToTensor":
        return True
    scaled = getattr(step, "scale", True) is True
    return scaled and step.dtype is torch.get_default_dtype()


class Bytes:
    """`ToTensor` for samples that are scaled later: images of bytes stay bytes."""

    def __init__(self, original: Transform) -> None:
        self.original = original

    def __call__(self, image: Any) -> Any:
        import numpy as np
        import torch

        pixels = np.asarray(image) if _is_of_bytes(image) else None
        if pixels is None or pixels.dtype != np.uint8 or pixels.ndim not in (2, 3):
            return self.original(image)
        pixels = pixels[:, :, None] if pixels.ndim == 2 else pixels
        return torch.from_numpy(pixels.transpose(2, 0, 1).copy())

    def __repr__(self) -> str:
        return f"{self.original!r} of bytes"


def _is_of_bytes(image: Any) -> bool:
    """Say whether an image may have a byte for each channel of a pixel."""
    import numpy as np

    modes = ("L", "P", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "LA")
    return isinstance(image, np.ndarray) or getattr(image, "mode", None) in modes
