"""CPU seconds of `gpulint check` in a repository of 1000 files, with a warm cache.

The repository is made anew: groups of scripts that train with the model and the data of
their group, with helpers of it and of others. Checked are all files, first without a
cache, then with one: nothing changed, a training script changed, a helper of a group
changed, a script is new. Printed is JSON: CPU seconds of the process and of git, the
least of several runs.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

MODEL = '''\
"""A model of group {group}."""

import torch
from torch import nn


class Net{group}(nn.Module):
    """Layers of width {width}."""

    def __init__(self, width={width}):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, inputs):
        return self.layers(inputs)
'''
DATA = '''\
"""The data of group {group}."""

import torch
from torch.utils.data import DataLoader, Dataset


class Rows{group}(Dataset):
    """Rows of a table."""

    def __init__(self, size):
        self.rows = torch.rand(size, 8)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index], self.rows[index].sum()


def make_loader_{group}(size, batch_size={width}, workers=0):
    return DataLoader(Rows{group}(size), batch_size=batch_size, num_workers=workers)
'''
TRAIN = '''\
"""Training run {number} of group {group}."""

import torch

from group{group}.data import make_loader_{group}
from group{group}.model import Net{group}
from group{near}.helpers_0 import Settings0, mean_0

device = torch.device("cuda")


def train_epoch(model, loader, optimizer):
    total = 0.0
    for inputs, targets in loader:
        inputs = inputs.to(device)
        targets = targets.to(device)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs).squeeze(1), targets)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return mean_0(total, len(loader))


def main(epochs={number}):
    settings = Settings0(epochs=epochs)
    model = Net{group}().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.rate)
    loader = make_loader_{group}({number}000)
    for epoch in range(settings.epochs):
        print(epoch, train_epoch(model, loader, optimizer))


if __name__ == "__main__":
    main()
'''
HELPERS = '''\
"""Helpers of group {group}, part {number}."""

import json
from pathlib import Path


class Settings{number}:
    """What a run of group {group} starts from."""

    def __init__(self, rate=0.{number:03}, epochs={number}):
        self.rate = rate
        self.epochs = epochs

    def as_text(self):
        return json.dumps(vars(self))


def mean_{number}(total, count):
    return total / max(count, {number})


def read_names_{number}(folder):
    return sorted(path.stem for path in Path(folder).glob("*.csv"))
'''
# Settings of the user; and without bytecode each run compiles the modules of gpulint,
# which those of an installed wheel are already.
LEFT_OUT = ("GPULINT_", "PYTHONDONTWRITEBYTECODE")
GROUP = 10  # files: a package, its model, its data, helpers and scripts
SCRIPTS = 4


def make_repository(root: Path, files: int) -> None:
    """Write about so many files below a new repository."""
    subprocess.run(["git", "init", "-q", root], check=True)
    for group in range(files // GROUP):
        folder = root / f"group{group}"
        folder.mkdir()
        values = {"group": group, "width": 16 + group}
        (folder / "__init__.py").write_text("")
        (folder / "model.py").write_text(MODEL.format(**values))
        (folder / "data.py").write_text(DATA.format(**values))
        for number in range(GROUP - SCRIPTS - 3):
            text = HELPERS.format(number=number, **values)
            (folder / f"helpers_{number}.py").write_text(text)
        for number in range(1, SCRIPTS + 1):
            near = {"near": (group + number) % (files // GROUP), **values}
            text = TRAIN.format(number=number, **near)
            (folder / f"train_{number}.py").write_text(text)


def cpu_seconds(root: Path, *options: str) -> float:
    """What a check of all files takes, with what git takes for it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "gpulint", "check", "--exit-zero", "-q", *options]
    subprocess.run(
        [*command, "--output-format", "concise"],
        cwd=root,
        env={k: v for k, v in os.environ.items() if not k.startswith(LEFT_OUT)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def change(path: Path) -> Callable[[], None]:
    """Appends a statement to a file each time that it is called."""

    def append() -> None:
        text = path.read_text()
        path.write_text(f"{text}\nVERSION = {len(text)}\n")

    return append


def add(folder: Path) -> None:
    """Copies a script of a folder under a new name."""
    text = (folder / "train_1.py").read_text()
    (folder / f"new_{time.time_ns()}.py").write_text(text)


def measure(files: int, runs: int) -> dict[str, float]:
    """The least CPU seconds of each case."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve()
        make_repository(root, files)
        time.sleep(2.5)  # younger files are not trusted to be unchanged
        found = {"without cache": cpu_seconds(root, "--no-cache")}
        found["cold"] = cpu_seconds(root)
        middle = root / f"group{files // GROUP // 2}"
        cases: dict[str, Callable[[], None]] = {
            "unchanged": lambda: None,
            "script changed": change(middle / "train_3.py"),
            "helper changed": change(middle / "data.py"),
            "script is new": functools.partial(add, middle),
        }
        for case, edit in cases.items():
            times = []
            for _ in range(runs):
                edit()
                times.append(cpu_seconds(root))
            found[case] = min(times)
    return {case: round(seconds, 3) for case, seconds in found.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    print(json.dumps(measure(given.files, given.runs), indent=2))


if __name__ == "__main__":
    main()
