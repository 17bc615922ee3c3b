"""Copy a loader's next batch to the GPU while the script computes on this one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._hardware import introduce
from ._log import decide
from ._nested import rebuilt
from ._placement import as_device, numbered
from ._settings import settings
from ._transfer import to_device

if TYPE_CHECKING:
    import torch

    from ._placement import DeviceLike


def prefetch(loader: Iterable[Any], device: DeviceLike) -> Prefetched:
    """Return the loader with its batches on `device`, copied one batch ahead on CUDA.

    Batches arrive moved, as by `to_device`, on every device; a loop that moves them
    itself may go on doing so. All else is the loader's: its length, its attributes
    (`dataset`, `sampler`, …), a new pass for each loop, and its errors, which come
    with the batch that they belong to.

    On CUDA and ROCm a batch is copied on a stream of its own before the one ahead of
    it is handed out, so that the copy of pinned memory runs beside the training step.
    The device then holds one batch more, and the loader is asked one batch earlier: a
    `break` leaves one that was taken and not seen, and without workers it draws its
    random numbers before the step, not behind it. It must give new tensors each time,
    not the same ones filled anew. Sparse tensors, and objects that move themselves but
    are no mapping, list or tuple and have no `record_stream`, are copied when they are
    handed out, as nothing would keep their memory for the step.

    On other devices, when switched off and under GPULINT_DEBUG nothing is done ahead:
    each batch is copied when it is asked for. Raises what `to_device` raises.
    """
    introduce()
    return Prefetched(loader, device)


class Prefetched:
    """A loader whose batches are on a device; for all else the loader itself."""

    # Names that are mangled, so that they hide none of the loader's own.
    __loader: Iterable[Any]
    __device: DeviceLike

    def __init__(self, loader: Iterable[Any], device: DeviceLike) -> None:
        vars(self).update(_Prefetched__loader=loader, _Prefetched__device=device)

    def __iter__(self) -> Iterator[Any]:
        target = as_device(self.__device)
        if _works_ahead(self.__loader, target):
            return _Ahead(iter(self.__loader), numbered(target))

        def moved(batch: Any) -> Any:
            return to_device(batch, target)

        return map(moved, self.__loader)  # goes on behind an error, as a loader may

    def __len__(self) -> int:
        return len(self.__loader)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return bool(self.__loader)  # some have no length

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_Prefetched__"):  # a copy that is not complete yet
            raise AttributeError(name)
        return getattr(self.__loader, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__loader, name, value)


def _works_ahead(loader: Iterable[Any], device: torch.device) -> bool:
    import torch

    if settings().off:
        return False
    why = f"{device} is no CUDA device"
    if settings().debug:
        why = "GPULINT_DEBUG"
    elif device.type == "cuda" and torch.cuda.is_available():
        pinned = getattr(loader, "pin_memory", True)
        waits = "" if pinned else ", which waits: the loader does not pin its batches"
        decide("prefetch", f"the next batch is copied to {device} ahead{waits}")
        return True
    decide("prefetch", f"batches are copied when they are asked for ({why})")
    return False


@dataclass
class _Taken:
    """A batch on its way to the device, or the error that came in its place."""

    batch: Any = None
    error: Exception | None = None


class _Ahead(Iterator[Any]):
    """Holds the batch after the one that it has handed out."""

    def __init__(self, batches: Iterator[Any], device: torch.device) -> None:
        self._batches = batches
        self._device = device
        self._stream = _copying_stream(device)
        self._next: _Taken | None = None

    def __next__(self) -> Any:
        taken, self._next = self._next or self._take(), None
        if taken.error is not None:
            try:
                raise taken.error
            finally:
                del taken  # the traceback holds this frame, and would hold itself
        batch = self._handed_out(taken.batch)
        self._next = self._take()
        return batch

    def _take(self) -> _Taken:
        """Take a batch from the loader and begin to copy it."""
        import torch

        try:
            batch = next(self._batches)
            with torch.cuda.stream(self._stream):
                return _Taken(rebuilt(batch, self._begun))
        except Exception as error:  # StopIteration as well: the batch before is whole
            return _Taken(error=error)

    def _begun(self, part: Any) -> Any:
        if not _moves(part):
            return NotImplemented
        return to_device(part, self._device) if _can_be_followed(part) else part

    def _handed_out(self, batch: Any) -> Any:
        """Let the script's stream wait for the copies, and keep their memory for it."""
        import torch

        current = torch.cuda.current_stream(self._device)
        current.wait_stream(self._stream)

        def hand_out(part: Any) -> Any:
            if not _moves(part):
                return NotImplemented
            if not _can_be_followed(part):
                return to_device(part, self._device)
            _record(part, current)
            return part

        return rebuilt(batch, hand_out)


_streams: dict[Any, Any] = {}  # by device: memory that a stream has had stays its own


def _copying_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream of all copies to a device."""
    import torch

    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream: torch.cuda.Stream = _streams[device]
    return stream


def forget_streams() -> None:
    """Begin anew, as in a fresh process."""
    _streams.clear()


def _moves(part: Any) -> bool:
    """Say whether `to_device` moves it, and does not look into it."""
    return callable(getattr(part, "to", None)) and not isinstance(part, type)


def _can_be_followed(part: Any) -> bool:
    """Say whether all memory of a part can be kept until a stream is done with it."""
    import torch

    if isinstance(part, torch.Tensor):
        own = type(part).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
        return own and part.layout is torch.strided and not part.is_nested
    if callable(getattr(part, "record_stream", None)):
        return True
    inner = _inner(part)
    return not _moves(part) if inner is None else all(map(_can_be_followed, inner))


def _record(part: Any, stream: torch.cuda.Stream) -> None:
    """Keep the memory of a part, when it is freed, until `stream` has used it."""
    import torch

    if isinstance(part, torch.Tensor):
        if part.is_cuda:
            part.record_stream(stream)
    elif callable(getattr(part, "record_stream", None)):
        part.record_stream(stream)
    else:
        for item in _inner(part) or ():
            _record(item, stream)


def _inner(part: Any) -> Iterable[Any] | None:
    """Return what is in a mapping, a list or a tuple, None for all else."""
    if isinstance(part, Mapping):
        return part.values()
    return part if isinstance(part, list | tuple) else None
