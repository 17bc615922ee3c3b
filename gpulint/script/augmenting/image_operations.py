"""Operations that change an image at random: of packages, and written by hand."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpulint.index import Function
from gpulint.index.walk import dotted, walk
from gpulint.script.branches import branches_of

if TYPE_CHECKING:
    from gpulint.script.model import Script

TORCHVISION = ("torchvision.transforms.v2.", "torchvision.transforms.")
ALBUMENTATIONS = "albumentations."
# Classes of torchvision that draw for each image, and have work that is left when the
# image has its final size.
_RANDOM = frozenset(
    "RandomHorizontalFlip RandomVerticalFlip RandomRotation RandomAffine ColorJitter "
    "RandomPerspective RandomErasing RandomGrayscale GaussianBlur RandomInvert "
    "RandomPosterize RandomSolarize RandomAdjustSharpness RandomAutocontrast "
    "RandomEqualize ElasticTransform RandAugment AutoAugment TrivialAugmentWide AugMix "
    "RandomPhotometricDistort GaussianNoise RandomChannelPermutation".split()
)
_CONTAINERS = frozenset(
    "Compose Sequential RandomApply RandomOrder RandomChoice OneOf SomeOf OneOrOther "
    "ReplayCompose".split()
)
_FIXED = frozenset(  # classes of albumentations that do the same to every image
    "Resize Normalize CenterCrop PadIfNeeded ToFloat FromFloat LongestMaxSize Crop "
    "SmallestMaxSize ToTensorV2 ToTensor RandomCrop RandomResizedCrop Lambda NoOp "
    "BboxParams KeypointParams ToGray ToRGB Pad CropAndPad from_dict load".split()
)
DRAWS = (
    *("random.", "numpy.random.", "torch.rand", "torch.bernoulli", "torch.empty"),
    *("torch.normal", "torch.FloatTensor"),
)
_OPERATIONS = frozenset(
    "numpy.flip numpy.fliplr numpy.flipud numpy.rot90 cv2.flip cv2.rotate "
    "cv2.warpAffine cv2.warpPerspective torch.flip torch.rot90 torch.fliplr "
    "torch.flipud scipy.ndimage.rotate skimage.transform.rotate "
    "PIL.ImageOps.mirror PIL.ImageOps.flip skimage.transform.warp".split()
)
FUNCTIONAL = ("torchvision.transforms.functional.", "torchvision.transforms.v2.funct")
_FUNCTIONS = frozenset(
    "hflip vflip rotate affine adjust_brightness adjust_contrast adjust_saturation "
    "adjust_hue adjust_gamma gaussian_blur perspective horizontal_flip vertical_flip "
    "to_grayscale".split()
)
_FLIPS = ("FLIP_LEFT_RIGHT", "FLIP_TOP_BOTTOM")
MAX_DEPTH = 4  # of names that lead to a draw


def is_container(script: Script, call: ast.Call) -> bool:
    """Whether a call puts operations together: `Compose([…])`, `OneOf([…])`."""
    name = script.index.qualified(call.func) or ""
    last = name.rpartition(".")[2]
    known = name.startswith((*TORCHVISION, ALBUMENTATIONS, "torch.nn."))
    return known and last in _CONTAINERS


def draws_for_each(script: Script, call: ast.Call) -> bool:
    """Whether a call makes an operation that changes each image in its own way."""
    name = script.index.qualified(call.func) or ""
    last = name.rpartition(".")[2]
    if name.startswith(TORCHVISION):
        if last == "RandomCrop":
            return not script.evaluator.argument(call, "padding", 1).absent
        if last == "ColorJitter" and not call.args and not call.keywords:
            return False  # it changes nothing unless it is told by how much
        return last in _RANDOM and not _is_never(script, call, "p", 0)
    if name.startswith(ALBUMENTATIONS) and last[:1].isupper():
        fixed = last in _FIXED or last in _CONTAINERS
        return not fixed and not _is_never(script, call, "p", None)
    return False


def _is_never(script: Script, call: ast.Call, name: str, position: int | None) -> bool:
    """Whether an operation's probability is 0."""
    given = script.evaluator.argument(call, name, position)
    return given.given and all(script.evaluator.constant(n) == 0 for n in given.nodes)


# Written by hand


def written_by_hand(script: Script, function: Function) -> Iterator[ast.expr]:
    """What changes images in a function, where a random number decides whether or how.

    In source order.
    """
    nodes = (n for n in walk(*function.body) if isinstance(n, ast.expr))
    found = [n for n in nodes if _changes_image(script, n)]
    for node in sorted(found, key=lambda n: (n.lineno, n.col_offset)):
        if _is_at_random(script, node):
            yield node


def _changes_image(script: Script, node: ast.expr) -> bool:
    if isinstance(node, ast.Subscript):
        return isinstance(node.ctx, ast.Load) and _turns_around(node)
    if not isinstance(node, ast.Call):
        return False
    name = script.index.qualified(node.func) or ""
    last = name.rpartition(".")[2]
    if name in _OPERATIONS:
        return True
    if last in _FUNCTIONS and script.resolver.calls.callee(node) is not None:
        return True  # of the program's own
    if name.startswith(FUNCTIONAL):
        return last in _FUNCTIONS
    return isinstance(node.func, ast.Attribute) and _is_pillows(script, node, node.func)


def _is_pillows(script: Script, call: ast.Call, func: ast.Attribute) -> bool:
    """`image.transpose(FLIP_…)`, `image.rotate(…)`, `Brightness(image).enhance(…)`."""
    if func.attr == "transpose":
        return len(call.args) == 1 and (dotted(call.args[0]) or "").endswith(_FLIPS)
    if func.attr == "rotate":
        origins = script.index.imported
        return isinstance(func.value, ast.Name) and any(
            origin == "PIL" or origin.startswith("PIL.") for origin in origins
        )
    if func.attr == "enhance" and isinstance(func.value, ast.Call):
        maker = script.index.qualified(func.value.func) or ""
        return maker.startswith("PIL.ImageEnhance.")
    return False


def _turns_around(node: ast.Subscript) -> bool:
    """`image[:, ::-1]`: one axis of several backwards; the third is the colours'."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    turned = [number for number, part in enumerate(parts) if _is_backwards(part)]
    if len(parts) < 2 or len(turned) != 1:
        return False
    rest = isinstance(parts[0], ast.Constant) and parts[0].value is Ellipsis
    return rest or turned != [2]


def _is_backwards(part: ast.expr) -> bool:
    return (
        isinstance(part, ast.Slice)
        and part.lower is None
        and part.step is not None
        and ast.unparse(part.step) == "-1"
    )


def _is_at_random(script: Script, node: ast.expr) -> bool:
    """Whether a draw decides whether an expression runs, or what it is given."""
    branches = (branch for branch, _ in branches_of(script.index, node))
    given = [b.test for b in branches if isinstance(b, (ast.If, ast.IfExp))]
    if isinstance(node, ast.Call):
        given += [*node.args, *(k.value for k in node.keywords)]
    return any(_is_drawn(script, part, 0) for part in given)


def _is_drawn(script: Script, node: ast.AST, depth: int) -> bool:
    """Whether an expression rests on a random number."""
    for part in walk(node):
        if isinstance(part, ast.Call):
            name = script.index.qualified(part.func) or ""
            if name.startswith(DRAWS):
                return True
        if isinstance(part, ast.Name) and depth < MAX_DEPTH:
            values = (d.value for d in script.definitions(part) if d.kind == "assign")
            if any(v is not None and _is_drawn(script, v, depth + 1) for v in values):
                return True
    return False
