"""Augment batches on the GPU by presets, operations and a schedule of epochs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from ._hardware import introduce
from ._log import decide
from ._placement import usable_kind
from ._settings import settings

if TYPE_CHECKING:
    from ._augment import Step
    from ._placement import DeviceLike
    from ._stages import Augmentation

Range: TypeAlias = float | tuple[float, float]

PRESETS: dict[str, dict[str, Any]] = {
    "minimal": {"horizontal_flip": 0.5},
    "standard": {
        "horizontal_flip": 0.5,
        "rotation_degrees": 15.0,
        "brightness": 0.2,
        "contrast": 0.2,
    },
    "strong": {
        "horizontal_flip": 0.5,
        "vertical_flip": 0.5,
        "rotation_degrees": 30.0,
        "scale": (0.8, 1.2),
        "brightness": 0.4,
        "contrast": 0.4,
        "noise": 0.02,
    },
}
FLIPS = ("horizontal_flip", "vertical_flip")
PARTIAL = ("rotation_degrees", "scale", "brightness", "contrast", "noise")
INTERPOLATIONS = ("bilinear", "nearest")


def augmentation(
    preset: str | None = None,
    *,
    horizontal_flip: float | None = None,
    vertical_flip: float | None = None,
    rotation_degrees: Range | None = None,
    scale: Range | None = None,
    brightness: Range | None = None,
    contrast: Range | None = None,
    noise: float | None = None,
    p: Mapping[str, float] | None = None,
    interpolation: str = "bilinear",
    schedule: Mapping[int, str | None] | None = None,
    device: DeviceLike | None = None,
) -> Augmentation:
    """Return `augment(images, masks=None, epoch=None)` for batches of training.

    `preset` is "minimal" (flips left and right), "standard" (rotation, brightness and
    contrast as well) or "strong"; without one, only what is named is done. What is
    named replaces the preset's value, 0 leaves it out. In this order:

    `horizontal_flip`, `vertical_flip`: how many images are turned over, 0 to 1.
    `rotation_degrees`: 15 draws angles from -15 to 15; or (low, high).
    `scale`: 0.2 draws factors from 0.8 to 1.2; or (low, high).
    `brightness`, `contrast`: factors in the same way, as torchvision's `ColorJitter`.
    `noise`: standard deviation of Gaussian noise, where white is 1.

    `p={"noise": 0.5}`: how many images an operation other than a flip changes, all
    where it is not in there. `interpolation`: "bilinear" or "nearest", of images that
    are rotated or scaled; masks always get the nearest pixel.
    `schedule={0: "minimal", 50: "strong"}`: presets by the epoch they begin in (None:
    no preset); `preset` is the one before its first.

    Each image has its own draws, from the generator of its device. The operations are
    torch's own: Kornia's differ in defaults, reject bytes and augment under `eval()`.

    `device` is for a script that can augment its samples as well: without a GPU, under
    GPULINT_DEBUG and when switched off the batches come back as they are, and
    `augment.on_batches` is false: the samples are to be augmented then, as before.
    Without `device` nobody else augments, and batches are augmented wherever they are.

    ValueError for what is not understood.
    """
    introduce()
    named = {
        "horizontal_flip": horizontal_flip,
        "vertical_flip": vertical_flip,
        "rotation_degrees": rotation_degrees,
        "scale": scale,
        "brightness": brightness,
        "contrast": contrast,
        "noise": noise,
    }
    given = {name: value for name, value in named.items() if value is not None}
    if interpolation not in INTERPOLATIONS:
        raise ValueError(f"interpolation={interpolation!r} is not bilinear or nearest")
    asked = {
        start: {**(PRESETS[name] if name else {}), **given}
        for start, name in _schedule(preset, schedule).items()
    }
    stages = {start: _checked(operations) for start, operations in asked.items()}
    if not given and not any(stages.values()):
        raise ValueError("augmentation needs a preset or an operation")
    parts = _parts(p or {}, {name for its in asked.values() for name in its})
    reason = _reason_against(device)
    _tell(stages, reason, device)

    from ._stages import Augmentation

    return Augmentation(
        {start: _steps(its, parts, interpolation) for start, its in stages.items()},
        on_batches=not reason,
    )


def _schedule(
    preset: str | None, schedule: Mapping[int, str | None] | None
) -> dict[int, str | None]:
    """Return the presets by the epoch they begin in; the first begins in 0."""
    stages = dict(schedule or {})
    for name in (preset, *stages.values()):
        if name is not None and name not in PRESETS:
            raise ValueError(f"{name!r} is not one of the presets {', '.join(PRESETS)}")
    start: Any  # whatever was given
    for start in stages:
        if isinstance(start, bool) or not isinstance(start, int) or start < 0:
            raise ValueError(f"schedule: {start!r} is not an epoch, 0 or later")
    if preset is not None and 0 in stages:
        raise ValueError("the preset and the schedule both name the first epoch")
    if stages and preset is None and 0 not in stages:
        raise ValueError("the schedule does not say how epoch 0 is augmented")
    return dict(sorted(({0: preset} | stages).items()))


# Arguments


def _checked(operations: Mapping[str, Any]) -> dict[str, Any]:
    """Return what each operation draws from; those that change nothing are left out."""
    checked: dict[str, Any] = {}
    for name, value in operations.items():
        if name in FLIPS:
            checked[name] = _probability(name, value)
        elif name == "noise":
            checked[name] = _number(name, value)
        else:
            checked[name] = _range(name, value)
    still = {"rotation_degrees": (0, 0)}
    return {
        name: its
        for name, its in checked.items()
        if its != (still.get(name, (1, 1)) if isinstance(its, tuple) else 0)
    }


def _probability(name: str, value: Any) -> float:
    number = _number(name, value)
    if number > 1:
        raise ValueError(f"{name}={value!r} is not a probability from 0 to 1")
    return number


def _number(name: str, value: Any) -> float:
    if not _is_number(value) or value < 0:
        raise ValueError(f"{name}={value!r} is not a number of 0 or more")
    return float(value)


def _is_number(value: Any) -> bool:
    is_one = isinstance(value, int | float) and not isinstance(value, bool)
    return is_one and math.isfinite(value)


def _range(name: str, value: Any) -> tuple[float, float]:
    """Return the lowest and the highest value of an operation."""
    if _is_number(value) and value >= 0:
        middle = 0.0 if name == "rotation_degrees" else 1.0
        low, high = middle - value, middle + value
        low = max(low, 0.0) if name in ("brightness", "contrast") else low
    elif isinstance(value, tuple | list) and len(value) == 2:
        low, high = value
    else:
        raise ValueError(f"{name}={value!r} is not a number of 0 or more, or a pair")
    if not (_is_number(low) and _is_number(high) and low <= high):
        raise ValueError(f"{name}={value!r} is not a lowest and a highest number")
    smallest = {"rotation_degrees": -math.inf, "scale": 1e-3}.get(name, 0.0)
    if low < smallest:
        raise ValueError(f"{name}={value!r} has factors below {smallest:g}")
    return float(low), float(high)


def _parts(p: Mapping[str, float], used: set[str]) -> dict[str, float]:
    """Return how many images the operations change."""
    for name in p:
        if name in FLIPS:
            raise ValueError(f"p: {name} is a probability itself")
        if name not in PARTIAL or name not in used:
            raise ValueError(f"p: {name!r} is not an operation that is asked for")
    return {name: _probability(f"p of {name}", part) for name, part in p.items()}


# Steps


def _steps(
    operations: Mapping[str, Any], parts: Mapping[str, float], interpolation: str
) -> list[Step]:
    from ._augment import Flip, Jitter, Noise

    steps: list[tuple[str, Step]] = []
    for name, dimension in zip(FLIPS, (-1, -2), strict=True):
        if name in operations:
            steps.append((name, Flip(operations[name], dimension)))
    steps += _turns(operations, parts, interpolation)
    for name in ("brightness", "contrast"):
        if name in operations:
            steps.append((name, Jitter(**{name: operations[name]})))
    if "noise" in operations:
        noise = Noise(operations["noise"])
        noise.needs_floats = True
        steps.append(("noise", noise))
    return [_sometimes(step, parts.get(name, 1.0)) for name, step in steps]


def _turns(
    operations: Mapping[str, Any], parts: Mapping[str, float], interpolation: str
) -> list[tuple[str, Step]]:
    """Return one step for rotation and scale where each image gets both.

    Pixels are computed once then.
    """
    from ._augment import Turn

    names = [n for n in ("rotation_degrees", "scale") if n in operations]
    degrees = operations.get("rotation_degrees", (0.0, 0.0))
    factors = operations.get("scale", (1.0, 1.0))
    if not any(parts.get(name, 1.0) < 1 for name in names):
        both = Turn(degrees, scale=factors, mode=interpolation)
        return [(names[0], both)] if names else []
    turns = {
        "rotation_degrees": Turn(degrees, mode=interpolation),
        "scale": Turn((0.0, 0.0), scale=factors, mode=interpolation),
    }
    return [(name, turns[name]) for name in names]


def _sometimes(step: Step, p: float) -> Step:
    from ._stages import Sometimes

    return step if p >= 1 else Sometimes(step, p)


# Where it runs


def _reason_against(device: DeviceLike | None) -> str:
    """Say why the script's own code augments; empty where the batches are."""
    if device is None:
        return ""
    if settings().off:
        return "GPULINT_RUNTIME"
    if settings().debug:
        return "GPULINT_DEBUG"
    return "no GPU" if usable_kind(device) == "cpu" else ""


def _tell(
    stages: Mapping[int, Mapping[str, Any]], reason: str, device: DeviceLike | None
) -> None:
    if settings().off:
        return
    if reason:
        decide("augmentation", f"of the samples, as before ({reason})")
        return
    where = "" if device is None else f", on {usable_kind(device)}"
    texts = {start: ", ".join(its) or "nothing" for start, its in stages.items()}
    if len(texts) == 1:
        decide("augmentation", f"of batches{where}: {texts[0]}")
        return
    said = "; ".join(f"{text} from epoch {start}" for start, text in texts.items())
    decide("augmentation", f"of batches{where}: {said}")
