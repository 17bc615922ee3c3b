"""distributed() where there is one process, or nobody to talk to. See also _ranks."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed

from gpulint import runtime
from gpulint.runtime import Distributed, _distributed

LAUNCHED = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "1",
}


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {**LAUNCHED, "WORLD_SIZE": "1", "RANK": "0"},
        {"RANK": "0", "WORLD_SIZE": "2"},
    ],
    ids=["plain", "one rank", "nowhere to meet"],
)
def test_alone_it_does_nothing(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in LAUNCHED:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    ranks = runtime.distributed()
    assert ranks.is_main
    assert (ranks.rank, ranks.world_size) == (0, 1)
    assert ranks.sampler([1, 2, 3]) is None
    ranks.wait()
    with ranks.main_first():
        assert not torch.distributed.is_initialized()
    assert "ranks: 1 (no launcher has started more)" in runtime.explain()


@pytest.mark.usefixtures("launched")
def test_off_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPULINT_RUNTIME", "off")
    assert runtime.distributed() == Distributed(0, 0, 1)
    assert not torch.distributed.is_initialized()


@pytest.mark.usefixtures("launched")
def test_a_worker_knows_its_rank_and_starts_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gpulint.runtime._distributed.in_worker", lambda: True)
    assert runtime.distributed() == Distributed(3, 1, 4)
    assert not torch.distributed.is_initialized()


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Callable[..., types.SimpleNamespace]:
    """A process group whose other rank brings what it is told to."""

    def give(other: Any) -> types.SimpleNamespace:
        def gather(found: list[Any], its: Any) -> None:
            found[:] = [its, other]

        stand_in = types.SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: True,
            get_rank=lambda: 0,
            get_world_size=lambda: 2,
            get_backend=lambda: "gloo",
            all_gather_object=gather,
        )
        monkeypatch.setitem(sys.modules, "torch.distributed", stand_in)
        return stand_in

    return give


@pytest.mark.parametrize(
    "other,name,reason",
    [
        (["bf16", "fp16"], "bf16", "Ampere has bf16 and fp16"),
        (["fp16"], "fp16", "Ampere has bf16 and fp16, other ranks less"),
        ([], "off", "other ranks gain nothing by it"),
    ],
)
def test_ranks_agree_on_mixed_precision(
    other: list[str],
    name: str,
    reason: str,
    group: Callable[..., types.SimpleNamespace],
    cuda: Callable[..., Any],
) -> None:
    cuda((8, 0), name="Ampere")
    assert runtime.amp_dtype("cuda") is torch.bfloat16
    group((other, (None, None)))
    assert runtime.distributed().world_size == 2
    found = runtime.amp_dtype("cuda")
    assert {None: "off", torch.float16: "fp16", torch.bfloat16: "bf16"}[found] == name
    assert f"amp: {name} on cuda ({reason})" in runtime.explain()
    assert "ranks: 2 (gloo, the script's own process group)" in runtime.explain()


@pytest.mark.parametrize(
    "variable,value", [("GPULINT_AMP", "off"), ("GPULINT_DEBUG", "1")]
)
def test_a_rank_that_may_not_says_so(
    variable: str,
    value: str,
    group: Callable[..., types.SimpleNamespace],
    cuda: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brought: list[Any] = []
    cuda((8, 0))
    monkeypatch.setenv(variable, value)
    its = group(None)
    its.all_gather_object = lambda found, its: brought.append(its[0])
    runtime.distributed()
    assert brought == [[]]


@pytest.mark.parametrize("other", [(None, None), ("fp16", "bf16")])
def test_ranks_that_are_asked_for_different_formats(
    other: tuple[str | None, ...],
    group: Callable[..., types.SimpleNamespace],
    cuda: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda((8, 0))
    monkeypatch.setenv("GPULINT_AMP", "fp16")
    assert runtime.amp_dtype("cuda") is torch.float16
    group((["bf16", "fp16"], other))
    runtime.distributed()
    assert runtime.amp_dtype("cuda") is torch.bfloat16
    assert runtime.amp_dtype("cuda", prefer="fp16") is torch.float16


@pytest.mark.parametrize(
    "devices,ranks,nccl,backend",
    [
        (2, "2", True, "cpu:gloo,cuda:nccl"),
        (1, "2", True, "gloo"),
        (2, "2", False, "gloo"),
        (0, "2", True, "gloo"),
    ],
)
def test_backend(
    devices: int,
    ranks: str,
    nccl: bool,
    backend: str,
    cuda: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if devices:
        cuda(count=devices)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    stand_in = types.SimpleNamespace(is_nccl_available=lambda: nccl)
    assert _distributed._backend(stand_in) == backend


@pytest.mark.usefixtures("launched")
def test_a_group_is_started_once_and_ended(
    group: Callable[..., types.SimpleNamespace], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    ends: list[Callable[[], None]] = []
    its = group(([], (None, None)))
    its.is_initialized = lambda: "gloo" in calls
    its.init_process_group = calls.append
    its.destroy_process_group = lambda: calls.append("ended")
    monkeypatch.setattr(torch, "distributed", its)
    monkeypatch.setattr("atexit.register", ends.append)
    runtime.distributed()
    runtime.distributed()
    assert calls == ["gloo"]
    assert "ranks: 2 (gloo, by the launcher's variables)" in runtime.explain()
    (end,) = ends
    monkeypatch.setattr(sys, "last_value", ValueError(), raising=False)
    end()  # another rank may wait for this one
    assert calls == ["gloo"]
    monkeypatch.delattr(sys, "last_value")
    end()
    assert calls == ["gloo", "ended"]


def test_others_go_on_where_the_main_process_fails() -> None:
    waits: list[int] = []

    class Alone(Distributed):
        def wait(self) -> None:
            waits.append(self.rank)

    with pytest.raises(OSError, match="no network"), Alone(0, 0, 2).main_first():
        raise OSError("no network")
    with Alone(1, 1, 2).main_first():
        assert waits == [0, 1]
    assert waits == [0, 1]


def test_unequal_parts() -> None:
    parts = [Distributed(rank, rank, 2).sampler(range(5)) for rank in range(2)]
    drawn = [list(part) for part in parts if part is not None]
    assert [len(part) for part in drawn] == [3, 3]
    assert set(drawn[0] + drawn[1]) == set(range(5))
    dropped = Distributed(0, 0, 2).sampler(range(5), shuffle=False, drop_last=True)
    assert dropped is not None
    assert list(dropped) == [0, 2]
