"""Training loaders whose last batch is smaller than the others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import Origin
from gpulint.index.build import last_name
from gpulint.index.walk import walk
from gpulint.script.loading.loaders import Loader
from gpulint.script.loops import Loop
from gpulint.script.modelling.models import makers
from gpulint.script.samples.dataset_size import lengths
from gpulint.script.training.training_step import find_steps

if TYPE_CHECKING:
    from gpulint.script.model import Script

_FINITE = frozenset(
    f"torch.utils.data.{prefix}{name}"
    for prefix in ("", "distributed.", "sampler.")
    for name in "DistributedSampler RandomSampler SequentialSampler "
    "SubsetRandomSampler WeightedRandomSampler".split()
)
_RESIZES = re.compile(
    r"crop|resize|interpolate|rescale|pad|trim|truncate", re.IGNORECASE
)
_COUNTS = re.compile(r"batch_size|\.shape|\.size\(|len\(|drop")


class Ragged(NamedTuple):
    """How many samples a batch has, and the last one of a pass; None: not known."""

    size: int
    last: int | None


def ends_ragged(loader: Loader) -> Ragged | None:
    """The sizes of a loader's batches, if its last batch may be smaller."""
    if not _keeps_the_last(loader) or not _joins_equal_samples(loader):
        return None
    values = loader.values("batch_size")
    sizes = {v.constant for v in values.known}
    if not values.complete or len(sizes) != 1:
        return None
    size = sizes.pop()
    if type(size) is not int or size < 2:
        return None
    known = lengths(loader)
    if not known or None in known:
        return Ragged(size, None) if _ends(loader) else None
    rests = {length % size for length in known if length and length > size}
    return Ragged(size, rests.pop()) if len(rests) == 1 and rests != {0} else None


def _keeps_the_last(loader: Loader) -> bool:
    given = loader.argument("drop_last")
    off = given.given and loader.values("drop_last").all_in(False)
    return (given.absent or off) and loader.argument("batch_sampler").absent


def _joins_equal_samples(loader: Loader) -> bool:
    """Whether batches differ in their number of samples alone: no `collate_fn`."""
    plain = loader.argument("collate_fn").absent
    return plain and not loader.dataset.iterable and not loader.derived


def _ends(loader: Loader) -> bool:
    """Whether a pass surely ends: the dataset has a length, and no sampler goes on."""
    sampler = loader.argument("sampler")
    if sampler.absent:
        return loader.values("shuffle").all_in(True)
    index = loader.script.index
    made = [o.call for n in sampler.nodes for o in _origins(loader, n)]
    return bool(made) and all(
        call is None or index.qualified(call.func) in _FINITE for call in made
    )


def _origins(loader: Loader, node: ast.expr) -> list[Origin]:
    found = loader.evaluator.resolver.origins(node)
    return [o for o in found if not _is_none(o.node)]


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def takes_the_last(loop: Loop) -> bool:
    """Whether a loop trains with the last batch as well, and batches have one shape.

    Apart from the number of samples: it neither crops nor pads them.
    """
    if not isinstance(loop.node, ast.For):
        return False
    return not any(
        isinstance(node, ast.Break) or _skips_some(node) or _resizes(node)
        for node in walk(*loop.node.body)
    )


def _skips_some(node: ast.AST) -> bool:
    """`if len(images) < batch_size: continue`."""
    if not isinstance(node, ast.If) or not _COUNTS.search(ast.unparse(node.test)):
        return False
    return any(isinstance(n, (ast.Continue, ast.Return)) for n in walk(*node.body))


def _resizes(node: ast.AST) -> bool:
    """`images = random_crop(images)`."""
    return isinstance(node, ast.Call) and bool(_RESIZES.search(last_name(node)))


def refuses_one_sample(script: Script, loop: Loop) -> ast.Call | None:
    """The normalisation of a loop's model that raises for a batch of one sample.

    That of rows, behind a linear layer: each channel has one value then.
    """
    home = script.of(loop.node)
    for step in find_steps(home):
        if step.loop is loop and step.forward is not None:
            for made in makers(home, step.forward.func):
                for sequence in _sequences(home, made):
                    norm = _behind_linear(home, sequence)
                    if norm is not None:
                        return norm
    return None


def _sequences(script: Script, made: ast.Call | None) -> Iterator[ast.Call]:
    """The `nn.Sequential(…)` that a call is, or that the class it calls makes."""
    owner = script.resolver.classes.named(made.func) if made is not None else None
    init = script.resolver.classes.methods(owner).get("__init__") if owner else None
    for node in walk(*init.body) if init is not None else [made]:
        func = node.func if isinstance(node, ast.Call) else None
        if script.index.qualified(func) == "torch.nn.Sequential":
            assert isinstance(node, ast.Call)
            yield node


def _behind_linear(script: Script, sequence: ast.Call) -> ast.Call | None:
    for layer, norm in pairwise(sequence.args):
        if isinstance(layer, ast.Call) and isinstance(norm, ast.Call):
            names = [script.index.qualified(c.func) for c in (layer, norm)]
            if names == ["torch.nn.Linear", "torch.nn.BatchNorm1d"]:
                return norm
    return None
