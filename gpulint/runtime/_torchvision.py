"""Operations of torchvision as steps for batches, by their names and attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ._augment import Crop, Erase, Flip, Grey, Jitter, Normalize, Step, Turn

MODULES = ("torchvision.transforms.transforms", "torchvision.transforms.v2._")
PADDING_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate"}


def as_step(operation: Any, unit: float) -> Step | None:
    """Return what does the same to a batch, None where nothing surely does.

    `unit` is what 1 of the operation's colours is on the batch: 1/255 where it comes
    before the images become floats. Classes derived from torchvision's are not known.
    """
    make = MAKERS.get(type(operation).__name__)
    if make is None or not type(operation).__module__.startswith(MODULES):
        return None
    try:
        step = make(operation)
    except (AttributeError, TypeError, ValueError):  # of a release that is not known
        return None
    if step is not None:
        step.fill = tuple(value * unit for value in step.fill)
    return step


def _crop(operation: Any) -> Step | None:
    padding, fill = operation.padding, operation.fill
    if padding is None or operation.pad_if_needed or not isinstance(fill, int | float):
        return None
    mode = PADDING_MODES.get(operation.padding_mode)
    if mode is None:
        return None
    height, width = operation.size
    sides = _sides(padding, new=".v2." in type(operation).__module__)
    return Crop((height, width), sides, mode, float(fill))


def _sides(padding: Any, *, new: bool) -> tuple[int, int, int, int]:
    """Return left, right, top, bottom; `new`: as v2 keeps it, in that order."""
    if isinstance(padding, int):
        return padding, padding, padding, padding
    if len(padding) == 1:
        return _sides(padding[0], new=new)
    if len(padding) == 2:
        return padding[0], padding[0], padding[1], padding[1]
    first, second, third, fourth = padding
    return (first, second, third, fourth) if new else (first, third, second, fourth)


def _turn(operation: Any) -> Step | None:
    """`RandomRotation` and `RandomAffine`, about the middle and without shear."""
    affine = type(operation).__name__ == "RandomAffine"
    other = getattr(operation, "shear", None) or getattr(operation, "expand", False)
    mode = getattr(operation.interpolation, "value", operation.interpolation)
    if other or operation.center is not None or mode not in ("nearest", "bilinear"):
        return None
    low, high = operation.degrees
    return Turn(
        (low, high),
        scale=_pair(getattr(operation, "scale", None), (1.0, 1.0)),
        shift=_pair(getattr(operation, "translate", None), (0.0, 0.0)),
        mode=mode,
        fill=_colour(operation.fill),
        clockwise=affine,
    )


def _pair(given: Any, default: tuple[float, float]) -> tuple[float, float]:
    if given is None:
        return default
    first, second = given
    return first, second


def _colour(fill: Any) -> Sequence[float]:
    """Return a value for all channels, or one for each."""
    if fill is None:
        return (0.0,)
    return (float(fill),) if isinstance(fill, int | float) else tuple(map(float, fill))


def _jitter(operation: Any) -> Step:
    names = ("brightness", "contrast", "saturation", "hue")
    return Jitter(**{name: getattr(operation, name) for name in names})


def _erase(operation: Any) -> Step:
    value = operation.value
    noise = value is None or value == "random"
    scale, ratio = _pair(operation.scale, (0, 0)), _pair(operation.ratio, (0, 0))
    return Erase(operation.p, scale, ratio, None if noise else _colour(value))


MAKERS: dict[str, Callable[[Any], Step | None]] = {
    "RandomHorizontalFlip": lambda its: Flip(its.p, -1),
    "RandomVerticalFlip": lambda its: Flip(its.p, -2),
    "RandomCrop": _crop,
    "RandomRotation": _turn,
    "RandomAffine": _turn,
    "ColorJitter": _jitter,
    "RandomGrayscale": lambda its: Grey(its.p),
    "RandomErasing": _erase,
    "Normalize": lambda its: Normalize(_colour(its.mean), _colour(its.std)),
}
