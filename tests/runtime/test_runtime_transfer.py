"""to_device(): nested batches, and when the host need not wait."""

from __future__ import annotations

import collections
import dataclasses
import types
from typing import Any, NamedTuple

import pytest
import torch

from gpulint import runtime


class Pair(NamedTuple):
    image: torch.Tensor
    name: str


@dataclasses.dataclass(frozen=True)
class Sample:
    image: torch.Tensor
    label: int
    size: int = dataclasses.field(init=False, default=3)


class Movable:
    def __init__(self) -> None:
        self.moved_to: list[torch.device] = []

    def to(self, device: torch.device) -> Movable:
        self.moved_to.append(device)
        return self


class Row(list[torch.Tensor]):
    note = "kept"


def on_meta(batch: Any) -> Any:
    return runtime.to_device(batch, "meta")


def test_containers_keep_their_types() -> None:
    image = torch.ones(2)
    named = on_meta(Pair(image, "a"))
    assert type(named) is Pair
    assert (named.image.device.type, named.name) == ("meta", "a")
    assert [t.device.type for t in on_meta([image, image])] == ["meta", "meta"]
    assert type(on_meta(Row([image]))) is Row
    assert type(on_meta((image,))) is tuple
    nested = on_meta({"a": {"b": (image, [image])}, "n": 3})
    assert nested["a"]["b"][1][0].device.type == "meta"
    assert nested["n"] == 3


def test_mappings() -> None:
    image = torch.ones(2)
    default: dict[str, Any] = collections.defaultdict(list, a=image)
    moved = on_meta(default)
    assert type(moved) is collections.defaultdict
    assert moved["a"].device.type == "meta"
    assert moved["new"] == []
    assert default["a"] is image
    assert type(on_meta(types.MappingProxyType({"a": image}))) is dict


def test_structures_of_torch() -> None:
    batch = torch.ones(2, 3)
    assert on_meta(batch.shape) == batch.shape
    largest = on_meta(torch.max(batch, dim=1))
    assert type(largest) is torch.return_types.max
    assert largest.values.device.type == "meta"
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    assert on_meta(packed).data.device.type == "meta"


def test_dataclasses() -> None:
    sample = Sample(torch.ones(2), 7)
    moved = on_meta(sample)
    assert type(moved) is Sample
    assert (moved.image.device.type, moved.label, moved.size) == ("meta", 7, 3)
    assert sample.image.device.type == "cpu"


def test_objects_move_themselves() -> None:
    movable = Movable()
    assert on_meta([movable]) == [movable]
    assert movable.moved_to == [torch.device("meta")]


@pytest.mark.parametrize("value", [None, "text", b"x", 3, 1.5, {1, 2}, Movable, Sample])
def test_all_else_stays(value: Any) -> None:
    assert on_meta(value) is value


def test_a_tensor_that_is_there_stays_the_same() -> None:
    image = torch.ones(2)
    assert runtime.to_device([image], "cpu")[0] is image


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each copy was one that the host does not wait for."""
    seen: list[bool] = []

    def to(
        self: torch.Tensor, device: torch.device, non_blocking: bool = False
    ) -> torch.Tensor:
        seen.append(non_blocking)
        return self

    monkeypatch.setattr(torch.Tensor, "to", to)
    return seen


@pytest.mark.parametrize(
    "source,device,ahead",
    [
        ("cpu", "cuda", True),
        ("cpu", torch.device("cuda:1"), True),
        ("cpu", "xpu", True),
        ("cpu", 0, True),
        ("cpu", "mps", False),
        ("cpu", "cpu", False),
        ("meta", "cuda", False),
        ("meta", "cpu", False),
    ],
)
def test_waiting(source: str, device: Any, ahead: bool, moves: list[bool]) -> None:
    runtime.to_device({"x": [torch.ones(2, device=source)]}, device)
    assert moves == [ahead]


def test_off_waits(moves: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPULINT_RUNTIME", "off")
    runtime.to_device(torch.ones(2), "cuda")
    assert moves == [False]
