"""Augment batches of images, each image by its own draws. Imports torch."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

GREY = (0.2989, 0.587, 0.114)  # how much red, green and blue count for brightness
BYTES = 255
ATTEMPTS = 10  # to find a rectangle that is smaller than the image


class Step:
    """One operation on a batch. `spatial`: it moves pixels, and those of masks as well.

    `random`: it draws, and is left out under `eval()`. `needs_floats`: it computes with
    colours from 0 to 1. `bounded`: it cuts off what is not from 0 to 1.
    """

    random = True
    needs_floats = False
    bounded = False
    fill: tuple[float, ...] = ()  # the colour of pixels that come from outside
    spatial = False

    def draw(self, images: Tensor) -> Any:
        """Draw what the operation does to each image."""
        raise NotImplementedError

    def apply(self, images: Tensor, drawn: Any, *, mask: bool = False) -> Tensor:
        """Return the batch as drawn; `mask`: it holds labels, not colours."""
        raise NotImplementedError


class Augment(nn.Module):
    """Steps that a batch goes through: `augment(images)`, `augment(images, masks)`.

    Images are (N, C, H, W), masks (N, H, W) or (N, C, H, W); masks get the same
    geometry as their images, of the nearest pixel. Every image has its own draws, from
    the generator of its device. Under `eval()` only what draws nothing is done.

    `scales`: bytes become floats from 0 to 1 first, as `ToTensor` makes them;
    `multiplies`: as `ToDtype` of torchvision's v2 does, whose last bit may differ.
    """

    def __init__(
        self, steps: Sequence[Step], *, scales: bool = False, multiplies: bool = False
    ) -> None:
        super().__init__()
        self.steps = tuple(steps)
        self.scales = scales
        self.multiplies = multiplies

    @torch.no_grad()
    def forward(self, images: Tensor, masks: Tensor | None = None) -> Any:
        if images.dim() != 4:
            raise ValueError(f"images are (N, C, H, W), not {tuple(images.shape)}")
        flat = masks is not None and masks.dim() == 3
        labels = masks[:, None] if flat and masks is not None else masks
        if self.scales and images.dtype is torch.uint8:
            images = self._scaled(images.to(torch.get_default_dtype()))
        for step in self.steps:
            if step.random and not self.training:
                continue
            drawn = step.draw(images)
            if labels is not None and step.spatial:
                labels = step.apply(labels, drawn, mask=True)
            images = step.apply(images, drawn)
        if labels is None:
            return images
        return images, labels[:, 0] if flat else labels

    def _scaled(self, images: Tensor) -> Tensor:
        if self.multiplies:
            return images.mul_(1 / BYTES)
        return images.div_(channels((BYTES,), images))  # CUDA: by a number is a product


def uniform(images: Tensor, low: float, high: float) -> Tensor:
    """Draw a number for each image."""
    return torch.empty(len(images), device=images.device).uniform_(low, high)


def chosen(images: Tensor, p: float) -> Tensor:
    """Draw for each image whether it is changed."""
    return torch.rand(len(images), device=images.device) < p


@functools.lru_cache(maxsize=64)
def _constant(
    values: tuple[float, ...], dtype: torch.dtype, device: torch.device
) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=device).view(1, -1, 1, 1)


def channels(values: tuple[float, ...], images: Tensor) -> Tensor:
    """Return a number for each channel, copied to the device once."""
    return _constant(values, images.dtype, images.device)


def each(numbers: Tensor) -> Tensor:
    """Give one number an image the shape (N, 1, 1, 1)."""
    return numbers.view(-1, 1, 1, 1)


class Flip(Step):
    """Turn images over along a dimension: -1 left and right, -2 top and bottom."""

    spatial = True

    def __init__(self, p: float, dimension: int) -> None:
        self.p, self.dimension = p, dimension

    def draw(self, images: Tensor) -> Tensor:
        return chosen(images, self.p)

    def apply(self, images: Tensor, drawn: Tensor, *, mask: bool = False) -> Tensor:
        return torch.where(each(drawn), images.flip(self.dimension), images)


class Crop(Step):
    """Cut a window out of padded images; `padding` is left, right, top, bottom."""

    spatial = True

    def __init__(
        self,
        size: tuple[int, int],
        padding: tuple[int, int, int, int],
        mode: str = "constant",
        fill: float = 0.0,
    ) -> None:
        self.size, self.padding, self.mode = size, padding, mode
        self.fill = (fill,)

    def draw(self, images: Tensor) -> tuple[Tensor, Tensor]:
        left, right, top, bottom = self.padding
        height = images.shape[-2] + top + bottom - self.size[0]
        width = images.shape[-1] + left + right - self.size[1]
        if height < 0 or width < 0:
            raise ValueError(f"images are smaller than their crop {self.size}")
        shape = (len(images),)
        return (
            torch.randint(height + 1, shape, device=images.device),
            torch.randint(width + 1, shape, device=images.device),
        )

    def apply(
        self, images: Tensor, drawn: tuple[Tensor, Tensor], *, mask: bool = False
    ) -> Tensor:
        if self.mode == "constant":
            fill = 0.0 if mask else self.fill[0]
            padded = functional.pad(images, self.padding, value=fill)
        else:
            padded = functional.pad(images, self.padding, mode=self.mode)
        rows, columns = (
            (start[:, None] + torch.arange(length, device=images.device))
            for start, length in zip(drawn, self.size, strict=True)
        )
        number = torch.arange(len(images), device=images.device)
        cut = padded[number[:, None, None], :, rows[:, :, None], columns[:, None, :]]
        return cut.permute(0, 3, 1, 2).contiguous()


class Turned(NamedTuple):
    """Rotation in degrees against the clock, scale, and shift in pixels, an image."""

    angle: Tensor
    scale: Tensor
    right: Tensor
    down: Tensor


class Turn(Step):
    """Rotate, scale and shift images about their middle, as torchvision does."""

    spatial = True
    needs_floats = True

    def __init__(
        self,
        degrees: tuple[float, float],
        *,
        scale: tuple[float, float] = (1.0, 1.0),
        shift: tuple[float, float] = (0.0, 0.0),
        mode: str = "nearest",
        fill: Sequence[float] = (0.0,),
        clockwise: bool = False,
        p: float = 1.0,
    ) -> None:
        self.degrees, self.scale, self.shift = degrees, scale, shift
        self.mode, self.fill, self.p = mode, tuple(fill), p
        self.clockwise = clockwise

    def draw(self, images: Tensor) -> Turned:
        height, width = images.shape[-2:]
        angle = uniform(images, *self.degrees)
        scale = uniform(images, *self.scale)
        right, down = (
            uniform(images, -part * length, part * length).round()
            for part, length in zip(self.shift, (width, height), strict=True)
        )
        drawn = Turned(-angle if self.clockwise else angle, scale, right, down)
        if self.p >= 1:
            return drawn
        on = chosen(images, self.p)
        still = Turned(angle * 0, scale * 0 + 1, right * 0, down * 0)
        return Turned(
            *(torch.where(on, a, b) for a, b in zip(drawn, still, strict=True))
        )

    def apply(self, images: Tensor, drawn: Turned, *, mask: bool = False) -> Tensor:
        mode = "nearest" if mask else self.mode
        fill = (0.0,) if mask else self.fill
        values = images if images.is_floating_point() else images.float()
        whole = torch.ones_like(values[:, :1])
        with torch.autocast(images.device.type, enabled=False):
            sampled = functional.grid_sample(
                torch.cat([values, whole], 1),
                self.grid(values, drawn),
                mode=mode,
                padding_mode="zeros",
                align_corners=False,
            )
        turned, inside = sampled[:, :-1], sampled[:, -1:]
        if any(fill) or mode == "bilinear":
            turned = turned * inside + (1 - inside) * channels(fill, turned)
        return turned.to(images.dtype)

    def grid(self, images: Tensor, drawn: Turned) -> Tensor:
        """Return where each pixel comes from, in the coordinates of `grid_sample`."""
        height, width = images.shape[-2:]
        x = torch.arange(width, device=images.device) - (width - 1) / 2
        y = torch.arange(height, device=images.device) - (height - 1) / 2
        angle = torch.deg2rad(drawn.angle)
        cosine, sine = (f(angle) / drawn.scale for f in (torch.cos, torch.sin))
        x = x[None, None, :] - drawn.right.view(-1, 1, 1)
        y = y[None, :, None] - drawn.down.view(-1, 1, 1)
        cosine, sine = cosine.view(-1, 1, 1), sine.view(-1, 1, 1)
        from_x, from_y = cosine * x - sine * y, sine * x + cosine * y
        both = [from_x * (2 / width), from_y * (2 / height)]
        return torch.stack(both, -1).to(images.dtype)


class Jitter(Step):
    """Change colours in an order of its own for each image, as torchvision does.

    The ranges are factors, of hue a part of the circle; None: left as it is. Colours
    are floats from 0 to 1.
    """

    needs_floats = True
    bounded = True

    def __init__(self, **ranges: tuple[float, float] | None) -> None:
        self.ranges = {name: its for name, its in ranges.items() if its is not None}

    def draw(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        shape = (len(images), len(self.ranges))
        order = torch.rand(shape, device=images.device).argsort(1)
        return order, [uniform(images, *its) for its in self.ranges.values()]

    def apply(
        self, images: Tensor, drawn: tuple[Tensor, list[Tensor]], *, mask: bool = False
    ) -> Tensor:
        order, factors = drawn
        for place in range(len(self.ranges)):
            before = images
            for number, name in enumerate(self.ranges):
                changed = COLOURS[name](before, each(factors[number]))
                mine = each(order[:, place] == number)
                images = torch.where(mine, changed, images)
        return images


def grey(images: Tensor) -> Tensor:
    """Return the brightness of each pixel, as one channel."""
    if images.shape[1] != 3:
        return images
    return (images * channels(GREY, images)).sum(1, keepdim=True)


def _blend(images: Tensor, other: Tensor, factor: Tensor) -> Tensor:
    return (factor * images + (1 - factor) * other).clamp(0, 1).to(images.dtype)


def _brightness(images: Tensor, factor: Tensor) -> Tensor:
    return _blend(images, torch.zeros_like(images), factor)


def _contrast(images: Tensor, factor: Tensor) -> Tensor:
    return _blend(images, grey(images).mean((1, 2, 3), keepdim=True), factor)


def _saturation(images: Tensor, factor: Tensor) -> Tensor:
    return _blend(images, grey(images), factor)


def _hue(images: Tensor, shift: Tensor) -> Tensor:
    """Turn the colours round: (r, g, b) → hue, saturation, value, and back."""
    if images.shape[1] != 3:
        return images
    value, highest = images.max(1, keepdim=True)
    spread = value - images.min(1, keepdim=True).values
    some = torch.where(spread > 0, spread, torch.ones_like(spread))
    sides = (images.roll(-1, 1) - images.roll(-2, 1)) / some
    hue = sides.gather(1, highest) + 2 * highest
    hue = torch.where(spread > 0, hue, torch.zeros_like(hue)) + 6 * shift
    place = (hue + channels((5.0, 3.0, 1.0), images)) % 6
    down = torch.minimum(place, 4 - place).clamp(0, 1)
    return (value - spread * down).clamp(0, 1).to(images.dtype)


COLOURS = {
    "brightness": _brightness,
    "contrast": _contrast,
    "saturation": _saturation,
    "hue": _hue,
}


class Grey(Step):
    """Take the colours out of images."""

    needs_floats = True

    def __init__(self, p: float) -> None:
        self.p = p

    def draw(self, images: Tensor) -> Tensor:
        return chosen(images, self.p)

    def apply(self, images: Tensor, drawn: Tensor, *, mask: bool = False) -> Tensor:
        plain = grey(images).to(images.dtype).expand_as(images)
        return torch.where(each(drawn), plain, images)


class Noise(Step):
    """Add Gaussian noise of a standard deviation."""

    def __init__(self, deviation: float) -> None:
        self.deviation = deviation

    def draw(self, images: Tensor) -> Tensor:
        return torch.randn_like(images)

    def apply(self, images: Tensor, drawn: Tensor, *, mask: bool = False) -> Tensor:
        return (images + self.deviation * drawn).to(images.dtype)


class Normalize(Step):
    """Subtract a mean from each channel and divide it by a standard deviation."""

    random = False

    def __init__(self, mean: Sequence[float], deviation: Sequence[float]) -> None:
        self.mean, self.deviation = tuple(mean), tuple(deviation)

    def draw(self, images: Tensor) -> None:
        return None

    def apply(self, images: Tensor, drawn: None, *, mask: bool = False) -> Tensor:
        return (images - channels(self.mean, images)) / channels(self.deviation, images)


class Erase(Step):
    """Overwrite a rectangle by a value for each channel, None: by noise."""

    def __init__(
        self,
        p: float,
        scale: tuple[float, float],
        ratio: tuple[float, float],
        value: Sequence[float] | None,
    ) -> None:
        self.p, self.scale, self.ratio = p, scale, ratio
        self.value = None if value is None else tuple(value)

    def draw(self, images: Tensor) -> Tensor:
        """Return which pixels go: (N, 1, H, W)."""
        height, width = images.shape[-2:]
        tries = torch.empty(len(images), ATTEMPTS, device=images.device)
        area = tries.clone().uniform_(*self.scale) * (height * width)
        aspect = tries.clone().uniform_(*map(math.log, self.ratio)).exp()
        high, wide = (area * aspect).sqrt().round(), (area / aspect).sqrt().round()
        fits = (high < height) & (wide < width)
        first = fits.to(torch.uint8).argmax(1, keepdim=True)
        high, wide, fits = (t.gather(1, first) for t in (high, wide, fits))
        on = chosen(images, self.p)[:, None] & fits
        rows = self._within(height, high, images)
        columns = self._within(width, wide, images)
        return (rows[:, :, None] & columns[:, None, :] & on[:, :, None])[:, None]

    @staticmethod
    def _within(length: int, size: Tensor, images: Tensor) -> Tensor:
        """Draw where a stretch begins; return which places are in it: (N, length)."""
        start = torch.rand(size.shape, device=images.device) * (length - size + 1)
        place = torch.arange(length, device=images.device)
        start = start.floor()
        return (place >= start) & (place < start + size)

    def apply(self, images: Tensor, drawn: Tensor, *, mask: bool = False) -> Tensor:
        if self.value is None:
            return torch.where(drawn, torch.randn_like(images), images)
        return torch.where(drawn, channels(self.value, images), images)
