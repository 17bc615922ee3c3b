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

Transform = Callable[..., Any]
MODULES = ("torchvision.transforms.transforms", "torchvision.transforms.v2._")
# What gives images of any size one; `Resize` does where it names both sides.
SIZING = ("CenterCrop", "RandomResizedCrop", "RandomCrop")
CONVERTING = ("ToTensor", "PILToTensor", "ToImage")
SCALING = ("ConvertImageDtype", "ToDtype")
BYTES = 255
_WHOLE = "_gpulint_whole"  # of what is left of a transform: the transform


class Plan(NamedTuple):
    """What stays with the samples, and what batches go through.

    `scales`: bytes become floats on the way; `multiplies`: by a product, as v2 scales.
    """

    kept: list[Any]
    moved: list[Step]
    scales: bool
    multiplies: bool

    @property
    def draws(self) -> bool:
        """Whether something random moves."""
        return any(step.random for step in self.moved)


class Untouched:
    """Gives each sample as it is: what is left of a transform that has moved."""

    def __call__(self, image: Any) -> Any:
        return image


def identity(images: Any) -> Any:
    """Return a batch as it is."""
    return images


def split_augmentation(
    transform: Any,
    device: DeviceLike,
    *,
    same_size: bool = False,
    random: bool = True,
) -> tuple[Any, Transform]:
    """Return a transform for each sample and one for batches on the GPU.

    `transform` is a `Compose` of torchvision (`transforms` or `transforms.v2`). The end
    of it that batches can go through as well (flips, crops of padded images, rotations,
    colours, erasing, `Normalize`) becomes the second, in the same order and with draws
    for each image; samples stay bytes where `ToTensor` made floats of them. What stands
    before the last operation that is not known stays with the samples. Call the second
    on batches of training only. Where nothing random can move, a conversion to floats
    and `Normalize` at the end do alone; the images are those of torchvision then.

    `same_size`: all images of the dataset have one size. Without it, crops stay with
    the samples unless something before them gives the images one.
    `random=False`: what draws stays with the samples; only `ToTensor` and `Normalize`
    at the end of the transform move.

    (`transform`, identity) without a GPU, where nothing can move, under GPULINT_DEBUG
    and when switched off. The GPU's own generator makes the draws there. A transform
    that this returned is split as the one it is of: a notebook's cell may run again.
    """
    introduce()
    transform = getattr(transform, "__dict__", {}).get(_WHOLE, transform)
    if settings().off:
        return transform, identity
    reason = _reason_against(device)
    steps = [] if reason else _steps_of(transform)
    plan = plan_split(steps, same_size=same_size, random=random)
    if plan is None:
        why = reason or "nothing in it can move"
        decide("augmentation", f"on the CPU, as before ({why})")
        return transform, identity

    from ._augment import Augment

    names = [type(step).__name__.lower() for step in plan.moved]
    named = ", ".join(names if plan.draws else ["floats of bytes", *names])
    decide("augmentation", f"{named}: on batches, on {usable_kind(device)}")
    kept = type(transform)(plan.kept) if plan.kept else Untouched()
    vars(kept)[_WHOLE] = transform
    return kept, Augment(plan.moved, scales=plan.scales, multiplies=plan.multiplies)


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


def plan_split(
    steps: Sequence[Any], *, same_size: bool, random: bool = True
) -> Plan | None:
    """Return the split that moves most, None where nothing can move.

    One that moves something random, else one by which samples stay bytes.
    """
    found = [_plan_at(steps, at, same_size) for at in range(len(steps))]
    plans = [plan for plan in found if plan is not None]
    draws = [plan for plan in plans if plan.draws and random]
    converts = [plan for plan in plans if plan.scales and not plan.draws]
    return next(iter(draws + converts), None)


def _plan_at(steps: Sequence[Any], at: int, same_size: bool) -> Plan | None:
    """Return the plan that moves all from a place on; None where that cannot be."""
    from ._augment import Crop
    from ._torchvision import as_step

    kept, moved = list(steps[:at]), []
    sized = same_size or any(map(_gives_size, kept))
    floats = any(_makes_floats(step) for step in kept)
    scaling = [] if floats else [s for s in steps[at:] if _makes_floats(s)]
    bytes_now = scales = bool(scaling)
    for step in steps[at:]:
        if is_own(step) and _name(step) in CONVERTING:
            kept.append(Bytes(step) if _name(step) == "ToTensor" else step)
            bytes_now = bytes_now and _name(step) != "ToTensor"
        elif _makes_floats(step):
            kept.append(Unscaled(step))
            bytes_now = False
        else:
            its = as_step(step, 1 / BYTES if bytes_now else 1.0)
            unknown = its is None or (its.needs_floats and not (floats or scales))
            if its is None or unknown or (isinstance(its, Crop) and not sized):
                return None
            moved.append(its)
    return Plan(kept, moved, scales, scales and _multiplies(scaling[0]))


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


def _multiplies(step: Any) -> bool:
    """Say whether a step multiplies by 1/255, as v2 does; the others divide."""
    return _name(step) in SCALING and ".v2." in type(step).__module__


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


class Unscaled:
    """`ToDtype` for samples that are scaled later: tensors of bytes stay bytes."""

    def __init__(self, original: Transform) -> None:
        self.original = original

    def __call__(self, *given: Any) -> Any:
        import torch

        if getattr(given[0], "dtype", None) is not torch.uint8:
            return self.original(*given)
        return given if given[1:] else given[0]

    def __repr__(self) -> str:
        return f"{self.original!r} of bytes"


def _is_of_bytes(image: Any) -> bool:
    """Say whether an image may have a byte for each channel of a pixel."""
    import numpy as np

    modes = ("L", "P", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "LA")
    return isinstance(image, np.ndarray) or getattr(image, "mode", None) in modes
