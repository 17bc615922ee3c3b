"""microbatches(): the same gradients from less memory, or a clear refusal."""

from __future__ import annotations

import dataclasses
import types
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from gpulint import runtime


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Linear(6, 8), nn.GroupNorm(2, 8), nn.Tanh(), nn.Linear(8, 1)
    return nn.Sequential(*layers).double()


def gradients(model: nn.Module) -> list[torch.Tensor]:
    found = [p.grad for p in model.parameters()]
    model.zero_grad()
    return [grad.clone() for grad in found if grad is not None]


@pytest.mark.parametrize("size", [1, 3, 4, 7, 10, 11])
def test_the_gradient_of_the_whole_batch(size: int) -> None:
    model = network()
    x, y = torch.randn(10, 6).double(), torch.randn(10, 1).double()
    nn.functional.mse_loss(model(x), y).backward()
    expected = gradients(model)
    weights, seen = [], []
    for (inputs, targets), weight in runtime.microbatches((x, y), size, model=model):
        assert len(inputs) <= size
        (weight * nn.functional.mse_loss(model(inputs), targets)).backward()
        weights.append(weight)
        seen.append(inputs)
    assert torch.equal(torch.cat(seen), x)
    assert sum(weights) == pytest.approx(1.0)
    for found, wanted in zip(gradients(model), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-14)


class Named(NamedTuple):
    x: Any
    scale: Any


@dataclasses.dataclass(frozen=True)
class Sample:
    x: Any
    names: Any


def test_nested_batches() -> None:
    x = torch.arange(5)
    batch = {
        "x": [x, x * 2],
        "named": Named(x, torch.tensor(3.0)),
        "data": Sample(x.numpy(), ["a", "b", "c", "d", "e"]),
        "tokens": ([1], [2, 3], [], [4], [5]),
        "shape": (7, 7),
        "step": 4,
        "note": None,
    }
    chunks = list(runtime.microbatches(batch, 2, model=network()))
    assert [weight for _, weight in chunks] == [0.4, 0.4, 0.2]
    second: Any = chunks[1][0]
    assert torch.equal(second["x"][1], torch.tensor([4, 6]))
    assert torch.equal(second["named"].x, torch.tensor([2, 3]))
    assert second["named"].scale == 3.0
    assert isinstance(second["data"].x, np.ndarray)
    assert second["data"].names == ["c", "d"]
    assert second["tokens"] == ([], [4])
    assert (second["shape"], second["step"], second["note"]) == ((7, 7), 4, None)


def test_a_batch_that_is_small_enough_stays_itself() -> None:
    batch = torch.zeros(4, 2)
    ((chunk, weight),) = runtime.microbatches(batch, 4, model=network())
    assert chunk is batch
    assert weight == 1.0
    assert "microbatches" not in runtime.explain()
    list(runtime.microbatches(batch, 3, model=network()))
    assert (
        "microbatches: of 3 samples each (the effective batch is the same)"
        in runtime.explain()
    )


class ItsOwnBatchNorm(nn.Module):
    pass


class FrozenBatchNorm2d(nn.Module):
    pass


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm1d(2),
        nn.SyncBatchNorm(2),
        nn.LazyBatchNorm2d(),
        nn.BatchNorm1d(2, track_running_stats=False).eval(),
        nn.InstanceNorm1d(2, track_running_stats=True),
        ItsOwnBatchNorm(),
    ],
    ids=repr,
)
@pytest.mark.parametrize("rows", [4, 2])
def test_statistics_of_the_batch_are_refused(layer: nn.Module, rows: int) -> None:
    model = nn.Sequential(nn.Linear(2, 2), layer)
    with pytest.raises(ValueError, match=r"`1` would see the chunks' statistics"):
        runtime.microbatches(torch.zeros(rows, 2), 2, model=[network(), model])


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm1d(2).eval(),
        nn.InstanceNorm1d(2),
        nn.LayerNorm(2),
        FrozenBatchNorm2d(),
        ItsOwnBatchNorm().eval(),
    ],
    ids=repr,
)
def test_other_layers_are_not(layer: nn.Module) -> None:
    assert len(list(runtime.microbatches(torch.zeros(4, 2), 2, model=layer))) == 2


@pytest.mark.parametrize(
    "batch,message",
    [
        ((torch.zeros(4), torch.zeros(3)), "tensors of 3 and 4 rows"),
        ({"a": 1, "b": ["x"]}, "tensors of no rows"),
        (torch.tensor(1.0), "tensors of no rows"),
        ((torch.zeros(2), types.SimpleNamespace(x=1)), "part a SimpleNamespace"),
        (
            nn.utils.rnn.pack_sequence([torch.zeros(3)]),
            "part a PackedSequence",
        ),
    ],
)
def test_batches_that_cannot_be_parted(batch: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^microbatches cannot .*{message}$"):
        runtime.microbatches(batch, 2, model=network())


@pytest.mark.parametrize("model", [None, 3, [None], "net"])
def test_what_is_no_model(model: Any) -> None:
    with pytest.raises(TypeError, match="is no module"):
        runtime.microbatches(torch.zeros(4), 2, model=model)


def test_wrong_size() -> None:
    with pytest.raises(ValueError, match="size=0 is not a number of 1 or more"):
        runtime.microbatches(torch.zeros(4), 0, model=network())


def test_off_gives_the_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPULINT_RUNTIME", "off")
    batch = torch.zeros(4, 2)
    model = nn.BatchNorm1d(2)
    assert list(runtime.microbatches(batch, 2, model=model)) == [(batch, 1.0)]


def test_only_the_last_chunk_sends_gradients() -> None:
    model: Any = network()
    for switch in (True, False):
        model.require_backward_grad_sync = switch
        chunks = runtime.microbatches(torch.zeros(5, 2), 2, model=model)
        assert [model.require_backward_grad_sync for _ in chunks] == [
            False,
            False,
            switch,
        ]
        assert model.require_backward_grad_sync is switch


def test_a_loop_that_ends_early_leaves_the_model_as_it_was() -> None:
    model: Any = network()
    model.require_backward_grad_sync = True
    chunks: Any = runtime.microbatches(torch.zeros(5, 2), 2, model=model)
    next(chunks)
    assert not model.require_backward_grad_sync
    chunks.close()
    assert model.require_backward_grad_sync
