"""Training samples that are known to be small, and the batch that is small for them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index.build import last_name
from gpulint.script.modelling.models import constructors
from gpulint.script.modelling.network import Network, network
from gpulint.script.samples.datasets import IN_MEMORY, Work
from gpulint.script.samples.picture_sizes import PICTURES, known_side
from gpulint.script.samples.sample_size import numbers_of_sample

if TYPE_CHECKING:
    from gpulint.script.loading.loaders import Loader
    from gpulint.script.model import Script

# Below so many samples a step is mostly what it costs whatever the batch.
SMALL = 128
SMALL_FIELDS = 50
SMALL_OF_PICTURES = 32  # of some 224 x 224 pixels, whose convolutions take longer
SMALL_SIDE, MIDDLE_SIDE = 64, 256
MAX_CONVOLUTIONS = 6
MAX_DEPTH = 4
_PARTS = frozenset(
    f"torch.utils.data.{n}"
    for n in "Subset random_split dataset.Subset dataset.random_split".split()
)
_CONVOLUTION = re.compile(r"^torch\.nn\.(functional\.c|C|LazyC)onv[12]d$")
# What takes long for each sample, or whose samples have any length or size.
_HEAVY = re.compile(
    r"^torch\.nn\.(functional\.)?(\w*(Conv3d|conv3d|ConvTranspose|conv_transpose|"
    r"Upsampl|PixelShuffle|interpolate|upsample|Attention|attention|Transformer|"
    r"Embedding|embedding))"
)
_OF_NETWORKS = "torch.nn."


class Samples(NamedTuple):
    """What samples are, and from which batch size on a batch of them is not small.

    `side` is that of pictures, in pixels.
    """

    what: str
    enough: int
    side: int | None = None


def are_small_pictures(script: Script, loader: Loader) -> bool:
    """Whether samples are pictures of at most 64 x 64 pixels, as CIFAR's are."""
    samples = small_samples(script, loader)
    side = samples.side if samples is not None else None
    return side is not None and side <= SMALL_SIDE


def small_samples(script: Script, loader: Loader) -> Samples | None:
    """The samples of a loader, where they are seen to be small."""
    if last_name(loader.call) == "TensorLoader" and _takes_tensors(loader):
        return _in_memory(script)
    made = list(_datasets(script, loader))
    if not made or None in made:
        return None
    sides = [known_side(script, call) for call in made if call is not None]
    if None not in sides:
        return _of_side(max(side for side in sides if side is not None))
    if all(call is not None and _is_in_memory(script, loader, call) for call in made):
        return _in_memory(script)
    return None


def _takes_tensors(loader: Loader) -> bool:
    """Whether a loader is given tensors themselves."""
    return isinstance(loader.argument("dataset").direct, ast.Tuple)


def _of_side(side: int) -> Samples | None:
    if side > MIDDLE_SIDE:
        return None
    enough = SMALL if side <= SMALL_SIDE else SMALL_OF_PICTURES
    return Samples(f"pictures of {side} x {side}", enough, side)


def _datasets(script: Script, loader: Loader) -> Iterator[ast.Call | None]:
    """The calls that make the data; None: one is not known."""
    for node in loader.argument("dataset").nodes:
        yield from _made(script, node, 0)


def _made(script: Script, node: ast.expr, depth: int) -> Iterator[ast.Call | None]:
    origins = script.resolver.origins(node)
    if not origins or depth > MAX_DEPTH:
        yield None
        return
    for origin in origins:
        call = origin.node if isinstance(origin.node, ast.Call) else None
        name = script.index.qualified(call.func) if call is not None else None
        if call is not None and name in _PARTS and call.args:
            yield from _made(script, call.args[0], depth + 1)
        else:
            yield call if not origin.path else None


def _is_in_memory(script: Script, loader: Loader, call: ast.Call) -> bool:
    """Whether samples are rows of tensors in memory that were not just made up."""
    name = script.index.qualified(call.func) or ""
    if name.startswith(PICTURES) or loader.dataset.handle is not None:
        return False  # an open file is read for each sample
    if numbers_of_sample(call, script.evaluator) is not None:
        return False  # random numbers, for a trial
    known = name in IN_MEMORY or script.resolver.classes.named(call.func) is not None
    return known and loader.dataset.work is Work.NONE and not loader.dataset.iterable


def _in_memory(script: Script) -> Samples | None:
    """Rows of tables and short windows, by the networks that are made for them."""
    calls = constructors(script)
    if not calls or None in calls:
        return None
    networks = [network(script, call) for call in calls if call is not None]
    if not all(n.is_seen and _takes_little(n) for n in networks):
        return None
    fields = any(n.transforms_spectra for n in networks)  # on a grid of many points
    return Samples("samples that lie in memory", SMALL_FIELDS if fields else SMALL)


def _takes_little(network: Network) -> bool:
    """Whether a network is of few layers, and none that takes long for a sample."""
    if network.is_of_attention or any(map(_HEAVY.match, network.names)):
        return False
    own = [n for n in network.names if n.startswith(_OF_NETWORKS)]
    convolutions = [c for c, name in network.calls if _CONVOLUTION.match(name)]
    if network.convolves and not convolutions:
        return False  # of another package
    return bool(own) and len(convolutions) <= MAX_CONVOLUTIONS


def is_resized(loader: Loader) -> bool:
    """Whether a step gives its samples another size."""
    return any(
        last_name(call) in ("interpolate", "upsample", "resize")
        for loop in loader.loops
        for call in loop.calls
    )
