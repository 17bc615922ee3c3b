"""Convolutions in half precision over pictures whose channels lie far apart.

## Why
Tensor Cores convolve in half precision with the channels of a pixel side by side in
memory. PyTorch stores pictures channel by channel unless told otherwise, so that cuDNN
turns inputs, weights and gradients around in each layer, or takes kernels that are
slower. With `torch.channels_last` weights and activations lie as the kernels want them.

## Example
```python
import torch
import torchvision
from torch import nn

device = torch.device("cuda")
model = torchvision.models.resnet50(num_classes=10)
model = model.to(device)
scaler = torch.amp.GradScaler()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```
becomes
```python
import torch
import torchvision
from torch import nn

device = torch.device("cuda")
model = torchvision.models.resnet50(num_classes=10)
model = model.to(device, memory_format=torch.channels_last)
scaler = torch.amp.GradScaler()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## Fix
`memory_format=torch.channels_last` where the model is moved, or a statement behind its
`.cuda()`. Shapes and the order of dimensions stay; what the first convolution gives has
the new format, and the layers behind it keep it. Other kernels round otherwise.

Withheld where the model is not moved by one plain statement, and where a file of the
program holds `.view(`, `parameters_to_vector` or the like, which fail on weights,
gradients or features in this format; initializes weights, which would get their random
numbers in another order; or speaks of MPS, Apex, DeepSpeed, FSDP or DataParallel.

## When not
A file of the program speaks of `channels_last` or a memory format. Autocast is absent,
or may be off: in float32 the format is often slower. Networks that are not known, or
not seen to be deep and made of dense 2-D convolutions with batch normalisation:
convolutions of groups of channels gain little or lose, group, instance and layer
normalisation turn the tensors back, three-dimensional layers refuse the format.
Training on the CPU or MPS, or in a framework that has settings of its own.

## Source
PyTorch tutorial "Channels Last Memory Format in PyTorch"; PyTorch Performance Tuning
Guide. Measured with torch 2.13: `Tensor.view`, `parameters_to_vector` and
`nn.init.orthogonal_` raise on weights in this format, `nn.Conv3d` refuses it, and
`nn.init.kaiming_normal_` fills such weights in another order.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Effect, Finding, Severity
from gpulint.rule import Rule, StepLoops
from gpulint.script import Script
from gpulint.script.modelling.memory_formats import (
    find_channels_first,
    with_channels_last,
)
from gpulint.script.reaching.started import has_own_settings, trains_on_gpu


class ContiguousConv(Rule):
    """Reports the first training step of a file that convolves under autocast."""

    effect = Effect.NUMERICS
    severity = Severity.NOTE
    needs = StepLoops("autocast( backward(")

    def check(self, script: Script) -> Iterator[Finding]:
        """At most one finding for a file."""
        if not script.training_loops or has_own_settings(script):
            return
        found = find_channels_first(script)
        if found is None or not trains_on_gpu(script):
            return
        rewrite = with_channels_last(script, found)
        model = script.text(found.forward.func)
        yield self.finding(
            script,
            found.forward.func,
            f"`{model}` convolves in half precision with the channels of each pixel "
            "apart: its memory format is the default",
            fix=None if isinstance(rewrite, str) else rewrite,
            withheld=rewrite if isinstance(rewrite, str) else None,
            evidence=[(found.autocast, "half precision")],
        )
