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
run, or under its main guard where others may import it (what they run is not meant). It
does nothing on CPUs, on MPS and on older GPUs. Results differ in rounding.

Withheld in a file that is only imported, or whose main guard only tries it out, and
where the program asks for determinism, also in a function of another file that it
calls, computes second derivatives, or it or its models use linear algebra, cameras and
rotations of PyTorch3D or Kornia, complex numbers or Fourier transforms: their results
may need all 23 bits. So may adaptive solvers (`odeint`), which take more and shorter
steps where products are rounded.

## When not
Autocast covers the step already, or a switch decides and is not known to be off. The
precision is set to whatever value (`set_float32_matmul_precision`,
`torch.backends.cuda.matmul.allow_tf32`), here or in a file that runs with this one.

No large product is seen. Attention, products that the model writes itself, linear
layers beside layer norms, an output for each word of a vocabulary, linear layers from
128 features on, and more than one of them behind convolutions count. Convolutions and
recurrent layers, which are in TF32 by default, the one layer of a classifier behind
them, layers beside a convolutional model of a package, and embeddings do not. A model
that is not known may be any network of the program's files, or of a package that they
make one of by name: a quarter of them has to multiply. Of Lightning it is the module
that the trainer trains, with the networks that this is given. Models of less than
10 000 weights (200 000 in linear layers alone) or at most 64 features wide (such
products wait for memory), Fourier operators trained on derivatives of what they give,
and models that act in an environment between two steps gain nothing. L-BFGS searches
along a line by the last digits of losses, and stops in the rounding of TF32 (emulated,
on residuals of derivatives). The optimizer holds a picture or a latent tensor, no
weights. A function says nothing of devices, beside others that do. Models known to have
less than 100 000 weights (1 000 000 in linear layers, 2 000 000 in those behind small
convolutions of pictures of at most 64 x 64), or that take pictures of at most 28 x 28,
gain on large inputs alone, and are of low confidence, as those whose products take a
GPU of 20 TFLOP/s less time than their launches take the host, for the rows of a batch
and the pixels of a picture, those whose layers or attention may be narrower than 256
features and are neither of a package nor of convolutions, and large ones whose linear
layers are few beside convolutions or recurrent layers: those alone gain. So are graph
networks, models with recurrent cells, or integrated by a solver of differential
equations (`odeint`), or layers that take one token of one sample, whose products are
those of a single frame, a single linear layer, layers of which no size is known, models
that are not known in a file that writes 64 features and less (`hidden_dim=64`),
programs that play in an environment, or that name formats of 16 bits, also in a
configuration of Accelerate's launcher, models that are made with a part in half
precision (`encoder.half()`), numbers that are fitted without a model, and projects that
no PyTorch from 1.7 on can run, the first with TF32. A constant switches the training
off, or it is a trial: a few steps, or a search after which the optimizer is put back.
The newest PyTorch that the project allows, or that can run its code, is one of 1.7 to
1.11, which multiplied in TF32 by default. The model is float64, the script runs on the
CPU or on MPS, or the Hugging Face Trainer or another framework with settings of its own
runs the training. Lightning only gives advice where nothing says the precision of
products: its trainers count, at a `precision` of 32 bits.
`torch.backends.cudnn.allow_tf32` is about convolutions and is on by default, so it
changes nothing here.

## Source
PyTorch documentation, "CUDA semantics: TensorFloat-32 (TF32) on Ampere (and later)
devices" and `torch.set_float32_matmul_precision`. The newer
`torch.backends.fp32_precision` is not used: mixed with code that reads the older
settings it raises (pytorch#166387).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.finding import Confidence, Effect, Finding, Severity
from gpulint.rule import Hardware, Rule, Words
from gpulint.script import Script
from gpulint.script.environments import imports_environments, steps_environment
from gpulint.script.frameworks.fitted import fitted, takes_single_samples
from gpulint.script.frameworks.trainer_calls import Maker, TrainerCall, trainer_calls
from gpulint.script.frameworks.trainer_precision import may_train_on_gpu
from gpulint.script.modelling.graphs import is_graph_network
from gpulint.script.modelling.model_size import (
    is_modest,
    is_tiny,
    takes_digits,
    waits_for_launches,
)
from gpulint.script.modelling.models import (
    constructors,
    is_made_in_half,
    trained_models,
)
from gpulint.script.modelling.networks import (
    are_seen,
    has_products,
    has_sure_products,
    makes_gram_matrix,
    may_be_large,
    multiplies_beside,
    multiplies_much,
    steps_by_cells,
    surely_multiplies,
)
from gpulint.script.modelling.operators import solves_equation
from gpulint.script.modelling.written_sizes import is_told_narrow
from gpulint.script.neighbours import programs
from gpulint.script.numerics.amp_switches import off_flags
from gpulint.script.numerics.covered import may_be_mixed
from gpulint.script.numerics.half import exact_mathematics
from gpulint.script.numerics.precision import matmul_set_nearby, runs_deterministic
from gpulint.script.reaching.commands import launches_mixed, sets_mixed
from gpulint.script.reaching.old_torch import runs_only_before
from gpulint.script.reaching.started import (
    at_start,
    has_own_settings,
    stays_on_host,
    trains_in_double,
    trains_on_gpu,
    why_not_at_start,
)
from gpulint.script.reaching.switches import is_switched_off
from gpulint.script.training.optimized import optimizes_tensors, searches_lines
from gpulint.script.training.training_step import find_steps

TITLE = "Allow TF32 for matrix products"
SETTING = 'set_float32_matmul_precision("high")'
FULL = (32, "32", "32-true")
SINCE, OFF_BY_DEFAULT = (1, 7), (1, 12)  # between them it is on by default
OLD = "the project runs with a PyTorch before 1.7, which has no TF32"


class MissingTF32(Rule):
    """Reports the first training loop of a file that never sets the precision."""

    effect = Effect.NUMERICS
    severity = Severity.NOTE
    hardware = Hardware.TF32
    needs = Words("backward( torch", "Trainer( .fit( torch")
    torch = (1, 12)

    def check(self, script: Script) -> Iterator[Finding]:
        """At most one finding for a file."""
        if "lightning" in script.frameworks:
            yield from self._trainer(script)
            return
        every = script.training_loops
        loops = [x for x in every if not is_switched_off(script, x.node)]
        loops = [x for x in loops if not stays_on_host(script, x)]
        if not loops or script.precision.matmul is not None:
            return
        old = runs_only_before(script, SINCE)
        if has_own_settings(script) or (_is_on_by_default(script) and not old):
            return
        if not trains_on_gpu(script) or trains_in_double(script) is not None:
            return
        if "accelerate" in script.frameworks and script.precision.amp is not None:
            return  # its autocast may cover every step
        if any(may_be_mixed(script, x) for x in loops) and not off_flags(script):
            return
        if matmul_set_nearby(script) or _gains_nothing(script):
            return
        withheld = OLD if old else _guard(script)
        usual = [x for x in loops if not script.is_doubtful(x.node)] or loops
        yield self.finding(
            script,
            usual[0].node,
            "float32 matrix products of this training loop run in full precision: "
            "the file never sets it, so TF32 is off",
            fix=None if withheld else at_start(script, TITLE, SETTING),
            withheld=withheld,
            confidence=Confidence.LOW if old or _may_be_small(script) else None,
        )

    def _trainer(self, script: Script) -> Iterator[Finding]:
        """At most one finding, at a trainer of Lightning's."""
        calls = trainer_calls(script, Maker.LIGHTNING_TRAINER)
        made = next((m for m in calls if _is_in_full(m)), None)
        if made is None or script.precision.matmul is not None:
            return
        if _is_on_by_default(script):
            return
        if trains_in_double(script) is not None:
            return
        models = fitted(made)
        if matmul_set_nearby(script) or not has_products(script, models):
            return
        withheld = _guard(script)
        if not made.argument("deterministic").absent:
            withheld = withheld or "the trainer may ask for deterministic algorithms"
        sure = has_sure_products(script, models) and not is_told_narrow(script)
        sure = sure and not (takes_single_samples(made) or takes_digits(script))
        yield self.finding(
            script,
            made.call.func,
            "float32 matrix products run in full precision under this trainer: the "
            "program never sets it, so TF32 is off",
            fix=None if withheld else at_start(script, TITLE, SETTING),
            withheld=withheld,
            confidence=None if sure else Confidence.LOW,
        )


def _is_on_by_default(script: Script) -> bool:
    """Whether no newer PyTorch runs the project than those that have TF32 on."""
    return runs_only_before(script, OFF_BY_DEFAULT)


def _is_in_full(made: TrainerCall) -> bool:
    """Whether a trainer may use a GPU, and surely computes in float32."""
    if not may_train_on_gpu(made) or not made.all_absent("plugins"):
        return False
    return made.argument("precision").absent or made.values("precision").all_in(*FULL)


def _may_be_small(script: Script) -> bool:
    """Whether the models are known to be small, or not seen to multiply much."""
    steps = find_steps(script)
    if steps and all(
        is_modest(script, step) or waits_for_launches(script, step) for step in steps
    ):
        return True
    if is_told_narrow(script) and not are_seen(script):
        return True
    if launches_mixed(script) or sets_mixed(script):
        return True
    if steps and all(is_graph_network(script, step) for step in steps):
        return True  # gathers and scatters, between products of few features
    if any(step.by_engine for step in steps) and "accelerate" not in script.frameworks:
        return True  # which may keep the weights in another format
    made = constructors(script)
    if made and all(call is not None and _is_one_layer(script, call) for call in made):
        return True
    if not trained_models(script):
        return all(step.forward is None for step in steps)  # numbers that are fitted
    if script.precision.named_amp is not None:
        return True  # a switch may make the whole model half
    if is_made_in_half(script):
        return True
    if any(map(imports_environments, programs(script))):
        return True  # small networks of many small operations
    return not surely_multiplies(script) or steps_by_cells(script)


def _is_one_layer(script: Script, made: ast.Call) -> bool:
    """`nn.Linear(features, classes)`, a probe of what another model has made."""
    return script.of(made).index.qualified(made.func) == "torch.nn.Linear"


def _gains_nothing(script: Script) -> bool:
    """Whether no matrices are multiplied, or the GPU waits for other things."""
    if optimizes_tensors(script) or searches_lines(script):
        return True
    for loop in script.training_loops:
        names = (script.index.qualified(call.func) for call in loop.calls)
        if any(map(steps_environment, names)):
            return True
    steps = find_steps(script)
    if steps and all(is_tiny(script, x) or solves_equation(script, x) for x in steps):
        return True
    if _multiplies_much(script) or multiplies_beside(script):
        return False
    return not may_be_large(script)


def _multiplies_much(script: Script) -> bool:
    """Whether a model, or the loss of a style, is seen to make large products."""
    gram = any(makes_gram_matrix(script, loop) for loop in script.training_loops)
    return gram or multiplies_much(script)


def _guard(script: Script) -> str | None:
    """Why the call must not simply be added."""
    if script.precision.second_order:
        return "the script computes second derivatives"
    if runs_deterministic(script):
        return "the script asks for deterministic algorithms"
    models: list[ast.AST] = [made for made in constructors(script) if made is not None]
    models += [part for step in find_steps(script) for part in step.made_of]
    exact = exact_mathematics(script, models)
    if exact is not None:
        return f"`{exact}` may need full float32"
    return why_not_at_start(script)
