"""prefetch(): the order of copies on a stream that is made up, and a loader else."""

from __future__ import annotations

import copy
import dataclasses
import gc
import weakref
from collections import UserDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from gpulint import runtime

Cuda = Callable[..., list[torch.device]]


class Stream:
    """Writes down what is asked of it."""

    def __init__(self, events: list[str], name: str) -> None:
        self.events, self.name = events, name

    def wait_stream(self, other: Stream) -> None:
        self.events.append(f"{self.name} waits for {other.name}")


@pytest.fixture
def events(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens on a CUDA device whose copies are clones in host memory."""
    cuda()
    seen: list[str] = []
    streams = [Stream(seen, "main")]
    made: list[torch.device] = []

    def make(device: torch.device) -> Stream:
        made.append(device)
        return Stream(seen, f"side{len(made)}")

    @contextmanager
    def entered(stream: Stream) -> Iterator[None]:
        streams.append(stream)
        yield
        streams.pop()

    def to(
        self: torch.Tensor, *_: object, non_blocking: bool = False, **more: object
    ) -> torch.Tensor:
        seen.append(f"{streams[-1].name} copies {first(self)}")
        return self.clone()

    def record(self: torch.Tensor, stream: Stream) -> None:
        seen.append(f"{stream.name} uses {first(self)}")

    monkeypatch.setattr(torch.cuda, "Stream", make)
    monkeypatch.setattr(torch.cuda, "stream", entered)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: streams[-1])
    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(torch.Tensor, "record_stream", record)
    return seen


def first(tensor: torch.Tensor) -> int:
    return int(tensor.to_dense().flatten()[0])


def train(batch: torch.Tensor, events: list[str]) -> None:
    events.append(f"step {first(batch)}")


def rows(count: int = 3) -> list[torch.Tensor]:
    return [torch.full((2,), number) for number in range(count)]


class Fails:
    """A loader whose second batch is an error; goes on behind it."""

    def __iter__(self) -> Fails:
        self.asked = 0
        return self

    def __next__(self) -> torch.Tensor:
        self.asked += 1
        if self.asked == 2:
            raise KeyError("no such file")
        if self.asked > 3:
            raise StopIteration
        return torch.full((2,), self.asked)


class Mover:
    """Has tensors that only it knows."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def to(self, device: torch.device) -> Mover:
        return type(self)(self._tensor.to(device))


class Recorder(Mover):
    def record_stream(self, stream: Any) -> None:
        self._tensor.record_stream(stream)


class Encoding(UserDict[str, Any]):
    def to(self, device: torch.device) -> Encoding:
        return Encoding({key: value.to(device) for key, value in self.items()})


@dataclasses.dataclass(frozen=True)
class Sample:
    image: torch.Tensor
    name: str = "a"


# On CUDA


def test_a_batch_is_copied_before_the_one_ahead_is_handed_out(
    events: list[str],
) -> None:
    for batch in runtime.prefetch(rows(), "cuda"):
        train(batch, events)
    assert events == [
        "side1 copies 0",
        "main waits for side1",
        "main uses 0",
        "side1 copies 1",
        "step 0",
        "main waits for side1",
        "main uses 1",
        "side1 copies 2",
        "step 1",
        "main waits for side1",
        "main uses 2",
        "step 2",
    ]


def test_the_copies_of_all_loaders_share_a_stream(events: list[str]) -> None:
    loader = runtime.prefetch(rows(1), "cuda:0")
    assert [len(list(loader)) for _ in range(2)] == [1, 1]
    list(runtime.prefetch(rows(1), 0))
    assert events.count("side1 copies 0") == 3


@pytest.mark.usefixtures("events")
def test_an_empty_loader() -> None:
    assert list(runtime.prefetch([], "cuda")) == []


def test_nested_batches(events: list[str]) -> None:
    one, two, three = rows()
    nested = {"a": [one, (two, 7)], "b": Sample(three), "c": None}
    [batch] = runtime.prefetch([nested], "cuda")
    assert type(batch["b"]) is Sample
    assert (batch["a"][1][1], batch["b"].name, batch["c"]) == (7, "a", None)
    assert batch["b"].image is not three
    assert events == [
        *[f"side1 copies {number}" for number in range(3)],
        "main waits for side1",
        *[f"main uses {number}" for number in range(3)],
    ]


def test_memory_that_cannot_be_followed_is_copied_when_it_is_handed_out(
    events: list[str],
) -> None:
    class Own(torch.Tensor):
        """Its memory is elsewhere, as that of distributed tensors."""

        __torch_dispatch__ = classmethod(print)  # type: ignore[assignment]

        def to(self, *_: object, **more: object) -> Own:  # type: ignore[override]
            events.append("main copies its own")
            return self

    zero, one, two = rows()
    batch = [Mover(zero), one.to_sparse(), Encoding(x=Mover(two)), two.as_subclass(Own)]
    assert len(list(runtime.prefetch([batch], "cuda"))) == 1
    assert events == [
        "main waits for side1",
        "main copies 0",
        "main copies 1",
        "main copies 2",
        "main copies its own",
    ]


@pytest.mark.parametrize(
    "make",
    [
        Recorder,
        lambda tensor: Encoding(x=tensor),
        lambda tensor: torch.nn.utils.rnn.pack_sequence([tensor]),
        lambda tensor: tensor.as_subclass(Special),
    ],
)
def test_objects_that_move_themselves(
    make: Callable[[torch.Tensor], Any], events: list[str]
) -> None:
    value = make(torch.ones(1))
    events.clear()
    [batch] = runtime.prefetch([value], "cuda")
    assert type(batch) is type(value)
    waits = events.index("main waits for side1")
    assert {*events[:waits]} == {"side1 copies 1"}
    assert {*events[waits + 1 :]} == {"main uses 1"}


class Special(torch.Tensor):
    """A subclass that is a plain tensor to torch."""


@pytest.mark.usefixtures("events")
def test_errors_come_with_their_batch() -> None:
    batches = iter(runtime.prefetch(Fails(), "cuda"))
    assert first(next(batches)) == 1
    with pytest.raises(KeyError, match="no such file") as caught:
        next(batches)
    assert caught.traceback[-1].name == "__next__"
    assert [first(batch) for batch in batches] == [3]
    assert next(batches, "end") == "end"


def test_errors_of_copies_come_with_their_batch(
    events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Heavy(Recorder):
        def to(self, device: torch.device) -> Mover:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    batches = iter(runtime.prefetch([torch.ones(1), Heavy(torch.ones(1))], "cuda"))
    assert first(next(batches)) == 1
    with pytest.raises(torch.cuda.OutOfMemoryError):
        next(batches)
    assert "main uses 1" in events


@pytest.mark.usefixtures("events")
def test_an_error_that_was_raised_holds_nothing() -> None:
    loader = Fails()
    batches = iter(runtime.prefetch(loader, "cuda"))
    next(batches)
    with pytest.raises(KeyError):
        next(batches)
    gone = weakref.ref(batches)
    gc.disable()
    try:
        del batches
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.usefixtures("events")
def test_an_interrupt_is_not_kept_for_later() -> None:
    def interrupted() -> Iterator[torch.Tensor]:
        yield torch.ones(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        next(iter(runtime.prefetch(interrupted(), "cuda")))


@pytest.mark.usefixtures("events")
def test_a_break_takes_one_batch_more() -> None:
    batches = iter(rows(5))
    loader = runtime.prefetch(batches, "cuda")
    for batch in loader:
        assert first(batch) == 0
        break
    assert [first(batch) for batch in loader] == [2, 3, 4]


@pytest.mark.usefixtures("events")
def test_a_batch_is_not_kept_while_the_script_computes() -> None:
    batches = iter(runtime.prefetch(rows(2), "cuda"))
    batch = next(batches)
    gone = weakref.ref(batch)
    del batch
    assert gone() is None
    assert first(next(batches)) == 1


# Everywhere


def dataset() -> TensorDataset:
    return TensorDataset(torch.arange(8).view(4, 2), torch.arange(4))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("workers", [0, 1])
def test_the_batches_are_the_loaders(
    device: str, workers: int, request: pytest.FixtureRequest
) -> None:
    def epochs(wrap: Callable[[Any], Any]) -> list[Any]:
        torch.manual_seed(3)
        loader = DataLoader(dataset(), batch_size=3, shuffle=True, num_workers=workers)
        loader = wrap(loader)
        return [[[p.tolist() for p in batch] for batch in loader] for _ in range(3)]

    before = epochs(lambda loader: loader)
    if device == "cuda":
        request.getfixturevalue("events")
    assert epochs(lambda loader: runtime.prefetch(loader, device)) == before


@pytest.mark.usefixtures("events")
@pytest.mark.parametrize("early", [False, True])
def test_all_else_is_the_loaders(early: bool) -> None:
    data = dataset()
    sampler = DistributedSampler(data, num_replicas=2, rank=0)
    plain = DataLoader(data, batch_size=1, sampler=sampler)
    loader = runtime.prefetch(plain, "cuda" if early else "cpu")
    assert len(loader) == 2
    assert loader.dataset is data
    assert (loader.batch_size, loader.drop_last) == (1, False)
    loader.sampler.set_epoch(4)
    assert sampler.epoch == 4
    loader.worker_init_fn = print
    assert plain.worker_init_fn is print
    with pytest.raises(ValueError, match="batch_size attribute"):
        loader.batch_size = 3
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = loader.no_such_thing
    assert copy.copy(loader).dataset is data


def test_loaders_without_a_length() -> None:
    loader = runtime.prefetch(iter(rows()), "cpu")
    assert loader
    assert not runtime.prefetch([], "cpu")
    with pytest.raises(TypeError, match="len"):
        len(loader)
    assert len(list(loader)) == 3
    with pytest.raises(TypeError, match="not iterable"):
        iter(runtime.prefetch(3, "cpu"))  # type: ignore[arg-type]


# Where nothing is ahead


@pytest.fixture(params=["cpu", "mps", "off", "debug", "no GPU"])
def not_ahead(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, events: list[str]
) -> str:
    """The device of a script where each batch is copied when it is asked for."""
    if request.param == "off":
        monkeypatch.setenv("GPULINT_RUNTIME", "off")
    if request.param == "debug":
        monkeypatch.setenv("GPULINT_DEBUG", "1")
    if request.param == "no GPU":
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return str(request.param) if request.param in ("cpu", "mps") else "cuda"


def test_each_batch_is_copied_when_it_is_asked_for(
    not_ahead: str, events: list[str]
) -> None:
    for batch in runtime.prefetch(rows(2), not_ahead):
        train(batch, events)
    assert events == ["main copies 0", "step 0", "main copies 1", "step 1"]


def test_errors_come_as_from_the_loader(not_ahead: str) -> None:
    batches = iter(runtime.prefetch(Fails(), not_ahead))
    assert first(next(batches)) == 1
    with pytest.raises(KeyError, match="no such file"):
        next(batches)
    assert [first(batch) for batch in batches] == [3]


def test_nothing_is_taken_ahead_of_a_break(not_ahead: str) -> None:
    batches = iter(rows(3))
    next(iter(runtime.prefetch(batches, not_ahead)))
    assert [first(batch) for batch in batches] == [1, 2]


# What is said


class Pinning(list[torch.Tensor]):
    def __init__(self, pins: bool) -> None:
        super().__init__()
        self.pin_memory = pins


def decided() -> list[str]:
    return [line for line in runtime.explain().splitlines() if "prefetch:" in line]


@pytest.mark.usefixtures("events")
@pytest.mark.parametrize(
    "pins,more",
    [(True, ""), (False, ", which waits: the loader does not pin its batches")],
)
def test_what_is_said_on_cuda(pins: bool, more: str) -> None:
    iter(runtime.prefetch(Pinning(pins), "cuda"))
    assert decided() == [f"  prefetch: the next batch is copied to cuda ahead{more}"]


def test_what_is_said_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    iter(runtime.prefetch([], "cpu"))
    monkeypatch.setenv("GPULINT_DEBUG", "1")
    runtime._reset()
    said = decided()
    iter(runtime.prefetch([], "cpu"))
    assert [said, decided()] == [
        [],
        ["  prefetch: batches are copied when they are asked for (GPULINT_DEBUG)"],
    ]
