"""Policies: what they set, who may choose them, and that they keep to the resources."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from gpulint import runtime

GIB = 1024**3
Give = Callable[..., Any]


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Torch's threads, made up as they can be set only once; TF32 is put back."""
    threads = {"intra": 16, "inter": 16}
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads["intra"])
    monkeypatch.setattr(torch, "get_num_interop_threads", lambda: threads["inter"])
    monkeypatch.setattr(torch, "set_num_threads", lambda n: threads.update(intra=n))
    monkeypatch.setattr(
        torch, "set_num_interop_threads", lambda n: threads.update(inter=n)
    )
    yield threads
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True


@pytest.fixture
def cpus(machine: Give, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def give(count: int, shm: int | None = 16 * GIB) -> None:
        machine(count, shm)
        monkeypatch.setattr("gpulint.runtime._policy.available_cpus", lambda: count)

    return give


def choose(monkeypatch: pytest.MonkeyPatch, policy: str, kind: str) -> None:
    monkeypatch.setenv("GPULINT_POLICY", policy)
    monkeypatch.setenv("GPULINT_ENV", kind)


def lines() -> list[str]:
    return [line.strip() for line in runtime.explain().splitlines()]


@pytest.mark.parametrize("kind", ["local", "cloud"])
def test_by_default_the_label_decides_nothing(
    kind: str, cuda: Give, cpus: Give, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda()
    cpus(64)
    monkeypatch.setenv("GPULINT_ENV", kind)
    torch.set_float32_matmul_precision("high")
    assert runtime.loader_kwargs("cuda") == {"num_workers": 8, "pin_memory": True}
    assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_num_threads() == 16
    said = "policy: measured (what the machine has decides, not what it is called)"
    assert said in lines()


def test_local(
    cuda: Give, cpus: Give, said: Give, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda(name="Test GPU")
    cpus(16)
    choose(monkeypatch, "local-cloud", "local")
    options = runtime.loader_kwargs("cuda")
    assert options == {"num_workers": 4, "pin_memory": True, "prefetch_factor": 1}
    assert torch.get_float32_matmul_precision() == "high"
    assert torch.backends.cudnn.allow_tf32
    assert (torch.get_num_threads(), torch.get_num_interop_threads()) == (16, 16)
    assert [line for line in lines() if not line.startswith(("env", "usable"))] == [
        "gpulint runtime",
        "policy: local-cloud (TF32, threads and loaders by the environment's kind)",
        "hardware: Test GPU, CUDA 12.4, 24.0 GiB of GPU memory",
        "TF32: on (local: speed before precision)",
        "threads: torch's own (local: nobody else uses the CPUs)",
        (
            "loader: 4 workers (16 usable CPUs, local: at most 4), pinned, "
            "1 batch ahead each"
        ),
    ]


def test_cloud(cuda: Give, cpus: Give, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda()
    cpus(16)
    choose(monkeypatch, "local-cloud", "cloud")
    options = runtime.loader_kwargs("cuda")
    assert options == {"num_workers": 8, "pin_memory": True, "prefetch_factor": 2}
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cudnn.allow_tf32
    assert (torch.get_num_threads(), torch.get_num_interop_threads()) == (8, 4)
    assert "TF32: off (cloud: precision before speed)" in lines()
    assert (
        "threads: 8 in an operation, 4 operations at a time "
        "(cloud: others use the machine as well)"
    ) in lines()
    assert "8 workers (16 usable CPUs), pinned, 2 batches ahead each" in lines()[-1]


@pytest.mark.parametrize(
    "kind,count,workers,ahead,threads",
    [
        ("local", 1, 0, None, (16, 16)),
        ("local", 2, 1, 2, (16, 16)),
        ("local", 64, 4, 1, (16, 16)),
        ("cloud", 1, 0, None, (1, 1)),
        ("cloud", 2, 1, 10, (2, 2)),
        ("cloud", 6, 5, 2, (6, 4)),
        ("cloud", 64, 8, 2, (8, 4)),
    ],
)
def test_resources_limit_the_numbers(
    kind: str,
    count: int,
    workers: int,
    ahead: int | None,
    threads: tuple[int, int],
    cuda: Give,
    cpus: Give,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda()
    cpus(count)
    choose(monkeypatch, "local-cloud", kind)
    options = runtime.loader_kwargs("cuda", was={"num_workers": 0})
    assert options["num_workers"] == workers
    assert options.get("prefetch_factor") == ahead
    assert (torch.get_num_threads(), torch.get_num_interop_threads()) == threads


def test_shared_memory_limits_what_is_ready(
    cuda: Give, cpus: Give, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda()
    cpus(3, GIB)
    choose(monkeypatch, "local-cloud", "cloud")
    assert runtime.loader_kwargs("cuda")["prefetch_factor"] == 4
    cpus(3, None)
    assert runtime.loader_kwargs("cuda")["prefetch_factor"] == 5


def test_ranks_share_the_cpus(
    cuda: Give, cpus: Give, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda()
    cpus(16)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    choose(monkeypatch, "local-cloud", "cloud")
    assert runtime.loader_kwargs("cuda")["num_workers"] == 1
    assert (torch.get_num_threads(), torch.get_num_interop_threads()) == (2, 2)


def test_fewer_threads_by_the_launcher_stay(
    process: dict[str, int], cpus: Give, monkeypatch: pytest.MonkeyPatch
) -> None:
    process["intra"] = 1  # OMP_NUM_THREADS
    cpus(16)
    choose(monkeypatch, "local-cloud", "cloud")
    runtime.device()
    assert process["intra"] == 1


def test_threads_that_run_already(cpus: Give, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(count: int) -> None:
        raise RuntimeError("cannot set number of interop threads")

    monkeypatch.setattr(torch, "set_num_interop_threads", refuse)
    cpus(16)
    choose(monkeypatch, "local-cloud", "cloud")
    runtime.device()
    assert any("8 in an operation, 16 operations at a time" in line for line in lines())


def test_evaluation_and_what_the_script_says(
    cuda: Give, cpus: Give, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda()
    cpus(16)
    choose(monkeypatch, "local-cloud", "local")
    given = runtime.loader_kwargs("cuda", num_workers=6, prefetch_factor=3)
    assert given["num_workers"] == 6
    assert given["prefetch_factor"] == 3
    assert runtime.loader_kwargs("cuda", train=False)["num_workers"] == 4
    monkeypatch.setenv("GPULINT_NUM_WORKERS", "7")
    runtime._reset()
    assert runtime.loader_kwargs("cuda")["num_workers"] == 7


def test_without_a_gpu_tf32_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, "local-cloud", "local")
    runtime.device()
    assert torch.get_float32_matmul_precision() == "highest"
    assert "TF32: as it was (no GPU that could have it)" in lines()


@pytest.mark.parametrize("switch", [("GPULINT_RUNTIME", "off"), ("GPULINT_DEBUG", "1")])
def test_switched_off(
    switch: tuple[str, str], cuda: Give, cpus: Give, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda()
    cpus(16)
    choose(monkeypatch, "local-cloud", "local")
    monkeypatch.setenv(*switch)
    runtime.configure("local-cloud", tf32=True, threads=2)
    options = runtime.loader_kwargs("cuda", was={"num_workers": 3})
    assert "prefetch_factor" not in options
    assert torch.get_float32_matmul_precision() == "highest"
    assert torch.get_num_threads() == 16


def test_a_script_chooses(
    cuda: Give, cpus: Give, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda()
    cpus(16)
    monkeypatch.setenv("GPULINT_ENV", "cloud")
    runtime.device()
    assert torch.get_num_threads() == 16
    runtime.configure("local-cloud", tf32=True, threads=3)
    assert torch.get_float32_matmul_precision() == "high"
    assert (torch.get_num_threads(), torch.get_num_interop_threads()) == (3, 4)
    assert "TF32: on (as the script asks)" in lines()
    threads = "threads: 3 in an operation, 4 operations at a time (as the script asks)"
    assert threads in lines()
    runtime.configure("measured")
    assert runtime.loader_kwargs("cuda") == {"num_workers": 8, "pin_memory": True}


def test_settings_without_a_policy(cuda: Give) -> None:
    cuda()
    runtime.configure(tf32=True, interop_threads=2)
    assert torch.get_float32_matmul_precision() == "high"
    assert (torch.get_num_threads(), torch.get_num_interop_threads()) == (16, 2)
    assert "threads: 2 operations at a time (as the script asks)" in lines()


def test_a_script_wins_over_the_environment(
    cuda: Give, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda()
    choose(monkeypatch, "local-cloud", "local")
    runtime.configure("measured")
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize(
    "options,message",
    [
        ({"policy": "fast"}, "policy='fast' is not one of measured, local-cloud"),
        ({"threads": 0}, "threads=0 is not a number of 1 or more"),
        ({"interop_threads": -1}, "interop_threads=-1 is not a number of 1 or more"),
    ],
)
def test_what_is_not_understood(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        runtime.configure(**options)


def test_an_unknown_policy_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, "cloudy", "cloud")
    message = "^GPULINT_POLICY='cloudy' is not one of measured, local-cloud$"
    for call in (runtime.explain, runtime.device):
        with pytest.raises(ValueError, match=message):
            call()
