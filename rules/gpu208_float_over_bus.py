"""Images become floats on the CPU and go to the GPU at four times their bytes.

## Why
`ToTensor` makes a float of each byte. Workers hand over, pinned memory keeps and the
bus carries four times what the pictures hold; made on the GPU, the floats cost two
short kernels a batch, and the CPU no longer divides and normalizes every pixel.

## Example
```python
import torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

device = torch.device("cuda")
transform = transforms.Compose(
    [
        transforms.RandomResizedCrop(224),
        transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ]
)
train_set = datasets.ImageFolder("data/train", transform=transform)
loader = DataLoader(train_set, batch_size=128, shuffle=True, num_workers=8)
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
        transforms.RandomResizedCrop(224),
        transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ]
)
transform, to_floats = runtime.split_augmentation(transform, device, random=False)
train_set = datasets.ImageFolder("data/train", transform=transform)
loader = DataLoader(train_set, batch_size=128, shuffle=True, num_workers=8)
for images, labels in loader:
    images, labels = to_floats(images.to(device)), labels.to(device)
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
```

## Fix
`runtime.split_augmentation` splits the transform when the script runs: samples stay
bytes, and batches on the GPU are scaled and normalized by what torchvision computes, in
its order and in float32; a GPU may round the last bit otherwise. With `random=False`
nothing that draws moves. Images that are no bytes (16 bits, floats) are converted with
the samples, as before. Without a GPU, and with `GPULINT_RUNTIME=off`, the script is
what it was.

Only where one training loop takes the batches, as images and classes of a dataset of
torchvision, and moves the images as they come; nobody else takes samples of the
dataset, the device has a name where it is made, and no line adds operations to the
`Compose` later. Elsewhere do the same by hand, for every loop that takes batches of the
dataset:

    transform, to_floats = runtime.split_augmentation(transform, device, random=False)
    ...
    images = to_floats(images.to(device))

## When not
Where random augmentation can move to the GPU, the conversion goes with it: GPU207.
Images with sides of less than 128 pixels or of a size that is not known, such as
CIFAR's: their floats are a small part of a step. What needs the floats on the CPU: own
operations around the conversion, `Lambda` behind it. Datasets that may give more than
bytes: of arrays, of 16 bits, read by a function of one's own. Programs that train on
the CPU, and batches that a framework moves.

## Source
torchvision, `ToTensor`: "converts … in the range [0, 255] to a torch.FloatTensor";
NVIDIA DALI and FFCV send bytes and normalize on the GPU for the same reason.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Effect, Finding, Severity
from gpulint.index.build import last_name
from gpulint.rule import Hardware, Rule, Words
from gpulint.script import Script
from gpulint.script.samples.float_samples import Floats, find_floats, keep_bytes


class FloatOverBus(Rule):
    """Fires on the operation that makes floats of a training loader's images."""

    effect = Effect.NUMERICS
    severity = Severity.NOTE
    hardware = Hardware.GPU
    needs = Words(
        "transforms ToTensor", "transforms ToDtype", "transforms ConvertImageDtype"
    )
    torch = (2, 3)

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each pipeline."""
        taken: set[str] = set()
        for found in find_floats(script):
            fix, withheld = keep_bytes(script, found, taken)
            first, *rest = found.steps
            yield self.finding(
                script,
                first.func,
                message(found),
                fix=fix,
                withheld=withheld,
                related=[(step, "on the CPU as well") for step in rest],
                evidence=[
                    (found.loader.call, "makes the samples that are trained on"),
                    (found.move.call, "moves the floats to the GPU"),
                ],
            )


def message(found: Floats) -> str:
    images = f"images with a side of {found.side} pixels"
    made = f"`{last_name(found.steps[0])}` makes floats of {images} on the CPU"
    return f"{made}: four times their bytes go to the GPU"
