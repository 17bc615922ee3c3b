"""Models that are compiled where the machine can, and stay as they are elsewhere."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from gpulint import runtime
from gpulint.runtime import _compiled


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x)


class Estimator(Net):
    def compile(self, loss: str) -> None:  # type: ignore[override]
        self.loss = loss


@pytest.fixture
def able(
    cuda: Callable[..., list[torch.device]], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """A GPU on which models lie, and a compiler that works."""

    def give(capability: tuple[int, int] = (9, 0)) -> None:
        cuda(capability)
        monkeypatch.setattr(_compiled, "_device", lambda model: torch.device("cuda"))
        monkeypatch.setattr(_compiled, "find_spec", lambda name: object())
        monkeypatch.setattr(_compiled, "_why_it_fails", lambda device: None)

    return give


def is_compiled(model: nn.Module) -> bool:
    return model._compiled_call_impl is not None


def test_a_model_is_compiled_in_place(
    able: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    able()
    model, x = Net(), torch.ones(3, 4)
    before = model(x)
    assert runtime.maybe_compile(model, backend="eager") is model
    monkeypatch.undo()
    assert is_compiled(model)
    assert torch.equal(model(x), before)
    assert list(model.state_dict()) == ["head.weight", "head.bias"]
    assert not is_compiled(copy.deepcopy(model))
    assert "compile: Net, when it first runs" in runtime.explain()


def test_a_model_is_compiled_once(able: Callable[..., None]) -> None:
    able()
    model = runtime.maybe_compile(Net(), backend="eager")
    compiled = model._compiled_call_impl
    assert runtime.maybe_compile(model)._compiled_call_impl is compiled
    wrapped = torch.compile(Net(), backend="eager")
    assert isinstance(wrapped, nn.Module)
    assert not is_compiled(runtime.maybe_compile(wrapped))
    assert runtime.explain().count("compiled already") == 2


def test_a_method_of_its_own_is_not_called(able: Callable[..., None]) -> None:
    able()
    model = runtime.maybe_compile(Estimator())
    assert not is_compiled(model)
    assert not hasattr(model, "loss")


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_script_and_what_is_no_module_stay(able: Callable[..., None]) -> None:
    able()
    script = torch.jit.script(Net())
    assert runtime.maybe_compile(script) is script
    call = Net().forward
    assert runtime.maybe_compile(call) is call  # type: ignore[type-var]


def test_on_the_cpu_nothing_is_compiled() -> None:
    assert not is_compiled(runtime.maybe_compile(Net()))
    assert not is_compiled(runtime.maybe_compile(nn.Sequential()))
    assert "compile: off for Net (on cpu)" in runtime.explain()
    assert "compile: off for Sequential (on no device)" in runtime.explain()


def test_old_gpus_have_no_triton(able: Callable[..., None]) -> None:
    able((6, 1))
    assert not is_compiled(runtime.maybe_compile(Net()))
    assert "older than what Triton knows" in runtime.explain()


def test_without_triton(
    able: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    able()
    monkeypatch.setattr(_compiled, "find_spec", lambda name: None)
    assert not is_compiled(runtime.maybe_compile(Net()))
    assert "compile: off for Net (no Triton)" in runtime.explain()


def test_a_compiler_that_fails(
    cuda: Callable[..., list[torch.device]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda()
    monkeypatch.setattr(_compiled, "_device", lambda model: torch.device("cuda"))
    monkeypatch.setattr(_compiled, "find_spec", lambda name: object())
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert not is_compiled(runtime.maybe_compile(Net()))
    assert "torch.compile fails: " in runtime.explain()
    assert "no C compiler" in runtime.explain()


def test_the_trial_passes_where_the_compiler_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f: plain(f, backend="eager"))
    assert _compiled._why_it_fails(torch.device("cpu")) is None


@pytest.mark.parametrize(
    "variable", [("GPULINT_RUNTIME", "off"), ("GPULINT_DEBUG", "1")]
)
def test_the_environment_switches_it_off(
    able: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    variable: tuple[str, str],
) -> None:
    able()
    monkeypatch.setenv(*variable)
    assert not is_compiled(runtime.maybe_compile(Net()))
