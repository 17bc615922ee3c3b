"""A large model that is trained for epochs on pictures of one size, never compiled.

## Why
PyTorch runs a model operation by operation: each normalisation, activation and
addition is a kernel of its own that reads what the one before has written to memory.
`torch.compile` makes few kernels of them, forward and backward. It pays where a model
is large, is trained for long, and sees one size of input: it takes from seconds to
minutes when the model first runs, and again for what is new.

## Example
```python
import torch
import torchvision
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
dataset = torchvision.datasets.CIFAR10("data", transform=to_tensor)
loader = torch.utils.data.DataLoader(dataset, batch_size=128, num_workers=4)
model = torchvision.models.resnet50(num_classes=10)
model = model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(90):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
```
becomes
```python
import torch
import torchvision
from torch import nn
from gpulint import runtime

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
dataset = torchvision.datasets.CIFAR10("data", transform=to_tensor)
loader = torch.utils.data.DataLoader(dataset, batch_size=128, num_workers=4)
model = torchvision.models.resnet50(num_classes=10)
model = model.to(device)
runtime.maybe_compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(90):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
```

## Fix
`runtime.maybe_compile(model)` behind the statement that moves the model: it calls
`model.compile()`, in place, so that the model's class and the keys of its state dict
stay; deep copies are not compiled. It leaves the model alone where it cannot be
compiled: on CPUs and MPS, on GPUs that Triton has no kernels for, without Triton, and
where compiling a function of one line fails. Needs torch 2.3. Results differ in
rounding; a model with dropout, or of which that is not known, draws other numbers, and
the effect is then `random`.

Withheld where the model is not moved by one plain statement, where the step runs
several models, behind DistributedDataParallel, where a model is brought back to the
CPU, and in programs that summarise, profile, draw or watch it: hooks that are added to
its parts later are not seen by what is compiled, or stay in it. Also withheld where the
model resizes features or splits tensors by `chunk`: releases since 2.10 compile some
such models to wrong gradients.

## When not
Something of the program compiles or scripts a model already. Second derivatives, graphs
that are kept for another backward pass, LBFGS, hooks, DataParallel, pruning,
quantization. Frameworks that wrap models, such as Lightning, Accelerate and DeepSpeed.
One pass over the data, pictures that may differ in size, other data than pictures.

The model is not known, or not seen to be large: one of torchvision, timm or
segmentation_models_pytorch, or at least eight convolutions, or blocks of them, with
normalisations. Its methods read numbers from tensors, print, branch on values, count
their runs, or call what was not found. The project's torch is older than 2.0. Of low
confidence: Fourier transforms, of whose complex numbers Inductor makes no kernels.

## Source
PyTorch documentation, `torch.nn.Module.compile` and "torch.compile: common graph
breaks". Measured with torch 2.13:
a hook added to a part of a compiled model does not run.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.rule import Hardware, Rule, StepLoops
from gpulint.script import Script
from gpulint.script.modelling.compilable import find_uncompiled
from gpulint.script.modelling.compiled_in_place import compiled_in_place, draws
from gpulint.script.modelling.networks import transforms_spectra
from gpulint.script.reaching.started import has_own_settings, trains_on_gpu
from gpulint.script.training.optimized import optimizes_tensors


class UncompiledModel(Rule):
    """Reports the first training step of a file that runs a large model."""

    effect = Effect.NUMERICS
    severity = Severity.NOTE
    hardware = Hardware.GPU
    needs = StepLoops("backward( torch oader .step(")

    def check(self, script: Script) -> Iterator[Finding]:
        """At most one finding for a file."""
        if not script.training_loops or has_own_settings(script):
            return
        found = find_uncompiled(script)
        if found is None or not trains_on_gpu(script) or optimizes_tensors(script):
            return
        rewrite = compiled_in_place(script, found)
        model = script.text(found.forward.func)
        yield self.finding(
            script,
            found.forward.func,
            f"`{model}` runs operation by operation in each step: it is never compiled",
            fix=None if isinstance(rewrite, str) else rewrite,
            withheld=rewrite if isinstance(rewrite, str) else None,
            effect=Effect.RANDOM if draws(found.networks) else None,
            confidence=Confidence.LOW if transforms_spectra(script) else None,
        )
