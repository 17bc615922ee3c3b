"""What Lightning does by itself is not asked of its programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_source
from gpulint.finding import Effect, Finding
from gpulint.registry import all_rules, select_rules
from gpulint.releases import Range
from gpulint.source import Source

PROGRAM = """\
import lightning as L
import torch
import torchmetrics
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from PIL import Image
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, random_split
from torchvision import transforms


class Photos(Dataset):
    def __init__(self, paths, labels, transform):
        self.paths, self.labels, self.transform = paths, labels, transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return self.transform(Image.open(self.paths[index])), self.labels[index]


class PhotoData(L.LightningDataModule):
    def __init__(self, paths, labels, batch_size=64, num_workers=8):
        super().__init__()
        self.save_hyperparameters(ignore=["paths", "labels"])
        self.paths, self.labels = paths, labels
        self.transform = transforms.Compose(
            [transforms.Resize(224), transforms.CenterCrop(224), transforms.ToTensor()]
        )

    def setup(self, stage=None):
        photos = Photos(self.paths, self.labels, self.transform)
        self.train_set, self.val_set = random_split(photos, [0.9, 0.1])

    def _loader(self, dataset, shuffle):
        return DataLoader(
            dataset,
            batch_size=self.hparams.batch_size,
            shuffle=shuffle,
            num_workers=self.hparams.num_workers,
            persistent_workers=self.hparams.num_workers > 0,
            pin_memory=torch.cuda.is_available(),
        )

    def train_dataloader(self):
        return self._loader(self.train_set, True)

    def val_dataloader(self):
        return self._loader(self.val_set, False)


class Classifier(L.LightningModule):
    def __init__(self, classes, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Conv2d(3, 256, 3), nn.ReLU(), nn.Conv2d(256, 256, 3), nn.ReLU()
        )
        self.head = nn.Linear(256, classes)
        self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=classes)
        self.register_buffer("weights", torch.ones(classes))

    def forward(self, images):
        return self.head(self.net(images).mean((2, 3)))

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = F.cross_entropy(self(images), labels, weight=self.weights)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        images, labels = batch
        scores = self(images)
        self.accuracy(scores, labels)
        self.log("val_loss", F.cross_entropy(scores, labels), sync_dist=True)
        self.log("val_acc", self.accuracy, prog_bar=True)

    def predict_step(self, batch, batch_idx):
        images, _ = batch
        return self(images).argmax(1).cpu()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
        return [optimizer], [schedule]


class MovingAverage(L.Callback):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.loss = outputs["loss"].detach()


def main(paths, labels):
    L.seed_everything(1)
    torch.set_float32_matmul_precision("high")
    trainer = L.Trainer(
        max_epochs=10,
        precision="bf16-mixed",
        callbacks=[
            ModelCheckpoint(monitor="val_loss"),
            EarlyStopping(monitor="val_loss"),
            MovingAverage(),
        ],
        gradient_clip_val=1.0,
        accumulate_grad_batches=2,
    )
    trainer.fit(Classifier(10), datamodule=PhotoData(paths, labels))


if __name__ == "__main__":
    main(*read_photos("photos"))
"""
LOOP = """\
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return Image.open(self.paths[index])


device = torch.device("cuda")
model = nn.Sequential(nn.Conv2d(3, 256, 3), nn.Conv2d(256, 256, 3)).to(device)
loader = DataLoader(Photos(paths), batch_size=64, shuffle=True)
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(10):
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images).mean((2, 3)), labels)
        loss.backward()
        optimizer.step()
"""
SCALED = f"{LOOP}scaler = torch.cuda.amp.GradScaler()\n"
BY_LIGHTNING = {"GPU102", "GPU201", "GPU301", "GPU303"}


def findings(
    text: str, *rules: str, lowest: tuple[int, int] | None = None
) -> list[Finding]:
    packages = (("lightning", Range(lowest)),)
    chosen = select_rules(rules) if rules else tuple(all_rules())
    options = Options(chosen, packages=packages)
    return list(check_source(Source(Path("script.py"), text), options).findings)


def test_a_program_that_lightning_runs_gets_no_finding() -> None:
    assert findings(PROGRAM) == []


def test_the_same_work_by_hand_gets_them() -> None:
    """The program above is silent because Lightning does it, not for lack of a look."""
    found = {f.code for text in (LOOP, SCALED) for f in findings(text)}
    assert found >= BY_LIGHTNING


@pytest.mark.parametrize("package", ["lightning", "pytorch_lightning"])
def test_nor_does_a_file_of_lightnings_with_a_loop(package: str) -> None:
    texts = (f"import {package}\n{text}" for text in (LOOP, SCALED))
    assert not {f.code for text in texts for f in findings(text)} & BY_LIGHTNING


@pytest.mark.parametrize(
    "wasted, code",
    [
        (
            (
                "batch\n        loss",
                "batch\n        labels = labels.to(self.device)\n        loss",
            ),
            "GPU151",
        ),
        (('"train_loss", loss)', '"train_loss", loss, sync_dist=True)'), "GPU152"),
        (('"train_loss", loss)', '"train_loss", loss.item())'), "GPU153"),
        (("num_workers=self.hparams.num_workers,", "num_workers=1,"), "GPU251"),
        (("pin_memory=torch.cuda.is_available(),", ""), "GPU202"),
        (('precision="bf16-mixed",', ""), "GPU351"),
    ],
)
def test_each_waste_that_lightning_leaves_is_found(
    wasted: tuple[str, str], code: str
) -> None:
    """One change at a time, and one rule speaks of it."""
    assert wasted[0] in PROGRAM
    text = (
        PROGRAM.replace("persistent_workers=self.hparams.num_workers > 0,", "")
        if code == "GPU251"
        else PROGRAM
    )
    assert {f.code for f in findings(text.replace(*wasted))} == {code}


LOG = """\
import pytorch_lightning as pl
from torch.nn import functional as F


class Classifier(pl.LightningModule):
    def training_step(self, batch, batch_idx):
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss.item())
        return loss
"""


@pytest.mark.parametrize(
    "lowest, effect",
    [
        ((1, 4), None),
        ((1, 9), Effect.NUMERICS),
        ((2, 0), Effect.NUMERICS),
        ((2, 1), Effect.EXACT),
    ],
)
def test_older_releases_log_half_precision_as_it_is(
    lowest: tuple[int, int], effect: Effect | None
) -> None:
    (finding,) = findings(LOG, "GPU153", lowest=lowest)
    assert (finding.fix.effect if finding.fix else None) is effect
