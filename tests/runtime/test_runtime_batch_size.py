"""batch_size(), scaled_lr() and warmup()."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import ConstantLR, StepLR

from gpulint import runtime

GIB = 1024**3
Tuned = Callable[..., Path]
Cuda = Callable[..., list[torch.device]]


@pytest.fixture
def tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tuned:
    """Write a file of tuned values above the script that runs."""
    script = tmp_path / "jobs" / "train.py"
    script.parent.mkdir()
    main = types.SimpleNamespace(__file__=str(script))
    monkeypatch.setitem(sys.modules, "__main__", main)

    def write(*entries: dict[str, Any], script: str = "jobs/train.py") -> Path:
        content = {"schema": 1, "script": script, "entries": entries}
        file = tmp_path / "gpulint.tuned.json"
        file.write_text(json.dumps(content))
        return file

    return write


def entry(size: int = 256, peak: int | None = 10 * GIB, **more: Any) -> dict[str, Any]:
    """What was tuned on the GPU of the fixture `cuda`."""
    hardware = {"name": "NVIDIA Test GPU", "memory": 24 * GIB, "cpus": 8}
    batch = {"batch_size": {"train": size}, "peak_bytes": peak}
    return {"hardware": hardware, **batch, **more}


def row(size: int, peak: int) -> dict[str, Any]:
    return {"batch_size": {"train": size}, "peak_bytes": peak}


def test_without_a_file_the_number_stands() -> None:
    assert runtime.batch_size(32) == 32
    assert runtime.batch_size(48, name="critic") == 48
    assert runtime.batch_size(64, train=False) == 64
    assert "batch size: 32 (nothing is tuned)" in runtime.explain()
    assert "batch size of eval: 64 (nothing is tuned)" in runtime.explain()


def test_without_a_file_no_gpu_is_looked_at(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda()

    def refuse(*arguments: object) -> None:
        raise AssertionError("a process that is forked now could not use CUDA")

    monkeypatch.setattr(torch.cuda, "get_device_properties", refuse)
    assert runtime.batch_size(32) == 32
    assert runtime.scaled_lr(0.1, batch_size=32, base_batch_size=32) == 0.1


def test_a_tuned_size(cuda: Cuda, tuned: Tuned) -> None:
    cuda()
    tuned(entry(256, batch_size={"train": 256, "eval": 512, "critic": 96}))
    assert runtime.batch_size(32) == 256
    assert runtime.batch_size(32, train=False) == 512
    assert runtime.batch_size(32, name="critic") == 96
    assert runtime.batch_size(32, name="critic", train=False) == 96
    assert runtime.batch_size(32, name="unknown") == 32
    assert "batch size: 256 (tuned for NVIDIA Test GPU)" in runtime.explain()


def test_a_file_beside_the_script(
    cuda: Cuda, tuned: Tuned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda()
    tuned(entry(256)).rename(tmp_path / "jobs" / "gpulint.tuned.json")
    assert runtime.batch_size(32) == 32  # it is about jobs/jobs/train.py
    runtime._reset()
    tuned(entry(128), script="train.py").rename(tmp_path / "jobs/gpulint.tuned.json")
    assert runtime.batch_size(32) == 128
    runtime._reset()
    monkeypatch.delattr(sys.modules["__main__"], "__file__")
    monkeypatch.chdir(tmp_path / "jobs")
    assert runtime.batch_size(32) == 128  # a notebook


@pytest.mark.parametrize(
    "hardware",
    [
        {"name": "Another GPU", "memory": 24 * GIB},
        {"name": "NVIDIA Test GPU", "memory": 16 * GIB},
        {"name": "NVIDIA Test GPU", "memory": None},
        {},
        None,
    ],
)
def test_another_machine(hardware: object, cuda: Cuda, tuned: Tuned) -> None:
    cuda()
    tuned(entry(512, hardware=hardware))
    assert runtime.batch_size(32) == 32
    assert "batch size: 32 (not tuned for this hardware)" in runtime.explain()
    runtime._reset()
    tuned(entry(512, hardware=hardware), entry(128))
    assert runtime.batch_size(32) == 128


def test_memory_may_differ_by_5_percent(cuda: Cuda, tuned: Tuned) -> None:
    cuda(total=int(24 * GIB * 0.96))
    tuned(entry(256))
    assert runtime.batch_size(32) == 256


def test_on_a_cpu(tuned: Tuned) -> None:
    hardware = {"name": runtime.hardware().name, "memory": None, "cpus": 4}
    tuned(entry(96, hardware=hardware))
    assert runtime.batch_size(32) == 96


@pytest.mark.parametrize("free,size", [(20, 256), (9, 192), (7, 128), (3, 32)], ids=str)
def test_the_largest_size_that_fits(
    free: int, size: int, cuda: Cuda, tuned: Tuned, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda(free=free * GIB)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 0)
    table = [row(128, 6 * GIB), row(512, 1), row(192, 8 * GIB), {}, 3, row(0, 1)]
    tuned(entry(256, table=table))
    assert runtime.batch_size(32) == size


def test_memory_that_the_process_holds_counts_as_free(
    cuda: Cuda, tuned: Tuned, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda(free=8 * GIB)
    tuned(entry(256))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 3 * GIB)
    assert runtime.batch_size(32) == 256
    runtime._reset()
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: GIB)
    assert runtime.batch_size(32) == 32
    assert "8.0 GiB" not in runtime.explain()
    assert "9.0 GiB free, too little for what was tuned" in runtime.explain()


def test_a_size_without_a_known_peak(cuda: Cuda, tuned: Tuned) -> None:
    cuda(free=GIB)
    tuned(entry(256, peak=None))
    assert runtime.batch_size(32) == 256


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "{}", '{"schema": 2}', '{"schema": 1, "script": "jobs/train.py"}'],
)
def test_a_file_that_says_nothing(text: str, cuda: Cuda, tuned: Tuned) -> None:
    cuda()
    tuned().write_text(text)
    assert runtime.batch_size(32) == 32
    assert ("cannot be read" in runtime.explain()) is (text == "{")


@pytest.mark.parametrize(
    "variables,sizes",
    [
        ({"GPULINT_BATCH_SIZE": "64"}, (64, 32, 32)),
        ({"GPULINT_BATCH_SIZE_EVAL": "64"}, (32, 64, 32)),
        ({"GPULINT_BATCH_SIZE_CRITIC": "8", "GPULINT_BATCH_SIZE": "4"}, (4, 32, 8)),
        ({"GPULINT_BATCH_SIZE": ""}, (32, 32, 32)),
        ({"GPULINT_BATCH_SIZE": "64", "GPULINT_RUNTIME": "off"}, (32, 32, 32)),
        ({"GPULINT_BATCH_SIZE": "64", "GPULINT_DEBUG": "1"}, (32, 32, 32)),
    ],
)
def test_variables(
    variables: dict[str, str],
    sizes: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert runtime.batch_size(32) == sizes[0]
    assert runtime.batch_size(32, train=False) == sizes[1]
    assert runtime.batch_size(32, name="critic") == sizes[2]


@pytest.mark.parametrize("value", ["0", "-8", "many"])
def test_a_variable_that_is_no_size(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPULINT_BATCH_SIZE", value)
    with pytest.raises(ValueError, match="GPULINT_BATCH_SIZE="):
        runtime.batch_size(32)


@pytest.mark.parametrize("variable", ["GPULINT_RUNTIME=off", "GPULINT_DEBUG=1"])
def test_off_and_debug_leave_the_tuned_size(
    variable: str, cuda: Cuda, tuned: Tuned, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda()
    tuned(entry(256))
    monkeypatch.setenv(*variable.split("="))
    assert runtime.batch_size(32) == 32


def test_the_answer_stays(cuda: Cuda, tuned: Tuned) -> None:
    cuda()
    file = tuned(entry(256))
    assert runtime.batch_size(32) == 256
    file.unlink()
    assert runtime.batch_size(32) == 256


def test_workers_use_what_their_parent_decided(
    cuda: Cuda, tuned: Tuned, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda()
    tuned(entry(256))
    assert runtime.batch_size(32) == 256
    kept = dict(os.environ)
    runtime._reset()
    assert not any(name.startswith("_GPULINT") for name in os.environ)
    monkeypatch.setattr("gpulint.runtime._batch_size.in_worker", lambda: True)
    monkeypatch.setattr(os, "environ", kept)
    assert runtime.batch_size(32) == 256
    assert runtime.batch_size(48) == 48


def test_ranks_without_a_group_cannot_agree(
    cuda: Cuda, tuned: Tuned, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda()
    tuned(entry(256))
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert runtime.batch_size(32) == 32
    assert "the ranks cannot agree" in runtime.explain()


RANKS = """
import os
import torch.distributed
from gpulint import runtime

os.environ["GPULINT_BATCH_SIZE"] = ["96", "64", "128"][int(os.environ["RANK"])]
torch.distributed.init_process_group("gloo")
print(f"size {runtime.batch_size(32)}.", flush=True)
print(f"size {runtime.batch_size(32)}.", flush=True)
torch.distributed.destroy_process_group()
"""


def test_ranks_take_the_lowest(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(RANKS)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run"),
            *("--nproc-per-node=3", str(script)),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(runtime.__file__).parents[2])},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("size 64.") == 6
    assert done.stderr.count("gpulint: batch size: 64 (the lowest of all ranks)") == 1


@pytest.mark.parametrize(
    "rule,size,expected",
    [
        ("sqrt", 128, 0.02),
        ("linear", 128, 0.04),
        ("linear", 32 * 100, 0.08),
        ("sqrt", 8, 0.005),
        ("linear", 8, 0.0025),
        ("none", 128, 0.01),
        ("sqrt", 32, 0.01),
    ],
)
def test_learning_rates(rule: str, size: int, expected: float) -> None:
    rate = runtime.scaled_lr(0.01, batch_size=size, base_batch_size=32, rule=rule)
    assert rate == pytest.approx(expected, rel=1e-12)
    assert ("learning rate" in runtime.explain()) is (rate != 0.01)


def test_the_same_batch_gives_the_same_rate_bit_for_bit() -> None:
    for rate in (0.1, 1e-3, 3.3e-5, 0.7):
        for rule in ("sqrt", "linear", "none"):
            its = runtime.scaled_lr(rate, batch_size=7, base_batch_size=7, rule=rule)
            assert its is rate


def test_learning_rates_when_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPULINT_RUNTIME", "off")
    rate = runtime.scaled_lr(0.1, batch_size=128, base_batch_size=32, rule="linear")
    assert rate == 0.1


def test_unknown_rule() -> None:
    with pytest.raises(ValueError, match="rule='log' is not one of sqrt, linear, none"):
        runtime.scaled_lr(0.1, batch_size=64, base_batch_size=32, rule="log")


def rates(steps: int, times: int, decay: bool = False) -> list[float]:
    """The learning rate of each step."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.4)
    schedulers: list[Any] = [runtime.warmup(optimizer, steps)]
    if decay:
        schedulers.append(StepLR(optimizer, step_size=4, gamma=0.5))
    seen = []
    for _ in range(times):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
    return seen


def test_warm_up() -> None:
    assert rates(3, 6) == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])
    assert rates(3, 6, decay=True) == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.2, 0.2])
    assert "warm-up: 3 steps" in runtime.explain()


@pytest.mark.parametrize("steps,state", [(3, "off"), (0, "on")])
def test_no_warm_up(steps: int, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPULINT_RUNTIME", state)
    assert rates(steps, 4) == [0.4] * 4
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.4)
    assert isinstance(runtime.warmup(optimizer, steps), ConstantLR)
