"""How many samples a dataset has, and how large a batch is, where numbers tell."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.index import Evaluator, Origin
from gpulint.index.walk import dotted, walk_scope
from gpulint.script.loading.loaders import Loader
from gpulint.script.samples.datasets import IN_MEMORY
from gpulint.script.samples.sample_size import numbers_of_sample, whole

TINY = 4096  # bytes: a copy that costs its launch, wherever the memory is
FEW_SAMPLES = 64  # of some milliseconds each: workers take as long to start
FEW_PICTURES = 2000  # of some 50 microseconds each
_NUMBER = 8  # bytes at most
MAX_WRAPPERS = 3  # datasets around a dataset
# Samples of torchvision's datasets: to train, and to test.
_PUBLISHED = {
    "MNIST": (60000, 10000),
    "FashionMNIST": (60000, 10000),
    "KMNIST": (60000, 10000),
    "CIFAR10": (50000, 10000),
    "CIFAR100": (50000, 10000),
}
_SIZED = frozenset(f"torch.{n}" for n in "rand randn zeros ones".split())
_SUBSET = ("torch.utils.data.Subset", "torch.utils.data.dataset.Subset")


def gives_one_batch(loader: Loader) -> bool:
    """Whether a pass over the loader is surely one batch: it takes all samples.

    One of any size where there is but one sample.
    """
    if not all(loader.argument(n).absent for n in ("batch_sampler", "sampler")):
        return False
    most = min(_fixed(loader, "batch_size"), default=1)
    lengths = [_length(n, loader.evaluator) for n in _made(loader)]
    return bool(lengths) and all(
        length is not None and length <= most for length in lengths
    )


def has_few_samples(loader: Loader, batches: int) -> bool:
    """Whether a pass over the loader is surely no more than a few batches."""
    sizes = [v.constant for v in loader.values("batch_size").known]
    whole_sizes = [size for size in sizes if type(size) is int]
    lengths = [_length(n, loader.evaluator) for n in _made(loader)]
    most = batches * min(whole_sizes, default=0)
    return any(length is not None and length <= most for length in lengths)


def is_soon_passed(loader: Loader) -> bool:
    """Whether all samples are made before worker processes would have started.

    A few of any kind, or some more of the small pictures that torchvision has.
    """
    most = FEW_PICTURES if _has_small_pictures(loader) else FEW_SAMPLES
    its = lengths(loader)
    return bool(its) and all(length is not None and length <= most for length in its)


def _has_small_pictures(loader: Loader) -> bool:
    evaluator = loader.evaluator
    made = list(_made(loader))
    for number, node in enumerate(made):
        call = node if isinstance(node, ast.Call) else None
        if call is not None and evaluator.index.qualified(call.func) in _SUBSET:
            held = evaluator.argument(call, "dataset", 0).direct
            origins = evaluator.resolver.origins(held) if held is not None else ()
            made[number] = origins[0].node if len(origins) == 1 else node
    return bool(made) and all(_published(node, evaluator) is not None for node in made)


def has_tiny_batches(loader: Loader) -> bool:
    """Whether all its batches are tensors of known sizes and next to nothing."""
    sizes = _fixed(loader, "batch_size")
    samples = [numbers_of_sample(n, loader.evaluator) for n in _made(loader)]
    return bool(sizes and samples) and all(
        count is not None and count * max(sizes) * _NUMBER <= TINY for count in samples
    )


def lengths(loader: Loader) -> list[int | None]:
    """The numbers of samples that a loader's dataset may have; None: not known.

    Those of torchvision have the lengths that their documentation states.
    """
    evaluator = loader.evaluator
    found: list[int | None] = []
    for node in loader.argument("dataset").nodes:
        cut = _cut(node, evaluator)
        if cut is not None:
            found.append(cut)
            continue
        for origin in evaluator.resolver.origins(node):
            found += _lengths(origin, evaluator)
    return found


def _cut(dataset: ast.expr, evaluator: Evaluator) -> int | None:
    """The number of rows that `digits.data = digits.data[:256]` leaves."""
    if not isinstance(dataset, ast.Name):
        return None
    field = f"{dataset.id}.data"
    parts = [
        node.value.slice
        for node in walk_scope(evaluator.index.scope(dataset))
        if isinstance(node, ast.Assign)
        and [dotted(target) for target in node.targets] == [field]
        and isinstance(node.value, ast.Subscript)
        and dotted(node.value.value) == field
    ]
    rows = parts[0] if len(parts) == 1 else None
    if not isinstance(rows, ast.Slice) or rows.lower or rows.step or not rows.upper:
        return None
    return whole(evaluator.constant(rows.upper))


def _lengths(origin: Origin, evaluator: Evaluator) -> list[int | None]:
    made = origin.node
    if not isinstance(made, ast.Call):
        return [None]
    if origin.path:
        return [_part(made, origin.path, evaluator)]
    one = _length(made, evaluator) or _published(made, evaluator)
    if one is None and evaluator.index.qualified(made.func) in IN_MEMORY:
        one = _rows(made, evaluator)
    return [one] if one is not None else _stated(made, evaluator)


def _stated(made: ast.Call, evaluator: Evaluator) -> list[int | None]:
    """Of a class of the project whose `__len__` gives back a number it was given."""
    owner = evaluator.resolver.classes.named(made.func)
    method = evaluator.resolver.classes.methods(owner).get("__len__") if owner else None
    returns = evaluator.resolver.flow(method).returns if method is not None else []
    if len(returns) != 1 or returns[0] is None:
        return [None]
    values = evaluator.values(returns[0])
    known = [whole(value.constant) for value in values.known]
    return known if values.complete and known else [None]


def _published(made: ast.AST, evaluator: Evaluator) -> int | None:
    """Of `torchvision.datasets.CIFAR10(…, train=True)`."""
    if not isinstance(made, ast.Call):
        return None
    name = evaluator.index.qualified(made.func) or ""
    head, _, last = name.rpartition(".")
    if head != "torchvision.datasets" or last not in _PUBLISHED:
        return None
    given = evaluator.argument(made, "train", 1)
    if given.absent:
        return _PUBLISHED[last][0]
    found = evaluator.constant(given.direct) if given.direct is not None else None
    return _PUBLISHED[last][not found] if isinstance(found, bool) else None


def _part(made: ast.Call, path: tuple[object, ...], evaluator: Evaluator) -> int | None:
    """Of one of the datasets that `random_split(dataset, [45000, 5000])` gives."""
    name = evaluator.index.qualified(made.func) or ""
    if len(path) != 1 or not name.endswith(".random_split"):
        return None
    given = evaluator.argument(made, "lengths", 1).direct
    step = path[0]
    if not isinstance(given, (ast.List, ast.Tuple)) or not isinstance(step, int):
        return None
    return whole(evaluator.constant(given.elts[step])) if given.elts[step:] else None


def _fixed(loader: Loader, option: str) -> list[int]:
    """The numbers that reach an option, if no caller or user gives others."""
    if not loader.argument(option).given:
        return []
    values = loader.values(option)
    found = [v.constant for v in values.known if not v.default]
    numbers = [n for n in found if type(n) is int]
    whole = values.complete and len(numbers) == len(values.known)
    return numbers if whole else []


def _made(loader: Loader) -> Iterator[ast.AST]:
    for node in loader.argument("dataset").nodes:
        for origin in loader.evaluator.resolver.origins(node):
            yield origin.node


def _length(made: ast.AST, evaluator: Evaluator, depth: int = 0) -> int | None:
    if not isinstance(made, ast.Call):
        return None
    name = evaluator.index.qualified(made.func) or ""
    if name in _SUBSET:
        indices = evaluator.argument(made, "indices", 1).direct
        return _count(indices, evaluator, depth) if indices is not None else None
    if name == "torchvision.datasets.FakeData":
        size = evaluator.argument(made, "size", 0).direct
        return whole(evaluator.constant(size)) if size is not None else None
    owner = evaluator.resolver.classes.named(made.func)
    method = evaluator.resolver.classes.methods(owner).get("__len__") if owner else None
    returned = evaluator.resolver.flow(method).returns if method is not None else []
    value = returned[0] if len(returned) == 1 else None
    if isinstance(value, ast.Constant):
        return whole(value.value)
    if isinstance(value, ast.Attribute):
        given = _given_for(made, value, evaluator)
        return whole(evaluator.constant(given)) if given is not None else None
    kept = _kept(made, value, evaluator) if depth < MAX_WRAPPERS else []
    found = [_length(origin.node, evaluator, depth + 1) for origin in kept]
    known = [length for length in found if length is not None]
    return max(known) if known and len(known) == len(found) else None


def _kept(
    made: ast.Call, value: ast.expr | None, evaluator: Evaluator
) -> tuple[Origin, ...]:
    """What `self.dataset` of `len(self.dataset)` is in an object that a call makes."""
    asked = value.args[:1] if isinstance(value, ast.Call) else []
    if not isinstance(value, ast.Call) or dotted(value.func) != "len" or not asked:
        return ()
    given = _given_for(made, asked[0], evaluator)
    return evaluator.resolver.origins(given) if given is not None else ()


def _given_for(
    made: ast.Call, attribute: ast.expr, evaluator: Evaluator
) -> ast.expr | None:
    """What a call gives for `self.size`, which its class takes and keeps as it is."""
    resolver = evaluator.resolver
    owner = resolver.classes.named(made.func)
    init = (
        resolver.classes.methods(owner).get("__init__") if owner is not None else None
    )
    written = [d.value for d in resolver.definitions(attribute)]
    name = dotted(written[0]) if len(written) == 1 else None
    if name is None or init is None or name not in resolver.flow(init).definitions:
        return None
    given, clear = resolver.calls.given(made, init, name)
    return given[0] if clear and len(given) == 1 else None


def _rows(made: ast.Call, evaluator: Evaluator) -> int | None:
    """Of `TensorDataset(torch.randn(1024, 8), …)`: the first size of its tensors."""
    for given in made.args:
        for origin in evaluator.resolver.origins(given):
            call = origin.call
            name = evaluator.index.qualified(call.func) if call is not None else ""
            if call is not None and call.args and name in _SIZED:
                size = call.args[0]
                sizes = size.elts if isinstance(size, (ast.Tuple, ast.List)) else [size]
                return whole(evaluator.constant(sizes[0])) if sizes else None
    return None


def _count(indices: ast.expr, evaluator: Evaluator, depth: int) -> int | None:
    """`range(100)`, `range(0, len(whole), 20)`, `[3, 5, 8]`."""
    if isinstance(indices, (ast.List, ast.Tuple)):
        starred = any(isinstance(e, ast.Starred) for e in indices.elts)
        return None if starred else len(indices.elts)
    if not isinstance(indices, ast.Call) or indices.keywords:
        return None
    if evaluator.index.qualified(indices.func) not in ("range", "torch.arange"):
        return None
    bounds = [_whole(bound, evaluator, depth) for bound in indices.args]
    known = [bound for bound in bounds if bound is not None]
    if not 0 < len(known) == len(bounds) <= 3 or known[2:] == [0]:
        return None
    return len(range(*known))


def _whole(bound: ast.expr, evaluator: Evaluator, depth: int) -> int | None:
    """A number, or the `len(whole)` of a dataset whose length is known."""
    if not isinstance(bound, ast.Call) or dotted(bound.func) != "len":
        return whole(evaluator.constant(bound))
    if depth >= MAX_WRAPPERS or not bound.args:
        return None  # `data = Subset(data, range(len(data)))` in a loop, perhaps
    found = [
        _length(origin.node, evaluator, depth + 1) or _published(origin.node, evaluator)
        for origin in evaluator.resolver.origins(bound.args[0])
    ]
    return found[0] if len(found) == 1 else None
