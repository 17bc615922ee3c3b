"""Keep an array that is indexed at every step where indexing it costs least."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._arrays import (
    host_tensor,
    in_usual_order,
    load_into,
    pinned_empty,
    pinned_rows,
    require_array,
    stored_as,
    tensor_dtype,
    total_bytes,
)
from ._gpu import Gpu, read_gpu
from ._hardware import in_units, introduce
from ._indexing import NotTranslatable, host_index, index_on, torch_index
from ._limits import ram_limit
from ._log import decide
from ._placement import ASYNC_KINDS, as_device, exists, numbered
from ._ranks import bootstrapping, in_loader_worker, local_world_size
from ._settings import settings

if TYPE_CHECKING:
    import torch

    from ._placement import DeviceLike

# Shares of the memory: the optimizer and the activations are yet to come. Design
# choices, not measured.
DEVICE_FRACTION = 0.25
LARGE_DEVICE_FRACTION = 0.5  # of GPUs with room for most models several times
LARGE_DEVICE = 38 * 1024**3  # bytes: what is sold as 40 GB and more
HOST_FRACTION = 0.25


class ResidentArray:
    """An array whose `bank[index]` is a tensor on the device.

    Has the values of `torch.from_numpy(array[index]).to(device)` for every index that
    NumPy takes, a single element included (a tensor without dimensions). `shape`,
    `dtype` and all other attributes are the array's own, `np.asarray(bank)` is the
    array. It cannot be written to. A pickled copy holds the array and copies from it.
    """

    def __init__(
        self, source: Any, device: torch.device, bank: torch.Tensor | None = None
    ) -> None:
        self._source = source
        self._bank = bank
        self._dtype = None if bank is None else tensor_dtype(source)
        self.device = device

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._source.shape)

    @property
    def place(self) -> str:
        """Where the values lie: "device", "pinned" or "host"."""
        held = self._source if self._bank is None else self._bank
        if getattr(held, "device", None) == self.device:
            return "device"
        return "host" if self._bank is None else "pinned"

    def __getitem__(self, index: Any) -> torch.Tensor:
        if self.device.type in ASYNC_KINDS and in_loader_worker():
            _refuse_worker(self.device)
        if self._bank is None:
            return self._copied(index)
        try:
            known = torch_index(index, self.shape, self._bank.device)
        except NotTranslatable:
            return self._copied(index)
        if self._bank.device == self.device:
            picked = _picked(self._bank, known)
        else:
            picked = _sent(self._bank, known, self.device)
        return picked if self._dtype is None else picked.view(self._dtype)

    def _copied(self, index: Any) -> torch.Tensor:
        """Return the values as the script read them before: at each step anew."""
        import torch

        if isinstance(self._source, torch.Tensor):
            index = index_on(index, self._source.device)
            return self._source[index].to(self.device)
        return host_tensor(self._source[host_index(index)]).to(self.device)

    def __len__(self) -> int:
        return len(self._source)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy as np

        array = np.asarray(self._source, dtype=dtype)
        return array.copy() if copy else array

    def __getattr__(self, name: str) -> Any:
        # Not for protocols, and not before __init__, where copying looks for hooks.
        if name.startswith("__") or "_source" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._source, name)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_bank": None, "_dtype": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        kind = type(self._source).__name__
        return f"ResidentArray({kind} {self.shape}, {self.place}, {self.device})"


def resident(
    array: Any, device: DeviceLike, *, max_fraction: float | None = None
) -> ResidentArray:
    """Return the array so that indexing it gives tensors on `device`.

    `array` is a NumPy array, memory-mapped or not, a torch tensor, or something with
    shape, dtype and indexing such as an HDF5 dataset. On CUDA, ROCm and XPU its values
    are copied once: to the device if they fill no more than `max_fraction` of what is
    free there now (a quarter; a half on GPUs with 40 GB and more), else to pinned
    memory if all ranks together fill no more than a quarter of the host's. Otherwise,
    on the CPU, on MPS and when switched off, the array stays as it is and each indexing
    copies. Later changes of the array are not seen in a copy of it.

    Index it in the main process: in a loader's worker, which cannot share the device,
    that raises RuntimeError for CUDA, ROCm and XPU. Under torchrun each rank has its
    own copy, on its device; pinned copies share the quarter of the host's memory, and
    ranks that read a memory-mapped file share its pages.

    Raises TypeError for anything that is no array, ValueError for a fraction outside
    0 to 1.
    """
    require_array(array)
    if max_fraction is not None and not 0 <= max_fraction <= 1:
        raise ValueError(f"max_fraction={max_fraction!r} is not between 0 and 1")
    introduce()
    target = as_device(device)
    if settings().off or in_loader_worker() or bootstrapping():
        return ResidentArray(array, target)  # a worker takes no memory of the device
    target = numbered(target) if exists(target) else target
    bank, where = _find_place(array, target, max_fraction)
    ranks = local_world_size()
    if bank is not None and ranks > 1:
        where += f", a copy for each of {ranks} local ranks"
    shape = " × ".join(map(str, array.shape))
    size = in_units(total_bytes(array))
    decide("resident", f"{size} ({shape}, {array.dtype}) {where}")
    return ResidentArray(array, target, bank)


def _find_place(
    array: Any, target: torch.device, max_fraction: float | None
) -> tuple[torch.Tensor | None, str]:
    if target.type not in ASYNC_KINDS or not exists(target):
        return None, f"left as it is for {target}"
    if getattr(array, "device", None) == target:
        return None, f"on {target} already"
    dtype = tensor_dtype(array)
    if dtype is None or getattr(array, "requires_grad", False):
        return None, "left on the host, torch cannot hold it as it is"
    if not in_usual_order(array):
        return None, "left on the host, its rows lie in an order of their own"
    bank = _on_device(array, stored_as(dtype), target, max_fraction)
    if bank is not None:
        return bank, f"on {target}"
    bank = _in_pinned_memory(array, stored_as(dtype))
    if bank is not None:
        return bank, f"in pinned memory, too large for {target}"
    return None, f"left on the host, too large for {target} and for pinned memory"


def _on_device(
    array: Any, dtype: torch.dtype, target: torch.device, max_fraction: float | None
) -> torch.Tensor | None:
    import torch

    gpu = read_gpu(target)
    if gpu is None or total_bytes(array) > _fraction(gpu, max_fraction) * (
        gpu.memory_free or 0
    ):
        return None
    try:
        bank = torch.empty(tuple(array.shape), dtype=dtype, device=target)
    except torch.cuda.OutOfMemoryError:  # XPU raises the same class
        return None
    return load_into(bank, array)


def _fraction(gpu: Gpu, asked: float | None) -> float:
    if asked is not None:
        return asked
    large = (gpu.memory_total or 0) >= LARGE_DEVICE
    return LARGE_DEVICE_FRACTION if large else DEVICE_FRACTION


def _in_pinned_memory(array: Any, dtype: torch.dtype) -> torch.Tensor | None:
    if total_bytes(array) * local_world_size() > HOST_FRACTION * (ram_limit() or 0):
        return None
    try:
        bank = pinned_empty(tuple(array.shape), dtype)
    except RuntimeError:
        return None
    return load_into(bank, array)


def _refuse_worker(device: torch.device) -> None:
    if not settings().off:  # else the script's own way, whatever comes of it
        raise RuntimeError(
            f"a resident array gives tensors on {device}, which a loader's worker "
            "cannot share: index it in the training loop, or load with num_workers=0"
        )


def _picked(bank: torch.Tensor, index: tuple[Any, ...]) -> torch.Tensor:
    picked = bank[index]
    # A view would let the script write into the bank.
    return picked if _gathers(index) else picked.clone()


def _sent(
    bank: torch.Tensor, index: tuple[Any, ...], device: torch.device
) -> torch.Tensor:
    """Copy from pinned memory. Nothing writes to the source, so no need to wait."""
    if not _gathers(index):
        return bank[index].to(device, non_blocking=True)
    if len(index) == 1 and index[0].ndim == 1 and index[0].dtype.is_signed:
        return pinned_rows(bank, index[0]).to(device, non_blocking=True)
    return bank[index].to(device)


def _gathers(index: tuple[Any, ...]) -> bool:
    return any(hasattr(part, "dtype") for part in index)
