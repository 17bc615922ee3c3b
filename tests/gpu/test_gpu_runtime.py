"""The runtime's helpers on a real GPU: real streams, real kernels, real memory."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gpulint import runtime

MIB = 1024**2


def slow(device: torch.device, cycles: int = 20_000_000) -> None:
    """Keep the current stream of the GPU busy for some milliseconds."""
    torch.cuda._sleep(cycles)


def test_the_machine(gpu: torch.device) -> None:
    machine = runtime.hardware()
    properties = torch.cuda.get_device_properties(gpu)
    assert machine.kind == "cuda"
    assert machine.name == properties.name
    assert machine.capability == (properties.major, properties.minor)
    assert machine.bf16 == torch.cuda.is_bf16_supported(including_emulation=False)
    assert machine.tf32 == (properties.major >= 8)
    assert machine.memory_total is not None
    assert abs(machine.memory_total - properties.total_memory) < 2048 * MIB
    assert runtime.device().type == "cuda"


def test_formats(gpu: torch.device) -> None:
    wanted = torch.bfloat16 if torch.cuda.get_device_capability()[0] >= 8 else None
    if wanted is not None:
        assert runtime.amp_dtype(gpu) is wanted
    assert runtime.amp_dtype(gpu, prefer="fp16") is torch.float16
    assert runtime.accumulator_dtype(gpu) is torch.float64


def test_a_sum_on_the_gpu_is_the_sum_of_the_hosts_numbers(gpu: torch.device) -> None:
    losses = torch.rand(1000, device=gpu)
    total = torch.zeros((), dtype=runtime.accumulator_dtype(gpu), device=gpu)
    expected = 0.0
    for loss in losses:
        total += loss.detach().to(total.dtype) * 32
        expected += loss.item() * 32
    assert total.item() == expected


def test_pinned_batches_arrive_whole(gpu: torch.device) -> None:
    batch = {"x": torch.rand(512, 512).pin_memory(), "n": 3}
    expected = batch["x"].clone()  # type: ignore[attr-defined]
    slow(gpu)
    moved = runtime.to_device(batch, gpu)
    assert moved["n"] == 3
    assert torch.equal(moved["x"].cpu(), expected)


class Rows(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Rows that are easy to tell apart."""

    def __len__(self) -> int:
        return 640

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((4096,), float(index)), index


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_ahead_are_those_of_the_loader(gpu: torch.device, workers: int) -> None:
    """Memory that is handed out again early, or read too early, would show here."""
    loader = DataLoader(Rows(), 16, num_workers=workers, pin_memory=True)
    sums = []
    for x, index in runtime.prefetch(loader, gpu):
        assert x.device == gpu
        slow(gpu, 3_000_000)
        doubled = x * 2
        sums.append((doubled.sum(1) / 2 / 4096 - index).abs().max())
        del x, index, doubled
        # what is free now is taken and overwritten at once
        torch.full((16, 4096), -1.0, device=gpu)
    assert len(sums) == 40
    assert torch.stack(sums).max().item() == 0.0


def test_a_copy_ahead_runs_beside_the_step(gpu: torch.device) -> None:
    """On a stream of its own: it is done while the step still runs."""
    batches = [torch.rand(1024, 1024).pin_memory() for _ in range(3)]
    ahead = iter(runtime.prefetch(batches, gpu))
    first = next(ahead)
    torch.cuda.synchronize()
    busy = torch.cuda.Event()
    torch.cuda._sleep(2_000_000_000)  # about a second
    busy.record()
    second = next(ahead)  # asks for the third as well
    assert not busy.query()  # nothing waited for the step
    torch.cuda.synchronize()
    assert torch.equal(first.cpu(), batches[0])
    assert torch.equal(second.cpu(), batches[1])
    assert torch.equal(next(ahead).cpu(), batches[2])


def test_an_array_on_the_gpu(gpu: torch.device) -> None:
    array = np.random.default_rng(0).normal(size=(1000, 32)).astype(np.float32)
    bank = runtime.resident(array, gpu)
    assert bank.place == "device"
    index = torch.randint(0, 1000, (64,), device=gpu)
    host = index.cpu().numpy()
    assert torch.equal(bank[index].cpu(), torch.from_numpy(array[host]))
    assert torch.equal(bank[host].cpu(), torch.from_numpy(array[host]))
    assert torch.equal(bank[10:20].cpu(), torch.from_numpy(array[10:20]))
    assert torch.equal(bank[-1].cpu(), torch.from_numpy(array[-1]))
    with pytest.raises(IndexError):
        bank[1000]
    with pytest.raises(IndexError):
        bank[np.array([5, 1000])]
    # an assertion on the device would have broken the context for good
    assert torch.ones(3, device=gpu).sum().item() == 3.0


def test_an_array_too_large_for_the_gpu(gpu: torch.device) -> None:
    array = np.random.default_rng(0).normal(size=(4096, 64)).astype(np.float32)
    bank = runtime.resident(array, gpu, max_fraction=1e-7)
    assert bank.place == "pinned"
    taken = bank[np.arange(100, 200)]
    assert taken.device == gpu
    assert torch.equal(taken.cpu(), torch.from_numpy(array[100:200]))


def test_a_loader_of_tensors_pins_and_gives_the_same(gpu: torch.device) -> None:
    tensors = torch.rand(1000, 8), torch.arange(1000)
    plain = DataLoader(TensorDataset(*tensors), 64, shuffle=True, pin_memory=True)
    ours = runtime.TensorLoader(tensors, batch_size=64, shuffle=True, pin_memory=True)
    torch.manual_seed(3)
    expected = [[part.clone() for part in batch] for batch in plain]
    state = torch.get_rng_state()
    torch.manual_seed(3)
    for batch, wanted in zip(ours, expected, strict=True):
        assert all(part.is_pinned() for part in batch)
        assert all(map(torch.equal, batch, wanted))
    assert torch.equal(torch.get_rng_state(), state)


class Network(nn.Module):
    """Small, with dropout, which draws on the GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 8)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)  # type: ignore[no-any-return]


def test_the_largest_batch_that_fits(gpu: torch.device) -> None:
    model = Network().to(gpu)
    optimizer = torch.optim.Adam(model.parameters())
    sample = 64 * MIB

    def step(count: int) -> None:
        held = torch.empty(count * sample, dtype=torch.uint8, device=gpu)
        loss = model(torch.rand(32, 64, device=gpu)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.cuda._sleep(30_000_000)  # more samples in the same time
        del held

    step(1)
    weights = copy.deepcopy(model.state_dict())
    moments = copy.deepcopy(optimizer.state_dict())
    generator = torch.cuda.get_rng_state()
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    size = runtime.find_batch_size(
        step, start=4, max_size=65536, restore=[model, optimizer]
    )
    assert size * sample <= free
    assert size * sample >= 0.5 * free
    for name, value in model.state_dict().items():
        assert torch.equal(value, weights[name])
    now = optimizer.state_dict()["state"]
    for number, state in moments["state"].items():
        for key, value in state.items():
            assert torch.equal(now[number][key], value)
    assert torch.equal(torch.cuda.get_rng_state(), generator)
    assert torch.cuda.mem_get_info()[0] > 0.9 * free  # all was given back
    step(size)


def test_errors_that_are_no_shortage_come_through(gpu: torch.device) -> None:
    model = Network().to(gpu)

    def step(count: int) -> None:
        model(torch.rand(count, 63, device=gpu))

    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        runtime.find_batch_size(step, start=8, max_size=64, restore=[model])


@pytest.mark.filterwarnings("ignore")  # torch's own, of its compiler
def test_a_model_is_compiled(gpu: torch.device) -> None:
    torch._dynamo.reset()
    model = Network().to(gpu).eval()
    x = torch.rand(256, 64, device=gpu)
    expected = model(x)
    compiled = runtime.maybe_compile(model)
    assert compiled is model
    assert model._compiled_call_impl is not None
    torch.testing.assert_close(model(x), expected, rtol=1e-3, atol=1e-4)
    counted = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert counted >= 1


def test_what_is_saved_is_what_was_there(gpu: torch.device, tmp_path: Path) -> None:
    model = nn.Linear(2048, 2048).to(gpu)
    expected = {name: its.cpu().clone() for name, its in model.state_dict().items()}
    slow(gpu)
    runtime.async_save({"model": model.state_dict(), "epoch": 3}, tmp_path / "a.pt")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(-1.0)
    runtime.flush()
    kept = torch.load(tmp_path / "a.pt", weights_only=True)
    assert kept["epoch"] == 3
    for name, value in kept["model"].items():
        assert value.device == gpu  # as torch.save keeps it
        assert torch.equal(value.cpu(), expected[name])


@pytest.mark.parametrize(
    "options",
    [
        {"horizontal_flip": 1.0},
        {"brightness": (1.2, 1.2)},
        {"contrast": (0.7, 0.7)},
        {"rotation_degrees": (30.0, 30.0)},
    ],
    ids=str,
)
def test_augmentation_on_the_gpu_is_that_of_the_cpu(
    gpu: torch.device, options: dict[str, Any]
) -> None:
    images = torch.rand(16, 3, 32, 32)
    augment = runtime.augmentation(**options, device=gpu)
    made = augment(images.to(gpu))
    assert made.device == gpu
    runtime._reset()
    expected = runtime.augmentation(**options)(images)
    torch.testing.assert_close(made.cpu(), expected, rtol=1e-4, atol=1e-4)


def test_a_transform_is_split(gpu: torch.device) -> None:
    transforms = pytest.importorskip("torchvision.transforms")
    from PIL import Image

    mean, spread = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    whole = transforms.Compose(
        [
            transforms.RandomHorizontalFlip(1.0),
            transforms.ToTensor(),
            transforms.Normalize(mean, spread),
        ]
    )
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (8, 24, 24, 3)).astype(np.uint8)
    images = [Image.fromarray(its) for its in pixels]
    kept, moved = runtime.split_augmentation(whole, gpu)
    batch = torch.stack([kept(image) for image in images])
    assert batch.dtype is torch.uint8
    made = moved(batch.to(gpu))
    expected = torch.stack([whole(image) for image in images])
    torch.testing.assert_close(made.cpu(), expected, rtol=1e-5, atol=1e-5)


def test_an_epoch_is_measured(gpu: torch.device) -> None:
    loader = DataLoader(Rows(), 16, pin_memory=True)
    monitor = runtime.Monitor(interval=0.05)
    for _ in monitor.epochs(range(2)):
        for x, _ in monitor.batches(loader):
            torch.cuda._sleep(50_000_000)
            x.to(gpu).sum().item()
    figures = monitor.history[-1]
    assert figures.samples == 640
    assert figures.memory_peak is not None
    assert figures.memory_total is not None
    assert figures.utilisation is not None
    assert figures.utilisation > 50


def test_parts_of_a_batch_give_its_gradients(gpu: torch.device) -> None:
    model = nn.Linear(64, 8).to(gpu)
    x, y = torch.rand(70, 64, device=gpu), torch.randint(0, 8, (70,), device=gpu)
    nn.functional.cross_entropy(model(x), y).backward()
    assert model.weight.grad is not None
    expected = model.weight.grad.clone()
    model.zero_grad()
    for (part, target), weight in runtime.microbatches((x, y), 16, model=model):
        (weight * nn.functional.cross_entropy(model(part), target)).backward()
    torch.testing.assert_close(model.weight.grad, expected, rtol=1e-4, atol=1e-6)


def test_loaders_are_given_workers_and_pinned_memory(gpu: torch.device) -> None:
    chosen = runtime.loader_kwargs(gpu)
    loader = DataLoader(Rows(), 16, **chosen)
    assert chosen["pin_memory"]
    assert sum(len(index) for _, index in loader) == 640


def test_batches_of_the_script(gpu: torch.device) -> None:
    assert runtime.batch_size(32) >= 32
    assert "batch" in str(runtime.explain())
