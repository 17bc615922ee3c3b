"""Steps for batches: every image has its own draws, and masks follow their images."""

from __future__ import annotations

import pytest
import torch

from gpulint.runtime._augment import (
    Augment,
    Crop,
    Erase,
    Flip,
    Grey,
    Jitter,
    Noise,
    Normalize,
    Step,
    Turn,
)

ALL: list[Step] = [
    Flip(0.5, -1),
    Flip(0.5, -2),
    Crop((16, 16), (2, 2, 2, 2)),
    Crop((16, 16), (2, 2, 2, 2), "reflect"),
    Turn((-30, 30)),
    Turn((-10, 10), scale=(0.8, 1.2), shift=(0.1, 0.1), mode="bilinear"),
    Jitter(brightness=(0.5, 1.5), hue=(-0.2, 0.2)),
    Jitter(contrast=(0.5, 1.5), saturation=(0.5, 1.5)),
    Grey(0.5),
    Noise(0.1),
    Erase(0.5, (0.02, 0.33), (0.3, 3.3), (0.0,)),
    Erase(0.5, (0.02, 0.33), (0.3, 3.3), None),
]


def same_images(count: int = 64, channels: int = 3) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.rand(1, channels, 16, 16).repeat(count, 1, 1, 1)


def kinds(images: torch.Tensor) -> int:
    return len(images.flatten(1).unique(dim=0))


def name(step: Step) -> str:
    return type(step).__name__


@pytest.mark.parametrize("step", ALL, ids=name)
def test_every_image_has_its_own_draws(step: Step) -> None:
    images = same_images()
    before = images.clone()
    augmented = Augment([step])(images)
    assert kinds(augmented) >= 2
    assert kinds(augmented) >= 20 or isinstance(step, Flip | Grey | Crop)
    assert augmented.shape == images.shape
    assert augmented.dtype == images.dtype
    assert torch.equal(images, before), "the batch itself is left as it is"


@pytest.mark.parametrize("step", ALL, ids=name)
def test_the_same_seed_gives_the_same_batch(step: Step) -> None:
    images = same_images()
    results = []
    for _ in range(2):
        torch.manual_seed(5)
        results.append(Augment([step])(images))
    assert torch.equal(*results)


@pytest.mark.parametrize("step", ALL, ids=name)
def test_nothing_is_drawn_under_eval(step: Step) -> None:
    images = same_images()
    state = torch.get_rng_state()
    assert torch.equal(Augment([step]).eval()(images), images)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("step", [s for s in ALL if not isinstance(s, Noise)], ids=name)
@pytest.mark.parametrize("channels", [1, 3])
def test_grey_images_and_empty_batches(step: Step, channels: int) -> None:
    assert Augment([step])(same_images(4, channels)).shape == (4, channels, 16, 16)
    assert Augment([step])(same_images(0, channels)).shape == (0, channels, 16, 16)


def test_normalizing_is_for_eval_as_well() -> None:
    images = same_images()
    augment = Augment([Flip(1.0, -1), Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))])
    mean = torch.tensor([0.5, 0.4, 0.3]).view(1, 3, 1, 1)
    deviation = torch.tensor([0.2, 0.3, 0.4]).view(1, 3, 1, 1)
    assert torch.equal(augment(images), (images.flip(-1) - mean) / deviation)
    assert torch.equal(augment.eval()(images), (images - mean) / deviation)


@pytest.mark.parametrize("p", [0.0, 0.25, 0.5, 1.0])
def test_as_many_images_are_flipped_as_asked_for(p: float) -> None:
    images = same_images(2000)
    flipped = (Augment([Flip(p, -1)])(images) != images).flatten(1).any(1)
    assert flipped.float().mean().item() == pytest.approx(p, abs=0.05)


def test_all_windows_are_cut_out_equally_often() -> None:
    image = torch.arange(1.0, 17).view(1, 1, 4, 4)
    images = image.repeat(5000, 1, 1, 1)
    cut = Augment([Crop((4, 4), (1, 1, 1, 1), fill=-1.0)])(images)
    padded = torch.nn.functional.pad(image, (1, 1, 1, 1), value=-1.0)
    windows = torch.stack(
        [padded[0, :, y : y + 4, x : x + 4] for y in range(3) for x in range(3)]
    )
    equal = (cut[:, None] == windows[None]).flatten(2).all(2)
    assert equal.any(1).all()
    counts = equal.sum(0)
    assert counts.min() > 450
    assert counts.max() < 670


def test_angles_and_factors_are_spread_evenly() -> None:
    images = same_images(4000)
    drawn = Turn((-30, 30), scale=(0.5, 1.0)).draw(images)
    assert drawn.angle.mean().item() == pytest.approx(0, abs=1)
    assert drawn.angle.std().item() == pytest.approx(60 / 12**0.5, rel=0.03)
    assert drawn.angle.abs().max() <= 30
    assert drawn.scale.mean().item() == pytest.approx(0.75, abs=0.01)
    order, factors = Jitter(brightness=(0.5, 1.5), contrast=(0.8, 1.2)).draw(images)
    assert order[:, 0].float().mean().item() == pytest.approx(0.5, abs=0.03)
    assert factors[1].std().item() == pytest.approx(0.4 / 12**0.5, rel=0.03)


def test_a_part_of_the_images_is_turned() -> None:
    images = same_images(2000)
    turned = (Augment([Turn((20, 20), p=0.3)])(images) != images).flatten(1).any(1)
    assert turned.float().mean().item() == pytest.approx(0.3, abs=0.04)


def test_a_quarter_turn_moves_every_pixel_to_its_place() -> None:
    images = same_images(3)
    assert torch.equal(Augment([Turn((90, 90))])(images), images.rot90(1, (-2, -1)))
    turned = Augment([Turn((90, 90), clockwise=True)])(images)
    assert torch.equal(turned, images.rot90(-1, (-2, -1)))


def test_pixels_from_outside_have_the_colour_asked_for() -> None:
    images = torch.ones(5, 3, 16, 16)
    turned = Augment([Turn((45, 45), fill=(0.1, 0.2, 0.3))])(images)
    assert torch.allclose(turned[0, :, 0, 0], torch.tensor([0.1, 0.2, 0.3]))
    assert torch.equal(turned[0, :, 8, 8], torch.ones(3))


def test_erased_rectangles_have_the_size_asked_for() -> None:
    images = torch.ones(3000, 1, 32, 32)
    erased = Augment([Erase(0.5, (0.1, 0.3), (0.5, 2.0), (0.0,))])(images)
    parts = (erased == 0).flatten(1).float().mean(1)
    changed = parts[parts > 0]
    assert len(changed) / 3000 == pytest.approx(0.5, abs=0.04)
    assert 0.08 < changed.min() < 0.13
    assert 0.26 < changed.max() < 0.34
    assert changed.mean().item() == pytest.approx(0.2, abs=0.01)
    for image in erased[parts > 0][:50, 0]:
        rows, columns = (image == 0).any(1).sum(), (image == 0).any(0).sum()
        assert (image == 0).sum() == rows * columns


def test_a_rectangle_larger_than_the_image_is_not_drawn() -> None:
    images = same_images()
    assert torch.equal(Augment([Erase(1.0, (1, 1), (1, 1), (0.0,))])(images), images)


@pytest.mark.parametrize("flat", [True, False])
def test_masks_get_the_geometry_of_their_images(flat: bool) -> None:
    torch.manual_seed(1)
    masks = torch.randint(0, 5, (40, 1, 16, 16))
    images = masks.float().repeat(1, 3, 1, 1) / 10
    steps = [
        Flip(0.5, -1),
        Flip(0.5, -2),
        Turn((-30, 30), scale=(0.8, 1.2), shift=(0.1, 0.1)),
        Crop((12, 12), (1, 1, 1, 1)),
    ]
    augmented, labels = Augment(steps)(images, masks[:, 0] if flat else masks)
    assert labels.shape == ((40, 12, 12) if flat else (40, 1, 12, 12))
    assert labels.dtype == masks.dtype
    shown = labels[:, None] if flat else labels
    assert torch.equal((augmented[:, :1] * 10).round().long(), shown)


def test_masks_keep_their_labels_where_only_colours_change() -> None:
    masks = torch.randint(0, 5, (8, 16, 16))
    steps = [Jitter(brightness=(0.5, 0.6)), Noise(0.1), Normalize((0.5,), (0.5,))]
    images, labels = Augment(steps)(same_images(8), masks)
    assert torch.equal(labels, masks)
    assert not torch.equal(images, same_images(8))


def test_bytes_become_floats_as_the_samples_would() -> None:
    images = torch.randint(0, 256, (4, 3, 16, 16), dtype=torch.uint8)
    assert torch.equal(Augment([], scales=True)(images), images.float() / 255)
    assert torch.equal(Augment([Flip(1.0, -1)])(images), images.flip(-1))


def test_what_is_no_batch_of_images_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"\(N, C, H, W\)"):
        Augment([])(torch.zeros(3, 16, 16))
    with pytest.raises(ValueError, match="smaller than their crop"):
        Augment([Crop((40, 40), (0, 0, 0, 0))])(same_images())


def test_nothing_is_differentiated() -> None:
    images = same_images().requires_grad_()
    assert not Augment(ALL)(images).requires_grad
