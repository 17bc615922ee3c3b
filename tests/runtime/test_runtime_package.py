"""The package as a whole: what importing it costs, switches, logging, explain()."""

from __future__ import annotations

import inspect
import io
import logging
import multiprocessing
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gpulint import runtime

Said = Callable[[], list[str]]


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(runtime.__file__).parents[2],
    )


def test_import_takes_the_standard_library_only() -> None:
    code = (
        "import sys, gpulint.runtime; "
        "slow = ('torch', 'numpy', 'pynvml', 'libcst', 'rich', 'ctypes', 'secrets'); "
        "print([m for m in slow if m in sys.modules])"
    )
    assert run_python(code).stdout.strip() == "[]"


def test_no_module_of_the_package_imports_the_analysis() -> None:
    code = (
        "import sys, gpulint.runtime; print(sorted(m for m in sys.modules "
        "if m.startswith('gpulint.') and not m.startswith('gpulint.runtime')))"
    )
    assert run_python(code).stdout.strip() == "[]"


def test_helpers_are_imported_when_they_are_asked_for() -> None:
    code = (
        "import sys, gpulint.runtime as r; "
        "own = [m for m in sys.modules if m.startswith('gpulint.runtime.')]; "
        "print(own, r.device.__name__, 'gpulint.runtime._device' in sys.modules)"
    )
    assert run_python(code).stdout.strip() == "[] device True"


def test_all_names_have_a_home() -> None:
    homes = [n for names in runtime._HELPERS.values() for n in names.split()]
    assert sorted(homes) == sorted(runtime.__all__)
    assert set(runtime.__all__) <= set(dir(runtime))
    with pytest.raises(AttributeError, match="has no attribute 'bach_size'"):
        runtime.bach_size  # noqa: B018


def test_every_public_name_is_documented() -> None:
    for name in runtime.__all__:
        assert inspect.getdoc(getattr(runtime, name)), name


def test_a_plain_script_sees_decisions_on_standard_error() -> None:
    code = (
        "from gpulint import runtime; "
        "runtime.amp_dtype('cpu'); runtime.amp_dtype('cpu'); "
        "runtime.to_device(1, 'cpu')"
    )
    done = run_python(code)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("gpulint: hardware: ")
    assert lines[1] == "gpulint: amp: off on cpu (no GPU)"


@pytest.fixture
def unconfigured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide pytest's own log handlers, as in a plain script."""
    monkeypatch.setattr(logging.getLogger("gpulint"), "hasHandlers", lambda: False)


@pytest.fixture
def logger() -> logging.Logger:
    return logging.getLogger("gpulint")


@pytest.mark.usefixtures("unconfigured")
def test_hardware_is_named_once(cuda: Callable[..., None], said: Said) -> None:
    cuda()
    runtime.amp_dtype("cuda")
    runtime.device()
    assert said() == [
        "gpulint: hardware: NVIDIA Test GPU, CUDA 12.4, 24.0 GiB of GPU memory",
        "gpulint: amp: bf16 on cuda (NVIDIA Test GPU has bf16 and fp16)",
        "gpulint: device: cuda (the first found)",
    ]


@pytest.mark.usefixtures("unconfigured")
def test_rocm_and_cpu_are_described(cuda: Callable[..., None], said: Said) -> None:
    runtime.device()
    assert "no GPU" in said()[0]
    runtime._reset()
    cuda(architecture="gfx942:sramecc+:xnack-", name="AMD Test GPU")
    runtime.device()
    assert said()[0] == (
        "gpulint: hardware: AMD Test GPU, ROCm 6.2, 24.0 GiB of GPU memory"
    )


def test_configured_logging_receives_decisions(
    monkeypatch: pytest.MonkeyPatch, logger: logging.Logger, said: Said
) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    monkeypatch.setattr(logger, "handlers", [handler])
    runtime.accumulator_dtype("mps")
    assert "accumulator: float32 (MPS has no float64)" in stream.getvalue()
    assert said() == []


@pytest.mark.usefixtures("unconfigured")
def test_a_logger_set_to_warnings_is_silent(
    monkeypatch: pytest.MonkeyPatch, logger: logging.Logger, said: Said
) -> None:
    monkeypatch.setattr(logger, "level", logging.WARNING)
    logger.manager._clear_cache()  # type: ignore[attr-defined]
    runtime.device()
    assert said() == []
    logger.manager._clear_cache()  # type: ignore[attr-defined]


@pytest.mark.usefixtures("unconfigured")
def test_no_standard_error_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert runtime.device() == torch.device("cpu")


@pytest.mark.usefixtures("unconfigured")
@pytest.mark.parametrize("name", ["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"])
def test_other_ranks_are_silent(
    name: str, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    monkeypatch.setenv(name, "1")
    runtime.device()
    assert said() == []
    assert "device: cpu" in runtime.explain()


@pytest.mark.usefixtures("unconfigured")
def test_an_initialised_process_group_knows_the_rank(
    monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    group = types.SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 3
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", group)
    runtime.device()
    assert said() == []


@pytest.mark.usefixtures("unconfigured")
def test_worker_processes_are_silent(
    monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    process = types.SimpleNamespace(daemon=True)
    monkeypatch.setattr(multiprocessing, "current_process", lambda: process)
    runtime.amp_dtype("cpu")
    assert said() == []


@pytest.mark.usefixtures("unconfigured")
def test_off_is_said_once_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    monkeypatch.setenv("GPULINT_RUNTIME", "off")
    runtime.device("cpu")
    runtime.amp_dtype("cpu")
    runtime.loader_kwargs("cpu")
    assert said() == [
        "gpulint: runtime: off (GPULINT_RUNTIME), the script runs as it was written"
    ]
    assert runtime.explain() == (
        "gpulint runtime: off (GPULINT_RUNTIME), the script runs as written"
    )


def test_decisions_do_not_grow_without_end() -> None:
    for number in range(300):
        runtime.resident(torch.zeros(number), "cpu")
    assert len(runtime.explain().splitlines()) < 250


def test_explain_before_and_after_a_decision(
    monkeypatch: pytest.MonkeyPatch, cuda: Callable[..., None]
) -> None:
    cuda((8, 6), name="NVIDIA GeForce RTX 3090")
    monkeypatch.setenv("GPULINT_ENV", "cloud")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    text = runtime.explain()
    assert text.startswith("gpulint runtime\n  environment: cloud, ")
    assert "(GPULINT_ENV=cloud)" in text
    assert "  hardware: NVIDIA GeForce RTX 3090, CUDA 12.4, 24.0 GiB" in text
    assert "local ranks: 2" in text
    assert text.endswith("nothing decided yet")
    runtime.amp_dtype("cuda")
    assert runtime.explain().endswith(
        "  amp: bf16 on cuda (NVIDIA GeForce RTX 3090 has bf16 and fp16)"
    )


def test_every_decision_is_explained_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, cuda: Callable[..., None]
) -> None:
    cuda()
    monkeypatch.setenv("GPULINT_POLICY", "local-cloud")
    monkeypatch.setenv("GPULINT_ENV", "local")
    monkeypatch.setenv("GPULINT_BATCH_SIZE", "48")
    model = torch.nn.Linear(2, 2)
    try:
        device = runtime.device()
    finally:
        torch.set_float32_matmul_precision("highest")
    runtime.distributed()
    runtime.amp_dtype(device)
    runtime.accumulator_dtype(device)
    runtime.batch_size(32)
    runtime.scaled_lr(0.1, batch_size=48, base_batch_size=32, rule="sqrt")
    runtime.loader_kwargs(device)
    runtime.stage_local("s3://bucket/train")
    runtime.resident(torch.zeros(4), "cpu")
    runtime.find_batch_size(print, start=8, max_size=64, restore=[model])
    list(runtime.microbatches(torch.zeros(4, 2), 2, model=model))
    lines = [line.strip() for line in runtime.explain().splitlines()[5:]]
    assert [line.partition(":")[0] for line in lines] == [
        "TF32",
        "threads",
        "device",
        "ranks",
        "amp",
        "accumulator",
        "batch size",
        "learning rate",
        "loader",
        "stage_local",
        "resident",
        "batch size search",
        "microbatches",
    ]
    assert all("(" in line for line in lines)
    runtime._reset()


@pytest.mark.parametrize(
    "name,value,message",
    [
        ("GPULINT_RUNTIME", "maybe", "GPULINT_RUNTIME='maybe' is not one of 1, true"),
        ("GPULINT_AMP", "fp8", "GPULINT_AMP='fp8' is not one of off, fp16, bf16"),
        ("GPULINT_NUM_WORKERS", "-1", "'-1' is not a number of 0 or more"),
        ("GPULINT_DEBUG", "2", "GPULINT_DEBUG='2' is not one of"),
    ],
)
def test_a_value_that_is_not_understood(
    name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        runtime.device()


def test_settings_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime.device()
    monkeypatch.setenv("GPULINT_RUNTIME", "off")
    assert runtime.loader_kwargs("cpu") != {}
    runtime._reset()
    assert runtime.loader_kwargs("cpu") == {}
