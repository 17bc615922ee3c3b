"""What the machine is: CUDA, NVML, ROCm, XPU, MPS and the CPU; and device()."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gpulint import runtime
from gpulint.runtime._hardware import _cpu_name, in_units
from gpulint.runtime._nvml import nvml_facts, open_gpu

GIB = 1024**3
Cuda = Callable[..., list[torch.device]]


class NVMLError(Exception):
    pass


class FakeNvml(types.ModuleType):
    """NVML with GPUs (and slices) by identifier; `broken` names what fails."""

    NVMLError = NVMLError

    def __init__(self, *names: str, broken: tuple[str, ...] = (), mig: int = 0) -> None:
        super().__init__("pynvml")
        self.names, self.broken, self.mig = names, broken, mig
        self.running = 0

    def __getattr__(self, call: str) -> Any:
        if not call.startswith("nvml"):
            raise AttributeError(call)
        if call in self.broken:
            return self._fail
        return getattr(self, f"_{call.removeprefix('nvml')}")

    def _fail(self, *_: object) -> None:
        raise NVMLError

    def _Init(self) -> None:
        self.running += 1

    def _Shutdown(self) -> None:
        self.running -= 1

    def _DeviceGetCount(self) -> int:
        return len(self.names)

    def _DeviceGetHandleByIndex(self, index: int) -> str:
        if index >= len(self.names):
            raise NVMLError
        return self.names[index]

    def _DeviceGetHandleByUUID(self, uuid: str) -> str:
        return f"GPU {uuid}"

    def _DeviceGetName(self, handle: str) -> bytes:
        return handle.encode()

    def _DeviceGetMigMode(self, handle: str) -> tuple[int, int]:
        return self.mig, self.mig

    def _DeviceGetMemoryInfo(self, handle: str) -> types.SimpleNamespace:
        return types.SimpleNamespace(total=80 * GIB, free=70 * GIB)

    def _DeviceGetCudaComputeCapability(self, handle: str) -> tuple[int, int]:
        if handle.startswith("GPU MIG") and "parent" not in handle:
            raise NVMLError
        return 8, 0

    def _DeviceGetDeviceHandleFromMigDeviceHandle(self, handle: str) -> str:
        return f"{handle} parent"


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeNvml]:
    def install(*names: str, **faults: Any) -> FakeNvml:
        fake = FakeNvml(*names, **faults)
        monkeypatch.setitem(sys.modules, "pynvml", fake)
        return fake

    return install


Nvml = Callable[..., FakeNvml]


def test_cuda_once_it_runs(cuda: Cuda) -> None:
    cuda((8, 6), name="NVIDIA GeForce RTX 3090")
    found = runtime.hardware()
    assert (found.kind, found.name, found.capability) == (
        "cuda",
        "NVIDIA GeForce RTX 3090",
        (8, 6),
    )
    assert (found.memory_total, found.memory_free) == (24 * GIB, 20 * GIB)
    assert found.bf16
    assert found.tf32
    assert not found.mig
    assert found.cpus >= 1


def test_cuda_before_it_runs_is_read_without_starting_it(
    cuda: Cuda, nvml: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda()
    fake = nvml("NVIDIA A100", "NVIDIA A100")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_device_properties", None)
    found = runtime.hardware()
    assert (found.name, found.memory_free) == ("NVIDIA A100", 70 * GIB)
    assert fake.running == 0  # no connection is left for a forked worker


def test_without_nvml_cuda_answers(
    cuda: Cuda, nvml: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda((7, 5), name="Tesla T4")
    nvml(broken=("nvmlInit",))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    found = runtime.hardware()
    assert (found.name, found.bf16, found.tf32) == ("Tesla T4", False, False)


@pytest.mark.parametrize(
    "call",
    [
        "nvmlInit",
        "nvmlDeviceGetCount",
        "nvmlDeviceGetHandleByIndex",
        "nvmlDeviceGetName",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetCudaComputeCapability",
    ],
)
def test_no_nvml_error_reaches_the_script(call: str, nvml: Nvml) -> None:
    faults = (call, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle")
    fake = nvml("NVIDIA A100", broken=faults)
    assert nvml_facts(0) is None
    assert fake.running == 0


def test_failing_shutdown_does_no_harm(nvml: Nvml) -> None:
    nvml("NVIDIA A100", broken=("nvmlShutdown", "nvmlDeviceGetMigMode"))
    assert nvml_facts(0) is not None


@pytest.mark.parametrize(
    "error",
    "LibraryNotFound DriverNotLoaded NoPermission LibRmVersionMismatch GpuIsLost "
    "NotSupported Uninitialized Unknown".split(),
)
@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetHandleByIndex"])
def test_errors_of_drivers(
    error: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that the library itself raises, also where it is not there to ask."""
    pynvml = pytest.importorskip("pynvml")

    def fail(*_: object) -> None:
        raise getattr(pynvml, f"NVMLError_{error}")

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 1)
    monkeypatch.setattr(pynvml, call, fail)
    assert nvml_facts(0) is None
    assert open_gpu(None, 0) is None


def test_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml_facts(0) is None


def test_real_library_on_this_machine() -> None:
    facts = nvml_facts(0)
    assert facts is None or facts.memory_total > 0


def test_cuda_order_is_unsure_among_different_gpus(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml("NVIDIA T400", "NVIDIA A100")
    assert nvml_facts(0) is None
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    facts = nvml_facts(1)
    assert facts is not None
    assert facts.name == "NVIDIA A100"


@pytest.mark.parametrize(
    "visible,index,name",
    [
        ("1,0", 0, "NVIDIA A100"),
        ("GPU-1111,GPU-2222", 1, "GPU GPU-2222"),
        ("MIG-3333", 0, "GPU MIG-3333"),
        ("0", 1, None),
    ],
)
def test_visible_devices(
    visible: str,
    index: int,
    name: str | None,
    nvml: Nvml,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvml("NVIDIA T400", "NVIDIA A100")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    facts = nvml_facts(index)
    assert (None if facts is None else facts.name) == name


def test_a_divided_gpu_is_not_taken_for_its_slice(nvml: Nvml, cuda: Cuda) -> None:
    nvml("NVIDIA A100", mig=1)
    assert nvml_facts(0) is None
    cuda((8, 0), name="NVIDIA A100-SXM4-40GB MIG 1g.5gb", total=5 * GIB)
    found = runtime.hardware()
    assert found.mig
    assert found.memory_total == 5 * GIB


@pytest.mark.parametrize(
    "architecture,bf16,tf32",
    [
        ("gfx90a:sramecc+:xnack-", True, False),
        ("gfx908", True, False),
        ("gfx942", True, True),
        ("gfx950", True, True),
        ("gfx1100", True, False),
        ("gfx1201", True, False),
        ("gfx906", False, False),
        ("gfx1030", False, False),
    ],
)
def test_rocm(architecture: str, bf16: bool, tf32: bool, cuda: Cuda) -> None:
    cuda((9, 4), architecture=architecture)
    found = runtime.hardware()
    assert (found.kind, found.bf16, found.tf32) == ("rocm", bf16, tf32)


@pytest.mark.usefixtures("xpu")
def test_xpu(monkeypatch: pytest.MonkeyPatch) -> None:
    found = runtime.hardware()
    assert (found.kind, found.memory_free, found.bf16) == ("xpu", 8 * GIB, True)
    monkeypatch.delattr(torch.xpu, "mem_get_info")
    assert runtime.hardware().memory_free is None


@pytest.mark.usefixtures("mps")
def test_mps(monkeypatch: pytest.MonkeyPatch) -> None:
    found = runtime.hardware()
    assert (found.kind, found.memory_free, found.bf16) == ("mps", 10 * GIB, False)
    monkeypatch.delattr(torch.mps, "recommended_max_memory")
    assert runtime.hardware().memory_total is None


def test_cpu() -> None:
    found = runtime.hardware()
    assert (found.kind, found.memory_total, found.capability) == ("cpu", None, None)


def test_a_gpu_that_does_not_answer(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(index: int) -> None:
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")

    cuda()
    monkeypatch.setattr(torch.cuda, "mem_get_info", refuse)
    found = runtime.hardware()
    assert (found.kind, found.memory_free, found.bf16) == ("cuda", None, False)
    assert runtime.amp_dtype("cuda") is None


def test_cpu_name(files: Callable[[dict[str, str]], Path]) -> None:
    root = files({"proc/cpuinfo": "processor : 0\nmodel name\t: Test CPU 9000\n"})
    assert _cpu_name(root) == "Test CPU 9000"
    assert _cpu_name(root / "nowhere")


@pytest.mark.parametrize(
    "size,text",
    [
        (80, "80 bytes"),
        (2048, "2.0 KiB"),
        (15_854_469, "15.1 MiB"),
        (24 * GIB, "24.0 GiB"),
        (3000 * GIB, "3000.0 GiB"),
    ],
)
def test_sizes(size: int, text: str) -> None:
    assert in_units(size) == text


def test_device_order(cuda: Cuda) -> None:
    assert runtime.device() == torch.device("cpu")
    cuda()
    assert runtime.device() == torch.device("cuda")


@pytest.mark.usefixtures("xpu")
def test_device_xpu() -> None:
    assert runtime.device() == torch.device("xpu")
    assert runtime.device("xpu:1") == torch.device("xpu:1")


@pytest.mark.usefixtures("mps")
def test_device_mps() -> None:
    assert runtime.device("cuda") == torch.device("mps")


@pytest.mark.parametrize(
    "preferred,chosen",
    [
        ("cuda:1", "cuda:1"),
        (torch.device("cuda", 1), "cuda:1"),
        (1, "cuda:1"),
        ("cuda:7", "cuda"),
        (7, "cuda"),
        ("cuda", "cuda"),
        ("cpu", "cpu"),
        ("mps", "cuda"),
        ("meta", "meta"),
        (None, "cuda"),
    ],
)
def test_preferred_device(preferred: Any, chosen: str, cuda: Cuda) -> None:
    current = cuda(count=2)
    assert runtime.device(preferred) == torch.device(chosen)
    assert current == []


def test_preferred_gpu_on_a_machine_without() -> None:
    assert runtime.device("cuda:1") == torch.device("cpu")
    assert runtime.device(1) == torch.device("cpu")
    assert "device: cpu (this machine has no cuda:1)" in runtime.explain()


@pytest.mark.parametrize(
    "rank,preferred,chosen,made_current",
    [
        ("0", None, "cuda:0", True),
        ("1", None, "cuda:1", True),
        ("1", "cuda", "cuda:1", True),
        ("3", None, "cuda:1", True),  # two devices for four ranks
        ("1", "cuda:0", "cuda:0", False),
        ("1", "cuda:7", "cuda:1", True),
        ("1", "cpu", "cpu", False),
    ],
)
def test_device_of_a_rank(
    rank: str,
    preferred: str | None,
    chosen: str,
    made_current: bool,
    cuda: Cuda,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    current = cuda(count=2)
    monkeypatch.setenv("LOCAL_RANK", rank)
    assert runtime.device(preferred) == torch.device(chosen)
    assert current == ([torch.device(chosen)] if made_current else [])


@pytest.mark.usefixtures("xpu")
def test_xpu_of_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    current: list[torch.device] = []
    monkeypatch.setattr(torch.xpu, "set_device", current.append)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert runtime.device() == torch.device("xpu:1")
    assert current == [torch.device("xpu:1")]
    assert "device: xpu:1 (LOCAL_RANK=1)" in runtime.explain()


def test_device_when_off(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPULINT_RUNTIME", "off")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert runtime.device() == torch.device("cpu")
    assert runtime.device("cuda:5") == torch.device("cuda:5")
    current = cuda(count=2)
    assert runtime.device() == torch.device("cuda")
    assert current == []
