"""Matrix products of a training loop in full float32, with tensor cores idle.

## Why
From the Ampere generation on, NVIDIA's tensor cores multiply float32 matrices in TF32:
the same range, 10 bits of mantissa instead of 23 for the factors, sums in float32.
cuDNN uses it for convolutions by default; matrix products, and so linear layers and
attention, do not until the script asks for it. Training in full float32 then leaves
most of the GPU's arithmetic unused, and takes that much longer.

## Example
```python
import torch
from torch import nn

device = torch.device("cuda")
model = nn.Linear(1024, 1024).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
```
becomes
```python
import torch
from torch import nn

torch.set_float32_matmul_precision("high")

device = torch.device("cuda")
model = nn.Linear(1024, 1024).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
```

## Fix
`torch.set_float32_matmul_precision("high")` after the imports of the script that is
run. It does nothing on CPUs, on MPS and on older GPUs. Results differ in rounding.

Withheld in a file that is only imported, and where the script asks for determinism,
computes second derivatives, or uses linear algebra or Fourier transforms: their
results may need all 23 bits.

## When not
Autocast covers the step already. The precision is set (`set_float32_matmul_precision`,
`torch.backends.cuda.matmul.allow_tf32`), the model is float64, the script runs on the
CPU or on MPS, or Lightning or the Hugging Face Trainer runs the training: they have
settings of their own. `torch.backends.cudnn.allow_tf32` is about convolutions and is on
by default, so it changes nothing here.

## Source
PyTorch documentation, "CUDA semantics: TensorFloat-32 (TF32) on Ampere (and later)
devices" and `torch.set_float32_matmul_precision`. The newer
`torch.backends.fp32_precision` is not used: mixed with code that reads the older
settings it raises (pytorch#166387).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Effect, Finding, Severity
from gpulint.rule import Rule, Words
from gpulint.script import Script
from gpulint.script.edits import InsertAfter, Rewrite
from gpulint.script.half import exact_mathematics
from gpulint.script.loops import Loop
from gpulint.script.started import (
    is_started,
    last_leading_import,
    trains_in_double,
    trains_on_gpu,
    uses_a_trainer,
)

OWN_SETTINGS = frozenset({"lightning", "fastai", "deepspeed", "ignite", "xla"})


class MissingTF32(Rule):
    """Reports the first training loop of a file that never sets the precision."""

    effect = Effect.NUMERICS
    severity = Severity.NOTE
    needs = Words("torch backward(")
    torch = (1, 12)

    def check(self, script: Script) -> Iterator[Finding]:
        """At most one finding for a file."""
        loops = script.training_loops
        if not loops or script.precision.matmul is not None:
            return
        if script.frameworks & OWN_SETTINGS or uses_a_trainer(script):
            return
        if not trains_on_gpu(script) or trains_in_double(script) is not None:
            return
        if "accelerate" in script.frameworks and script.precision.amp is not None:
            return  # its autocast may cover every step
        if any(_under_autocast(script, loop) for loop in loops):
            return
        withheld = _guard(script)
        yield self.finding(
            script,
            loops[0].node,
            "float32 matrix products of this training loop run in full precision: "
            "the file never sets it, so TF32 is off",
            fix=None if withheld else _set_precision(script),
            withheld=withheld,
        )


def _under_autocast(script: Script, loop: Loop) -> bool:
    """Whether a loop's steps run under an autocast that no flag switches off."""
    return any(
        (script.index.qualified(call.func) or "").endswith(".autocast")
        and isinstance(script.index.parent(call), ast.withitem)
        and not any(k.arg == "enabled" for k in call.keywords)
        and not any(isinstance(a, ast.Name) for a in call.args)
        and not any(isinstance(a, ast.If) for a in script.index.ancestors(call))
        for call in loop.calls
    )


def _guard(script: Script) -> str | None:
    """Why the call must not simply be added."""
    if script.precision.second_order:
        return "the script computes second derivatives"
    if script.precision.deterministic is not None:
        return "the script asks for deterministic algorithms"
    exact = exact_mathematics(script)
    if exact is not None:
        return f"`{exact}` may need full float32"
    if not is_started(script):
        return "the file is imported: the call belongs in the script that is run"
    if last_leading_import(script) is None:
        return "torch is not imported at the top of the file"
    return None


def _set_precision(script: Script) -> Rewrite:
    after = last_leading_import(script)
    assert after is not None
    torch, imports = script.torch
    call = f'{torch}.set_float32_matmul_precision("high")'
    return Rewrite(
        "Allow TF32 for matrix products", (InsertAfter(after, f"\n{call}"),), imports
    )
