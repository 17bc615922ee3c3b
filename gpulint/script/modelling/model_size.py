"""How large the products of a model are, where sizes are known."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING

from gpulint.script.modelling.flattened import flattened_side
from gpulint.script.modelling.layer_sizes import Size, largest, made_by, total
from gpulint.script.modelling.models import makers
from gpulint.script.modelling.network import network
from gpulint.script.modelling.step_inputs import (
    largest_side,
    most_positions,
    most_rows,
)
from gpulint.script.samples.small_samples import SMALL_SIDE, small_samples

if TYPE_CHECKING:
    from gpulint.script.model import Script
    from gpulint.script.training.training_step import Step

MODEST = 100_000  # weights: less keeps it busy for large inputs alone
MODEST_IF_LINEAR = 1_000_000  # where each is used once for a sample
# Where that is so but for a modest number, which small pictures use.
MODEST_IN_PICTURES = 2_000_000
FEW_PICTURES = 32
_SMALL_KERNELS = re.compile(
    r"^torchvision\.models\.(resnet(18|34)|mobilenet|mnasnet|squeezenet|shufflenet)"
)
# Weights of convolutions that pictures of CIFAR use: steps wait for launches and casts.
MODEST_OF_CIFAR, SIDE_OF_CIFAR = 500_000, 32
SIDE_OF_DIGITS = 28  # pixels: whatever convolves so small pictures takes little
# Weights times rows of a batch: casting the weights takes as long as fewer products,
# and so does the start of their kernels.
MODEST_OF_FEW_ROWS = 4_000_000 * 64
# Operations that a GPU does while the host launches a kernel: 20 TFLOP/s in float32, of
# which products of few rows reach less, and 5 microseconds.
OPERATIONS_IN_A_LAUNCH = 20e12 * 5e-6
# A product forward and two backward, each a multiplication and an addition of a weight.
OPERATIONS_OF_A_WEIGHT = 6
# Beside the three products: a bias and an activation, each there and back, and the
# update of the weights. A step moves its batch, computes a loss and resets gradients.
LAUNCHES_OF_A_LAYER, LAUNCHES_OF_A_STEP = 6, 20
ROWS_OF_A_SAMPLE = 8  # that linear layers may read, of which nobody knows how many


def is_tiny(script: Script, step: Step) -> bool:
    """Whether the model of a step is known to be too small to gain by precision."""
    size = _of_step(script, step)
    return size is not None and size.tiny


def is_modest(script: Script, step: Step, side: float = inf) -> bool:
    """Whether what precision saves in a step hangs on the size of its inputs.

    `side`: what else is known of the side of its pictures.
    """
    side = min(side, largest_side(script, step))
    if side <= SIDE_OF_DIGITS:
        return True
    size = _seen_of_step(script, step)
    if size is None:
        return False
    if size.weights < (MODEST_IF_LINEAR if size.linear else MODEST):
        return True
    few = MODEST_OF_CIFAR if side <= SIDE_OF_CIFAR else MODEST
    modest = size.weights < MODEST_IN_PICTURES and size.reused < few
    return modest and not size.linear and side <= SMALL_SIDE


def takes_digits(script: Script) -> bool:
    """Whether all loaders of a file give pictures as small as those of digits."""
    found = [small_samples(script, loader) for loader in script.loaders]
    sides = [its.side if its is not None else None for its in found]
    return bool(sides) and all(s is not None and s <= SIDE_OF_DIGITS for s in sides)


def loses_by_casts(script: Script, step: Step) -> bool:
    """Whether a batch is known to be so small that casts cost as much as they save.

    Of linear layers by their weights; networks of many small kernels by name: on an
    H200 ResNet-18 took longer in mixed precision for 32 pictures.
    """
    if most_rows(script, step) <= FEW_PICTURES and _is_of_small_kernels(script, step):
        return True
    size = _seen_of_step(script, step)
    if size is None or not size.linear:
        return False
    return size.weights * most_rows(script, step) < MODEST_OF_FEW_ROWS


def waits_for_launches(script: Script, step: Step) -> bool:
    """Whether the products of a step take less time than the host needs to launch it.

    Then the GPU waits for the host, however fast it multiplies.
    """
    size = _seen_of_step(script, step)
    if size is None or not size.layers:
        return False
    if size.linear and size.weights == inf:  # of each layer
        most = OPERATIONS_OF_A_WEIGHT * size.width**2 * ROWS_OF_A_SAMPLE
        launched = LAUNCHES_OF_A_LAYER * OPERATIONS_IN_A_LAUNCH
        return most * most_rows(script, step) < launched
    uses = size.weights
    if size.reused:
        pixels = flattened_side(script, step) ** 2
        uses += size.reused * (min(most_positions(script, step), pixels) - 1)
    launches = LAUNCHES_OF_A_LAYER * size.layers + LAUNCHES_OF_A_STEP
    work = OPERATIONS_OF_A_WEIGHT * uses
    if work >= launches * OPERATIONS_IN_A_LAUNCH:  # for a single row
        return False
    rows = most_rows(script, step)
    return work * rows < launches * OPERATIONS_IN_A_LAUNCH


def _is_of_small_kernels(script: Script, step: Step) -> bool:
    """Whether a step runs a small network of torchvision, as its call is named."""
    if step.forward is None:
        return False
    made = [*makers(script, step.forward.func)]
    names = [script.index.qualified(c.func) or "" for c in made if c is not None]
    return len(names) == len(made) > 0 and all(map(_SMALL_KERNELS.search, names))


def weights(script: Script, step: Step) -> float | None:
    """How many weights the model of a step has, or may have at most; None: unknown."""
    size = _of_step(script, step)
    return size.weights if size is not None else None


def _of_step(script: Script, step: Step) -> Size | None:
    """The size of a step's model, the largest of what it may be; None: not known."""
    made = makers(script, step.forward.func) if step.forward is not None else ()
    wholes = [[made_by(script, call, 0), *_parts(script, call)] for call in made]
    return largest([total(whole) for whole in wholes])


def _seen_of_step(script: Script, step: Step) -> Size | None:
    """The same, without parts that it is given of which none is seen to be large."""
    made = makers(script, step.forward.func) if step.forward is not None else ()
    wholes = [
        [made_by(script, call, 0), *_parts(script, call, seen=True)] for call in made
    ]
    return largest([total(whole) for whole in wholes])


def _parts(
    script: Script, call: ast.Call | None, *, seen: bool = False
) -> Iterator[Size | None]:
    """The modules that a model is given: `Classifier(backbone)`."""
    given = [*call.args, *(k.value for k in call.keywords)] if call is not None else []
    made = [o.call for node in given for o in script.resolver.origins(node)]
    # Those that stand in the call of a layer are counted with it.
    apart = call is not None and script.resolver.classes.named(call.func) is not None
    for held in made:
        if held is None or (held in given and not apart) or not _is_model(script, held):
            continue
        size = made_by(script, held, 1)
        if size is not None or not seen or network(script, held).is_surely_large:
            yield size


def _is_model(script: Script, call: ast.Call) -> bool:
    """Whether a call makes a module of this project, or a model of torchvision."""
    owner = script.resolver.classes.named(call.func)
    if owner is not None:
        return script.modules.is_module_class(owner)
    name = script.index.qualified(call.func) or ""
    return name.startswith(("torch.nn.", "torchvision.models."))
