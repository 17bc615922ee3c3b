"""Each helper out of a vendored file, where gpulint cannot be imported."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.abc
import importlib.util
import inspect
import io
import logging
import os
import pickle
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from gpulint import runtime
from gpulint.vendor.header import render

Helpers = Any  # the package, or a vendored file
Load = Callable[..., Helpers]


class NoGpulint(importlib.abc.MetaPathFinder):
    """A machine on which gpulint is not installed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: object = None
    ) -> None:
        if name.partition(".")[0] == "gpulint":
            raise ModuleNotFoundError(f"No module named {name!r}")


@contextlib.contextmanager
def without_gpulint() -> Iterator[None]:
    """The package can neither be imported nor has it been."""
    own = [name for name in sys.modules if name.partition(".")[0] == "gpulint"]
    taken = {name: sys.modules.pop(name) for name in own}
    finder = NoGpulint()
    sys.meta_path.insert(0, finder)
    try:
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("gpulint.runtime")
        yield
    finally:
        sys.meta_path.remove(finder)
        sys.modules.update(taken)


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Writes a file with some helpers and imports it, without gpulint."""

    def make(*helpers: str) -> types.ModuleType:
        path = tmp_path / "_gpulint_runtime.py"
        path.write_text(render(helpers), "utf-8")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, path.stem, module)
        with without_gpulint():
            spec.loader.exec_module(module)
        return module

    return make


def alone(name: str, its: Helpers) -> object:
    """What a helper out of a vendored file gives where there is no gpulint."""
    with without_gpulint():
        return CALLS[name](its)


def batches(its: Helpers) -> object:
    torch.manual_seed(0)
    data = TensorDataset(torch.arange(12).view(6, 2), torch.arange(6))
    loader = its.TensorLoader(data, batch_size=4, shuffle=True)
    return [[part.tolist() for part in batch] for batch in loader]


def warm_up(its: Helpers) -> object:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = its.warmup(optimizer, 3)
    rates = []
    for _ in range(4):
        optimizer.step()
        scheduler.step()
        rates.append(scheduler.get_last_lr())
    return rates


def stand_in(name: str, **attributes: object) -> Any:
    """A transform of torchvision, which these tests do not need."""
    made = type(name, (), {"__module__": "torchvision.transforms.transforms"})
    made.__init__ = lambda self, given=(): self.__dict__.update(transforms=given)
    step = made()
    vars(step).update(attributes)
    return step


def augmented(its: Helpers) -> object:
    steps = [stand_in("ToTensor"), stand_in("RandomHorizontalFlip", p=0.5)]
    compose = stand_in("Compose", transforms=steps)
    kept, augment = its.split_augmentation(compose, "cuda")
    image = kept.transforms[0](np.arange(12, dtype=np.uint8).reshape(2, 2, 3))
    torch.manual_seed(1)
    return type(augment).__name__, augment(torch.stack([image] * 8)).tolist()


MODEL = nn.Linear(2, 1)


def saved(its: Helpers) -> object:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.pt")
        its.async_save({"weight": torch.arange(3)}, path)
        its.flush()
        return torch.load(path)["weight"].tolist()


def flipped(its: Helpers) -> object:
    augment = its.augmentation(horizontal_flip=1.0)
    return augment(torch.arange(4.0).view(1, 1, 2, 2)).tolist()


CALLS: dict[str, Callable[[Helpers], object]] = {
    "Environment": lambda its: repr(its.Environment("local", "here", "said so")),
    "Hardware": lambda its: list(its.Hardware.__dataclass_fields__),
    "Monitor": lambda its: list(its.Monitor().epochs(range(3))),
    "ResidentArray": lambda its: its.ResidentArray(np.arange(6), torch.device("cpu"))[
        1:3
    ].tolist(),
    "TensorLoader": batches,
    "accelerate_precision": lambda its: its.accelerate_precision(),
    "accumulator_dtype": lambda its: its.accumulator_dtype("cpu"),
    "amp_dtype": lambda its: its.amp_dtype("cuda"),
    "async_save": saved,
    "augmentation": flipped,
    "available_cpus": lambda its: its.available_cpus(),
    "batch_size": lambda its: its.batch_size(32),
    "device": lambda its: its.device(),
    "environment": lambda its: vars(its.environment()),
    "explain": lambda its: its.explain(),
    "flush": lambda its: its.flush(),
    "hardware": lambda its: {**vars(its.hardware()), "shm_free": 0},
    "hf_args": lambda its: its.hf_args(precision=True, tf32=True, loading=True),
    "lightning_precision": lambda its: its.lightning_precision(),
    "loader_kwargs": lambda its: its.loader_kwargs("cuda", num_workers=2),
    "maybe_compile": lambda its: its.maybe_compile(MODEL) is MODEL,
    "ms": lambda its: its.ms.workers(python=True),
    "prefetch": lambda its: [
        batch.item() for batch in its.prefetch([torch.ones(())], "cpu")
    ],
    "resident": lambda its: its.resident(torch.arange(6), "cpu")[2].item(),
    "scaled_lr": lambda its: its.scaled_lr(
        0.1, batch_size=128, base_batch_size=32, rule="sqrt"
    ),
    "split_augmentation": augmented,
    "tf": lambda its: its.tf.batch_size(32, samples=3200),
    "to_device": lambda its: its.to_device({"x": [torch.ones(2)]}, "cpu")["x"][0].sum(),
    "warmup": warm_up,
}


def same_signature(helper: object, other: object) -> bool:
    signatures = [str(inspect.signature(its)) for its in (helper, other)]
    return signatures[0] == signatures[1]


@pytest.mark.parametrize("name", runtime.__all__)
def test_a_helper_alone_is_the_packages(
    name: str, load: Load, cuda: Callable[..., None]
) -> None:
    its = load(name)
    helper, original = getattr(its, name), getattr(runtime, name)
    assert its.__all__ == [name]
    assert helper is not original
    assert inspect.getdoc(helper) == inspect.getdoc(original)
    assert same_signature(helper, original)
    cuda()
    if name in CALLS:
        assert alone(name, its) == CALLS[name](runtime)


def test_every_call_is_of_a_helper() -> None:
    """A helper without one is compared by its signature and documentation."""
    assert CALLS.keys() <= set(runtime.__all__)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_decisions_are_explained_alike(
    name: str, load: Load, cuda: Callable[..., None]
) -> None:
    cuda()
    its = load(name, "explain")
    alone(name, its)
    CALLS[name](runtime)
    assert its.explain() == runtime.explain()


def test_decisions_are_logged_alike(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger, said = logging.getLogger("gpulint"), []
    for its in (runtime, load(*runtime.__all__)):
        stream = io.StringIO()
        monkeypatch.setattr(logger, "handlers", [logging.StreamHandler(stream)])
        its.amp_dtype("cpu")
        its.device()
        its.resident(torch.arange(3), "cpu")
        said.append(stream.getvalue())
    assert said[0] == said[1]
    assert "amp: off on cpu (no GPU)" in said[0]


def test_switched_off_it_does_what_the_script_did(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPULINT_RUNTIME", "off")
    its = load("loader_kwargs", "amp_dtype")
    assert its.loader_kwargs("cpu", was={"num_workers": 3}) == {"num_workers": 3}
    assert its.amp_dtype("cpu") is None


@pytest.mark.parametrize("name", ["", *runtime.__all__])
def test_the_text_is_old_python_and_names_no_gpulint(name: str) -> None:
    text = render([name] if name else runtime.__all__)
    tree = ast.parse(text, feature_version=(3, 10))
    imported = {
        (alias.name if isinstance(node, ast.Import) else node.module or "")
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert not {module for module in imported if module.startswith(("gpulint", "."))}
    at_import = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    modules = {n.module for n in at_import if isinstance(n, ast.ImportFrom)}
    modules |= {a.name for n in at_import if isinstance(n, ast.Import) for a in n.names}
    assert {str(m).partition(".")[0] for m in modules} <= {*sys.stdlib_module_names}


def run_python(folder: Path, *arguments: str) -> str:
    """Output of a Python that knows the libraries but not gpulint."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(folder), "CUDA_VISIBLE_DEVICES": ""},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with all helpers in a file, and nothing that is called gpulint."""
    text = render(runtime.__all__)
    (tmp_path / "_gpulint_runtime.py").write_text(text, "utf-8")
    (tmp_path / "gpulint.py").write_text("raise ImportError('not here')\n", "utf-8")
    return tmp_path


def test_importing_it_takes_the_standard_library_only(folder: Path) -> None:
    code = (
        "import sys, _gpulint_runtime as r; "
        "print([m for m in ('torch', 'numpy', 'pynvml') if m in sys.modules]); "
        "print(r.scaled_lr(0.1, batch_size=64, base_batch_size=16, rule='linear'))"
    )
    assert run_python(folder, "-c", code).splitlines() == [
        "[]",
        "0.4",
        "gpulint: learning rate: 0.1 became 0.4 (linear: 64 for 16)",
    ]


SPAWNING = """\
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

import _gpulint_runtime as runtime


class Samples(Dataset):
    def __init__(self):
        self.transform = runtime.Bytes(float)
        self.bank = runtime.resident(np.arange(4), "cpu")
        self.rows = runtime.GatheredRows([torch.arange(4)])
        self.augment = runtime.Augment([runtime.Flip(1.0, -1)])

    def __len__(self):
        return 4

    def __getitem__(self, index):
        image = self.transform(np.full((1, 2, 3), index, dtype=np.uint8))
        [row] = self.rows.__getitems__([index])
        flipped = self.augment(torch.arange(2.0).view(1, 1, 1, 2))
        return image.sum(), self.bank[index], row[0], flipped[0, 0, 0, 0]


if __name__ == "__main__":
    data = Samples()
    options = {"batch_size": 2, "num_workers": 1, "multiprocessing_context": "spawn"}
    print([[part.tolist() for part in batch] for batch in DataLoader(data, **options)])
    loader = runtime.TensorLoader(TensorDataset(torch.arange(3)), **options)
    print([[part.tolist() for part in batch] for batch in loader])
"""


def test_what_goes_to_spawned_workers_is_pickled(folder: Path) -> None:
    (folder / "train.py").write_text(SPAWNING, "utf-8")
    lines = run_python(folder, "train.py").splitlines()
    assert lines[:2] == [
        "[[[0, 6], [0, 1], [0, 1], [1.0, 1.0]], [[12, 18], [2, 3], [2, 3], [1.0, 1.0]]]",
        "[[[0, 1]], [[2]]]",
    ]


def test_classes_that_need_torch_have_plain_names(load: Load) -> None:
    its = load(*runtime.__all__)
    rows = its.Rows
    assert (rows.__module__, rows.__qualname__) == ("_gpulint_runtime", "Rows")
    assert pickle.loads(pickle.dumps(rows)) is rows
    assert its.Rows is rows
    with pytest.raises(AttributeError, match="no attribute 'no_such_helper'"):
        _ = its.no_such_helper
