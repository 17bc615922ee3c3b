"""How many samples a dataset has, and how large a batch is, where numbers tell."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpulint.index import Evaluator
from gpulint.script.loaders import Loader
from gpulint.script.sample_size import numbers_of_sample, whole

TINY = 4096  # bytes: a copy that costs its launch, wherever the memory is
_NUMBER = 8  # bytes at most
_SUBSET = ("torch.utils.data.Subset", "torch.utils.data.dataset.Subset")


def gives_one_batch(loader: Loader) -> bool:
    """Whether a pass over the loader is surely one batch: it takes all samples."""
    sizes = _fixed(loader, "batch_size")
    plain = all(loader.argument(n).absent for n in ("batch_sampler", "sampler"))
    if not sizes or not plain:
        return False
    lengths = [_length(n, loader.evaluator) for n in _made(loader)]
    return bool(lengths) and all(
        length is not None and length <= min(sizes) for length in lengths
    )


def has_few_samples(loader: Loader, batches: int) -> bool:
    """Whether a pass over the loader is surely no more than a few batches."""
    sizes = [v.constant for v in loader.values("batch_size").known]
    whole_sizes = [size for size in sizes if type(size) is int]
    lengths = [_length(n, loader.evaluator) for n in _made(loader)]
    most = batches * min(whole_sizes, default=0)
    return any(length is not None and length <= most for length in lengths)


def has_tiny_batches(loader: Loader) -> bool:
    """Whether all its batches are tensors of known sizes and next to nothing."""
    sizes = _fixed(loader, "batch_size")
    samples = [numbers_of_sample(n, loader.evaluator) for n in _made(loader)]
    return bool(sizes and samples) and all(
        count is not None and count * max(sizes) * _NUMBER <= TINY for count in samples
    )


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


def _length(made: ast.AST, evaluator: Evaluator) -> int | None:
    if not isinstance(made, ast.Call):
        return None
    name = evaluator.index.qualified(made.func) or ""
    if name in _SUBSET:
        indices = evaluator.argument(made, "indices", 1).direct
        return _count(indices, evaluator) if indices is not None else None
    if name == "torchvision.datasets.FakeData":
        size = evaluator.argument(made, "size", 0).direct
        return whole(evaluator.constant(size)) if size is not None else None
    owner = evaluator.resolver.class_of(made.func)
    method = evaluator.resolver.methods(owner).get("__len__") if owner else None
    last = method.body[-1] if method is not None else None
    if not isinstance(last, ast.Return) or not isinstance(last.value, ast.Constant):
        return None
    alone = len(evaluator.resolver.flow(method).returns) == 1  # type: ignore[arg-type]
    return whole(last.value.value) if alone else None


def _count(indices: ast.expr, evaluator: Evaluator) -> int | None:
    """`range(100)`, `[3, 5, 8]`."""
    if isinstance(indices, (ast.List, ast.Tuple)):
        starred = any(isinstance(e, ast.Starred) for e in indices.elts)
        return None if starred else len(indices.elts)
    if not isinstance(indices, ast.Call) or len(indices.args) != 1:
        return None
    if evaluator.index.qualified(indices.func) not in ("range", "torch.arange"):
        return None
    return whole(evaluator.constant(indices.args[0]))
