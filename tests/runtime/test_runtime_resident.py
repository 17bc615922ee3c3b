"""resident(): the same values as reading the array at each step, wherever they lie."""

from __future__ import annotations

import copy
import pickle
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpulint import runtime
from gpulint.runtime import ResidentArray
from gpulint.runtime._arrays import (
    in_usual_order,
    load_into,
    stored_as,
    tensor_dtype,
    usual_strides,
)
from gpulint.runtime._indexing import NotTranslatable, torch_index

CPU = torch.device("cpu")
MIB = 1024**2


def held_by_torch(array: Any, device: torch.device = CPU) -> ResidentArray:
    """Return the array as it is kept on a GPU, with a CPU in the GPU's place."""
    dtype = tensor_dtype(array)
    assert dtype is not None
    bank = torch.empty(array.shape, dtype=stored_as(dtype))
    return ResidentArray(array, device, load_into(bank, array))


def read_anew(array: Any, index: Any) -> torch.Tensor:
    """What the script did before: the same index, a copy at each step."""
    if isinstance(index, tuple):
        index = tuple(map(to_numpy, index))
    picked = np.array(array[to_numpy(index)])
    return torch.from_numpy(picked)


def to_numpy(index: Any) -> Any:
    return index.numpy() if isinstance(index, torch.Tensor) else index


MASK = np.arange(10) % 3 == 0
INDICES: list[Any] = [
    3,
    -1,
    np.int64(4),
    slice(2, 7),
    slice(None, None, 3),
    slice(np.int64(1), torch.tensor(5)),
    slice(None, None, -1),
    slice(8, 2, -2),
    ...,
    None,
    (),
    True,
    [1, 5, 1],
    [],
    [-1, 0],
    [[0, 1], [2, 3]],
    range(3),
    MASK,
    MASK.tolist(),
    np.array([7, 2]),
    np.array([7, 2], dtype=np.uint8),
    np.array([250, 3], dtype=np.uint8) % 10,
    np.array(3),
    np.arange(4)[::-1],
    torch.tensor([9, 0, -2]),
    torch.tensor([1, 2], dtype=torch.int32),
    torch.tensor([1, 0, 1], dtype=torch.uint8),
    torch.tensor(6),
    torch.from_numpy(MASK),
    (3, 2),
    (slice(1, 4), 2),
    (slice(1, 4), slice(0, 2)),
    (..., 1),
    (1, ..., 1),
    (None, 2),
    (slice(None), None, 1),
    ([1, 2], slice(0, 3)),
    ([1, 2], [0, 3]),
    (slice(None), [0, 3]),
    (slice(None), [0, 3], [1, 1]),
    ([1, 2], 3),
    ([1, 2], slice(None), [0, 1]),
    (0, slice(None), [0, 1]),
    (MASK, 1),
    (MASK, slice(None), [1]),
    (torch.tensor([4, 4]), torch.tensor([0, 1])),
    (..., [0, 2]),
]


@pytest.fixture
def array() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).normal(size=(10, 4, 3)).astype(np.float32)


@pytest.mark.parametrize("index", INDICES, ids=repr)
@pytest.mark.parametrize("keep", [held_by_torch, lambda a: runtime.resident(a, "cpu")])
def test_every_index_gives_the_same_bits(
    index: Any, keep: Callable[[Any], ResidentArray], array: np.ndarray[Any, Any]
) -> None:
    before = array.copy()
    expected = read_anew(array, index)
    found = keep(array)[index]
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    assert torch.equal(found, expected)
    assert np.array_equal(array, before)


@pytest.mark.parametrize("index", [3, [1, 2], slice(2, 4), torch.tensor([0]), ()])
@pytest.mark.parametrize(
    "dtype", "bool i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8 c8 c16 >f4 >i8 >u2".split()
)
@pytest.mark.parametrize("keep", [held_by_torch, lambda a: runtime.resident(a, "cpu")])
def test_every_dtype_of_one_column(
    dtype: str, index: Any, keep: Callable[[Any], ResidentArray]
) -> None:
    array = (np.arange(6) * 11000).astype(dtype)
    found = keep(array)[index]
    native = array.astype(array.dtype.newbyteorder("="))
    expected = torch.from_numpy(np.array(native[to_numpy(index)]))
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.numpy().tobytes() == expected.numpy().tobytes()


@pytest.mark.parametrize(
    "index",
    [
        10,
        -11,
        [0, 10],
        [-11],
        np.array([3, 99]),
        torch.tensor([10]),
        (0, 4),
        (slice(None), [4]),
        (0, 0, 0, 0),
        [1.5],
        torch.tensor([0.5]),
        "name",
        np.ones(3, dtype=bool),
        torch.ones(3, dtype=torch.bool),
        slice("a", None),
    ],
    ids=repr,
)
@pytest.mark.parametrize("keep", [held_by_torch, lambda a: runtime.resident(a, "cpu")])
def test_a_wrong_index_fails_on_the_host(
    index: Any, keep: Callable[[Any], ResidentArray], array: np.ndarray[Any, Any]
) -> None:
    with pytest.raises((IndexError, TypeError)):
        array[to_numpy(index)]
    with pytest.raises((IndexError, TypeError)):
        keep(array)[index]


@pytest.mark.filterwarnings("default")
def test_a_ragged_index_fails(array: np.ndarray[Any, Any]) -> None:
    with pytest.raises((IndexError, ValueError)):
        held_by_torch(array)[[[1, 2], [3]]]


def test_message_of_a_wrong_index(array: np.ndarray[Any, Any]) -> None:
    with pytest.raises(IndexError, match="index 12 is out of bounds for axis 1"):
        held_by_torch(array)[:, [0, 12]]


def test_indices_that_are_on_the_device(array: np.ndarray[Any, Any]) -> None:
    bank = ResidentArray(
        array, torch.device("meta"), torch.empty(array.shape, device="meta")
    )
    rows = torch.zeros(5, dtype=torch.int32, device="meta")
    assert bank[rows].shape == (5, 4, 3)
    assert bank[0:4, rows].shape == (4, 5, 3)


@pytest.mark.parametrize(
    "index", [torch.ones(9, dtype=torch.bool), torch.ones(2), torch.ones(2) * 1j]
)
def test_wrong_indices_on_the_device_are_left_to_numpy(index: torch.Tensor) -> None:
    with pytest.raises(NotTranslatable):
        torch_index(index.to("meta"), (10, 3), torch.device("meta"))


def test_masks_on_the_device() -> None:
    mask = torch.ones(10, dtype=torch.bool, device="meta")
    (found,) = torch_index(mask, (10, 3), torch.device("meta"))
    assert found.dtype is torch.bool


def test_what_is_on_the_device_already_is_not_copied(places: Places) -> None:
    taken = places()
    image = types.SimpleNamespace(
        shape=(3,),
        dtype=np.dtype("f4"),
        device=torch.device("cuda:0"),
        __getitem__=None,
    )
    runtime.resident(image, "cuda")
    assert taken == []
    assert "resident: 12 bytes (3, float32) on cuda:0 already" in runtime.explain()


def test_results_may_be_written_to(array: np.ndarray[Any, Any]) -> None:
    bank = held_by_torch(array)
    first = bank[0:2].clone()
    bank[0:2].zero_()
    bank[0].zero_()
    bank[...].zero_()
    assert torch.equal(bank[0:2], first)


def test_the_bank_itself_may_not_be_written_to(array: np.ndarray[Any, Any]) -> None:
    bank: Any = runtime.resident(array, "cpu")
    with pytest.raises(TypeError, match="item assignment"):
        bank[0] = 1


def test_read_only_memory_map(tmp_path: Path, array: np.ndarray[Any, Any]) -> None:
    np.save(tmp_path / "bank.npy", array)
    mapped = np.load(tmp_path / "bank.npy", mmap_mode="r")
    bank = runtime.resident(mapped, "cpu")
    for index in (slice(2, 5), 3, [1, 2], ...):
        assert torch.equal(bank[index], torch.from_numpy(array[index]))
    bank[2:5].zero_()  # a copy of its own
    assert np.array_equal(mapped, array)
    assert torch.equal(held_by_torch(mapped)[[4, 2]], torch.from_numpy(array[[4, 2]]))


@pytest.mark.parametrize(
    "index",
    [
        [4, -2],
        np.array([4, 2]),
        np.array([4, 2], np.int32),
        torch.tensor([4, 2]),
        torch.tensor([4, 2], dtype=torch.int32),
    ],
    ids=["list", "array", "int32 array", "tensor", "int32 tensor"],
)
@pytest.mark.parametrize("keep", [held_by_torch, lambda a: runtime.resident(a, "cpu")])
def test_half_precision_on_the_disk(
    index: Any, keep: Callable[[Any], ResidentArray], tmp_path: Path
) -> None:
    """Banks are kept in float16, and rows become float32 when they are used."""
    half = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float16)
    np.save(tmp_path / "bank.npy", half)
    mapped = np.load(tmp_path / "bank.npy", mmap_mode="r")
    expected = torch.from_numpy(mapped[to_numpy(index)].astype(np.float32))
    assert torch.equal(keep(mapped)[index].float(), expected)
    whole = keep(mapped.astype(np.float32))[index]
    assert whole.dtype is torch.float32
    assert torch.equal(whole, expected)
    with pytest.raises(IndexError):
        keep(mapped)[[0, 10]]


def test_on_a_cpu_memory_is_shared_as_before(array: np.ndarray[Any, Any]) -> None:
    assert runtime.resident(array, "cpu")[2:4].data_ptr() == array[2:4].ctypes.data


class Hdf5Like:
    """A dataset that reads on indexing, and only rising rows."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array
        self.shape, self.dtype = array.shape, array.dtype

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list) and index != sorted(set(index)):
            raise TypeError("Indexing elements must be in increasing order")
        return self._array[index]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self._array, dtype=dtype)


@pytest.mark.parametrize("keep", [held_by_torch, lambda a: runtime.resident(a, "cpu")])
def test_other_kinds_of_arrays(
    keep: Callable[[Any], ResidentArray], array: np.ndarray[Any, Any]
) -> None:
    bank = keep(Hdf5Like(array))
    assert torch.equal(bank[[1, 4]], torch.from_numpy(array[[1, 4]]))
    assert torch.equal(bank[5], torch.from_numpy(array[5]))


def test_large_arrays_are_read_in_pieces(
    array: np.ndarray[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpulint.runtime._arrays.PIECE", 100)
    assert torch.equal(held_by_torch(array)[...], torch.from_numpy(array))
    fortran = np.asfortranarray(array)
    assert torch.equal(held_by_torch(fortran)[...], torch.from_numpy(array))


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 0)])
def test_empty_and_scalar_arrays(shape: tuple[int, ...]) -> None:
    array = np.ones(shape)
    for bank in (held_by_torch(array), runtime.resident(array, "cpu")):
        assert torch.equal(bank[...], torch.from_numpy(array))


def test_attributes_are_the_arrays_own(array: np.ndarray[Any, Any]) -> None:
    for bank in (held_by_torch(array), runtime.resident(array, "cpu")):
        assert bank.shape == (10, 4, 3)
        assert bank.dtype == np.float32
        assert (bank.ndim, bank.size, bank.nbytes) == (3, 120, 480)
        assert len(bank) == 10
        assert bank.mean() == array.mean()
        assert np.array_equal(np.asarray(bank), array)
        assert np.asarray(bank, dtype=np.float64).dtype == np.float64
        assert not np.shares_memory(np.array(bank), array)
        assert len(list(bank)) == 10
        assert bank.device == CPU
        with pytest.raises(AttributeError):
            _ = bank.nothing_of_the_kind
    assert repr(bank) == "ResidentArray(ndarray (10, 4, 3), host, cpu)"
    assert held_by_torch(array).place == "device"


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b))]
)
def test_copies_leave_the_device_memory_behind(
    duplicate: Callable[[Any], ResidentArray], array: np.ndarray[Any, Any]
) -> None:
    found = duplicate(held_by_torch(array.astype(np.uint16)))
    assert found.place == "host"
    assert torch.equal(found[[1, 2]], torch.from_numpy(array.astype(np.uint16)[[1, 2]]))


def test_tensors(array: np.ndarray[Any, Any]) -> None:
    tensor = torch.from_numpy(array)
    for bank in (held_by_torch(tensor), runtime.resident(tensor, "cpu")):
        for index in (3, [1, 2], slice(1, 3), torch.tensor([5]), (0, torch.tensor(1))):
            assert torch.equal(bank[index], tensor[index])
        assert bank.dtype == torch.float32
    assert bank.place == "device"
    moved = runtime.resident(tensor, "meta")
    assert moved[torch.tensor([1]), 2].device.type == "meta"


def test_gradients_still_reach_a_parameter() -> None:
    table = torch.ones(3, requires_grad=True)
    loss = runtime.resident(table, "cpu")[[0, 1]].sum()
    torch.autograd.backward(loss)
    assert table.grad is not None


# Where the values go


@pytest.fixture
def places(
    monkeypatch: pytest.MonkeyPatch, cuda: Callable[..., list[torch.device]]
) -> Callable[..., list[str]]:
    """A GPU and a host of some sizes; memory taken is noted, and is the host's."""
    empty = torch.empty

    def give(
        free: int = 16 * MIB,
        ram: int = 64 * MIB,
        full: bool = False,
        pins: bool = True,
        total: int = 16 * MIB,
    ) -> list[str]:
        cuda(free=free, total=total)
        taken: list[str] = []

        def take(
            shape: Any,
            *,
            dtype: Any = None,
            device: Any = None,
            pin_memory: bool = False,
        ) -> torch.Tensor:
            if device is not None and full:
                raise torch.cuda.OutOfMemoryError
            if pin_memory and not pins:
                raise RuntimeError("cannot pin")
            taken.append("pinned" if pin_memory else str(device))
            return empty(shape, dtype=dtype)

        monkeypatch.setattr(torch, "empty", take)
        monkeypatch.setattr("gpulint.runtime._resident.ram_limit", lambda: ram)
        return taken

    return give


Places = Callable[..., list[str]]


@pytest.mark.parametrize(
    "machine,size,fraction,taken",
    [
        ({}, 4 * MIB, 0.25, ["cuda:0"]),
        ({}, 5 * MIB, 0.25, ["pinned"]),
        ({}, 5 * MIB, 0.5, ["cuda:0"]),
        ({}, 1 * MIB, 0.0, ["pinned"]),
        ({}, 17 * MIB, 0.25, []),
        ({"full": True}, 1 * MIB, 0.25, ["pinned"]),
        ({"full": True, "pins": False}, 1 * MIB, 0.25, []),
    ],
)
def test_the_best_place_with_room(
    machine: dict[str, Any],
    size: int,
    fraction: float,
    taken: list[str],
    places: Places,
) -> None:
    found = places(**machine)
    bank = runtime.resident(np.ones(size, np.uint8), "cuda", max_fraction=fraction)
    assert found == taken
    assert bank.device == torch.device("cuda:0")
    assert bank.place == ("pinned" if taken else "host")  # stands in for the GPU's too
    assert f"resident: {size // MIB}.0 MiB ({size}, uint8) " in runtime.explain()


@pytest.mark.parametrize(
    "total, place", [(24 * 1024 * MIB, "pinned"), (80 * 1024 * MIB, "cuda:0")]
)
def test_large_gpus_hold_more(total: int, place: str, places: Places) -> None:
    found = places(total=total)
    runtime.resident(np.ones(7 * MIB, np.uint8), "cuda")
    assert found == [place]


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
@pytest.mark.parametrize(
    "axes, taken",
    [
        ((0, 1, 2, 3), ["cuda:0"]),
        ((0, 3, 1, 2), []),  # of one channel: torch calls it contiguous
        ((0, 2, 1, 3), []),
    ],
)
def test_rows_in_an_order_of_their_own(
    kind: Callable[[Any], Any], axes: tuple[int, ...], taken: list[str], places: Places
) -> None:
    found = places()
    array = np.zeros((8, 4, 5, 1), np.float32).transpose(axes)
    bank = runtime.resident(kind(array), "cuda")
    assert found == taken
    assert (bank.place == "host") is not bool(taken)


def test_parts_of_an_array_lie_as_usual(places: Places) -> None:
    found = places()
    runtime.resident(np.zeros((8, 6, 5), np.float32)[:, 1:4, 2:], "cuda")
    runtime.resident(torch.zeros(8, 6, 5)[:, 1:4, 2:], "cuda")
    assert found == ["cuda:0", "cuda:0"]
    assert not in_usual_order(torch.zeros(8, 6).to_sparse())
    assert not in_usual_order(np.zeros((8, 6, 5))[:, :, ::-1])


@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (2, 0, 3), (3, 1, 2), (2, 3, 4)])
def test_the_usual_strides(shape: tuple[int, ...]) -> None:
    assert usual_strides(shape) == torch.empty(shape).stride()


def test_ranks_share_the_hosts_memory(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = places()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    runtime.resident(np.ones(5 * MIB, np.uint8), "cuda")
    assert found == []


def test_each_rank_says_that_it_has_its_own_copy(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    places()
    runtime.resident(np.ones(MIB, np.uint8), "cuda")
    assert "on cuda:0\n" in runtime.explain() + "\n"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    runtime.resident(np.ones(MIB, np.uint8), "cuda")
    assert "on cuda:0, a copy for each of 2 local ranks" in runtime.explain()


class Indexing(torch.utils.data.Dataset[Any]):
    """What a bank is not for."""

    def __init__(self, bank: ResidentArray) -> None:
        self.bank = bank

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        return self.bank[index]


REFUSAL = (
    "a resident array gives tensors on cuda:0, which a loader's worker cannot share: "
    "index it in the training loop, or load with num_workers=0"
)


def test_a_workers_index_is_refused(
    places: Places, array: np.ndarray[Any, Any]
) -> None:
    places()
    bank = runtime.resident(array, "cuda")
    loader = torch.utils.data.DataLoader(Indexing(bank), num_workers=1)
    with pytest.raises(RuntimeError, match=REFUSAL):
        next(iter(loader))


@pytest.mark.parametrize("kind", ["worker", "importing"])
def test_a_worker_takes_no_memory_of_the_device(
    kind: str,
    places: Places,
    array: np.ndarray[Any, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = places()
    if kind == "worker":
        monkeypatch.setattr(torch.utils.data, "get_worker_info", object)
    else:
        monkeypatch.setattr("gpulint.runtime._resident.bootstrapping", lambda: True)
    bank = runtime.resident(array, "cuda:0")
    assert taken == []
    assert bank.place == "host"
    assert runtime.resident(array, "cpu")[[1, 2]].shape == (2, 4, 3)
    if kind == "worker":
        with pytest.raises(RuntimeError, match=REFUSAL):
            bank[0]


def test_a_worker_of_a_script_that_is_off_goes_its_own_way(
    array: np.ndarray[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPULINT_RUNTIME", "off")
    monkeypatch.setattr(torch.utils.data, "get_worker_info", object)
    moved: list[Any] = []
    monkeypatch.setattr(torch.Tensor, "to", lambda its, device: moved.append(device))
    runtime.resident(array, "cuda:0")[0]
    assert moved == [torch.device("cuda:0")]


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a", "b"]),
        np.zeros(2, dtype=[("a", "f4")]),
        torch.ones(2, requires_grad=True),
    ],
)
def test_what_must_stay_where_it_is(array: Any, places: Places) -> None:
    assert places() == []
    assert runtime.resident(array, "cuda").place == "host"
    assert "left on the host, torch cannot hold it as it is" in runtime.explain()


@pytest.mark.parametrize("device", ["cpu", "mps", "cuda:3"])
def test_devices_without_a_copy_ahead(device: str, places: Places) -> None:
    found = places()
    assert runtime.resident(np.ones(4), device).place == "host"
    assert found == []


def test_off_copies_at_each_step(
    places: Places, monkeypatch: pytest.MonkeyPatch, array: np.ndarray[Any, Any]
) -> None:
    found = places()
    monkeypatch.setenv("GPULINT_RUNTIME", "off")
    assert runtime.resident(array, "cuda").place == "host"
    bank = runtime.resident(array, "cpu")
    assert torch.equal(bank[[3, 1]], torch.from_numpy(array[[3, 1]]))
    assert found == []


def test_a_gpu_that_will_not_start(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")

    places(pins=False)
    monkeypatch.setattr(torch.cuda, "current_device", refuse)
    monkeypatch.setattr(torch.cuda, "mem_get_info", refuse)
    assert runtime.resident(np.ones(4), "cuda").place == "host"


@pytest.mark.parametrize(
    "index", [[3, -1], slice(1, 3), 2, (slice(None), [1]), [True] * 10]
)
def test_pinned_values_are_sent(
    index: Any, array: np.ndarray[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[torch.Tensor] = []
    to = torch.Tensor.to

    def send(self: torch.Tensor, *given: Any, **named: Any) -> torch.Tensor:
        if torch.device("meta") in given:
            sent.append(self)
        return to(self, *given, **named)

    monkeypatch.setattr(torch.Tensor, "to", send)
    monkeypatch.setattr(
        "gpulint.runtime._arrays.pinned_empty",
        lambda shape, dtype: torch.empty(shape, dtype=dtype),
    )
    bank = held_by_torch(array, torch.device("meta"))
    assert bank.place == "pinned"
    assert bank[index].device.type == "meta"
    assert torch.equal(sent[0], torch.from_numpy(np.array(array[index])))


@pytest.mark.parametrize("value", [[1, 2], 3, "text", None])
def test_what_is_no_array(value: Any) -> None:
    with pytest.raises(TypeError, match="takes an array or a tensor, not"):
        runtime.resident(value, "cpu")


@pytest.mark.parametrize("fraction", [-0.1, 1.5])
def test_wrong_fraction(fraction: float) -> None:
    with pytest.raises(ValueError, match="is not between 0 and 1"):
        runtime.resident(np.ones(3), "cpu", max_fraction=fraction)


def test_as_an_attribute_of_a_module(array: np.ndarray[Any, Any]) -> None:
    module: Any = torch.nn.Linear(2, 2)
    module.bank = runtime.resident(array, "cpu")
    assert list(module.state_dict()) == ["weight", "bias"]
