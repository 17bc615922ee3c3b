"""Augmentation written by hand that moves to batches: before, after, and where not."""

from __future__ import annotations

import ast
import inspect
import random
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gpulint import runtime
from gpulint.engine import Options, check_source, fix_source
from gpulint.finding import Effect
from gpulint.registry import find_rule
from gpulint.source import Source, read_source

Image = pytest.importorskip("PIL.Image")
ImageEnhance = pytest.importorskip("PIL.ImageEnhance")

FIXTURES = Path(__file__).parent.parent / "fixtures/gpu207_cpu_augmentation"
SIDE = 32


def rewritten(text: str) -> str:
    rule = find_rule("GPU207")
    assert rule is not None
    source = Source(Path("train.py"), text)
    return fix_source(source, Options((rule,), frozenset(Effect))).text


# What the scripts import and read: pictures of their own, on the CPU


class Functional(types.ModuleType):
    """What torchvision's functions do to Pillow's images."""

    @staticmethod
    def hflip(image: Any) -> Any:
        return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)

    @staticmethod
    def rotate(image: Any, angle: float) -> Any:
        return image.rotate(angle, Image.Resampling.NEAREST)

    @staticmethod
    def adjust_brightness(image: Any, factor: float) -> Any:
        return ImageEnhance.Brightness(image).enhance(factor)

    @staticmethod
    def resize(image: Any, size: tuple[int, int]) -> Any:
        return image.resize((SIDE, SIDE), Image.Resampling.BOX)

    @staticmethod
    def to_tensor(image: Any) -> torch.Tensor:
        pixels = np.array(image)
        pixels = pixels[:, :, None] if pixels.ndim == 2 else pixels
        return torch.from_numpy(pixels.transpose(2, 0, 1).copy()).float().div(255)


def picture(path: str, channels: int = 3) -> np.ndarray[Any, Any]:
    """Smooth colours, other ones for each name."""
    number = int(path.rpartition("_")[2])
    y, x = np.mgrid[0:SIDE, 0:SIDE] / SIDE
    colours = [(x + number / 50) % 1, y**2, (x * y + number / 9) % 1][:channels]
    return (np.stack(colours, -1) * 200).astype(np.uint8)


def open_image(path: str) -> Any:
    """A picture, or a mask: a triangle of one label on another."""
    if path.startswith("mask"):
        y, x = np.mgrid[0:SIDE, 0:SIDE]
        return Image.fromarray(np.where(x > y + int(path[-1]), 255, 0).astype(np.uint8))
    return Image.fromarray(picture(path))


class Network(nn.Module):
    """Keeps what it was given."""

    def __init__(self, outputs: int, seen: list[torch.Tensor]) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, outputs, 3, padding=1)
        self.outputs, self.seen = outputs, seen

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen.append(images.clone())
        maps: torch.Tensor = self.layer(images)
        return maps.mean((2, 3)) if self.outputs > 1 else maps


class Kept(nn.Module):
    """A loss that keeps what the images are compared to."""

    def __init__(self, loss: nn.Module, seen: list[torch.Tensor]) -> None:
        super().__init__()
        self.loss, self.seen = loss, seen

    def forward(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        self.seen.append(target.clone())
        result: torch.Tensor = self.loss(output, target)
        return result


class Run:
    """A short run of a script: what its network and its loss were given."""

    def __init__(self, text: str, epochs: int = 2) -> None:
        self.images: list[torch.Tensor] = []
        self.targets: list[torch.Tensor] = []
        text = text.replace('device("cuda")', 'device("cpu")')
        text = text.replace("num_workers=4", "num_workers=0")
        text = text.replace("shuffle=True", "shuffle=False")
        text = text.replace("(224, 224)", f"({SIDE}, {SIDE})")
        for count in (90, 100):
            text = text.replace(f"range({count})", f"range({epochs})")
        for name in ("CrossEntropyLoss", "BCEWithLogitsLoss"):
            text = text.replace(f"nn.{name}()", f"kept(nn.{name}())")
        names = [f"image_{number}" for number in range(40)]
        for generator in (random.seed, np.random.seed, torch.manual_seed):
            generator(0)
        self.names: dict[str, Any] = {
            "__name__": "__main__",
            "kept": lambda loss: Kept(loss, self.targets),
            "train_paths": names,
            "train_labels": list(range(40)),
            "train_scans": names,
            "train_masks": [f"mask_{number}" for number in range(40)],
            "val_scans": names[:2],
            "val_masks": ["mask_0", "mask_1"],
        }
        modules = sys.modules
        modules["network"].UNet = lambda: Network(1, self.images)  # type: ignore[attr-defined]
        modules["torchvision.models"].resnet18 = (  # type: ignore[attr-defined]
            lambda num_classes: Network(40, self.images)
        )
        exec(compile(text, "script.py", "exec"), self.names)

    @property
    def batches(self) -> torch.Tensor:
        return torch.cat(self.images)

    @property
    def compared(self) -> torch.Tensor:
        return torch.cat(self.targets)


@pytest.fixture(autouse=True)
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The scripts find small stand-ins for what they import."""
    made = {
        name: types.ModuleType(name)
        for name in ("cv2", "network", "torchvision", "torchvision.models")
    }
    made["torchvision.transforms"] = types.ModuleType("torchvision.transforms")
    functional = Functional("torchvision.transforms.functional")
    made["torchvision.transforms"].functional = functional  # type: ignore[attr-defined]
    made["torchvision"].models = made["torchvision.models"]  # type: ignore[attr-defined]
    cv2: Any = made["cv2"]
    cv2.imread, cv2.COLOR_BGR2RGB = picture, 4
    cv2.cvtColor = lambda image, code: image[:, :, ::-1]
    cv2.resize = lambda image, size: image
    for name, module in made.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(Image, "open", open_image)
    runtime._reset()
    yield
    runtime._reset()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpulint.runtime._augmentation.usable_kind", lambda its: "cuda")


def text_of(name: str, *replaced: tuple[str, str]) -> str:
    text = (FIXTURES / f"{name}.py").read_text("utf-8")
    for before, after in replaced:
        assert before in text
        text = text.replace(before, after)
    return text


SCRIPTS = ("flipped_by_hand", "masks_by_hand", "enhanced_by_hand")


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("variables", [{"RUNTIME": "off"}, {"DEBUG": "1"}, {}], ids=str)
def test_without_a_gpu_or_switched_off_batches_are_what_they_were(
    name: str, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Run(text_of(name))
    for variable, value in variables.items():
        monkeypatch.setenv(f"GPULINT_{variable}", value)
    after = Run(rewritten(text_of(name)))
    assert torch.equal(before.batches, after.batches)
    assert torch.equal(before.compared, after.compared)


# Scripts whose draws always give the same: batches must be the same as well


ALWAYS = {
    "both flips": (
        "flipped_by_hand",
        [("random.random() < 0.5", "random.random() < 1"), ("> 0.9", "> 0")],
    ),
    "one flip": (
        "flipped_by_hand",
        [("random.random() < 0.5", "random.random() < 1"), ("> 0.9", "> 1")],
    ),
    "flipped masks": (
        "masks_by_hand",
        [("> 0.4", "> 0"), ("-15, 15", "0.0, 0.0"), ("1 + 0.4 *", "1 + 0 *")],
    ),
    "brighter": (
        "masks_by_hand",
        [
            ("> 0.4", "> 1"),
            ("-15, 15", "0.0, 0.0"),
            ("< 0.3", "< 1"),
            ("1 + 0.4 *", "1.2 + 0 *"),
        ],
    ),
    "more contrast": (
        "enhanced_by_hand",
        [("< 0.5", "< 0"), ("0.7, 1.3", "1.2, 1.2")],
    ),
    "darker": (
        "enhanced_by_hand",
        [("-20, 20", "0, 0"), ("0.7, 1.3", "0.6, 0.6")],
    ),
    "rotated": (
        "masks_by_hand",
        [("> 0.4", "> 1"), ("-15, 15", "10.0, 10.0"), ("1 + 0.4 *", "1 + 0 *")],
    ),
}


NEVER = {
    "flipped_by_hand": [("< 0.5", "< 0"), ("> 0.9", "> 1")],
    "enhanced_by_hand": [("< 0.5", "< 0"), ("0.7, 1.3", "1.0, 1.0")],
    "masks_by_hand": [("> 0.4", "> 1"), ("-15, 15", "0.0, 0.0"), ("< 0.3", "< 0")],
}


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("name,replaced", ALWAYS.values(), ids=ALWAYS)
def test_what_is_always_done_gives_the_same_batches(
    name: str, replaced: list[tuple[str, str]]
) -> None:
    text = text_of(name, *replaced)
    fixed = rewritten(text)
    assert "runtime.augmentation" in fixed
    before, after = Run(text), Run(fixed)
    assert "of batches, on cuda" in runtime.explain()
    turned = any("10.0" in new for _, new in replaced)
    assert torch.equal(before.compared, after.compared) or turned
    # Steps of a byte: colours are not rounded between operations on the batch.
    steps = 2.01 if name == "enhanced_by_hand" else 1.01
    close = (before.batches - after.batches).abs() < steps / 255
    assert close.all() or turned
    if turned:  # where a pixel lies on the border of two, either may be the nearest
        assert close.double().mean() > 0.99
        same = (before.compared == after.compared).double().mean()
        assert same > 0.99
    assert not torch.equal(before.batches, Run(text_of(name, *NEVER[name])).batches)


@pytest.mark.usefixtures("gpu")
def test_as_many_images_are_flipped_with_their_masks() -> None:
    nothing = [("-15, 15", "0.0, 0.0"), ("< 0.3", "< 0")]
    plain = Run(text_of("masks_by_hand", ("> 0.4", "> 1"), *nothing))
    after = Run(rewritten(text_of("masks_by_hand", *nothing)), epochs=20)
    images = plain.batches[:40].repeat(20, 1, 1, 1)
    masks = plain.compared[:40].repeat(20, 1, 1, 1)
    flipped = (after.batches == images.flip(-1)).flatten(1).all(1)
    moved = (after.compared == masks.flip(-1)).flatten(1).all(1)
    assert torch.equal(flipped, moved)
    same = (after.batches == images).flatten(1).all(1)
    assert (same | flipped).all()
    assert flipped.double().mean().item() == pytest.approx(0.6, abs=0.06)


# Where it is not proven


REASONS = {
    "angle_is_returned": "more than a sample's image and mask is augmented",
    "brightness_before_rotation": "the order of the operations is another",
    "by_hand": "line 26 is not understood",
    "chance_is_an_option": "the numbers of line 25 are options",
    "changed_in_place_behind": "how the image of a sample lies in memory",
    "cut_out_behind": "how the image of a sample lies in memory",
    "derived_dataset": "`Photos` is no plain dataset of its own",
    "done_twice": "an operation is done twice",
    "label_follows": "line 26 is not understood",
    "layout_not_known": "line 22 is not proven to be the same on batches",
    "masks_change_type": "images and masks have no names on the device",
    "masks_drawn_apart": "an operation is done twice",
    "masks_in_colour": "how the mask of a sample lies in memory",
    "masks_not_rotated": "line 29 is not understood",
    "masks_smoothed": "masks are not rotated by the nearest pixel",
    "normalized_behind": "images are normalized behind it",
    "object_of_its_own": "the operations stand in no method of the dataset",
    "one_draw_for_two": "line 24 draws for something else as well",
    "other_code_between": "other code stands between the operations",
    "resized_behind": "how the image of a sample lies in memory",
    "sample_says_it": "`flipped` is used for something else as well",
    "sample_taken_elsewhere": "line 31 may take samples of the dataset",
    "seeded_each_time": "line 24 draws for something else as well",
    "three_parts": "a sample is not an image and one thing beside it",
    "trained_or_not_is_an_option": "not known whether `self.train` holds",
    "turned_to_one_side": "images are turned to one side, then flipped",
    "whole_degrees": "line 29 is not proven to be the same on batches",
}


def withheld(name: str) -> list[str]:
    """Why a fixture has no fix, and the lines to put in by hand."""
    rule = find_rule("GPU207")
    assert rule is not None
    findings = check_source(
        read_source(FIXTURES / f"{name}.py"), Options((rule,))
    ).findings
    assert len(findings) == 1
    assert findings[0].fix is None
    return (findings[0].fix_withheld or "").split("\n")


@pytest.mark.parametrize("name,reason", REASONS.items(), ids=REASONS)
def test_the_reason_against_the_fix_is_named(name: str, reason: str) -> None:
    assert reason in withheld(name)[0]


@pytest.mark.parametrize("name", REASONS)
def test_lines_to_put_in_are_calls_that_the_runtime_takes(name: str) -> None:
    lines = withheld(name)[1:]
    made = [n for n, line in enumerate(lines) if "runtime.augmentation(" in line]
    if name in ("done_twice", "label_follows"):
        assert lines == []
        return
    end = next(n for n, line in enumerate(lines) if "augment" in line and n > made[0])
    call = ast.parse("\n".join(lines[made[0] : end])).body[0]
    assert isinstance(call, ast.Assign)
    assert isinstance(call.value, ast.Call)
    given = {k.arg: ast.unparse(k.value) for k in call.value.keywords}
    assert given.pop("device", "device") == "device"
    inspect.signature(runtime.augmentation).bind(**given)
    values = {name: ast.literal_eval(text) for name, text in given.items()}
    assert runtime.augmentation(**values) is not None


def test_lines_to_put_in_have_the_numbers_and_names_of_the_script() -> None:
    assert withheld("masks_change_type")[1:] == [
        "from gpulint import runtime",
        "on_batches = False  # at the top of the class",
        "if not self.on_batches:  # around lines 25 to 27 and 29 to 31",
        "augment = runtime.augmentation(",
        "    horizontal_flip=0.6,",
        "    rotation_degrees=15,",
        "    brightness=(0.8, 1.2),",
        '    p={"brightness": 0.3},',
        '    interpolation="nearest",',
        "    device=device,",
        ")",
        "train_set.on_batches = augment.on_batches  # False without a GPU",
        "scans, masks = augment(scans, masks)  # on the device, in the training loop",
    ]


def test_lines_of_code_outside_of_the_dataset() -> None:
    assert withheld("object_of_its_own")[1:] == [
        "from gpulint import runtime",
        "# instead of lines 15 to 16",
        "augment = runtime.augmentation(horizontal_flip=0.5)",
        "images = augment(images)  # on the device, in the training loop",
    ]


def test_what_is_not_sure_is_said() -> None:
    assert withheld("layout_not_known")[-1] == (
        "# line 22 is close to `horizontal_flip`, perhaps not the same"
    )


# More forms, each a change of a script that is rewritten


LINE = "\n        "  # the next one of a method
FIXED: dict[str, Callable[[], str]] = {
    "other names": lambda: text_of("masks_by_hand", ("self", "this")),
    "an option beside": lambda: text_of(
        "masks_by_hand",
        ("if random.random() > 0.4:", "if self.train and random.random() > 0.4:"),
    ),
    "a draw beside": lambda: text_of(
        "flipped_by_hand",
        ("if random.random() < 0.5:", f"flip = random.random() < 0.5{LINE}if flip:"),
    ),
}


@pytest.mark.parametrize("made", FIXED.values(), ids=FIXED)
def test_other_forms_are_rewritten_too(made: Callable[[], str]) -> None:
    text = made()
    assert "runtime.augmentation" in rewritten(text)
    before, after = Run(text), Run(rewritten(text))
    assert torch.equal(before.batches, after.batches)


FLIP = f"{LINE}        image = image[::-1, :]"
UNSURE = {
    "a second object": (
        "masks_by_hand",
        "            image, mask = self.augment(image, mask)",
        "            image, mask = OTHER.augment(image, mask)",
    ),
    "slots": (
        "flipped_by_hand",
        "    def __len__(self):",
        '    __slots__ = ("paths", "labels")\n\n    def __len__(self):',
    ),
    "attributes of its own": (
        "flipped_by_hand",
        "    def __len__(self):",
        f"    def __getattr__(self, name):{LINE}return None\n\n    def __len__(self):",
    ),
    "no device where the dataset is made": (
        "masks_by_hand",
        "        scans = scans.to(device)",
        "        scans = scans.to(next(model.parameters()).device)",
    ),
    "a set of two": (
        "flipped_by_hand",
        "train_set = Photos(train_paths, train_labels)",
        "train_set = Photos(train_paths, train_labels) + Photos(more, labels)",
    ),
    "images that are shown as well": (
        "flipped_by_hand",
        "        images, labels = images.to(device), labels.to(device)",
        f"        show(images){LINE}images, labels = images.to(device), labels",
    ),
    "a generator that is set": (
        "flipped_by_hand",
        "image = cv2.imread(self.paths[index])",
        f"torch.manual_seed(index){LINE}image = cv2.imread(self.paths[index])",
    ),
    "a name bound in a condition": (
        "flipped_by_hand",
        "        if random.random() < 0.5:",
        "        if (draw := random.random()) < 0.5:",
    ),
    "a dataset made in a loop": (
        "flipped_by_hand",
        "train_set = Photos(train_paths, train_labels)",
        "for _ in range(2):\n    train_set = Photos(train_paths, train_labels)",
    ),
    "white is not known": (
        "masks_by_hand",
        "return TF.to_tensor(image), ",
        "return TF.to_tensor(image) * 2, ",
    ),
    "a batch that is one name": (
        "masks_by_hand",
        "    for scans, masks in loader:",
        "    for scans, (masks, names) in loader:",
    ),
    "colours are not known": (
        "masks_by_hand",
        '(Image.open(self.images[index]).convert("RGB"), (256, 256))',
        "(Image.open(self.images[index]), (256, 256))",
    ),
    "an heir": (
        "flipped_by_hand",
        "train_set = Photos(train_paths, train_labels)",
        "class More(Photos):\n    pass\n\n\ntrain_set = Photos(train_paths, train_labels)",
    ),
    "a decorated method": (
        "flipped_by_hand",
        "    def __getitem__(self, index):",
        "    @retry\n    def __getitem__(self, index):",
    ),
    "another one calls it": (
        "masks_by_hand",
        "@torch.no_grad()",
        "def look(some):\n    return some.augment(1, 2)\n\n\n@torch.no_grad()",
    ),
    "no masks on the device": (
        "masks_by_hand",
        "        masks = masks.to(device)\n",
        "",
    ),
    "masks with no name": (
        "masks_by_hand",
        "        masks = masks.to(device)\n",
        "        masks = [masks.to(device)]\n",
    ),
    "operations in two blocks": (
        "flipped_by_hand",
        "        if np.random.rand() > 0.9:\n            image = image[::-1, :]",
        f"        if 1:{LINE}    if np.random.rand() > 0.9:{FLIP}",
    ),
    "a loader that is made elsewhere": (
        "masks_by_hand",
        "        fit(model, train_loader, optimizer, device)",
        "        fit(model, make(train_loader), optimizer, device)",
    ),
    "an option of the run beside": (
        "masks_by_hand",
        "if random.random() > 0.4:",
        "if self.train and random.random() > 0.4 and args.flip:",
    ),
    "a type that is not known": (
        "masks_by_hand",
        "        return image, mask\n",
        "        return image.to(image.dtype), mask\n",
    ),
    "moved apart": (
        "masks_by_hand",
        "        scans = scans.to(device)\n",
        "        scans = scans.to(device)\n        model.zero_grad()\n",
    ),
}


@pytest.mark.parametrize("name,before,after", UNSURE.values(), ids=UNSURE)
def test_what_is_not_proven_stays(name: str, before: str, after: str) -> None:
    text = text_of(name, (before, after))
    assert rewritten(text) == text
