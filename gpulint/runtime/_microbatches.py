"""Part a batch that is too large for the GPU, without changing what is learnt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ._hardware import introduce
from ._log import decide
from ._nested import is_nest, rebuilt
from ._settings import settings

if TYPE_CHECKING:
    import torch

Batch = TypeVar("Batch")

PLAIN = (str, bytes, int, float, complex, type(None))
SYNC = "require_backward_grad_sync"  # DistributedDataParallel's; no_sync() sets it


def microbatches(
    batch: Batch, size: int, *, model: torch.nn.Module | Sequence[torch.nn.Module]
) -> Iterator[tuple[Batch, float]]:
    """Return (chunk, weight) of at most `size` samples each; the weights sum to 1.

    With a loss that is a mean over samples, the gradients are those of the whole batch
    (up to rounding), and so are learning rate, schedule and effective batch size:

        for chunk, weight in microbatches(batch, 16, model=model):
            (weight * loss_of(chunk)).backward()
        optimizer.step()

    `batch` is nested as in `to_device`; the first dimension of its tensors and arrays
    counts the samples, as does a list without any that is as long. Numbers, texts and
    tensors without dimensions go along with each chunk.

    `model` is what the chunks go through, one module or several. Layers that normalise
    by the statistics of a batch (BatchNorm while it trains) compute something else
    from its chunks: ValueError. A model in DistributedDataParallel sends its gradients
    with the last chunk alone, so ranks may have different numbers of chunks. Losses
    that compare the samples of a batch (contrastive ones) cannot be seen from here, and
    must not be parted.

    Off: the whole batch, with the weight 1. Raises ValueError as well for a `size`
    below 1 and for a batch that cannot be parted, TypeError for what is no module.
    """
    if size < 1:
        raise ValueError(f"size={size!r} is not a number of 1 or more")
    introduce()
    if settings().off:
        return iter([(batch, 1.0)])
    modules = _modules(model)
    _refuse_batch_statistics(modules)
    samples = _samples(batch)
    if samples <= size:
        return iter([(batch, 1.0)])
    decide("microbatches", f"of {size} samples each (the effective batch is the same)")
    return _chunks(batch, samples, size, modules)


def _chunks(
    batch: Any, samples: int, size: int, modules: list[torch.nn.Module]
) -> Iterator[tuple[Any, float]]:
    synced: list[Any] = [m for m in modules if hasattr(m, SYNC)]
    before = [getattr(module, SYNC) for module in synced]
    try:
        for start in range(0, samples, size):
            rows = slice(start, min(start + size, samples))
            for module, own in zip(synced, before, strict=True):
                setattr(module, SYNC, own and rows.stop == samples)
            yield _part(batch, rows, samples), (rows.stop - start) / samples
    finally:
        for module, own in zip(synced, before, strict=True):
            setattr(module, SYNC, own)


def _part(batch: Any, rows: slice, samples: int) -> Any:
    def change(part: Any) -> Any:
        if _is_array(part):
            return part[rows] if part.shape else part
        if _is_plain_list(part):
            return part[rows] if len(part) == samples else part
        return NotImplemented

    return rebuilt(batch, change)


def _samples(batch: Any) -> int:
    """Return how many samples a batch has; ValueError where that is not clear."""
    counts: set[int] = set()

    def count(part: Any) -> Any:
        if _is_array(part):
            counts.update(part.shape[:1])
        elif isinstance(part, tuple) and hasattr(part, "to"):  # a PackedSequence
            raise _cannot(f"part a {type(part).__name__}")
        elif not _is_plain_list(part):
            if not is_nest(part) and not isinstance(part, PLAIN):
                raise _cannot(f"part a {type(part).__name__}")
            return NotImplemented
        return part

    rebuilt(batch, count)
    if len(counts) != 1:
        numbers = " and ".join(map(str, sorted(counts))) or "no"
        raise _cannot(f"count the samples of a batch with tensors of {numbers} rows")
    return counts.pop()


def _cannot(what: str) -> ValueError:
    return ValueError(f"microbatches cannot {what}")


def _is_array(part: Any) -> bool:
    return hasattr(part, "shape") and hasattr(part, "dtype")


def _is_plain_list(part: Any) -> bool:
    """Say whether it is a list or tuple without any array in it: names, for example."""
    if not isinstance(part, list | tuple):
        return False
    arrays: list[Any] = []

    def note(its: Any) -> Any:
        if not _is_array(its):
            return NotImplemented
        arrays.append(its)
        return its

    rebuilt(part, note)
    return not arrays


def _modules(model: Any) -> list[torch.nn.Module]:
    import torch

    given = [model] if isinstance(model, torch.nn.Module) else model
    if not isinstance(given, Iterable):
        raise TypeError(f"model={model!r} is no module")
    modules = list(given)
    for module in modules:
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"model: {module!r} is no module")
    return modules


def _refuse_batch_statistics(modules: Iterable[torch.nn.Module]) -> None:
    for module in modules:
        for name, layer in module.named_modules():
            if _uses_batch_statistics(layer):
                kind = type(layer).__name__
                text = f"microbatches: {kind} `{name}` would see the chunks' statistics"
                raise ValueError(f"{text}, not the batch's")


def _uses_batch_statistics(layer: torch.nn.Module) -> bool:
    """Say whether a layer's results, or what it keeps, are another's in chunks."""
    from torch.nn.modules.batchnorm import _BatchNorm
    from torch.nn.modules.instancenorm import _InstanceNorm

    if isinstance(layer, _BatchNorm):
        return layer.training or layer.running_mean is None
    if isinstance(layer, _InstanceNorm):  # its results are by sample, what it keeps not
        return layer.training and layer.track_running_stats
    name = type(layer).__name__  # other people's own
    return layer.training and "BatchNorm" in name and "Frozen" not in name
