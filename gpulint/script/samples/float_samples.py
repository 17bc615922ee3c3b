"""Images of a training loader that the CPU makes floats of, where bytes would do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpulint.index import NOT_CUDA, Move
from gpulint.index.build import last_name
from gpulint.script.augmenting.augmentations import (
    Samples,
    feeds_training,
    find_augmentations,
)
from gpulint.script.augmenting.batch_augmentation import move_to_batches
from gpulint.script.augmenting.image_operations import TORCHVISION
from gpulint.script.augmenting.split_transform import Split
from gpulint.script.loading.beyond import loops_beyond
from gpulint.script.loading.loaders import Loader
from gpulint.script.loading.training_loaders import loaders_around
from gpulint.script.rewriting.edits import CannotFix, Rewrite
from gpulint.script.samples.picture_sizes import PICTURES, side_through

if TYPE_CHECKING:
    from gpulint.script.model import Script

TITLE = "Keep images bytes until they are on the GPU"
NAMES = ("to_floats", "batch_to_floats")
SMALLEST = 128  # the side of an image from which on its bytes are worth a line
MAX_DEPTH = 3  # of datasets in datasets
_SCALING = frozenset(["ConvertImageDtype", "ToDtype"])
_FLOATS = frozenset(["torch.float32", "torch.float"])
_BEHIND = _SCALING | {"Normalize", "RandomErasing"}
_WRAPPERS = frozenset(["Subset", "ConcatDataset", "random_split", "train_test_split"])
# How a dataset's code says that its images have a byte for each colour.
_BYTES = re.compile(
    r"""\.convert\(\s*["'](RGB|L)["']\s*\)|\.mode\s*!=\s*["'](RGB|L)["']"""
)


class Floats(NamedTuple):
    """A pipeline that ends in a conversion: `steps` of it, the first one's `whole`.

    `side`: of the images, in pixels; `move`: of a batch, to the GPU.
    """

    steps: tuple[ast.Call, ...]
    whole: ast.AST
    side: int
    loader: Loader
    move: Move


def find_floats(script: Script) -> list[Floats]:
    """Those whose conversion stands in this file, in source order."""
    found: dict[ast.expr, Floats] = {}
    for loader in loaders_around(script):
        move = _move_of(loader) if feeds_training(loader) else None
        if move is None or not _gives_bytes(loader):
            continue
        for step in Samples(script.of(loader.call), loader, _converts).operations():
            its = _of(script, loader, move, step)
            if its is not None and not _augments_batches(script, loader):
                found.setdefault(its.steps[0], its)
    order = sorted(found, key=lambda n: (n.lineno, n.col_offset))
    return [found[step] for step in order]


def keep_bytes(
    script: Script, found: Floats, taken: set[str]
) -> tuple[Rewrite | None, str | None]:
    """The rewrite, or why there is none; `taken`: names that other ones give."""
    try:
        split = Split(script, found.loader, found.whole)
        if any(last_name(step) == "RandomErasing" for step in found.steps):
            raise CannotFix("what draws stands behind the conversion")
        return split.rewrite(TITLE, NAMES, ", random=False", taken), None
    except CannotFix as reason:
        return None, str(reason)


def _move_of(loader: Loader) -> Move | None:
    loops = [*loader.loops, *loops_beyond(loader.script, loader)]
    moves = loader.script.moves_in(loops)
    sent = [m for m in moves if m.target not in NOT_CUDA]
    return sent[0] if sent else None


def _augments_batches(script: Script, loader: Loader) -> bool:
    """Whether moving what draws moves the conversion as well: GPU207's rewrite."""
    homes = dict.fromkeys([script, script.of(loader.call)])
    return any(
        its.loader.call is loader.call and move_to_batches(home, its, set())[0]
        for home in homes
        for its in find_augmentations(home)
    )


# The transform


def _of(script: Script, loader: Loader, move: Move, step: ast.expr) -> Floats | None:
    """The pipeline that a conversion ends; None where floats have to be made there."""
    listed = script.index.parent(step)
    if not script.index.holds(step) or not isinstance(listed, ast.List):
        return None
    at = listed.elts.index(step)
    before = [_operation(script, node) for node in listed.elts[:at]]
    behind = [_operation(script, node) for node in listed.elts[at:]]
    if not all(_keeps_bytes(script, call) for call in before):
        return None
    if not all(call and _is_converted(script, call) for call in behind[1:]):
        return None
    side = side_through(script, listed.elts[:at])
    if side is None or side < SMALLEST:
        return None
    above = script.index.parent(listed)
    whole = above if isinstance(above, ast.Call) else listed
    return Floats(tuple(c for c in behind if c), whole, side, loader, move)


def _operation(script: Script, node: ast.expr) -> ast.Call | None:
    """The call of torchvision that makes an operation of a list."""
    origins = script.resolver.origins(node)
    call = origins[0].call if len(origins) == 1 else None
    name = script.index.qualified(call.func) if call is not None else None
    return call if (name or "").startswith(TORCHVISION) else None


def _converts(script: Script, call: ast.Call) -> bool:
    """Whether a call makes an operation that makes float32 from 0 to 1 of bytes."""
    name = script.index.qualified(call.func) or ""
    last = name.rpartition(".")[2]
    if not name.startswith(TORCHVISION) or last not in ("ToTensor", *_SCALING):
        return False
    if last == "ToTensor":
        return True
    dtype = script.evaluator.argument(call, "dtype", 0)
    names = {script.index.qualified(node) for node in dtype.nodes}
    scales = script.evaluator.argument(call, "scale", 1)
    whole = last != "ToDtype" or [
        script.evaluator.constant(node) for node in scales.nodes
    ] == [True]
    default = last == "ConvertImageDtype" and dtype.absent
    return whole and (default or (bool(names) and names <= _FLOATS))


def _keeps_bytes(script: Script, call: ast.Call | None) -> bool:
    """Whether an operation before the conversion gives bytes for an image of bytes."""
    if call is None or _converts(script, call):
        return False
    return last_name(call) not in (*_SCALING, "Lambda", "FiveCrop", "TenCrop")


def _is_converted(script: Script, call: ast.Call) -> bool:
    """Whether an operation may stand behind the conversion."""
    name = last_name(call)
    return name in _BEHIND and (name not in _SCALING or _converts(script, call))


# The dataset


def _gives_bytes(loader: Loader) -> bool:
    """Whether images have a byte for each colour when they get to the transform."""
    found = list(_datasets(loader.script, loader.argument("dataset").nodes, 0))
    return bool(found) and all(found)


def _datasets(
    script: Script, nodes: tuple[ast.AST, ...] | list[ast.expr], depth: int
) -> Iterator[bool]:
    for node in nodes:
        if not isinstance(node, ast.expr) or depth > MAX_DEPTH:
            yield False
            continue
        for origin in script.resolver.origins(node):
            call = origin.call
            if call is not None and last_name(call) in _WRAPPERS:
                yield from _datasets(script, call.args[:1], depth + 1)
            else:
                yield call is not None and _is_of_bytes(script, call)


def _is_of_bytes(script: Script, dataset: ast.Call) -> bool:
    owner = script.resolver.classes.named(dataset.func)
    if owner is not None:
        return _BYTES.search(script.of(owner).text(owner)) is not None
    name = script.index.home(dataset).qualified(dataset.func) or ""
    return name.startswith(PICTURES) and not any(
        k.arg in (None, "loader") for k in dataset.keywords
    )
