"""What a dataset does for a sample, as far as a script tells."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from gpulint.index import build_index
from gpulint.script import Script
from gpulint.script.samples.datasets import Dataset, Work
from gpulint.source import Source

HEAD = """
import random, threading
import numpy as np
import torch
import torchvision
from PIL import Image
from torch.utils.data import (
    ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset,
    random_split,
)
SEEN = []
COUNTS = {}
class Photos(Dataset):
    def __getitem__(self, index):
        return Image.open(self.paths[index])
class Rows(Dataset):
    def __getitem__(self, index):
        return self.x[index]
"""


def dataset_of(text: str) -> Dataset:
    source = Source(Path("a.py"), HEAD + text)
    (loader,) = Script(source, build_index(source)).loaders
    return loader.dataset


def made_by(body: str, init: str = "self.x = x", base: str = "Dataset") -> Dataset:
    """The dataset of a class with these two methods."""
    item = "__iter__(self)" if base == "IterableDataset" else "__getitem__(self, i)"
    methods = f"def __init__(self, x):\n{textwrap.indent(init, '    ')}\n"
    methods += f"def {item}:\n{textwrap.indent(body, '    ')}\n"
    text = f"class Own({base}):\n{textwrap.indent(methods, '    ')}"
    return dataset_of(text + "DataLoader(Own(data))\n")


@pytest.mark.parametrize(
    "text, work",
    [
        ("DataLoader([1, 2, 3])\n", Work.NONE),
        ("DataLoader([f(x) for x in y])\n", Work.NONE),
        ("DataLoader(TensorDataset(a, b))\n", Work.NONE),
        ("DataLoader(Rows())\n", Work.NONE),
        ("DataLoader(Photos())\n", Work.SOME),
        ("DataLoader(Subset(Photos(), [0]))\n", Work.SOME),
        ("DataLoader(Subset(Rows(), [0]))\n", Work.NONE),
        ("train, val = random_split(Photos(), [9, 1])\nDataLoader(train)\n", Work.SOME),
        ("DataLoader(ConcatDataset([Rows(), Photos()]))\n", Work.SOME),
        ("a = [Rows(), Rows()]\nDataLoader(ConcatDataset(a))\n", Work.NONE),
        ("DataLoader(ConcatDataset([Photos(p) for p in a]))\n", Work.SOME),
        ("DataLoader(ConcatDataset(a))\n", Work.UNKNOWN),
        ("DataLoader(Subset([1, 2, 3], [0]))\n", Work.NONE),
        ("DataLoader(Subset(unknown, [0]))\n", Work.UNKNOWN),
        ("DataLoader(Rows() if small else Photos())\n", Work.SOME),
        ("DataLoader(torchvision.datasets.FakeData(10))\n", Work.SOME),
        ("DataLoader(torchvision.datasets.CIFAR10('.'))\n", Work.SOME),
        ("DataLoader(unknown)\n", Work.UNKNOWN),
        ("DataLoader(load())\n", Work.UNKNOWN),
        ("class Empty(Dataset):\n  size = 3\nDataLoader(Empty())\n", Work.UNKNOWN),
    ],
)
def test_how_much_work_a_sample_is(text: str, work: Work) -> None:
    assert dataset_of(text).work is work


@pytest.mark.parametrize(
    "body, reason",
    [
        ("return np.load(self.x[i])", "`np.load` reads a file for each sample"),
        (
            "return cv2.imdecode(self.x[i], 1)",
            "`cv2.imdecode` decodes an image for each sample",
        ),
        ("return self.transform(self.x[i])", "`self.transform` runs for each sample"),
        ("return [f(x) for x in self.x]", "loops in Python for each sample"),
        (
            "return np.log(self.x[i]) + np.exp(self.x[i])",
            "computes with arrays for each sample",
        ),
        ("return np.log(self.x[i])", "indexes what is in memory"),
        (
            "return torch.log(self.x[i]) + torch.exp(self.x[i])",
            "computes with arrays for each sample",
        ),
        ("return torch.tensor(self.x[i]).float()", "indexes what is in memory"),
    ],
)
def test_what_the_work_is(body: str, reason: str) -> None:
    assert made_by(body).reason == reason


@pytest.mark.parametrize(
    "body, draws",
    [
        ("return self.x[i]", False),
        ("return self.x[i] + random.random()", True),
        ("return self.x[i] + torch.randn(3)", True),
        ("return self.rng.normal()", True),
        ("return augment(self.x[i])", None),
        ("return self.base[i]", None),
        ("return len(self.x[i]), hash(i)", None),
    ],
)
def test_whether_samples_are_random(body: str, draws: bool | None) -> None:
    assert made_by(body).random is draws


def test_samples_of_another_dataset_of_the_file_are_followed() -> None:
    assert made_by("return self.base[i]", "self.base = Rows()").random is False
    assert made_by("return self.rows[i]", "self.rows = Frames(x)").random is None


@pytest.mark.parametrize(
    "body, changes",
    [
        ("return self.x[i]", False),
        ("self.last = i\nreturn self.x[i]", True),
        ("self.count: int = i\nreturn self.x[i]", True),
        ("row: int\nreturn self.x[i]", False),
        ("self.count += 1\nreturn self.x[i]", True),
        ("del self.cache[i]\nreturn self.x[i]", True),
        ("rows = self.x\nrows[i] = 0\nreturn rows", True),
        ("rows = list(self.x)\nrows[0] = 1\nreturn rows", False),
        ("rows = []\nrows.append(i)\nreturn rows", False),
        ("global step\nstep = i\nreturn self.x[i]", True),
        ("COUNTS[i] = 1\nreturn self.x[i]", True),
        ("SEEN.append(i)\nreturn self.x[i]", True),
        ("random.shuffle(SEEN)\nreturn SEEN[i]", True),
        ("seen = i\nseen += 1\nreturn self.x[seen]", False),
        ("random.shuffle(self.x)\nreturn self.x[i]", True),
        ("return next(self.rows)", True),
        ("np.add(i, 1, out=self.x)\nreturn self.x", True),
        ("self.x[i].clamp_(0, 1)\nreturn self.x[i]", True),
        ("load(i).sort()\nreturn self.x[i]", False),
        ("np.random.seed(i)\nreturn self.x[i]", False),
    ],
)
def test_whether_samples_change_the_dataset(body: str, changes: bool) -> None:
    assert made_by(body).mutated is changes


@pytest.mark.parametrize(
    "init, stays",
    [
        ("self.x = x", False),
        ("self.f = lambda a: a", True),
        ("self.f: object = lambda a: a", True),
        ("self.fs = [lambda a: a]", True),
        ("self.rows = (r for r in x)", True),
        ("self.rows = list(r for r in x)", False),
        ("def f(a):\n    return a\nself.f = f", True),
        ("class Pair:\n    pass\nself.pair = Pair()", True),
        ("self.lock = threading.Lock()", True),
        ("f = lambda a: a\nself.x = x", False),
    ],
)
def test_what_spawned_workers_cannot_receive(init: str, stays: bool) -> None:
    assert (made_by("return self.x[i]", init).unpicklable is not None) is stays


def test_a_dataset_without_init_holds_nothing() -> None:
    found = dataset_of("DataLoader(Rows())\n")
    assert found.unpicklable is None
    assert found.handle is None


@pytest.mark.parametrize(
    "body, asks",
    [
        ("return torch.tensor(self.x[i], requires_grad=True)", True),
        ("return torch.tensor(self.x[i], requires_grad=False)", False),
        ("return self.x[i].requires_grad_()", True),
        ("return self.x[i]", False),
    ],
)
def test_whether_samples_ask_for_gradients(body: str, asks: bool) -> None:
    assert (made_by(body).gradients is not None) is asks


@pytest.mark.parametrize(
    "body, init, kept",
    [
        ("return self.rng.normal()", "self.rng = 1", True),
        ("return self.draw.normal()", "self.draw = np.random.default_rng(1)", True),
        ("return np.random.default_rng(i).normal()", "self.x = x", False),
        ("return torch.randn(3, generator=self.g)", "self.g = x", True),
        ("return f(self.x[i])()", "self.x = x", False),
    ],
)
def test_generators_that_outlive_a_sample(body: str, init: str, kept: bool) -> None:
    assert (made_by(body, init).generator is not None) is kept


@pytest.mark.parametrize(
    "body, computes",
    [
        ("return self.x[i]", False),
        ("return torch.tensor(self.x[i])", False),
        ("return np.mean(self.x[i])", False),
        ("return self.x[i] @ self.w", True),
        ("return self.x[i].mean(0)", True),
        ("return torch.log(self.x[i])", True),
        ("return load(i).sum()", True),
        ("return load(i).first()", False),
    ],
)
def test_whether_torch_computes(body: str, computes: bool) -> None:
    assert made_by(body).torch_math is computes


def test_of_several_datasets_what_is_true_of_any_counts() -> None:
    text = "DataLoader(ConcatDataset([Rows(), Photos()]) if both else Photos())\n"
    found = dataset_of(text)
    assert found.work is Work.SOME
    assert dataset_of("DataLoader(Photos() if a else unknown)\n").random is None


def test_streams() -> None:
    found = made_by("yield from self.x", base="IterableDataset")
    assert found.iterable
    assert not made_by("return self.x[i]").iterable
