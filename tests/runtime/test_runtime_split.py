"""Transforms of torchvision, split into what samples need and what batches may get."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import random
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from gpulint import runtime
from gpulint.runtime._log import decisions
from gpulint.runtime._settings import forget_settings
from gpulint.runtime._split import Bytes, identity

V1 = "torchvision.transforms.transforms"
NEAREST = types.SimpleNamespace(value="nearest")


class Compose:
    """Stands for torchvision's, which these tests do not need."""

    def __init__(self, steps: list[Any]) -> None:
        self.transforms = steps

    def __call__(self, image: Any) -> Any:
        for step in self.transforms:
            image = step(image)
        return image


Compose.__module__ = V1


def made(name: str, **attributes: Any) -> Any:
    """An operation with the name and attributes of torchvision's."""
    kind = type(name, (), {"__module__": V1, "__call__": lambda self, image: image})
    operation = kind()
    vars(operation).update(attributes)
    return operation


def flip(p: float = 0.5) -> Any:
    return made("RandomHorizontalFlip", p=p)


def crop(**changed: Any) -> Any:
    its = {"size": (8, 8), "padding": 2, "pad_if_needed": False, "fill": 0}
    return made("RandomCrop", **{**its, "padding_mode": "constant", **changed})


def rotation(**changed: Any) -> Any:
    its = {"degrees": [-9.0, 9.0], "interpolation": NEAREST, "expand": False}
    return made("RandomRotation", **{**its, "center": None, "fill": 0, **changed})


def to_tensor() -> Any:
    step = made("ToTensor")
    type(step).__call__ = lambda self, image: torch.from_numpy(
        image.transpose(2, 0, 1) / 255
    ).float()
    return step


def normalize() -> Any:
    return made("Normalize", mean=[0.5, 0.4, 0.3], std=[0.2, 0.2, 0.2])


def names(steps: Any) -> list[str]:
    return [type(step).__name__ for step in steps]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has the device; batches stay where they are."""
    monkeypatch.setattr("gpulint.runtime._split.usable_kind", lambda device: "cuda")


def said() -> list[str]:
    """What has been decided about augmentation."""
    return [line for line in map(str, decisions()) if "augmentation" in line]


def test_without_a_gpu_samples_are_augmented_as_before() -> None:
    transform = Compose([flip(), to_tensor()])
    kept, augment = runtime.split_augmentation(transform, "cpu")
    runtime.split_augmentation(transform, torch.device("cuda"))
    images = torch.zeros(1)
    assert kept is transform
    assert augment(images) is images
    assert said() == ["augmentation: on the CPU, as before (no GPU)"]


@pytest.mark.parametrize("name, value", [("RUNTIME", "off"), ("DEBUG", "1")])
@pytest.mark.usefixtures("gpu")
def test_switched_off_samples_are_augmented_as_before(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"GPULINT_{name}", value)
    transform = Compose([flip(), to_tensor()])
    kept, augment = runtime.split_augmentation(transform, "cuda")
    assert kept is transform
    assert augment(transform) is transform


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("before", [[crop()], []], ids=["some stays", "all moves"])
def test_a_split_transform_can_be_split_again(
    before: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    transform = Compose([*before, flip(), normalize()])
    first = runtime.split_augmentation(transform, "cuda")
    kept, augment = runtime.split_augmentation(first[0], "cuda")
    assert repr(augment) == repr(first[1])
    assert [type(s) for s in getattr(kept, "transforms", [])] == [*map(type, before)]
    assert before or kept("a sample") == "a sample"
    monkeypatch.setenv("GPULINT_RUNTIME", "off")
    forget_settings()
    assert runtime.split_augmentation(kept, "cuda") == (transform, identity)


CASES: list[tuple[str, list[Any], bool, list[str], list[str]]] = [
    ("all of it", [flip(), to_tensor(), normalize()], False, ["Bytes"], ["Flip", "Normalize"]),
    ("images of one size", [crop(), flip(), to_tensor()], True, ["Bytes"], ["Crop", "Flip"]),
    ("images of any size", [crop(), flip(), to_tensor()], False, ["RandomCrop", "Bytes"], ["Flip"]),
    (
        "resized before",
        [made("Resize", size=[9, 9]), crop(), to_tensor()],
        False,
        ["Resize", "Bytes"],
        ["Crop"],
    ),
    (
        "resized on one side",
        [made("Resize", size=9), crop(), flip(), to_tensor()],
        False,
        ["Resize", "RandomCrop", "Bytes"],
        ["Flip"],
    ),
    (
        "cropped at random before",
        [made("RandomResizedCrop", size=(8, 8)), flip(), to_tensor(), normalize()],
        False,
        ["RandomResizedCrop", "Bytes"],
        ["Flip", "Normalize"],
    ),
    (
        "after what is not known",
        [flip(), made("RandAugment"), flip(), to_tensor()],
        False,
        ["RandomHorizontalFlip", "RandAugment", "Bytes"],
        ["Flip"],
    ),
    (
        "only what comes after the tensor",
        [made("AutoAugment"), to_tensor(), made("Lambda"), normalize(), flip()],
        False,
        ["AutoAugment", "ToTensor", "Lambda"],
        ["Normalize", "Flip"],
    ),
    (
        "bytes first",
        [made("PILToTensor"), rotation(), made("ConvertImageDtype", dtype=torch.float32)],
        False,
        ["PILToTensor", "Unscaled"],
        ["Turn"],
    ),
    ("of what dtype is not known", [flip(), rotation(), flip()], False,
     ["RandomHorizontalFlip", "RandomRotation"], ["Flip"]),
    ("nothing random", [to_tensor(), normalize()], False, ["Bytes"], ["Normalize"]),
    ("nothing random but before what is not known",
     [flip(), made("Lambda"), to_tensor(), normalize()], False,
     ["RandomHorizontalFlip", "Lambda", "Bytes"], ["Normalize"]),
    ("no colours to shift", [made("Resize", size=9), to_tensor()], False,
     ["Resize", "Bytes"], []),
    ("a crop without a border", [crop(padding=None), flip()], True, ["RandomCrop"], ["Flip"]),
]  # fmt: skip


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_only_an_end_that_is_known_moves(
    case: tuple[str, list[Any], bool, list[str], list[str]],
) -> None:
    _, steps, same_size, stay, move = case
    kept, augment = runtime.split_augmentation(
        Compose(steps), "cuda", same_size=same_size
    )
    assert type(kept) is Compose
    assert names(kept.transforms) == stay
    assert names(augment.steps) == move


OTHERS = {
    "floats already": Compose([to_tensor(), made("Lambda"), normalize()]),
    "no floats": Compose([made("PILToTensor"), made("Resize", size=9)]),
    "something else at the end": Compose([flip(), made("Lambda")]),
    "a class of the program": Compose([type("RandomHorizontalFlip", (), {})()]),
    "no Compose": flip(),
    "a function": len,
    "a shear": Compose([made("RandomAffine", shear=(1, 2))]),
    "an image that grows": Compose([rotation(expand=True)]),
    "an interpolation that is not known": Compose(
        [rotation(interpolation=types.SimpleNamespace(value="bicubic"))]
    ),
    "another release": Compose([made("RandomErasing"), made("RandomRotation")]),
    "scaled to half": Compose(
        [rotation(), made("ConvertImageDtype", dtype=torch.float16)]
    ),
}


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("transform", OTHERS.values(), ids=OTHERS.keys())
def test_what_cannot_move_stays(transform: Any) -> None:
    kept, augment = runtime.split_augmentation(transform, "cuda")
    assert kept is transform
    assert augment(transform) is transform
    assert said()[-1].endswith("as before (nothing in it can move)")


@pytest.mark.usefixtures("gpu")
def test_what_draws_stays_where_only_the_conversion_is_to_move() -> None:
    transform = Compose([crop(), flip(), to_tensor(), normalize()])
    kept, convert = runtime.split_augmentation(transform, "cuda", random=False)
    assert names(kept.transforms) == ["RandomCrop", "RandomHorizontalFlip", "Bytes"]
    assert names(convert.steps) == ["Normalize"]
    assert said() == ["augmentation: floats of bytes, normalize: on batches, on cuda"]
    behind = Compose([to_tensor(), normalize(), made("RandomErasing")])
    assert runtime.split_augmentation(behind, "cuda", random=False)[0] is behind


@pytest.mark.usefixtures("gpu")
def test_samples_stay_bytes_until_they_are_on_the_device() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    transform = Compose([flip(1.0), to_tensor(), normalize()])
    kept, augment = runtime.split_augmentation(transform, "cuda")
    assert said() == ["augmentation: flip, normalize: on batches, on cuda"]
    samples = torch.stack([kept(image) for image in pixels])
    assert samples.dtype is torch.uint8
    expected = torch.from_numpy(pixels).permute(0, 3, 1, 2).flip(-1) / 255
    mean = torch.tensor([0.5, 0.4, 0.3]).view(1, 3, 1, 1)
    torch.testing.assert_close(augment(samples), (expected - mean) / 0.2)


@pytest.mark.usefixtures("gpu")
def test_images_of_other_types_are_converted_as_before() -> None:
    kept, augment = runtime.split_augmentation(
        Compose([flip(), made("ToTensor")]), "cuda"
    )
    floats = np.ones((4, 4, 3), dtype=np.float32)
    assert kept(floats) is floats, "the stand-in returns what it gets"
    tensor = torch.ones(3, 4, 4)
    assert kept(tensor) is tensor
    assert torch.equal(
        augment(torch.full((2, 3, 4, 4), 7.0)), torch.full((2, 3, 4, 4), 7.0)
    )


@pytest.mark.usefixtures("gpu")
def test_colours_from_outside_are_those_of_bytes() -> None:
    steps = [crop(fill=51, size=(9, 9)), to_tensor(), rotation(fill=[0.5])]
    _, augment = runtime.split_augmentation(Compose(steps), "cuda", same_size=True)
    assert [step.fill for step in augment.steps] == [(0.2,), (0.5,)]


def test_workers_can_be_sent_what_samples_go_through() -> None:
    again = pickle.loads(pickle.dumps(Bytes(Plain())))
    assert torch.equal(again(np.zeros((2, 2), np.uint8)), torch.zeros(1, 2, 2).byte())


class Plain:
    def __call__(self, image: Any) -> Any:
        return image


# With torchvision itself, where it is installed


@pytest.fixture(scope="module")
def torchvision() -> Iterator[Any]:
    """torchvision's transforms, which need none of its compiled operators."""
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    stand_in = types.ModuleType("torchvision._meta_registrations")
    sys.modules.setdefault(stand_in.__name__, stand_in)
    try:
        importlib.import_module("torchvision.transforms.v2")
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"torchvision does not suit this torch: {error}")
    return sys.modules["torchvision"]


def photographs(count: int = 5) -> list[Any]:
    image = importlib.import_module("PIL.Image")
    pixels = np.random.default_rng(1).integers(0, 256, (count, 32, 40, 3), np.uint8)
    smooth = torch.nn.functional.avg_pool2d(
        torch.from_numpy(pixels).permute(0, 3, 1, 2).float(), 5, 1, 2
    )
    return [image.fromarray(x.permute(1, 2, 0).byte().numpy()) for x in smooth]


# Operations whose draws can only have one result, and how far a colour may be off where
# torchvision rounds to bytes in between.
SURE: dict[str, tuple[Callable[[Any], list[Any]], float]] = {
    "flips": (lambda t: [t.RandomHorizontalFlip(1.0), t.RandomVerticalFlip(1.0)], 0),
    "rotation": (lambda t: [t.RandomRotation((25, 25))], 0),
    "filled": (lambda t: [t.RandomRotation((25, 25), fill=(9, 99, 199))], 0),
    "affine": (lambda t: [t.RandomAffine((15, 15), scale=(1.2, 1.2))], 0),
    "brightness": (lambda t: [t.ColorJitter(brightness=(1.3, 1.3))], 1 / 255),
    "contrast": (lambda t: [t.ColorJitter(contrast=(0.6, 0.6))], 2 / 255),
    "saturation": (lambda t: [t.ColorJitter(saturation=(0.5, 0.5))], 2 / 255),
    "hue": (lambda t: [t.ColorJitter(hue=(0.2, 0.2))], 12 / 255),
    "grey": (lambda t: [t.RandomGrayscale(1.0)], 1 / 255),
}


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("case", SURE)
def test_batches_get_what_torchvision_gives_samples(
    torchvision: Any, version: str, case: str
) -> None:
    t = torchvision.transforms if version == "v1" else torchvision.transforms.v2
    operations, near = SURE[case]
    norm = t.Normalize((0.5, 0.4, 0.3), (1.0, 1.0, 1.0))
    before = [t.ToTensor()] if version == "v1" else []
    after = [t.ToImage(), t.ToDtype(torch.float32, scale=True)] if not before else []
    transform = t.Compose([*operations(t), *before, *after, norm])
    kept, augment = runtime.split_augmentation(transform, "cuda")
    images = photographs()
    samples = torch.stack([torch.as_tensor(kept(image)) for image in images])
    expected = torch.stack([torch.as_tensor(transform(image)) for image in images])
    assert samples.dtype is torch.uint8
    off = (augment(samples) - expected).abs()
    # at the border between two pixels Pillow and torchvision's tensors differ as well
    assert (off > near + 1e-5).float().mean() < 0.01


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_every_operation_of_torchvision_that_is_known_moves(
    torchvision: Any, version: str
) -> None:
    t = torchvision.transforms if version == "v1" else torchvision.transforms.v2
    modern = (
        (t.ToImage(), t.ToDtype(torch.float32, scale=True)) if version == "v2" else ()
    )
    steps = [
        t.RandomCrop(32, padding=(1, 2, 3, 4), fill=7),
        t.RandomCrop(32, padding=4, padding_mode="reflect"),
        t.RandomHorizontalFlip(),
        t.RandomRotation(15),
        t.RandomAffine(10, translate=(0.1, 0.2), scale=(0.9, 1.1)),
        t.ColorJitter(0.2, 0.2, 0.2, 0.1),
        t.RandomGrayscale(),
        *([t.ToTensor()] if version == "v1" else modern),
        t.Normalize((0.5,) * 3, (0.5,) * 3),
        t.RandomErasing(value="random"),
        t.RandomErasing(value=(1, 2, 3)),
    ]
    kept, augment = runtime.split_augmentation(t.Compose(steps), "cuda", same_size=True)
    assert names(kept.transforms) == (
        ["Bytes"] if version == "v1" else ["ToImage", "Unscaled"]
    )
    assert augment.steps[0].padding == (1, 3, 2, 4)
    assert len(augment.steps) == 10
    images = torch.stack([torch.as_tensor(kept(image)) for image in photographs()])
    result = augment(images)
    assert result.shape == (5, 3, 32, 32)
    assert result.isfinite().all()


ENDS: dict[str, Callable[[Any], list[Any]]] = {
    "v1 ToTensor": lambda t: [t.ToTensor()],
    "v1 ConvertImageDtype": lambda t: [
        t.PILToTensor(),
        t.ConvertImageDtype(torch.float32),
    ],
    "v2 ToDtype": lambda t: [t.ToImage(), t.ToDtype(torch.float32, scale=True)],
    "v2 ConvertImageDtype": lambda t: [t.PILToTensor(), t.ConvertImageDtype()],
}
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("normalized", [True, False], ids=["normalized", "plain"])
@pytest.mark.parametrize("end", ENDS)
def test_what_draws_nothing_is_bit_for_bit_what_torchvision_computes(
    torchvision: Any, end: str, normalized: bool
) -> None:
    t = torchvision.transforms.v2 if end.startswith("v2") else torchvision.transforms
    last = [t.Normalize(*IMAGENET)] if normalized else []
    transform = t.Compose([t.Resize((24, 24)), *ENDS[end](t), *last])
    kept, convert = runtime.split_augmentation(transform, "cuda", random=False)
    images = photographs()
    samples = torch.stack([torch.as_tensor(kept(image)) for image in images])
    expected = torch.stack([torch.as_tensor(transform(image)) for image in images])
    assert samples.dtype is torch.uint8
    assert torch.equal(convert(samples), expected)
    assert torch.equal(convert.eval()(samples), expected), "it is no augmentation"


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("mode, dtype", [("I;16", np.uint16), ("F", np.float32)])
@pytest.mark.parametrize("end", ["v1 ToTensor", "v2 ToDtype"])
def test_images_of_more_than_bytes_are_converted_by_torchvision(
    torchvision: Any, end: str, mode: str, dtype: Any
) -> None:
    t = torchvision.transforms.v2 if end.startswith("v2") else torchvision.transforms
    pixels = np.arange(256, dtype=dtype).reshape(16, 16)
    image = importlib.import_module("PIL.Image").fromarray(pixels)
    assert image.mode == mode
    transform = t.Compose(ENDS[end](t))
    kept, convert = runtime.split_augmentation(transform, "cuda", random=False)
    sample, expected = torch.as_tensor(kept(image)), torch.as_tensor(transform(image))
    assert names(kept.transforms)[-1] in ("Bytes", "Unscaled")
    assert torch.equal(sample, expected)
    assert torch.equal(convert(sample[None])[0], expected)


@pytest.mark.usefixtures("gpu")
def test_masks_beside_an_image_of_bytes_stay_as_they_are(torchvision: Any) -> None:
    t = torchvision.transforms.v2
    transform = t.Compose([t.RandomHorizontalFlip(1.0), t.ToDtype(torch.float32, True)])
    kept, _ = runtime.split_augmentation(transform, "cuda")
    image = torch.zeros(3, 4, 4, dtype=torch.uint8)
    mask = torch.ones(4, 4, dtype=torch.int64)
    assert kept(image, mask) == (image, mask)
    assert kept.transforms[0].original is transform.transforms[1]
    assert repr(kept.transforms[0]).endswith("of bytes")


DRAWN: dict[str, Callable[[Any], list[Any]]] = {
    "flips": lambda t: [t.RandomHorizontalFlip(0.3), t.RandomVerticalFlip(0.6)],
    "crop": lambda t: [t.RandomCrop(16, padding=3)],
    "rotation": lambda t: [t.RandomRotation(30)],
    "affine": lambda t: [t.RandomAffine(0, translate=(0.2, 0.1), scale=(0.7, 1.2))],
    "brightness": lambda t: [t.ColorJitter(brightness=0.4)],
    "contrast": lambda t: [t.ColorJitter(contrast=0.4)],
    "saturation": lambda t: [t.ColorJitter(saturation=0.6)],
    "hue": lambda t: [t.ColorJitter(hue=0.2)],
    "all colours": lambda t: [t.ColorJitter(0.3, 0.3, 0.3, 0.1)],
}
SAMPLES = 400


def figures(images: torch.Tensor, plain: torch.Tensor) -> torch.Tensor:
    """One number an image, sorted: how near it is to what is behind no operation."""
    weights = torch.rand(plain.shape, generator=torch.Generator().manual_seed(5))
    weights += 2 * (plain - plain.mean())  # more contrast, colour and light say more
    return (images * weights).flatten(1).mean(1).double().sort().values


def apart(some: torch.Tensor, others: torch.Tensor) -> float:
    """Kolmogorov and Smirnov's distance, roundings aside."""
    near = 0.05 * others.std() + 1e-3
    ends = torch.cat([some, others]).sort().values

    def part(values: torch.Tensor, below: torch.Tensor) -> torch.Tensor:
        return torch.searchsorted(values, below, right=True) / len(values)

    more = part(some, ends - near) - part(others, ends + near)
    less = part(others, ends - near) - part(some, ends + near)
    return max(more.max().item(), less.max().item())


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("given", ["bytes", "floats"])
@pytest.mark.parametrize("case", DRAWN)
def test_draws_are_spread_as_torchvisions(
    torchvision: Any, case: str, given: str
) -> None:
    t = torchvision.transforms
    steps = DRAWN[case](t)
    steps.insert(len(steps) if given == "bytes" else 0, t.ToTensor())
    transform = t.Compose(steps)
    pixels = np.random.default_rng(1).integers(0, 256, (16, 16, 3), np.uint8)
    image = importlib.import_module("PIL.Image").fromarray(pixels)
    plain = t.ToTensor()(image)
    random.seed(1), torch.manual_seed(1)
    expected = torch.stack([transform(image) for _ in range(SAMPLES)])
    kept, augment = runtime.split_augmentation(transform, "cuda", same_size=True)
    assert len(kept.transforms) == 1
    batch = torch.stack([torch.as_tensor(kept(image))] * SAMPLES)
    mine = augment(batch)
    assert len(mine.unique(dim=0)) > (3 if case == "flips" else 30)  # draws of its own
    spread = figures(expected, plain)
    assert apart(figures(mine, plain), spread) < 0.13  # one chance in 500 at most
    unchanged = plain.expand_as(mine)
    assert apart(figures(unchanged, plain), spread) > 0.15
    assert torch.equal(augment.eval()(batch), unchanged)  # nothing is drawn
