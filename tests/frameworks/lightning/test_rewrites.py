"""What the rules say of Lightning is so in the release installed here."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning")

import lightning as L
import torch
from torch.utils.data import DataLoader

from gpulint.engine import Options, fix_source
from gpulint.finding import Effect
from gpulint.registry import select_rules
from gpulint.script.frameworks.lightning import BATCH_HOOKS, LOADER_HOOKS
from gpulint.source import Source

QUIET = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "accelerator": "cpu",
    "max_epochs": 2,
}
MODULE = """
import lightning as L
import torch
from torch.nn import functional as F


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 3)

    def training_step(self, batch, batch_idx):
        x, y = batch
        x = x.to(self.device)
        loss = F.cross_entropy(self.net(x), y.to(self.device))
        self.log("step", loss.item())
        self.log("both", float(loss), on_step=True, on_epoch=True)
        self.log("least", loss.detach().cpu(), on_epoch=True, reduce_fx="min")
        right = self.net(x).argmax(1) == y
        accuracy = right.float().mean().item()
        self.log_dict({"accuracy": accuracy, "half": loss.half().float().item()})
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = (part.to(self.device) for part in batch)
        self.log("val", F.cross_entropy(self.net(x), y).item())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
"""


def fixed(code: str, *rules: str) -> str:
    """The code after the exact fixes of some rules; each must have done something."""
    source = Source(Path("script.py"), code)
    done = fix_source(source, Options(select_rules(rules), frozenset({Effect.EXACT})))
    assert {f.code for f in done.applied} == set(rules)
    return done.text


def logged(code: str, **options: Any) -> list[dict[str, float]]:
    """What is logged at each step and at the end, of one training."""
    names: dict[str, Any] = {}
    exec(compile(code, "script.py", "exec"), names)
    found: list[dict[str, float]] = []

    class Recorder(L.Callback):
        def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
            found.append({k: v.item() for k, v in trainer.callback_metrics.items()})

        def on_train_epoch_end(self, trainer: L.Trainer, *_: Any) -> None:
            found.append({k: v.item() for k, v in trainer.callback_metrics.items()})

    L.seed_everything(0, verbose=False)
    data = [(torch.randn(4), n % 3) for n in range(20)]
    loader = DataLoader(data, batch_size=6)
    trainer = L.Trainer(**{**QUIET, "callbacks": [Recorder()], **options})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(names["Module"](), loader, loader)
    return found


@pytest.mark.parametrize("options", [{}, {"precision": "bf16-mixed"}])
def test_the_same_is_logged_of_tensors_as_of_numbers(options: dict[str, str]) -> None:
    after = fixed(MODULE, "GPU151", "GPU153")
    assert not any(part in after for part in (".item()", "float(loss", ".to("))
    found = logged(MODULE, **options)
    assert len(found) == 2 * (4 + 1)
    assert logged(after, **options) == found


def test_whole_numbers_are_logged_with_a_warning() -> None:
    """Which is why they stay."""
    code = MODULE.replace("loss.item()", "(y == y).sum()")
    names: dict[str, Any] = {}
    exec(compile(code, "script.py", "exec"), names)
    data = [(torch.randn(4), n % 3) for n in range(6)]
    loader = DataLoader(data, batch_size=6)
    with pytest.warns(UserWarning, match="needs to be floating"):
        L.Trainer(**QUIET).fit(names["Module"](), loader, loader)


def test_what_is_in_a_batch_is_moved_but_not_what_it_does_not_know() -> None:
    class Known:
        moved = None

        def to(self, device: torch.device, **_: Any) -> Known:
            self.moved = device
            return self

    class Unknown:
        def __init__(self) -> None:
            self.part = Known()

    module = L.LightningModule()
    known, unknown = Known(), Unknown()
    batch = {"a": [torch.ones(2), known], "b": (unknown, {"c": Known()})}
    meta = torch.device("meta")
    moved = module.transfer_batch_to_device(batch, meta, 0)
    assert moved["a"][0].device == meta
    assert known.moved == moved["b"][1]["c"].moved == meta
    assert unknown.part.moved is None


@pytest.mark.parametrize("name", sorted(BATCH_HOOKS))
def test_hooks_get_the_batch_where_it_is_looked_for(name: str) -> None:
    """Steps take what their author names; Lightning gives the batch first."""
    hook = getattr(L.LightningModule, name)
    given = list(hook.__annotations__)
    if name.endswith("_step"):
        assert BATCH_HOOKS[name] == 0
    else:
        assert given[BATCH_HOOKS[name]] == "batch"


@pytest.mark.parametrize("name", sorted(LOADER_HOOKS))
def test_both_kinds_of_module_have_the_hook(name: str) -> None:
    assert hasattr(L.LightningModule, name)
    assert hasattr(L.LightningDataModule, name)


LOADING = """
import lightning as L
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return torch.from_numpy(np.load(self.paths[index]))


class Data(L.LightningDataModule):
    def __init__(self, paths):
        super().__init__()
        self.paths = paths

    def train_dataloader(self):
        return DataLoader(Rows(self.paths), batch_size=2)

    def val_dataloader(self):
        return DataLoader(Rows(self.paths), batch_size=2, num_workers=1)
"""


def test_loaders_of_hooks_get_workers_that_live_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numpy as np

    monkeypatch.setenv("GPULINT_NUM_WORKERS", "2")
    paths = [tmp_path / f"{n}.npy" for n in range(6)]
    for number, path in enumerate(paths):
        np.save(path, np.full(4, number, "float32"))
    source = Source(Path("script.py"), LOADING)
    options = Options(select_rules(["GPU251"]), frozenset(Effect))
    done = fix_source(source, options)
    assert len(done.applied) == 2
    names: dict[str, Any] = {}
    exec(compile(done.text, "script.py", "exec"), names)

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.sums: list[float] = []
            self.net = torch.nn.Linear(4, 1)

        def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
            self.sums.append(batch.sum().item())
            return self.net(batch).mean()

        def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
            self.log("val", self.net(batch).mean())

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    module, data = Module(), names["Data"](paths)
    for loader in (data.train_dataloader(), data.val_dataloader()):
        assert loader.num_workers == 2
        assert loader.persistent_workers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        L.Trainer(**QUIET).fit(module, datamodule=data)
    assert module.sums == [4.0, 20.0, 36.0] * 2
