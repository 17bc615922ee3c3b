"""Batches that are gathered: those of DataLoader(TensorDataset), bit for bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    RandomSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)

from gpulint import runtime

ROWS = 23
Seen = tuple[list[list[tuple[torch.dtype, tuple[int, ...], bytes]]], list[Any]]


def data() -> tuple[torch.Tensor, torch.Tensor]:
    values = torch.arange(ROWS * 6, dtype=torch.float64).reshape(ROWS, 2, 3)
    return values.sin(), torch.arange(ROWS) % 5


def seen(make: Callable[[], DataLoader[Any]], epochs: int = 3) -> Seen:
    """All batches of some epochs, and the state of the generators after each."""
    torch.manual_seed(3), np.random.seed(3), random.seed(3)
    loader = make()
    batches, states = [], []
    for _ in range(epochs):
        for batch in loader:
            assert type(batch) is list
            batches.append(
                [(t.dtype, (*t.shape, *t.stride()), t.numpy().tobytes()) for t in batch]
            )
        states += [torch.get_rng_state().tolist(), str(np.random.get_state())]
        states += [random.getstate(), len(loader)]
    return batches, states


OPTIONS: list[dict[str, Any]] = [
    {},
    {"batch_size": 4},
    {"batch_size": 4, "shuffle": True},
    {"batch_size": 4, "shuffle": True, "drop_last": True},
    {"batch_size": 50, "shuffle": True},
    {"batch_size": 4, "shuffle": True, "num_workers": 2},
    {"batch_size": 4, "num_workers": 1, "persistent_workers": True, "shuffle": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_batches_and_generators(options: dict[str, Any]) -> None:
    before = seen(lambda: DataLoader(TensorDataset(*data()), **options))
    assert seen(lambda: runtime.TensorLoader(data(), **options)) == before
    whole = TensorDataset(*data())
    assert seen(lambda: runtime.TensorLoader(whole, **options)) == before


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_five_epochs(shuffle: bool, drop_last: bool, own: bool) -> None:
    """The script's own generator is left in the same state as well."""

    def run(loader: Callable[..., DataLoader[Any]]) -> tuple[Seen, list[int]]:
        generator = torch.Generator().manual_seed(9)
        options: dict[str, Any] = {"shuffle": shuffle, "drop_last": drop_last}
        options["generator"] = generator if own else None
        dataset = TensorDataset(*data())
        made = seen(lambda: loader(dataset, batch_size=4, **options), epochs=5)
        return made, generator.get_state().tolist()

    assert run(runtime.TensorLoader) == run(DataLoader)


def test_with_a_generator() -> None:
    def made(loader: Callable[..., DataLoader[Any]]) -> DataLoader[Any]:
        generator = torch.Generator().manual_seed(9)
        dataset = TensorDataset(*data())
        return loader(dataset, batch_size=4, shuffle=True, generator=generator)

    assert seen(lambda: made(runtime.TensorLoader)) == seen(lambda: made(DataLoader))


def test_with_a_sampler() -> None:
    def made(loader: Callable[..., DataLoader[Any]], kind: int) -> DataLoader[Any]:
        dataset = TensorDataset(*data())
        weights = [0.1, 0.5] * 11 + [0.3]
        sampler = WeightedRandomSampler(weights, 12) if kind else RandomSampler(dataset)
        return loader(dataset, batch_size=5, sampler=sampler)

    for kind in (0, 1):
        before = seen(lambda kind=kind: made(DataLoader, kind))  # type: ignore[misc]
        after = seen(lambda kind=kind: made(runtime.TensorLoader, kind))  # type: ignore[misc]
        assert after == before


def test_parts_of_a_dataset() -> None:
    def made(loader: Callable[..., DataLoader[Any]]) -> DataLoader[Any]:
        train, _ = random_split(TensorDataset(*data()), [15, 8])
        return loader(Subset(train, range(2, 13)), batch_size=4, shuffle=True)

    assert seen(lambda: made(runtime.TensorLoader)) == seen(lambda: made(DataLoader))
    assert gathers(made(runtime.TensorLoader))


@pytest.mark.parametrize(
    "kind", ["float32", "float64", "float16", "int32", "int64", "uint8", "bool"]
)
def test_arrays(kind: str) -> None:
    class Arrays(Dataset[Any]):
        def __init__(self) -> None:
            self.x = np.arange(ROWS * 4).reshape(ROWS, 4).astype(kind)
            self.y = np.arange(ROWS).astype(kind)

        def __len__(self) -> int:
            return len(self.x)

        def __getitem__(self, index: int) -> Any:
            return self.x[index], self.y[index]

    its = Arrays()
    before = seen(lambda: DataLoader(its, batch_size=4, shuffle=True))
    made = runtime.TensorLoader((its.x, its.y), batch_size=4, shuffle=True)
    assert gathers(made)
    assert seen(lambda: made) == before


def gathers(loader: DataLoader[Any]) -> bool:
    return getattr(loader.collate_fn, "__name__", "") == "as_it_is"


class Marked(TensorDataset):
    def __getitem__(self, index: int) -> Any:
        return tuple(t[index] + 1 for t in self.tensors)


class Special(torch.Tensor):
    pass


def of_objects() -> Any:
    return np.array([{"a": 1}, {"a": 2}], dtype=object)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Marked(*data()),
        lambda: Subset(Marked(*data()), range(7)),
        lambda: TensorDataset(torch.ones(8, 3, requires_grad=True)),
        lambda: TensorDataset(torch.ones(3, 8).t()),
        lambda: TensorDataset(torch.ones(8, 3, 4, 4).to(memory_format=torch.channels_last)),
        lambda: TensorDataset(torch.ones(8, 3).as_subclass(Special)),
    ],
    ids=["class", "part", "gradients", "strides", "layout", "subclass"],
)  # fmt: skip
def test_what_cannot_be_gathered_is_loaded_as_before(make: Callable[[], Any]) -> None:
    dataset = make()
    loader = runtime.TensorLoader(dataset, batch_size=3)
    assert not gathers(loader)
    assert loader.dataset is dataset
    for got, want in zip(loader, DataLoader(dataset, batch_size=3), strict=True):
        for a, b in zip(got, want, strict=True):
            assert type(a) is type(b)
            assert (a.stride(), a.requires_grad) == (b.stride(), b.requires_grad)
            assert torch.equal(a, b)


@pytest.mark.parametrize(
    "turn",
    [
        lambda x: x.permute(0, 3, 1, 2),  # of one channel: contiguous as it is
        lambda x: x.permute(0, 3, 1, 2)[:, :, :, 0],
        lambda x: x.reshape(ROWS, 12, 1).transpose(1, 2),
        lambda x: x.reshape(ROWS, 1, 12).transpose(1, 2),
        lambda x: x.reshape(ROWS, 2, 2, 3, 1).permute(0, 4, 1, 2, 3),
    ],
)
def test_sides_of_one_with_strides_of_their_own(
    turn: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    rows = turn(torch.arange(ROWS * 12.0).reshape(ROWS, 3, 4, 1))
    plain = seen(lambda: DataLoader(TensorDataset(rows), batch_size=4))
    assert (
        seen(lambda: runtime.TensorLoader(TensorDataset(rows), batch_size=4)) == plain
    )


def test_arrays_of_objects_fail_as_before() -> None:
    loader = runtime.TensorLoader((of_objects(),), batch_size=2)
    assert not gathers(loader)
    assert next(iter(loader))[0]["a"].tolist() == [1, 2]


def test_options_that_ask_for_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = TensorDataset(*data())
    assert not gathers(runtime.TensorLoader(dataset, batch_size=None))
    kept = runtime.TensorLoader(dataset, batch_size=2, collate_fn=len)
    assert next(iter(kept)) == 2
    monkeypatch.setenv("GPULINT_RUNTIME", "off")
    runtime._reset()
    off = runtime.TensorLoader(data(), batch_size=4, shuffle=True)
    assert not gathers(off)
    before = seen(
        lambda: DataLoader(TensorDataset(*data()), batch_size=4, shuffle=True)
    )
    assert seen(lambda: off) == before


def test_changes_in_place_are_seen() -> None:
    values = torch.zeros(4, 2)
    loader = runtime.TensorLoader((values,), batch_size=2)
    values[2:] = 1
    assert [batch.sum().item() for (batch,) in loader] == [0, 4]


def test_positions_and_errors_are_those_of_the_loader() -> None:
    before = seen(lambda: DataLoader(TensorDataset(*data()), 4, True))
    assert seen(lambda: runtime.TensorLoader(data(), 4, True)) == before
    with pytest.raises(ValueError, match="mutually exclusive"):
        runtime.TensorLoader(data(), shuffle=True, sampler=range(3))


def test_rows_are_taken_one_by_one_where_torch_asks_for_them_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(Subset, "__getitems__")
    loader = runtime.TensorLoader(TensorDataset(*data()), batch_size=4)
    assert type(loader.dataset) is TensorDataset
    assert loader.collate_fn is DataLoader(TensorDataset(*data())).collate_fn
