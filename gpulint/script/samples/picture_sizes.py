"""How large the pictures are that torchvision's datasets give."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gpulint.index.build import last_name
from gpulint.script.samples.sample_size import whole

if TYPE_CHECKING:
    from gpulint.script.model import Script

PICTURES = "torchvision.datasets."
MAX_DEPTH = 3
# Datasets for classification, and the side of their pictures; None: it varies.
_SIDES: dict[str, int | None] = {
    **dict.fromkeys("MNIST FashionMNIST KMNIST EMNIST QMNIST".split(), 28),
    **dict.fromkeys("CIFAR10 CIFAR100 SVHN".split(), 32),
    "USPS": 16,
    "EuroSAT": 64,
    "STL10": 96,
    "PCAM": 96,
    "Omniglot": 105,
    **dict.fromkeys(
        "ImageFolder Flowers102 Food101 StanfordCars FGVCAircraft DTD GTSRB Caltech101 "
        "Caltech256 CelebA ImageNet Places365 SUN397 Country211 Imagenette".split()
    ),
}
_SIZED = frozenset("Resize CenterCrop RandomCrop RandomResizedCrop FiveCrop".split())
_LISTS = frozenset("Compose Sequential".split())
_TRANSFORMS = ("torchvision.transforms", "torch.nn")
# What may change the size, of those that are not told one.
_OTHER_SIZE = re.compile(
    r"resiz|(?<!gray)scale|crop|patch|interpol|zoom", re.IGNORECASE
)


def known_side(script: Script, dataset: ast.Call) -> int | None:
    """The longer side of the pictures after all transforms; None: not known."""
    name = script.index.qualified(dataset.func) or ""
    kind = name.removeprefix(PICTURES).rpartition(".")[2]
    if not name.startswith(PICTURES) or kind not in _SIDES:
        return None
    side = _SIDES[kind]
    transform = script.evaluator.argument(dataset, "transform")
    if transform.absent:
        return side
    if not transform.given:
        return None
    return _most([_side_after(script, node, side, 0) for node in transform.nodes])


def side_through(
    script: Script, steps: Iterable[ast.expr | None], side: int | None = None
) -> int | None:
    """The longer side of pictures that went through transforms; None: not known."""
    return _through(script, steps, side, 0)


def _through(
    script: Script,
    steps: Iterable[ast.expr | None],
    side: int | None,
    depth: int,
) -> int | None:
    for step in steps:
        after = None if step is None else _side_after(script, step, side, depth + 1)
        if step is None or (after is None and side is not None):
            return None
        side = after
    return side


def _side_after(
    script: Script, transform: ast.expr, side: int | None, depth: int
) -> int | None:
    """The side of pictures behind a transform that get one side or another."""
    made = [origin.expression for origin in script.resolver.origins(transform)]
    found = [None if n is None else _behind(script, n, side, depth) for n in made]
    return _most(found)


def _most(sides: list[int | None]) -> int | None:
    known = [side for side in sides if side is not None]
    return max(known) if known and len(known) == len(sides) else None


def _entries(script: Script, looked_up: ast.Subscript) -> list[ast.expr]:
    """What `transforms["train"]` can be; all entries where the key is not known."""
    mapping = script.evaluator.mapping(looked_up.value)
    if mapping.replaced or not mapping.complete:
        return []
    key = script.evaluator.constant(looked_up.slice)
    found = mapping.items.get(key) if isinstance(key, str) else None
    return found or [node for nodes in mapping.items.values() for node in nodes]


def _behind(script: Script, node: ast.expr, side: int | None, depth: int) -> int | None:
    if isinstance(node, ast.Constant) and node.value is None:
        return side
    if isinstance(node, ast.Subscript) and depth <= MAX_DEPTH:
        its = _entries(script, node)
        return _most([_side_after(script, each, side, depth + 1) for each in its])
    if not isinstance(node, ast.Call) or depth > MAX_DEPTH:
        return None
    name = last_name(node)
    if name in _LISTS:
        return _through(script, _parts(script, node), side, depth)
    if name in _SIZED:
        return _given(script, node)
    return None if _OTHER_SIZE.search(name) else side


def _parts(script: Script, compose: ast.Call) -> Iterator[ast.expr | None]:
    """The transforms in a list of them; None: one is not known."""
    given: list[ast.expr] = list(compose.args)
    if len(given) == 1:
        made = [o.expression for o in script.resolver.origins(given[0])]
        listed = made[0] if len(made) == 1 else None
        if isinstance(listed, (ast.List, ast.Tuple)):
            given = list(listed.elts)
        elif not isinstance(listed, ast.Call):
            yield None
    for part in given:
        yield None if isinstance(part, ast.Starred) else part


def _given(script: Script, call: ast.Call) -> int | None:
    """The longer side that `Resize(224)` or `RandomCrop((224, 256))` gives."""
    size = script.evaluator.argument(call, "size", 0).direct
    if size is None:
        return None
    made = [o.expression for o in script.resolver.origins(size)]
    listed = made[0] if len(made) == 1 else None
    parts = listed.elts if isinstance(listed, (ast.Tuple, ast.List)) else [size]
    return _most([whole(script.evaluator.constant(part)) for part in parts])
