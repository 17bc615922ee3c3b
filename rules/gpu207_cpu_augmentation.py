"""Random augmentation of the training set runs on the CPU, image by image.

## Why
Flips, rotations and colour changes of a transform are done by the loader for one image
after another. What worker processes cannot keep up with, the GPU waits for in every
step; on a batch that lies on the GPU the same operations are a few kernels.

## Example
```python
import torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

device = torch.device("cuda")
transform = transforms.Compose(
    [
        transforms.RandomCrop(32, padding=4),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
    ]
)
train_set = datasets.CIFAR10("data", transform=transform)
loader = DataLoader(train_set, batch_size=128, shuffle=True, num_workers=4)
for images, labels in loader:
    images, labels = images.to(device), labels.to(device)
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
```
becomes
```python
import torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms
from gpulint import runtime

device = torch.device("cuda")
transform = transforms.Compose(
    [
        transforms.RandomCrop(32, padding=4),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
    ]
)
transform, augment = runtime.split_augmentation(transform, device, same_size=True)
train_set = datasets.CIFAR10("data", transform=transform)
loader = DataLoader(train_set, batch_size=128, shuffle=True, num_workers=4)
for images, labels in loader:
    images, labels = augment(images.to(device)), labels.to(device)
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
```

## Fix
`runtime.split_augmentation` splits the transform when the script runs: samples go
through its first part, batches on the GPU through the rest, in the same order. Each
image has its own draws, from the GPU's generator: torchvision's transforms draw one
set of parameters for a whole batch. Flips, crops of padded images, rotations, colours,
erasing and `Normalize` can move; what stands before another operation stays. Images
stay bytes until they are on the GPU, a quarter of what floats take; colours are not
rounded to bytes between two operations then. Without a GPU, and
with `GPULINT_RUNTIME=off`, the script is what it was, draw for draw.

Only where one training loop takes the batches, as images and classes of a dataset of
torchvision, and moves the images as they come; the device must have a name where the
dataset is made, and no line adds operations to the `Compose` later. Elsewhere do the
same by hand, for training batches alone:

    train_transform, augment = runtime.split_augmentation(train_transform, device)
    ...
    images = augment(images.to(device))

Augmentation that a dataset's own methods do (flips, rotations, brightness and contrast
behind a random number) becomes `runtime.augmentation` with the same numbers. The code
of the dataset stays, for where there is no GPU:

    if not self.on_batches:
        if random.random() < 0.5:
            image, mask = TF.hflip(image), TF.hflip(mask)
    ...
    augment = runtime.augmentation(horizontal_flip=0.5, device=device)
    train_set = Scans(images, masks)
    train_set.on_batches = augment.on_batches
    ...
    images, masks = augment(images, masks)

Only where the file itself says all numbers, each operation has a draw of its own, the
masks that move with their images are moved by the same one, and every step from there
to the batch is known: the image has its channels first, is not resized or overwritten
behind the augmentation, and (but for flips) not normalized. Elsewhere the finding shows
the lines to put in, with the numbers that were read. Noise, products
of pixels and whole degrees are read, but not rewritten.

## When not
What validation or test data alone go through, and crops that give images of any size
their final one: those make the copy to the GPU smaller. Nothing but flips, which cost
less than reading the image, is a note, of low confidence where it cannot be moved. So
is what a function does by hand, where it cannot: labels may be made of the result. So
are pictures of at most 64 x 64 that workers make, and padded crops of at most 96 x 96
(`RandomCrop(32, padding=4)`): a crop and a flip of one of CIFAR's take some 40
microseconds, those of mini-ImageNet's half a millisecond with all its colours, and a
few workers keep up with that.
Samples that are made once and kept. Datasets with boxes or key points, which would have
to move with the images. Programs that train on the CPU, or that augment batches with
Kornia already. Operations that an option asks for which is off by default.

## Source
Kornia, `kornia.augmentation`: operations on batches with parameters for each sample;
pytorch/vision#8484: torchvision's own draw one set of parameters for a whole batch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.index import Argument
from gpulint.index.build import last_name
from gpulint.rule import Hardware, Rule, Words
from gpulint.script import Script
from gpulint.script.augmenting.augmentations import Augmentation, find_augmentations
from gpulint.script.augmenting.batch_augmentation import move_to_batches
from gpulint.script.loading.pinning import has_no_workers
from gpulint.script.samples.small_samples import are_small_pictures

SMALL_CROP = 96  # pixels a side
_SCALES = re.compile(r"(?i)resize|scale|zoom|affine|perspective")
_FLIPS = ("flip", "::-1", "transpose")  # `image.transpose(FLIP_…)` of Pillow


class CpuAugmentation(Rule):
    """Fires on the first random operation of a training pipeline."""

    effect = Effect.RANDOM
    hardware = Hardware.GPU
    needs = Words(
        "torchvision Random",
        "torchvision ColorJitter",
        "torchvision Augment",
        "torchvision GaussianBlur",
        "albumentations",
        "rand flip",
        "rand <rotated>",
        "rand FLIP_",
        "rand ::-1",
        "rand warp",
        "rand adjust_",
        "rand ImageEnhance",
    )
    torch = (2, 3)

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each pipeline."""
        taken: set[str] = set()
        for found in find_augmentations(script):
            yield self._finding(script, found, taken)

    def _finding(self, script: Script, found: Augmentation, taken: set[str]) -> Finding:
        first, *rest = found.operations
        fix, withheld = move_to_batches(script, found, taken)
        flips = only_flips(script, found)
        light = fix is None and (flips or found.by_hand)
        light = light or keeps_up(script, found)
        return self.finding(
            script,
            first.func if isinstance(first, ast.Call) else first,
            message(script, found),
            fix=fix,
            withheld=withheld,
            related=[(node, "at random as well") for node in rest],
            severity=Severity.NOTE if flips else None,
            confidence=Confidence.LOW if light else None,
            evidence=[(found.loader.call, "makes the samples that are trained on")],
        )


def keeps_up(script: Script, found: Augmentation) -> bool:
    """Whether workers make small pictures, in less time than a step takes."""
    if has_no_workers(found.loader):
        return False
    small = are_small_pictures(script, found.loader)
    return small or any(
        _crops_small(script, node) or _is_resized_before(script, node)
        for node in found.operations
    )


def _is_resized_before(script: Script, node: ast.expr) -> bool:
    """`[Resize((32, 32)), RandomRotation(15)]`, of pictures that are small by then."""
    around = script.index.ancestors(node)
    steps = next((above.elts for above in around if isinstance(above, ast.List)), [])
    mine = (n for n, step in enumerate(steps) if script.index.inside(node, step))
    before = [s for s in steps[: next(mine, 0)] if isinstance(s, ast.Call)]
    sized = [step for step in before if _SCALES.search(last_name(step))]
    if not sized or last_name(sized[-1]) != "Resize":
        return False
    return _are_small(script, script.evaluator.argument(sized[-1], "size", 0))


def _crops_small(script: Script, node: ast.expr) -> bool:
    """`RandomCrop(32, padding=4)`: pictures are of that size before, as CIFAR's are."""
    if not isinstance(node, ast.Call) or last_name(node) != "RandomCrop":
        return False
    steps = getattr(script.index.parent(node), "elts", ())
    if any(isinstance(s, ast.Call) and _SCALES.search(last_name(s)) for s in steps):
        return False
    padded = any(keyword.arg == "padding" for keyword in node.keywords)
    return padded and _are_small(script, script.evaluator.argument(node, "size", 0))


def _are_small(script: Script, size: Argument) -> bool:
    """Whether all sides that an argument says are known, and are of few pixels."""
    parts = [
        part
        for n in size.nodes
        for part in (n.elts if isinstance(n, ast.Tuple) else [n])
    ]
    sides = [[v.constant for v in script.evaluator.values(p).known] for p in parts]
    return bool(sides) and all(
        known and all(isinstance(side, int) and side <= SMALL_CROP for side in known)
        for known in sides
    )


def only_flips(script: Script, found: Augmentation) -> bool:
    """Whether there is nothing but flips, which cost less than reading the image."""
    names = (_name(script, node).lower() for node in found.operations)
    return all(any(sign in name for sign in _FLIPS) for name in names)


def message(script: Script, found: Augmentation) -> str:
    names = dict.fromkeys(_name(script, node) for node in found.operations)
    quoted = [f"`{name}`" for name in names]
    some = f"{', '.join(quoted[:-1])} and {quoted[-1]}" if quoted[1:] else quoted[0]
    verb = "run" if quoted[1:] else "runs"
    return f"{some} {verb} on the CPU in training, sample by sample"


def _name(script: Script, node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return last_name(node)
    return script.text(node)
