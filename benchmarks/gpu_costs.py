"""What a finding costs on the GPU of this machine: a training step with it and without.

    python benchmarks/gpu_costs.py --out benchmarks/results/gpu_costs.json

Each case is a training step written twice, as gpulint finds it and as it would be. Both
run in turns, a few steps at a time, ended by one wait for the GPU; kept
are the medians in microseconds a step, and their ratio. Steps are of three networks: a
small one of linear layers, for which the host is the slower one; ResNet-18 with batches
of 32 images; an encoder of 6 layers, 512 wide, with 32 sequences of 256.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from gpulint import runtime

DEVICE = torch.device("cuda")
ROUNDS = 5  # of each side
SECONDS = 0.15  # of each round, about
Step = Callable[[], object]


class Case(NamedTuple):
    """A step as it is found and as it would be; `steps` fix how many a round has."""

    code: str
    what: str
    found: Step
    better: Step
    steps: int | None = None


class Net(NamedTuple):
    """A network, a batch on the host for it, and its optimizer."""

    model: nn.Module
    x: torch.Tensor
    y: torch.Tensor
    optimizer: torch.optim.Optimizer

    def train(
        self, x: torch.Tensor, y: torch.Tensor, *, amp: bool = False
    ) -> torch.Tensor:
        self.optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=amp):
            loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()


class Encoder(nn.Module):
    """A transformer that classifies sequences of vectors."""

    def __init__(self, width: int = 512, layers: int = 6) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x).mean(1))  # type: ignore[no-any-return]


def small(**options: Any) -> Net:
    """A network whose kernels are shorter than their launches."""
    layers = [nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(256, 10)).to(DEVICE)
    return net(model, torch.rand(128, 64), **options)


def images(batch: int = 32, **options: Any) -> Net:
    """ResNet-18 with images of 224 pixels."""
    from torchvision.models import resnet18

    model = resnet18(num_classes=10).to(DEVICE)
    return net(model, torch.rand(batch, 3, 224, 224), **options)


def sequences(**options: Any) -> Net:
    """The encoder."""
    return net(Encoder().to(DEVICE), torch.rand(32, 256, 512), **options)


def net(model: nn.Module, x: torch.Tensor, **options: Any) -> Net:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **options)
    y = torch.randint(0, 10, (len(x),))
    return Net(model, x.pin_memory(), y.pin_memory(), optimizer)


def cases() -> Iterator[Case]:
    """All of them, each made when it is asked for."""
    for name, make in (("small", small), ("ResNet-18", images), ("encoder", sequences)):
        its = make()
        yield from of_transfers(name, its)
        yield from of_waits(name, its)
        yield from of_precision(name, its)
        fused = make(fused=True)
        x, y = its.x.to(DEVICE), its.y.to(DEVICE)
        yield Case(
            "GPU505",
            f"{name}: AdamW without fused=True",
            functools.partial(its.train, x, y),
            functools.partial(fused.train, x, y),
        )
    yield from of_loaders()
    yield from of_checkpoints()


def of_transfers(name: str, its: Net) -> Iterator[Case]:
    """Copies of a batch, and tensors made on the host."""
    x, y = its.x, its.y
    pageable = x.clone(), y.clone()
    on_device = x.to(DEVICE), y.to(DEVICE)

    def copied(x: torch.Tensor, y: torch.Tensor, ahead: bool) -> None:
        its.train(x.to(DEVICE, non_blocking=ahead), y.to(DEVICE, non_blocking=ahead))

    pinned_ahead = functools.partial(copied, x, y, True)
    yield Case(
        "GPU102",
        f"{name}: pinned batch copied without non_blocking",
        functools.partial(copied, x, y, False),
        pinned_ahead,
    )
    yield Case(
        "GPU202",
        f"{name}: batch in pageable memory",
        functools.partial(copied, *pageable, False),
        pinned_ahead,
    )

    def pinned_here() -> None:
        its.train(
            pageable[0].pin_memory().to(DEVICE, non_blocking=True),
            pageable[1].pin_memory().to(DEVICE, non_blocking=True),
        )

    yield Case(
        "GPU202",
        f"{name}: batch in pageable memory, against pinning in the training process",
        functools.partial(copied, *pageable, False),
        pinned_here,
    )

    def with_target(make: Callable[[], torch.Tensor]) -> None:
        loss = its.train(*on_device)
        (loss * make()).mean()

    count = len(x)
    yield Case(
        "GPU104",
        f"{name}: torch.ones(n, 1).to(device) in a step",
        functools.partial(with_target, lambda: torch.ones(count, 1).to(DEVICE)),
        functools.partial(with_target, lambda: torch.ones(count, 1, device=DEVICE)),
    )


def of_waits(name: str, its: Net) -> Iterator[Case]:
    """Waits for the GPU in each step."""
    x, y = its.x, its.y
    total = torch.zeros((), dtype=torch.float64, device=DEVICE)

    def step() -> torch.Tensor:
        return its.train(
            x.to(DEVICE, non_blocking=True), y.to(DEVICE, non_blocking=True)
        )

    def added() -> None:
        total.add_(step())

    def followed_by(end: Callable[[], None]) -> Step:
        def both() -> None:
            step()
            end()

        return both

    yield Case("GPU106", f"{name}: loss.item()", lambda: step().item(), added)
    yield Case(
        "GPU107",
        f"{name}: torch.cuda.synchronize()",
        followed_by(torch.cuda.synchronize),
        step,
    )
    if name == "ResNet-18":
        yield Case(
            "GPU107",
            f"{name}: torch.cuda.empty_cache()",
            followed_by(torch.cuda.empty_cache),
            step,
        )


def of_precision(name: str, its: Net) -> Iterator[Case]:
    """Formats of numbers, and kernels chosen by trying."""
    x, y = its.x.to(DEVICE), its.y.to(DEVICE)

    def in_format(precision: str, amp: bool, benchmark: bool = False) -> Step:
        def step() -> None:
            torch.set_float32_matmul_precision(precision)
            torch.backends.cudnn.benchmark = benchmark
            its.train(x, y, amp=amp)
            torch.set_float32_matmul_precision("highest")

        return step

    plain = in_format("highest", amp=False)
    tf32 = in_format("high", amp=False)
    yield Case("GPU302", f"{name}: float32 products without TF32", plain, tf32)
    bf16 = in_format("high", amp=True)
    yield Case("GPU301", f"{name}: TF32 without autocast to bfloat16", tf32, bf16)
    if name == "ResNet-18":
        tried = in_format("high", amp=False, benchmark=True)
        yield Case("GPU502", f"{name}: cuDNN's kernels not tried", tf32, tried)


class Slow(Dataset[tuple[torch.Tensor, int]]):
    """Samples of 4 KiB that take a while on the host."""

    def __init__(self, seconds: float, count: int) -> None:
        self.seconds = seconds
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        end = time.perf_counter() + self.seconds
        while time.perf_counter() < end:
            pass
        return torch.full((64,), float(index)), index % 10


def of_loaders() -> Iterator[Case]:
    """Loaders: workers, their start, and batches of tensors row by row."""
    its = small()

    def epoch(loader: DataLoader[Any]) -> None:
        for x, y in loader:
            its.train(x.to(DEVICE, non_blocking=True), y.to(DEVICE, non_blocking=True))

    work = Slow(0.0002, 1280)
    options: dict[str, Any] = {"batch_size": 128, "pin_memory": True}
    serial = DataLoader(work, **options)
    parallel = DataLoader(work, num_workers=4, persistent_workers=True, **options)
    yield Case(
        "GPU201",
        "small, samples of 0.2 ms, 10 batches: no workers, against 4",
        functools.partial(epoch, serial),
        functools.partial(epoch, parallel),
        2,
    )
    again = DataLoader(work, num_workers=4, **options)
    yield Case(
        "GPU203",
        "small, a pass of 10 batches: 4 workers that start anew, against kept ones",
        functools.partial(epoch, again),
        functools.partial(epoch, parallel),
        2,
    )
    rows = torch.rand(12800, 64), torch.randint(0, 10, (12800,))
    yield Case(
        "GPU211",
        "small, 100 batches of tensors in memory, row by row, against gathered ones",
        functools.partial(epoch, DataLoader(TensorDataset(*rows), **options)),
        functools.partial(epoch, runtime.TensorLoader(rows, **options)),
        2,
    )
    yield Case(
        "GPU202",
        "small, 100 batches, no workers: pin_memory=False, against True",
        functools.partial(epoch, DataLoader(TensorDataset(*rows), 128)),
        functools.partial(epoch, DataLoader(TensorDataset(*rows), **options)),
        2,
    )
    big = TensorDataset(torch.rand(640, 3, 224, 224), torch.randint(0, 10, (640,)))
    large = images()

    def pictures(loader: DataLoader[Any]) -> None:
        for x, y in loader:
            large.train(
                x.to(DEVICE, non_blocking=True), y.to(DEVICE, non_blocking=True)
            )

    yield Case(
        "GPU202",
        "ResNet-18, 20 batches, no workers: pin_memory=False, against True",
        functools.partial(pictures, DataLoader(big, 32)),
        functools.partial(pictures, DataLoader(big, 32, pin_memory=True)),
        2,
    )
    kept: dict[str, Any] = {"num_workers": 4, "persistent_workers": True}
    yield Case(
        "GPU202",
        "ResNet-18, 20 batches, 4 workers: pin_memory=False, against True",
        functools.partial(pictures, DataLoader(big, 32, **kept)),
        functools.partial(pictures, DataLoader(big, 32, pin_memory=True, **kept)),
        2,
    )


def of_checkpoints() -> Iterator[Case]:
    """A checkpoint of 180 MB."""
    model = nn.ModuleList(nn.Linear(2048, 2048) for _ in range(11)).to(DEVICE)
    its = images()
    x, y = its.x.to(DEVICE), its.y.to(DEVICE)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pt"

        def steps_and(save: Callable[[Any, Path], None]) -> None:
            save(model.state_dict(), path)
            for _ in range(50):
                its.train(x, y)

        yield Case(
            "GPU601",
            "50 steps of ResNet-18 and a checkpoint of 180 MB: torch.save",
            functools.partial(steps_and, torch.save),
            functools.partial(steps_and, runtime.async_save),
            2,
        )
        runtime.flush()


def seconds(step: Step, count: int) -> float:
    """The time of one step, of so many, with what the GPU has still to do."""
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / count


def measure(case: Case) -> dict[str, Any]:
    """Both sides in turns."""
    sides = case.found, case.better
    counts = []
    for side in sides:
        warm = seconds(side, case.steps or 10)
        counts.append(case.steps or max(3, round(SECONDS / warm)))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for which in (0, 1):
            times[which].append(seconds(sides[which], counts[which]))
    found, better = (statistics.median(its) * 1e6 for its in times)
    ratios = [a / b for a, b in itertools.product(*times)]
    return {
        "code": case.code,
        "what": case.what,
        "found_us": round(found, 1),
        "better_us": round(better, 1),
        "ratio": round(found / better, 3),
        "ratio_low": round(min(ratios), 3),
        "ratio_high": round(max(ratios), 3),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="a file; default: standard output")
    args = parser.parse_args(arguments)
    result: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(),
        "cpus": runtime.available_cpus(),
        "versions": {"torch": torch.__version__, "cuda": torch.version.cuda},
        "cases": [],
    }
    for case in cases():
        result["cases"].append(measure(case))
        print(json.dumps(result["cases"][-1]), flush=True)
        if args.out:  # each time: what was measured stays where a run is cut off
            args.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
