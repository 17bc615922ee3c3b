"""A training loop on the GPU in float32 throughout, with tensor cores idle.

## Why
In mixed precision matrix products and convolutions run in bfloat16 or float16 on
tensor cores, and the activations that are kept for the backward pass take half the
memory. Losses, sums and softmax stay in float32, as do the weights. A loop that never
asks for it takes longer for every step and fits a smaller batch.

## Example
```python
import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(1024, 1024).to(device)
criterion = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
```
becomes
```python
import torch
from torch import nn
from gpulint import runtime

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(1024, 1024).to(device)
criterion = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler(
    device.type, enabled=runtime.amp_dtype(device) is torch.float16
)
amp_dtype = runtime.amp_dtype(device)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    with torch.autocast(device.type, dtype=amp_dtype, enabled=amp_dtype is not None):
        loss = criterion(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
```

## Fix
Forward and loss under `torch.autocast`, in the format that the GPU has: bfloat16, or
float16 with a gradient scaler, or none, as `runtime.amp_dtype` decides when the script
runs. The scaler is made beside the optimizer and reaches the step as the optimizer
does: as a variable, an attribute or a parameter. Second derivatives that are a
statement of their own stay outside, in float32, and tensors that go to numpy, pictures
or logs behind the step are made float32 there, as are those of a sigmoid or softmax.
Several optimizers share one scaler, which is updated once, when each has stepped. A
checkpoint that is a dict with the optimizer's state gets the scaler's; checkpoints
without it still load.

Withheld, with the reason, wherever something in the step is not known to bear it: a
loss other than PyTorch's own, also one term of it, `BCELoss` (above 6.5 a sigmoid in
bfloat16 is 1, and its gradient 0), custom `autograd.Function`s, Fourier transforms and
linear algebra, `DataParallel`, FSDP, gradient hooks and `.grad`, optimizers that share
parameters, get no gradient in some steps or leave gradients of another scale,
iterations that end before the scaler's update, numbers that float16 cannot hold,
logarithms of what a model gives (a sigmoid may round to 0), also in a loss of the
project, differences of neighbours, checkpoints of another form, functions that the
setting `protect` names, programs that round their weights to integers while they train
(of low confidence), kernels of the project's own (`cupy`, `_ext.shift_forward(…)` in an
`autograd.Function` without `custom_fwd`), many of which know float and double only (of
low confidence), codebooks that follow moving averages (`EMAQuantizer`: the sums of
a batch may pass what float16 holds), and programs with recurrent layers (`LSTM`, `GRU`,
`RNN`): cuDNN runs them in float16 under any autocast, while with bfloat16 no loss would
be scaled.

## When not
Mixed or half precision in any form is there already, also behind a switch that is off.
No large network is seen: none that convolves pictures, multiplies matrices or is wide,
here or among the networks of the program's files that an unknown model may be.
float64, closures (LBFGS), reinforcement learning, graph networks (also where only the
model's or the dataset's file says so), models of less than 10 000 weights (200 000 in
linear layers alone) or of linear, recurrent and attention layers and convolutions over
sequences at most 64 features wide, trials of a few steps, one sample a forward pass
with `batch_size` of them for an update, training on one fixed input, Fourier operators
trained on derivatives of what they give, and an optimizer that holds a picture or a
latent tensor gain nothing; nor does a step behind `if train:` that `train = False`
switches off, or a function that says nothing of devices beside others that do, or an
object that goes backward (`strategy.backward(loss)`) and may have its own precision.
MinkowskiEngine's sparse convolutions and those of spconv 1 know float32 only and raise
under autocast, and so does a module whose `forward` asserts that format; angles, the
weights of quantum circuits (PennyLane), want their digits.
Lightning, Accelerate, DeepSpeed, fastai, Ignite and the Hugging Face Trainer have a
setting for it.
Small batches on a fast GPU, whose steps take as long as the host needs to queue them:
on an H200, ResNet-18 with 32 images and an encoder of 6 layers with 32 sequences of 256
took 1.1 times as long under autocast, as the casts are queued as well. `gpulint bench`
tells.

Of low confidence: models known to have less than 100 000 weights (1 000 000 in linear
layers, 2 000 000 in those behind small convolutions of pictures of at most 64 x 64, or
behind such of 500 000 for pictures of at most 32 x 32), or that take pictures of at
most 28 x 28, by their dataset or by the linear layer that reads them flattened, which
gain on large inputs alone, linear ones whose weights times the rows of a batch are less
than 256 000 000, where casts take as long as products, those whose products take a GPU
of 20 TFLOP/s less time than their launches take the host, for the rows of a batch and
the pixels of a picture, small networks of torchvision for at most 32 pictures a batch,
and those not surely large. Convolutions over pictures, models of a package, and layers
and attention of 256 features or more, by the smallest number that is known, are; a
model that may be each of a program's networks is if all of them are. Also models that
may compute in half precision by themselves, as their class or a function that is given
them names it, a project that allows no torch from 1.6 on, which has no mixed precision
of its own, loops in which no optimizer is seen to step, a program in which an option
that is off turns the whole model into float16, one whose files use an environment to
play in, and models of Fourier transforms, with sines of linear layers (phases of many
turns, of which halves leave parts), that solve linear systems or differential
equations, or with recurrent cells that make a step for each frame, or recurrent layers
that take one token of one sample, or recurrent layers beside code that writes to rows
of a tensor (`scatter_`, `index_copy_`), which raises where the two are of different
formats; and steps with something in them that half precision breaks, as the reason says
that is given instead of a fix.

## Source
PyTorch documentation, "Automatic Mixed Precision package", "Autocast Op Reference" and
"Automatic Mixed Precision examples". That clipping without `unscale_` shrinks the
gradients to nothing, and that `BCELoss` raises under autocast on CUDA only, was
measured.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.rule import Hardware, Rule, Words
from gpulint.script import Script
from gpulint.script.environments import imports_environments, steps_environment
from gpulint.script.modelling.flattened import flattened_side
from gpulint.script.modelling.graphs import is_graph_network
from gpulint.script.modelling.model_size import (
    is_modest,
    is_tiny,
    loses_by_casts,
    waits_for_launches,
)
from gpulint.script.modelling.models import is_cast_elsewhere, is_made_in_half
from gpulint.script.modelling.networks import (
    casts_itself,
    has_phases,
    is_large,
    is_surely_large,
    may_be_large,
    solves_systems,
    steps_by_cells,
    transforms_spectra,
)
from gpulint.script.modelling.operators import solves_equation
from gpulint.script.neighbours import run_together
from gpulint.script.numerics.autocast import with_autocast
from gpulint.script.numerics.half import (
    CODES,
    KERNELS,
    QUANTIZES,
    RECURS,
    averages_codes,
    has_float32_kernels,
    quantizes,
    recurs,
    scatters,
    starts_own_kernels,
)
from gpulint.script.reaching.doubtful import may_never_run
from gpulint.script.reaching.old_torch import runs_only_before
from gpulint.script.reaching.started import (
    stays_on_host,
    trains_in_double,
    trains_on_gpu,
    uses_a_trainer,
)
from gpulint.script.reaching.switches import is_off, is_switched_off
from gpulint.script.rewriting.edits import CannotFix, NotBorne
from gpulint.script.training.optimized import optimizes_tensors, searches_lines
from gpulint.script.training.training_step import (
    Step,
    find_steps,
    inputs_vary,
    one_sample_each,
)

SINCE = (1, 6)  # the first torch with mixed precision of its own
BY_OPTION = "an option turns the weights themselves into float16"
OLD = "the project runs with a PyTorch before 1.6, which has no autocast"
OWN_SETTINGS = frozenset(
    {"lightning", "accelerate", "deepspeed", "fastai", "ignite", "xla"}
)


class MissingAMP(Rule):
    """Reports the forward call of each training loop of a file without any AMP."""

    effect = Effect.NUMERICS
    hardware = Hardware.MIXED
    needs = Words("backward( torch")
    torch = (2, 3)

    def check(self, script: Script) -> Iterator[Finding]:
        """One finding for a training step."""
        if not script.training_loops:
            return
        halves = script.precision.halves
        if script.precision.named_amp is not None or not all(
            is_off(script, half) or may_never_run(script, half) for half in halves
        ):
            return
        if not _is_candidate(script):
            return
        steps = [step for step in find_steps(script) if _gains(script, step)]
        if not steps or not (is_large(script) or may_be_large(script)):
            return
        if has_float32_kernels(script):
            return
        withheld = OLD if runs_only_before(script, SINCE) else None
        withheld = BY_OPTION if halves else withheld
        if withheld is None and quantizes(script):
            withheld = QUANTIZES
        if withheld is None and starts_own_kernels(script):
            withheld = KERNELS
        if withheld is None and averages_codes(script):
            withheld = CODES
        if withheld is None and recurs(script):
            withheld = RECURS
        for step in steps:
            yield self._report(script, step, withheld)

    def _report(self, script: Script, step: Step, withheld: str | None) -> Finding:
        fix = None
        followed = withheld in (None, CODES) or (
            withheld == RECURS and not scatters(script)
        )
        sure = followed and bool(step.loop.steps)
        sure = sure and is_surely_large(script)
        sure = sure and not is_modest(script, step, flattened_side(script, step))
        sure = sure and not _is_of_other_work(script)
        sure = sure and not loses_by_casts(script, step)
        sure = sure and not waits_for_launches(script, step)
        sure = sure and not casts_itself(script) and not is_cast_elsewhere(script)
        sure = sure and not is_made_in_half(script)
        try:
            fix = None if withheld else with_autocast(script, step)
        except CannotFix as error:
            withheld = str(error)
            sure = sure and not isinstance(error, NotBorne)
        at = step.forward or step.backward
        name = f"`{script.text(step.forward.func)}`" if step.forward else "this step"
        found = self.finding(
            script,
            at.func,
            f"{name} trains in float32 throughout: "
            "no mixed precision in this training loop",
            fix=fix,
            withheld=withheld,
            related=[(step.loop.node, "the training loop")],
            confidence=None if sure else Confidence.LOW,
        )
        return found if found.fix else found._replace(severity=Severity.NOTE)


def _is_candidate(script: Script) -> bool:
    if script.frameworks & OWN_SETTINGS or uses_a_trainer(script):
        return False
    if imports_environments(script.index) or optimizes_tensors(script):
        return False
    if any(map(steps_environment, script.index.called_names)):
        return False
    return trains_on_gpu(script) and trains_in_double(script) is None


def _is_of_other_work(script: Script) -> bool:
    """Whether it plays, or its model may work on spectra or phases, or frame by frame.

    Or solve systems. Those and spectra are never halves; small products of cells wait
    for their launches.
    """
    return (
        any(map(imports_environments, run_together(script)))
        or solves_systems(script)
        or transforms_spectra(script)
        or has_phases(script)
        or steps_by_cells(script)
    )


def _gains(script: Script, step: Step) -> bool:
    """Whether the step is one that mixed precision is for."""
    if step.by_engine:
        return False
    if any(call.args or call.keywords for call in step.loop.steps):
        return False  # a closure
    if searches_lines(script):
        return False
    if len(step.loop.backward) > 1 and script.precision.second_order:
        return False  # a gradient penalty between several models
    if not inputs_vary(script, step) or one_sample_each(script, step):
        return False
    if is_switched_off(script, step.backward) or stays_on_host(script, step.loop):
        return False
    if is_tiny(script, step) or is_graph_network(script, step):
        return False
    return not solves_equation(script, step)
