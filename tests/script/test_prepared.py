"""What Accelerate does by itself is not asked for; what it leaves undone is."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_source, fix_source
from gpulint.finding import Effect
from gpulint.registry import all_rules
from gpulint.source import Source

TRAINED = """
import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms


def train_epoch(accelerator, model, criterion, optimizer, loader):
    model.train()
    total = torch.zeros((), device=accelerator.device)
    for step, (images, labels) in enumerate(loader):
        with accelerator.accumulate(model):
            loss = criterion(model(images), labels)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        total += loss.detach()
        if step % 100 == 0:
            accelerator.log({"loss": loss.item()}, step=step)
    return (total / len(loader)).item()


@torch.no_grad()
def evaluate(accelerator, model, loader):
    model.eval()
    correct, seen = 0, 0
    for images, labels in loader:
        found = model(images).argmax(dim=1)
        found, labels = accelerator.gather_for_metrics((found, labels))
        correct += (found == labels).sum()
        seen += labels.shape[0]
    return correct.item() / seen


def main():
    torch.backends.cudnn.benchmark = True
    accelerator = Accelerator(
        mixed_precision="bf16",
        dataloader_config=DataLoaderConfiguration(non_blocking=True),
    )
    grow = transforms.Compose([transforms.Resize((224, 224)), transforms.ToTensor()])
    train_set = datasets.ImageFolder("train", grow)
    valid_set = datasets.ImageFolder("valid", grow)
    options = {"num_workers": 4, "pin_memory": True, "persistent_workers": True}
    train_loader = DataLoader(train_set, 256, shuffle=True, **options)
    valid_loader = DataLoader(valid_set, 256, **options)
    model = models.resnet50(weights="DEFAULT")
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, train_loader, valid_loader = accelerator.prepare(
        model, optimizer, train_loader, valid_loader
    )
    for epoch in range(10):
        loss = train_epoch(accelerator, model, criterion, optimizer, train_loader)
        accuracy = evaluate(accelerator, model, valid_loader)
        accelerator.print(f"epoch {epoch}: {loss:.4f}, {accuracy:.3f}")
        accelerator.save_state()


if __name__ == "__main__":
    main()
"""
FORMAT = '        mixed_precision="bf16",\n'
QUEUED = "        dataloader_config=DataLoaderConfiguration(non_blocking=True),\n"
PINNED = ', "pin_memory": True'
MODEL = 'models.resnet50(weights="DEFAULT")'
COLUMNS = ", ".join(f"images[:, {n}].to(accelerator.device)" for n in range(3))
OF_MOVES = ("GPU208", "GPU504")  # that speak where the script itself moves something


def found(text: str) -> set[str]:
    source = Source(Path("train.py"), text)
    return {f.code for f in check_source(source, Options(all_rules())).findings}


def test_a_script_that_leaves_the_rest_to_accelerate_is_clean() -> None:
    assert found(TRAINED) == set()


@pytest.mark.parametrize(
    "old, new, codes",
    [
        (FORMAT, "", {"GPU302", "GPU365"}),
        (QUEUED, "", {"GPU162"}),
        (PINNED, "", {"GPU202"}),
        (MODEL, f"{MODEL}.to(accelerator.device)", {"GPU504"}),
        ("accelerator.backward(loss)", "loss.backward()", {"GPU367"}),
        ("+= loss.detach()", "+= loss.item()", {"GPU106"}),
        ("model(images), l", "model(images.cuda()), l", {"GPU163", *OF_MOVES}),
        ("model(images), l", f"model({COLUMNS}), l", {"GPU163", *OF_MOVES}),
        ("import Accelerator, Data", "import Data", set()),
    ],
)
def test_what_is_left_undone_is_said_by_the_rules_of_accelerate(
    old: str, new: str, codes: set[str]
) -> None:
    assert old in TRAINED
    assert found(TRAINED.replace(old, new)) == codes


def test_steps_with_an_accelerator_from_elsewhere_are_its_steps_too() -> None:
    """The file does not import Accelerate, and nobody is seen to call its function."""
    text = TRAINED[: TRAINED.index("def main")]
    text = text.replace(
        "from accelerate import Accelerator, DataLoaderConfiguration", ""
    )
    moved = text.replace("model(images), l", "model(images.to(accelerator.device)), l")
    assert found(text) == set()
    assert found(moved) == set()


def test_everything_that_can_be_mended_is_mended_at_once() -> None:
    text = TRAINED.replace(FORMAT, "").replace(QUEUED, "").replace(PINNED, "")
    text = text.replace("+= loss.detach()", "+= loss.item()").replace(
        "total = torch.zeros((), device=accelerator.device)", "total = 0.0"
    )
    text = text.replace("(total / len(loader)).item()", "total / len(loader)")
    assert found(text) == {"GPU106", "GPU162", "GPU202", "GPU302", "GPU365"}
    fixed = fix_source(
        Source(Path("train.py"), text), Options(all_rules(), frozenset(Effect))
    )
    assert found(fixed.text) == set()


def test_accelerators_of_lightning_are_not_those_of_accelerate() -> None:
    text = (
        "import lightning\nfrom torch.utils.data import DataLoader\n\n\n"
        "class Net(lightning.LightningModule):\n"
        "    def train_dataloader(self):\n"
        "        return DataLoader(Digits(), batch_size=256, num_workers=2)\n\n"
        "    def training_step(self, batch, index):\n"
        "        self.trainer.accelerator.backward(self.loss(batch), self.trainer)\n"
    )
    assert "GPU202" in found(text)
