"""What code does to a sample: its augmentations, and what is known of its image."""

from __future__ import annotations

import ast
import textwrap

import pytest

from gpulint.script.augmenting.pictures import Picture
from gpulint.script.augmenting.sample_reader import Operation, Reader

from .code import script_of

HEAD = """
import random
import cv2
from PIL import Image, ImageEnhance, ImageOps
from torchvision import transforms
from torchvision.transforms import functional as TF
from torchvision.transforms import ToTensor

class Photos:
    def __init__(self, train=True, mode="train", flag=None):
        self.train, self.steps = True, 3
        self.mode = mode
        self.apply = flag
        self.always = True
        self.to_tensor = transforms.ToTensor()
        self.prepare = transforms.Compose([ToTensor(), transforms.Normalize(m, s)])
        self.other = transforms.Compose([transforms.ToTensor(), Own()])
        self.own = Own()

    def other_way(self, picture, times=1):
        picture = TF.vflip(picture)
        return picture

    def __getitem__(self, index):
"""
RGB = 'image = Image.open(f).convert("RGB")'


def read(body: str, made: str = "Photos()") -> Reader:
    """What is read of `__getitem__` with a body."""
    inner = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    script = script_of(f"{HEAD}{inner}\n\ndataset = {made}\n")
    entry = next(f for f in script.index.functions if f.name == "__getitem__")
    calls = [c for c in script.index.all(ast.Call) if ast.unparse(c) == made]
    return Reader(script, entry, calls[-1])


def operation(line: str, before: str = RGB, chance: str = "0.3") -> Operation | None:
    """The one operation of a line that runs at random."""
    body = f"{before}\nif random.random() < {chance}:\n    {line}\nreturn image, 0"
    found = read(body).operations
    return found[0] if found else None


CHW = "image = TF.to_tensor(Image.open(f))"
HWC = "image = cv2.imread(f)"
HW = "image = cv2.imread(f, cv2.IMREAD_GRAYSCALE)"


@pytest.mark.parametrize(
    "line,before,kind",
    [
        ("image = TF.hflip(image)", RGB, "horizontal_flip"),
        ("image = TF.vflip(image)", CHW, "vertical_flip"),
        ("image = image.transpose(Image.FLIP_LEFT_RIGHT)", RGB, "horizontal_flip"),
        (
            "image = image.transpose(Image.Transpose.FLIP_TOP_BOTTOM)",
            RGB,
            "vertical_flip",
        ),
        ("image = ImageOps.mirror(image)", RGB, "horizontal_flip"),
        ("image = ImageOps.flip(image)", RGB, "vertical_flip"),
        ("image = np.fliplr(image).copy()", HWC, "horizontal_flip"),
        ("image = np.ascontiguousarray(np.flipud(image))", HW, "vertical_flip"),
        ("image = np.flip(image, 1)", HWC, "horizontal_flip"),
        ("image = np.flip(image, axis=0)", HW, "vertical_flip"),
        ("image = np.flip(image, (-1,))", HW, "horizontal_flip"),
        ("image = cv2.flip(image, 1)", HWC, "horizontal_flip"),
        ("image = cv2.flip(image, 0)", HWC, "vertical_flip"),
        ("image = torch.flip(image, [2])", CHW, "horizontal_flip"),
        ("image = torch.flip(image, dims=(1,))", CHW, "vertical_flip"),
        ("image = image.flip(-1)", CHW, "horizontal_flip"),
        ("image = image[:, ::-1]", HWC, "horizontal_flip"),
        ("image = image[::-1, ...]", HWC, "vertical_flip"),
        ("image = image[..., ::-1]", CHW, "horizontal_flip"),
        ("image = image[:, ::-1, :].copy()", HWC, "horizontal_flip"),
        ("image = image[::-1]", HWC, "vertical_flip"),
    ],
)
def test_flips_and_their_side(line: str, before: str, kind: str) -> None:
    found = operation(line, before)
    assert found is not None
    assert (found.kind, found.p, found.images) == (kind, 0.3, ("image",))
    assert found.exact
    assert found.literal


@pytest.mark.parametrize(
    "line,before",
    [
        ("image = np.fliplr(image)", CHW),
        ("image = np.flip(image, 2)", HWC),
        ("image = image[..., ::-1]", HWC),
        ("image = image[:, :, ::-1]", HWC),
        ("image = np.flip(image, 1)", "image = load(f)"),
        ("image = image[:, ::-1]", "image = load(f)"),
        ("image = image[::-1, ::-1]", HWC),
        ("image = image[1:, ::-1]", HWC),
        ("image = cv2.flip(image, -1)", HWC),
        ("image = np.flip(image, (0, 1))", HWC),
        ("image = np.flip(image)", HWC),
        ("image = image.rot90()", CHW),
        ("image = image.transpose(1, 0, 2)", HWC),
        ("image = TF.hflip(other)", RGB),
        ("image = TF.hflip(load(f))", RGB),
        ("image = np.fliplr(load(f))", HWC),
        ("image = np.ascontiguousarray()", HWC),
        ("image = flipped", RGB),
        ("image = TF.adjust_hue(image, 0.1)", RGB),
        ("image = TF.adjust_brightness(image, factor)", RGB),
        ("image = TF.adjust_brightness(image, random.uniform(-1, 1))", RGB),
        ("image = TF.rotate(image, angle)", RGB),
        ("image = image.rotate(10)", HWC),
        ("image = image + offset", HWC),
        ("image = image - image", HWC),
        ("image.flip(1)", CHW),
        ("self.image = TF.hflip(image)", RGB),
        ("image, label = TF.hflip(image), 1", RGB),
        ("image = label = TF.hflip(image)", RGB),
        ("return image, 1", RGB),
    ],
)
def test_what_is_no_operation_of_one_image(line: str, before: str) -> None:
    assert operation(line, before) is None


@pytest.mark.parametrize(
    "line,before,kind,low,high,exact",
    [
        ("TF.adjust_brightness(image, F)", RGB, "brightness", 0.8, 1.2, True),
        ("TF.adjust_contrast(image, contrast_factor=F)", RGB, "contrast", 0.8, 1.2, True),
        ("ImageEnhance.Brightness(image).enhance(F)", RGB, "brightness", 0.8, 1.2, True),
        ("ImageEnhance.Contrast(image).enhance(F)", RGB, "contrast", 0.8, 1.2, True),
        ("image * F", HWC, "brightness", 0.8, 1.2, False),
        ("np.clip(image * F, 0, 255)", HWC, "brightness", 0.8, 1.2, False),
        ("(F * image).clip(0, 255).astype(np.uint8)", HWC, "brightness", 0.8, 1.2, False),
        ("torch.clamp(image * F, 0, 1)", CHW, "brightness", 0.8, 1.2, False),
        ("image + 0.1 * torch.randn_like(image)", CHW, "noise", 0.1, 0.1, False),
        ("TF.rotate(image, F)", RGB, "rotation_degrees", 0.8, 1.2, True),
        ("TF.rotate(image, angle=F)", RGB, "rotation_degrees", 0.8, 1.2, True),
        ("TF.rotate(image, F, expand=True)", RGB, "rotation_degrees", 0.8, 1.2, False),
        ("TF.rotate(image, F, BICUBIC)", RGB, "rotation_degrees", 0.8, 1.2, False),
        ("image.rotate(F)", RGB, "rotation_degrees", 0.8, 1.2, True),
        ("image.rotate(F, Image.BILINEAR)", RGB, "rotation_degrees", 0.8, 1.2, True),
        ("TF.rotate(image, 7)", RGB, "rotation_degrees", 7, 7, True),
    ],
)  # fmt: skip
def test_numbers_of_colours_and_rotations(
    line: str, before: str, kind: str, low: float, high: float, exact: bool
) -> None:
    line = line.replace("F)", "random.uniform(0.8, 1.2))").replace(
        "F,", "random.uniform(0.8, 1.2),"
    )
    line = line.replace("(F *", "(random.uniform(0.8, 1.2) *")
    line = line.replace("* F", "* random.uniform(0.8, 1.2)")
    found = operation(f"image = {line}", before)
    assert found is not None
    assert found.drawn is not None
    assert (found.kind, found.exact) == (kind, exact)
    assert (found.drawn.low, found.drawn.high) == (low, high)


def test_operations_in_place() -> None:
    found = operation("image *= random.uniform(0.8, 1.2)", HWC)
    assert found is not None
    assert found.kind == "brightness"
    assert operation("image *= factor", HWC) is None
    assert operation("image[0] *= random.random()", HWC) is None


def test_one_draw_for_image_and_mask() -> None:
    reader = read("""
        angle = random.uniform(-5, 5)
        image = TF.rotate(image, angle)
        mask = TF.rotate(mask, angle, TF.InterpolationMode.BILINEAR)
        flip = random.random() < 0.5
        if flip:
            image = TF.hflip(image)
        if flip:
            mask = TF.hflip(mask)
        return image, mask
    """)
    rotation, flip = reader.operations
    assert rotation.images == flip.images == ("image", "mask")
    assert rotation.interpolations == ("nearest", "bilinear")
    assert rotation.exact
    assert flip.exact
    assert reader.unread == []


def test_an_image_that_is_changed_twice_by_one_draw() -> None:
    reader = read("""
        flip = random.random() < 0.5
        if flip:
            image = TF.hflip(image)
        if flip:
            image = TF.hflip(image)
        return image, 0
    """)
    assert [o.exact for o in reader.operations] == [False]


@pytest.mark.parametrize(
    "body",
    [
        "if random.random() < 0.5:\n    image = TF.hflip(image)\nelse:\n    image = f(image)",
        "if random.random() < 0.5:\n    image = TF.vflip(TF.hflip(image))",
        "if random.random() < 0.5:\n    image = TF.hflip(image)\n    image = TF.vflip(image)",
        "for _ in range(2):\n    if random.random() < 0.5:\n        image = TF.hflip(image)",
        "with lock:\n    if random.random() < 0.5:\n        image = TF.hflip(image)",
        "image = TF.hflip(image)",
        "image = TF.rotate(image, 10)",
    ],
)  # fmt: skip
def test_other_code_is_no_operation(body: str) -> None:
    reader = read(f"{RGB}\n{body}\nreturn image, 0")
    assert reader.operations == [] or reader.returned == ((Picture(), Picture()))
    assert bool(reader.unread) == ("random" in body)


# What an image is where a sample is returned


@pytest.mark.parametrize(
    "body,layout,values",
    [
        ("return TF.to_tensor(image), 0", "chw", "unit"),
        ("return TF.pil_to_tensor(image), 0", "chw", "bytes"),
        ("return self.to_tensor(image), 0", "chw", "unit"),
        ("return self.prepare(image), 0", "chw", "unit"),
        ("return self.other(image), 0", "", ""),
        ("return self.own(image), 0", "", ""),
        ("return np.array(image), 0", "hwc", "bytes"),
        ("return np.array(image.convert('L')), 0", "hw", "bytes"),
        ("return np.array(image.convert('CMYK')), 0", "", ""),
        ("return np.array(Image.open(f)), 0", "", ""),
        ("return np.asarray(image).transpose(2, 0, 1), 0", "chw", "bytes"),
        ("return np.asarray(image).transpose(1, 0, 2), 0", "", ""),
        ("return np.transpose(np.array(image), (2, 0, 1)), 0", "chw", "bytes"),
        ("x = torch.from_numpy(np.array(image))\nreturn x.permute(2, 0, 1) / 255, 0",
         "chw", "unit"),
        ("x = np.float32(np.array(image))\nx /= 255\nreturn x, 0", "hwc", "unit"),
        ("x = torch.tensor(np.array(image)).float().div(255)\nreturn x, 0", "hwc", "unit"),
        ("x = torch.tensor(np.array(image)).float().div(2)\nreturn x, 0", "hwc", ""),
        ("x = torch.tensor(np.array(image)).div(self.s)\nreturn x, 0", "", ""),
        ("return np.array(image).astype('f4'), 0", "hwc", ""),
        ("return np.array(image) / scale, 0", "", ""),
        ("return np.array(image) // 2, 0", "", ""),
        ("return 2 * np.array(image), 0", "hwc", ""),
        ("return np.array(image.resize((9, 9))), 0", "hwc", "bytes"),
        ("return np.array(image.filter(BLUR)), 0", "", ""),
        ("return cv2.imread(f), 0", "hwc", "bytes"),
        ("return cv2.imread(f, 0), 0", "hw", "bytes"),
        ("return cv2.imread(f, cv2.IMREAD_COLOR), 0", "hwc", "bytes"),
        ("return cv2.imread(f, cv2.IMREAD_UNCHANGED), 0", "", ""),
        ("return cv2.imread(f)[:, :, ::-1], 0", "hwc", "bytes"),
        ("return cv2.imread(f)[..., ::-1], 0", "hwc", "bytes"),
        ("return cv2.imread(f)[0], 0", "", ""),
        ("return cv2.imread(f, 0)[None], 0", "chw", "bytes"),
        ("return np.expand_dims(cv2.imread(f, 0), 0), 0", "chw", "bytes"),
        ("return torch.from_numpy(cv2.imread(f, 0)).unsqueeze(0), 0", "chw", "bytes"),
        ("return torch.from_numpy(cv2.imread(f, 0)).unsqueeze(-1), 0", "", ""),
        ("return cv2.cvtColor(cv2.imread(f), cv2.COLOR_BGR2GRAY), 0", "hw", "bytes"),
        ("return cv2.cvtColor(cv2.imread(f), cv2.COLOR_BGR2LUV), 0", "", ""),
        ("return cv2.cvtColor(cv2.imread(f, 0), cv2.COLOR_BGR2RGB), 0", "", ""),
        ("return cv2.resize(cv2.imread(f), (9, 9)), 0", "hwc", "bytes"),
        ("return cv2.imread(f) > 9, 0", "hwc", ""),
        ("return cv2.imread(f) > limit, 0", "", ""),
        ("return 0 < cv2.imread(f), 0", "", ""),
        ("return not image, 0", "", ""),
        ("image.putpixel((0, 0), 1)\nreturn TF.to_tensor(image), 0", "chw", ""),
        ("n = count(image)\nreturn np.array(image), n", "", ""),
        ("n = len(image)\nreturn np.array(image), n", "hwc", "bytes"),
        ("image, n = 1\nreturn image, n", "", ""),
        ("(a, b), image = 1, image\nreturn image, 0", "pil", "bytes"),
    ],
)  # fmt: skip
def test_what_is_known_of_an_image(body: str, layout: str, values: str) -> None:
    reader = read(f"{RGB}\n{body}")
    assert reader.returned is not None
    image = reader.returned[0]
    assert (image.layout, image.values) == (layout, values)


@pytest.mark.parametrize(
    "body,shifted",
    [
        ("x = TF.normalize(x, m, s)", True),
        ("x = self.prepare(image)", True),
        ("x = x - 0.5", True),
        ("x = x * 2", False),
        ("x = x > 0", False),
        ("x = x < 1", True),
        ("x = x >= 0", True),
    ],
)
def test_where_black_may_not_stay_black(body: str, shifted: bool) -> None:
    reader = read(f"{RGB}\nx = TF.to_tensor(image)\n{body}\nreturn x, 0")
    assert reader.returned is not None
    assert reader.returned[0].shifted is shifted


@pytest.mark.parametrize(
    "body",
    [
        f"{RGB}\nif index:\n    return image, 0\nreturn image, 1",
        f"{RGB}\nif index:\n    return image, 0",
        f"{RGB}\nreturn",
        RGB,
    ],
)
def test_a_sample_with_several_ends_is_not_clear(body: str) -> None:
    assert read(body).returned is None


# Options


FLIP = "if random.random() < 0.5:\n        image = TF.hflip(image)"


@pytest.mark.parametrize(
    "test,made,done",
    [
        ("self.always", "Photos()", True),
        ("not self.always", "Photos()", False),
        ("self.mode == 'train'", "Photos()", True),
        ("self.mode == 'train'", "Photos(mode='test')", False),
        ("self.mode != 'train'", "Photos(mode='test')", True),
        ("self.mode != 'train'", "Photos(True, 'train')", False),
        ("self.mode > 'a'", "Photos()", None),
        ("self.mode == mode", "Photos()", None),
        ("self.mode", "Photos(mode=args.mode)", None),
        ("self.mode", "Photos(**options)", None),
        ("self.apply", "Photos()", False),
        ("self.train", "Photos()", None),
        ("not self.other.flag", "Photos()", None),
        ("True", "Photos()", True),
        ("index > 3", "Photos()", None),
    ],
)
def test_what_the_dataset_was_made_with_decides(
    test: str, made: str, done: bool | None
) -> None:
    reader = read(f"{RGB}\nif {test}:\n    {FLIP}\nreturn image, 0", made)
    assert reader.returned is not None
    assert [ast.unparse(t) for t in reader.undecided] == (
        [test] if done is None else []
    )
    layout = "" if done is None else "pil"
    assert reader.returned[0].layout == layout
    assert reader.returned[0].done == ((0,) if done else ())


def test_methods_are_followed_with_what_they_are_given() -> None:
    reader = read(f"""
        {RGB}
        if random.random() < 0.5:
            image = TF.hflip(image)
        other = self.other_way(image)
        return TF.to_tensor(other), image
    """)
    assert [f.name for f in reader.entered] == ["__getitem__", "other_way"]
    assert reader.returned == (Picture("chw"), Picture())
