"""Presets and operations for batches: draws for each image, masks, types, schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from gpulint import runtime

SIDE = 16
OPERATIONS: list[dict[str, Any]] = [
    {"horizontal_flip": 0.5},
    {"vertical_flip": 0.5},
    {"rotation_degrees": 30},
    {"scale": (0.8, 1.2)},
    {"brightness": 0.4},
    {"contrast": 0.4},
    {"noise": 0.1},
]
PRESETS: list[dict[str, Any]] = [
    {"preset": name} for name in ("minimal", "standard", "strong")
]


def same_images(count: int = 64, channels: int = 3) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.rand(1, channels, SIDE, SIDE).repeat(count, 1, 1, 1)


def as_bytes(images: torch.Tensor) -> torch.Tensor:
    return images.mul(255).round().to(torch.uint8)


def kinds(images: torch.Tensor) -> int:
    return len(images.flatten(1).unique(dim=0))


def changed(after: torch.Tensor, before: torch.Tensor) -> float:
    """The part of the images that is not what it was."""
    return (after != before).flatten(1).any(1).double().mean().item()


@pytest.mark.parametrize("asked", OPERATIONS + PRESETS, ids=str)
@pytest.mark.parametrize("of_bytes", [False, True], ids=["floats", "bytes"])
def test_each_image_has_its_own_draws(asked: dict[str, Any], of_bytes: bool) -> None:
    images = as_bytes(same_images()) if of_bytes else same_images()
    before = images.clone()
    augmented = runtime.augmentation(**asked)(images)
    flips = "flip" in str(asked) or asked == {"preset": "minimal"}
    assert kinds(augmented) == 2 if flips else kinds(augmented) > 50
    assert augmented.shape == images.shape
    assert augmented.dtype == images.dtype
    assert torch.equal(images, before), "the batch itself is left as it is"


@pytest.mark.parametrize("asked", OPERATIONS + PRESETS, ids=str)
def test_eval_gives_back_what_was_given_and_draws_nothing(
    asked: dict[str, Any],
) -> None:
    images, masks = same_images(), torch.ones(64, SIDE, SIDE)
    augment = runtime.augmentation(**asked).eval()
    state = torch.get_rng_state()
    assert augment(images) is images
    again, same = augment(images, masks)
    assert again is images
    assert same is masks
    assert torch.equal(torch.get_rng_state(), state)
    assert augment.train()(images) is not images


@pytest.mark.parametrize("name", ["horizontal_flip", "vertical_flip"])
@pytest.mark.parametrize("p", [0.25, 0.7, 1.0])
def test_as_many_images_are_turned_over_as_asked_for(name: str, p: float) -> None:
    images = same_images(2000, 1)
    dimension = -1 if name == "horizontal_flip" else -2
    augmented = runtime.augmentation(**{name: p})(images)  # type: ignore[arg-type]
    assert changed(augmented, images) == pytest.approx(p, abs=0.04)
    turned = (augmented == images.flip(dimension)).flatten(1).all(1)
    assert turned.double().mean().item() == pytest.approx(p, abs=0.04)


def test_angles_are_spread_from_the_lowest_to_the_highest() -> None:
    torch.manual_seed(0)
    images = torch.zeros(3000, 1, 65, 65)
    images[:, :, 32, 32:] = 1  # a hand that points to the right
    turned = runtime.augmentation(rotation_degrees=(-20, 40))(images)[:, 0]
    places = torch.arange(65.0) - 32
    x, y = (turned * places).sum((1, 2)), (turned * places[:, None]).sum((1, 2))
    angles = torch.rad2deg(torch.atan2(-y, x))
    assert angles.min().item() == pytest.approx(-20, abs=1)
    assert angles.max().item() == pytest.approx(40, abs=1)
    assert angles.mean().item() == pytest.approx(10, abs=1)
    assert angles.std().item() == pytest.approx(60 / 12**0.5, rel=0.04)


def test_scales_are_spread_from_the_lowest_to_the_highest() -> None:
    torch.manual_seed(0)
    images = torch.zeros(2000, 1, 64, 64)
    images[:, :, 22:42, 22:42] = 1
    scaled = runtime.augmentation(scale=0.5)(images)
    sides = scaled.sum((1, 2, 3)).sqrt() / 20
    assert sides.min().item() == pytest.approx(0.5, abs=0.05)
    assert sides.max().item() == pytest.approx(1.5, abs=0.05)
    assert sides.mean().item() == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("of_bytes", [False, True], ids=["floats", "bytes"])
def test_brightness_multiplies_each_image_by_its_factor(of_bytes: bool) -> None:
    torch.manual_seed(0)
    images = torch.full((2000, 3, 4, 4), 0.6)
    augment = runtime.augmentation(brightness=(0.5, 1.5))
    augmented = augment(as_bytes(images) if of_bytes else images)
    factors = augmented[:, 0, 0, 0].double() / (153 if of_bytes else 0.6)
    spread = (augmented.flatten(1) == augmented[:, 0, 0, 0, None]).all()
    assert spread, "one factor for all pixels of an image"
    assert factors.min().item() == pytest.approx(0.5, abs=0.01)
    assert factors.max().item() == pytest.approx(1.5, abs=0.01)
    assert factors.mean().item() == pytest.approx(1, abs=0.03)


def test_contrast_keeps_the_mean_and_scales_the_distance_to_it() -> None:
    images = 0.4 + 0.2 * same_images(2000, 1)
    augmented = runtime.augmentation(contrast=0.3)(images)
    assert torch.allclose(augmented.mean((1, 2, 3)), images.mean((1, 2, 3)), atol=1e-4)
    factors = augmented.std((1, 2, 3)) / images.std((1, 2, 3))
    assert factors.min().item() == pytest.approx(0.7, abs=0.01)
    assert factors.max().item() == pytest.approx(1.3, abs=0.01)


def test_noise_has_the_deviation_asked_for() -> None:
    torch.manual_seed(0)
    noise = runtime.augmentation(noise=0.1)(torch.zeros(500, 3, 8, 8))
    assert noise.mean().item() == pytest.approx(0, abs=0.001)
    assert noise.std().item() == pytest.approx(0.1, rel=0.02)
    grey = torch.full((500, 3, 8, 8), 128, dtype=torch.uint8)
    noisy = runtime.augmentation(noise=0.1)(grey).double()
    assert noisy.std().item() == pytest.approx(25.5, rel=0.02)


def test_bytes_are_cut_off_at_black_and_white() -> None:
    white = torch.full((50, 3, 4, 4), 250, dtype=torch.uint8)
    assert runtime.augmentation(brightness=(2, 2))(white).min() == 255
    assert runtime.augmentation(noise=1.0)(white).max() == 255


@pytest.mark.parametrize(
    "name,value",
    [
        ("rotation_degrees", 20),
        ("scale", (0.7, 0.8)),
        ("brightness", (0.5, 0.6)),
        ("contrast", (0.5, 0.6)),
        ("noise", 0.1),
    ],
)
def test_a_part_of_the_images_is_changed(name: str, value: Any) -> None:
    images = same_images(1500, 1)
    augment = runtime.augmentation(**{name: value}, p={name: 0.3})
    assert changed(augment(images), images) == pytest.approx(0.3, abs=0.04)


def test_rotation_and_scale_with_a_part_each() -> None:
    images = same_images(1500, 1)
    augment = runtime.augmentation(
        rotation_degrees=20, scale=0.3, p={"scale": 0.5, "rotation_degrees": 0.5}
    )
    assert changed(augment(images), images) == pytest.approx(0.75, abs=0.04)


# Masks


@pytest.mark.parametrize("flat", [True, False], ids=["(N, H, W)", "(N, 1, H, W)"])
@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.uint8, torch.bool, torch.float32], ids=str
)
def test_masks_have_the_geometry_of_their_images(
    flat: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(1)
    masks = torch.randint(0, 2, (40, 1, SIDE, SIDE))
    images = masks.float().repeat(1, 3, 1, 1)
    augment = runtime.augmentation(
        "strong", brightness=0, contrast=0, noise=0, interpolation="nearest"
    )
    given = (masks[:, 0] if flat else masks).to(dtype)
    augmented, labels = augment(images, given)
    assert labels.shape == given.shape
    assert labels.dtype == dtype
    shown = labels[:, None] if flat else labels
    assert torch.equal(augmented[:, :1], shown.float())
    assert not torch.equal(labels, given)


def test_masks_keep_the_set_of_their_labels() -> None:
    torch.manual_seed(1)
    masks = torch.tensor([0, 3, 7, 200])[torch.randint(0, 4, (40, SIDE, SIDE))]
    images, labels = runtime.augmentation("strong")(same_images(40), masks)
    assert set(labels.unique().tolist()) == {0, 3, 7, 200}
    assert kinds(labels) == 40
    assert kinds(images) == 40


def test_masks_are_left_alone_by_colours() -> None:
    masks = torch.randint(0, 4, (8, SIDE, SIDE))
    augment = runtime.augmentation(brightness=0.4, contrast=0.4, noise=0.1)
    assert torch.equal(augment(same_images(8), masks)[1], masks)


# Types


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_floats_of_any_width(dtype: torch.dtype) -> None:
    images = same_images(8).to(dtype)
    torch.manual_seed(3)
    augmented = runtime.augmentation("strong", noise=0)(images)
    torch.manual_seed(3)
    exact = runtime.augmentation("strong", noise=0)(images.float())
    assert augmented.dtype == dtype
    assert torch.allclose(augmented.float(), exact, atol=0.01)


@pytest.mark.parametrize("channels,count", [(1, 4), (5, 4), (3, 0)])
def test_any_number_of_channels_and_of_images(channels: int, count: int) -> None:
    images = same_images(max(count, 1), channels)[:count]
    masks = torch.zeros(count, SIDE, SIDE)
    augmented, labels = runtime.augmentation("strong")(images, masks)
    assert augmented.shape == images.shape
    assert labels.shape == masks.shape


def test_flips_are_for_any_type() -> None:
    images = torch.arange(64).view(1, 1, 8, 8)
    flipped = runtime.augmentation(horizontal_flip=1.0)(images)
    assert torch.equal(flipped, images.flip(-1))


def test_nothing_is_differentiated() -> None:
    images = same_images().requires_grad_()
    assert not runtime.augmentation("strong")(images).requires_grad


def test_the_same_seed_gives_the_same_batch() -> None:
    augment = runtime.augmentation("strong")
    results = []
    for _ in range(2):
        torch.manual_seed(5)
        results.append(augment(torch.rand(8, 3, SIDE, SIDE)))
    assert torch.equal(*results)


# Schedules


def test_a_schedule_changes_the_preset_with_the_epoch() -> None:
    images = same_images()
    augment = runtime.augmentation(schedule={50: "strong", 0: "minimal", 90: None})
    assert [kinds(augment(images, epoch=e)) for e in (0, 49)] == [2, 2]
    assert [kinds(augment(images, epoch=e)) > 50 for e in (50, 89)] == [True, True]
    assert torch.equal(augment(images, epoch=90), images)
    masks = torch.zeros(64, SIDE, SIDE)
    assert torch.equal(augment(images, masks, 95)[1], masks)


def test_an_operation_of_nothing_is_left_out() -> None:
    images = same_images()
    augment = runtime.augmentation(
        "minimal", horizontal_flip=0, brightness=(1, 1), p={"brightness": 0.5}
    )
    assert torch.equal(augment(images), images)


def test_a_preset_is_the_one_before_its_schedule() -> None:
    augment = runtime.augmentation("minimal", schedule={2: "strong"}, noise=0)
    assert kinds(augment(same_images(), epoch=1)) == 2
    assert kinds(augment(same_images(), epoch=2)) > 50


def test_what_is_named_counts_in_every_stage() -> None:
    augment = runtime.augmentation(
        schedule={0: None, 5: "minimal"}, horizontal_flip=1.0
    )
    images = same_images()
    for epoch in (0, 5):
        assert torch.equal(augment(images, epoch=epoch), images.flip(-1))


def test_the_epoch_does_not_matter_without_a_schedule() -> None:
    augment = runtime.augmentation(horizontal_flip=1.0)
    images = same_images()
    assert torch.equal(augment(images, epoch=7), images.flip(-1))


@pytest.mark.parametrize("epoch,message", [(None, "needs the epoch"), (-1, "from 0")])
def test_a_schedule_needs_an_epoch(epoch: int | None, message: str) -> None:
    augment = runtime.augmentation(schedule={0: "minimal", 9: "strong"})
    with pytest.raises(ValueError, match=message):
        augment(same_images(), epoch=epoch)
    assert augment.eval()(same_images()) is not None


# Where it runs


@pytest.mark.parametrize(
    "variables,reason",
    [({}, "no GPU"), ({"GPULINT_DEBUG": "1"}, "GPULINT_DEBUG")],
    ids=str,
)
def test_the_samples_stay_where_the_script_can_augment_them(
    variables: dict[str, str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    augment = runtime.augmentation("strong", device="cuda")
    images, masks = same_images(), torch.zeros(64, SIDE, SIDE)
    state = torch.get_rng_state()
    assert augment(images) is images
    assert augment(images, masks)[1] is masks
    assert not augment.on_batches
    assert torch.equal(torch.get_rng_state(), state)
    said = f"augmentation: of the samples, as before ({reason})"
    assert said in runtime.explain()


def test_switched_off_the_samples_are_augmented(
    cuda: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda()
    monkeypatch.setenv("GPULINT_RUNTIME", "off")
    augment = runtime.augmentation("strong", device="cuda")
    assert not augment.on_batches
    images = same_images()
    assert augment(images) is images


def test_with_a_gpu_the_batches_are_augmented(cuda: Callable[..., None]) -> None:
    cuda()
    augment = runtime.augmentation("minimal", rotation_degrees=5, device="cuda")
    assert augment.on_batches
    assert kinds(augment(same_images())) > 50
    said = "augmentation: of batches, on cuda: horizontal_flip, rotation_degrees"
    assert said in runtime.explain()


@pytest.mark.parametrize("variable", ["GPULINT_RUNTIME=off", "GPULINT_DEBUG=1"])
def test_without_a_device_nobody_else_augments(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(*variable.split("="))
    augment = runtime.augmentation("minimal")
    assert augment.on_batches
    assert kinds(augment(same_images())) == 2


def test_the_stages_are_told() -> None:
    runtime.augmentation(schedule={0: None, 3: "minimal"})
    said = "of batches: nothing from epoch 0; horizontal_flip from epoch 3"
    assert said in runtime.explain()


# What is not understood


@pytest.mark.parametrize(
    "asked,message",
    [
        ({}, "needs a preset or an operation"),
        ({"schedule": {0: None}}, "needs a preset or an operation"),
        ({"preset": "medium"}, "'medium' is not one of the presets minimal, standard"),
        ({"horizontal_flip": 1.5}, "horizontal_flip=1.5 is not a probability"),
        ({"vertical_flip": True}, "vertical_flip=True is not a number of 0 or more"),
        ({"noise": -1}, "noise=-1 is not a number of 0 or more"),
        ({"noise": float("nan")}, "noise=nan is not a number"),
        ({"rotation_degrees": -5}, "rotation_degrees=-5 is not a number of 0 or more"),
        ({"rotation_degrees": (1, 2, 3)}, "or a pair"),
        ({"rotation_degrees": (9, -9)}, "a lowest and a highest number"),
        ({"rotation_degrees": "10"}, "or a pair"),
        ({"scale": 1.0}, "scale=1.0 has factors below 0.001"),
        ({"brightness": (-1, 1)}, "has factors below 0"),
        ({"noise": 0.1, "p": {"noise": 2}}, "p of noise=2 is not a probability"),
        ({"noise": 0.1, "p": {"scale": 0.5}}, "p: 'scale' is not an operation that"),
        ({"preset": "minimal", "p": {"horizontal_flip": 0.5}}, "is a probability"),
        ({"preset": "minimal", "interpolation": "bicubic"}, "not bilinear or nearest"),
        ({"schedule": {"0": "minimal"}}, "schedule: '0' is not an epoch"),
        ({"schedule": {5: "minimal"}}, "does not say how epoch 0"),
        ({"preset": "minimal", "schedule": {0: "strong"}}, "both name the first"),
        ({"schedule": {0: "minimal", 5: "max"}}, "'max' is not one of the presets"),
    ],
    ids=str,
)
def test_arguments_that_are_not_understood(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        runtime.augmentation(**asked)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "images,masks,message",
    [
        (torch.zeros(3, 8, 8), None, r"images are \(N, C, H, W\)"),
        (torch.zeros(2, 3, 8, 8).long(), None, "uint8 or floats, not torch.int64"),
        (torch.zeros(2, 3, 8, 8), torch.zeros(2, 3, 8, 8), r"masks of \(2, 3, 8, 8\)"),
        (torch.zeros(2, 3, 8, 8), torch.zeros(1, 8, 8), "are .* not"),
        (torch.full((2, 3, 8, 8), -0.5), None, "augment before Normalize"),
        (torch.full((2, 3, 8, 8), 255.0), None, "from 255 to 255"),
    ],
)
def test_batches_that_are_not_understood(
    images: torch.Tensor, masks: torch.Tensor | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        runtime.augmentation("standard")(images, masks)


def test_normalized_images_may_be_moved_and_get_noise() -> None:
    images = same_images() * 4 - 2
    augmented = runtime.augmentation(rotation_degrees=5, noise=0.1)(images)
    assert augmented.min() < -1.5
