"""A training script whose transform is split: with and without the batches' part."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gpulint import runtime
from gpulint.engine import Options, fix_source
from gpulint.finding import Effect
from gpulint.registry import find_rule
from gpulint.source import read_source

SCRIPT = Path(__file__).parent.parent / "fixtures/gpu207_cpu_augmentation/bad.py"

# What the script uses of torchvision, on arrays; the names and attributes are its own.
TORCHVISION = {
    "__init__.py": "",
    "transforms/__init__.py": "from .transforms import *\n",
    "transforms/transforms.py": '''
import numpy as np
import torch


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image


class RandomCrop:
    def __init__(self, size, padding):
        self.size, self.padding, self.fill = (size, size), padding, 0
        self.pad_if_needed, self.padding_mode = False, "constant"

    def __call__(self, image):
        width = self.padding
        image = np.pad(image, ((width, width), (width, width), (0, 0)))
        top, left = torch.randint(0, 2 * width + 1, (2,)).tolist()
        return image[top : top + self.size[0], left : left + self.size[1]]


class RandomHorizontalFlip:
    p = 0.5

    def __call__(self, image):
        return image[:, ::-1] if torch.rand(1) < self.p else image


class ToTensor:
    def __call__(self, image):
        image = torch.from_numpy(image.transpose(2, 0, 1).copy())
        return image.float().div(255) if image.dtype == torch.uint8 else image


class Normalize:
    def __init__(self, mean, std):
        self.mean, self.std = mean, std

    def __call__(self, image):
        assert image.is_floating_point()
        mean, std = torch.tensor(self.mean), torch.tensor(self.std)
        return (image - mean.view(-1, 1, 1)) / std.view(-1, 1, 1)
''',
    "datasets.py": '''
import numpy as np


class CIFAR10:
    def __init__(self, root, train, transform):
        rng = np.random.default_rng(0)
        self.labels = rng.integers(0, 10, 512)
        colours = rng.integers(40, 216, (10, 1, 1, 3))[self.labels]
        noise = rng.integers(-40, 40, (512, 32, 32, 3))
        self.images = (colours + noise).astype(np.uint8)
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.transform(self.images[index]), int(self.labels[index])
''',
    "models.py": '''
from torch import nn


def resnet18(num_classes):
    convolution = nn.Conv2d(3, 8, 3, stride=2)
    pool = nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(convolution, nn.ReLU(), pool, nn.Flatten(), nn.Linear(8, num_classes))
''',
}  # fmt: skip


@pytest.fixture
def torchvision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The script finds a torchvision that makes its own pictures."""
    for name, text in TORCHVISION.items():
        path = tmp_path / "torchvision" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def loaded() -> list[str]:
        return [m for m in sys.modules if m.partition(".")[0] == "torchvision"]

    for module in loaded():
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.syspath_prepend(tmp_path)
    runtime._reset()
    yield
    runtime._reset()
    for module in loaded():
        del sys.modules[module]


def losses(text: str) -> list[float]:
    """The losses of a short run of a script."""
    text = text.replace("num_workers=4", "num_workers=0").replace(
        "range(90)", "range(4)"
    )
    text = text.replace(
        "optimizer.step()", "optimizer.step(); losses.append(loss.item())"
    )
    torch.manual_seed(0)
    names: dict[str, Any] = {"__name__": "__main__", "losses": []}
    exec(compile(text, "script.py", "exec"), names)
    return list(names["losses"])


def fixed() -> str:
    rule = find_rule("GPU207")
    assert rule is not None
    source = read_source(SCRIPT)
    text = fix_source(source, Options((rule,), frozenset(Effect))).text
    assert text != source.text
    return text


@pytest.mark.usefixtures("torchvision")
@pytest.mark.parametrize("variables", [{"RUNTIME": "off"}, {"DEBUG": "1"}, {}], ids=str)
def test_without_a_gpu_or_switched_off_the_losses_are_the_same(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = losses(SCRIPT.read_text("utf-8"))
    for name, value in variables.items():
        monkeypatch.setenv(f"GPULINT_{name}", value)
    assert losses(fixed()) == before


@pytest.mark.usefixtures("torchvision")
def test_with_a_gpu_batches_are_augmented_and_it_trains_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = losses(SCRIPT.read_text("utf-8"))
    monkeypatch.setattr("gpulint.runtime._split.usable_kind", lambda device: "cuda")
    after = losses(fixed())
    assert "crop, flip, normalize: on batches" in runtime.explain()
    assert after != before
    assert len(after) == len(before)
    assert all(map(math.isfinite, after))
    assert after[-1] < after[0]
    assert after[0] == pytest.approx(before[0], rel=0.1), "the same pictures on average"
    assert sum(after) == pytest.approx(sum(before), rel=0.05)
