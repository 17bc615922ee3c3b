"""lightning_precision(), accelerate_precision() and hf_args()."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from gpulint import runtime

Cuda = Callable[..., list[torch.device]]
Machine = Callable[..., None]


@pytest.mark.parametrize(
    "capability, lightning, accelerate",
    [
        ((6, 1), 32, None),
        ((7, 5), "16-mixed", "fp16"),
        ((8, 0), "bf16-mixed", "bf16"),
        ((12, 0), "bf16-mixed", "bf16"),
    ],
)
def test_precision_by_the_gpu(
    capability: tuple[int, int],
    lightning: str | int,
    accelerate: str | None,
    cuda: Cuda,
) -> None:
    cuda(capability)
    assert runtime.lightning_precision() == lightning
    assert runtime.accelerate_precision() == accelerate
    wanted = {accelerate: True} if accelerate else {}
    assert runtime.hf_args(precision=True) == wanted


@pytest.mark.parametrize("capability, precision", [((9, 0), "bf16"), ((7, 5), 16)])
@pytest.mark.parametrize(
    "module, version", [("pytorch_lightning", "1.9.5"), ("lightning", "2022.10.20")]
)
def test_lightning_1_has_names_of_its_own(
    module: str,
    version: str,
    capability: tuple[int, int],
    precision: str | int,
    cuda: Cuda,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(__version__=version))
    cuda(capability)
    assert runtime.lightning_precision() == precision


def test_nothing_changes_without_a_gpu(machine: Machine) -> None:
    machine(cpus=1)
    assert runtime.lightning_precision() == 32
    assert runtime.lightning_precision("bf16-true") == "bf16-true"
    assert runtime.accelerate_precision() is None
    assert runtime.hf_args(precision=True, tf32=True) == {}


def test_off_gives_what_the_script_said(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPULINT_RUNTIME", "off")
    cuda((9, 0))
    assert runtime.lightning_precision() == 32
    assert runtime.accelerate_precision() is None
    explicit = {"dataloader_num_workers": 2}
    args = runtime.hf_args(explicit, precision=True, tf32=True, loading=True)
    assert args == explicit


def test_debugging_trains_in_float32(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPULINT_DEBUG", "1")
    cuda((9, 0))
    assert runtime.lightning_precision() == 32
    args = runtime.hf_args(precision=True, tf32=True, loading=True)
    assert args == {"dataloader_num_workers": 0}


def test_the_launcher_has_its_own_setting(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gpulint")
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    cuda((9, 0))
    assert runtime.accelerate_precision() is None
    assert runtime.hf_args(precision=True) == {}
    assert "as `accelerate launch` says" in caplog.text


def test_one_format_at_most(cuda: Cuda) -> None:
    cuda((9, 0))
    assert runtime.hf_args({"fp16": True}, precision=True) == {"fp16": True}


@pytest.mark.parametrize("capability, wanted", [((7, 5), {}), ((8, 6), {"tf32": True})])
def test_tf32_where_it_is(
    capability: tuple[int, int], wanted: dict[str, bool], cuda: Cuda
) -> None:
    cuda(capability)
    assert runtime.hf_args(tf32=True) == wanted


def test_workers_come_with_what_needs_them(cuda: Cuda, machine: Machine) -> None:
    cuda((9, 0))
    machine(cpus=8)
    args = runtime.hf_args(loading=True)
    assert args["dataloader_num_workers"] == 7
    assert args["dataloader_persistent_workers"] is True
    assert args.get("dataloader_prefetch_factor", 2) >= 2


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_no_workers_that_would_be_sent_a_collator(
    method: str, cuda: Cuda, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda((9, 0))
    machine(cpus=8)
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda **_: method)
    assert runtime.hf_args(loading=True) == {}
    args = runtime.hf_args({"dataloader_num_workers": 2}, loading=True)
    assert args["dataloader_num_workers"] == 2


def test_what_an_older_transformers_lacks_is_left_out(
    cuda: Cuda,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    @dataclass
    class TrainingArguments:
        dataloader_num_workers: int = 0

    caplog.set_level("INFO", "gpulint")
    old = SimpleNamespace(TrainingArguments=TrainingArguments)
    monkeypatch.setitem(sys.modules, "transformers.training_args", old)
    cuda((9, 0))
    machine(cpus=8)
    args = runtime.hf_args({"seed": 1}, tf32=True, loading=True)
    assert args == {"dataloader_num_workers": 7, "seed": 1}
    assert "transformers: too old for tf32, dataloader_" in caplog.text


def test_no_workers_no_options_of_theirs(cuda: Cuda, machine: Machine) -> None:
    cuda((9, 0))
    machine(cpus=8)
    given = {"dataloader_num_workers": 0}
    assert runtime.hf_args(given, loading=True) == given
