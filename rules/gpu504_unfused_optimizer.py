"""An optimizer on the GPU that updates the weights in many kernels, not in one.

## Why
Adam reads and writes each weight, its gradient and two averages. PyTorch does that for
all weights together by default, but operation by operation: about a dozen kernels, each
of which takes the tensors from memory and puts them back. With `fused` one kernel does
it all. Models of many small tensors, whose steps wait for kernels to be launched, and
models so large that the update waits for memory gain most; with a few tensors of middle
size, or where the step itself takes long, the gain is a few percent. A `GradScaler`
gains as well: without `fused` it waits in each step to learn whether gradients
overflowed.

## Example
```python
import torch
from torch import nn, optim

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(64, 10).to(device)
optimizer = optim.AdamW(model.parameters())
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
```
becomes
```python
import torch
from torch import nn, optim

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(64, 10).to(device)
optimizer = optim.AdamW(model.parameters(), fused=device.type == "cuda" or None)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
```

## Fix
`fused=True` where the weights are on CUDA; elsewhere `None`, which leaves the choice to
PyTorch (`False` would switch off its other fast way too). Needs torch 2.0.
Results differ in rounding.

Withheld unless the model is seen to be on its device before the optimizer is made, and
where gradients may be sparse, weights complex or quantized, or Apex, DeepSpeed or FSDP
has the optimizer in hand. Withheld also where a program loads an optimizer's state, and
scales its loss or has no mixed precision yet: a state of before says `fused=None`, and
the scaler's next step raises.

## When not
`fused`, `foreach`, `capturable` or `differentiable` is given, or may be by a dict. SGD:
its fused form spoils the momentum in a step that a gradient scaler leaves out because
of an overflow. Optimizers that have no fused form on GPUs. Nothing is seen to be sent
to a GPU. An optimizer made where none is given, if programs give one, or of which only
rates and state are asked for. Quantized weights, for which some releases of PyTorch
refuse a fused update. The newest PyTorch that the project allows has no fused form.
Lightning, which refuses fused optimizers together with gradient clipping. Networks that
do not surely have many weights (attention over tokens, linear layers of 256 features
and more) are of low confidence, as is the head of a model alone (`model.head`).

## Source
PyTorch documentation, `torch.optim`: "Algorithms" (for-loop, foreach and fused forms).
Measured on the CPU with torch 2.13: where the first step is left out, the momentum of
the fused SGD is memory that nobody wrote; the fused Adam and AdamW keep their state.
`scaler.step` of a fused Adam that has loaded the state of another: "Expected grad_scale
and found_inf to be None".
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.rule import Hardware, Rule, StepLoops
from gpulint.script import Script
from gpulint.script.modelling.networks import likely_multiplies
from gpulint.script.training.fused import unfused_optimizers


class UnfusedOptimizer(Rule):
    effect = Effect.NUMERICS
    severity = Severity.NOTE
    hardware = Hardware.CUDA
    needs = StepLoops("Adam( <move> torch", "AdamW( <move> torch")

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for each optimizer of a file that trains."""
        if not script.training_loops or "lightning" in script.frameworks:
            return
        for optimizer in unfused_optimizers(script):
            little = optimizer.of_head or not likely_multiplies(script)
            yield self.finding(
                script,
                optimizer.call.func,
                f"`{optimizer.kind}` updates the weights in several kernels a step: "
                "`fused` is not set",
                fix=optimizer.rewrite,
                withheld=optimizer.withheld,
                confidence=Confidence.LOW if little else None,
            )
