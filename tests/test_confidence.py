"""How sure findings are: what may well cost nothing is of low confidence."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_path, check_source
from gpulint.finding import Confidence
from gpulint.index import Projects
from gpulint.registry import select_rules
from gpulint.releases import Range
from gpulint.source import Source

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"

EPOCHS = """\
import torch
from torchvision.models import resnet50

device = torch.device("cuda")
model = resnet50().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(90):
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % settings.save_interval == 0:
        torch.save(model.state_dict(), "model.pt")
"""
SUCCESS = EPOCHS.replace("epoch % settings.save_interval == 0", "progress.success")
TIMED = """\
import torch
from torch.utils.data import DataLoader
from torchvision.models import resnet50
from times import time_synchronized

device = torch.device("cuda")
model = resnet50().to(device).eval()
loader = DataLoader(data, batch_size=8, num_workers=4, pin_memory=True)
with torch.no_grad():
    for x, y in loader:
        x = x.to(device)
        start = time_synchronized()
        out = model(x)
        spent.append(time_synchronized() - start)
"""
BESIDE = """\
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.models import resnet50


class Photos(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return to_tensor(Image.open(self.paths[index]).convert("RGB"))


model = resnet50().cuda().eval()
loader = DataLoader(Photos(paths), batch_size=1, num_workers=1)
with torch.no_grad():
    for image in loader:
        out = model(image.cuda())
        save(out.cpu())
"""
DOWNLOADED = """\
import os
import urllib.request

import lightning as L
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return to_tensor(Image.open(self.paths[index]).convert("RGB"))


urllib.request.urlretrieve(address, path)
loader = DataLoader(Photos(paths), batch_size=64, shuffle=True)
trainer = L.Trainer(max_epochs=10, accelerator="gpu")
if os.path.isfile(path):
    model = Model.load_from_checkpoint(path)
else:
    model = Model()
    trainer.fit(model, loader)
"""
MIRRORED = """\
import random

from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        image = Image.open(self.paths[index]).convert("RGB")
        if random.random() < 0.5:
            image = image.transpose(Image.FLIP_LEFT_RIGHT)
        return to_tensor(image)


loader = DataLoader(Photos(paths), batch_size=32, shuffle=True, num_workers=4)
for images in loader:
    loss = model(images.cuda()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
DENSE = """\
import torch
from torch import nn

device = torch.device("cuda")
columns = len(table.columns)
model = nn.Sequential(nn.Linear(columns, 1000), nn.ReLU(), nn.Linear(1000, columns))
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(90):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
ONE_WORKER = """\
import lightning as L
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __getitem__(self, index):
        return Image.open(self.paths[index])


class Data(L.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(Photos(), batch_size=64, num_workers=1)
"""
EMPTY = """\
import torch
from torch import nn


class Weighted(nn.Module):
    weighted = True

    def forward(self, x, y):
        if y.sum() > 0:
            return (x * torch.ones(4).to(x.device)).sum()
        return x.sum()


model = Weighted().cuda()
for x, y in loader:
    model(x.cuda(), y.cuda()).backward()
"""
KEPT = EMPTY.replace(
    "if y.sum() > 0:", "self.boxes = y.size(1)\n        if self.boxes == 0:"
)
OWN = """\
import tensorflow as tf
from tensorflow.keras import layers


class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = layers.Dense(512)
        self.out = layers.Dense(10)

    def call(self, x):
        return self.out(self.hidden(x))


class Other(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = layers.Conv2D(512, 3)


model = Net()
model.compile(loss="mse", optimizer="adam")
model.fit(images, epochs=10)
"""
OWN_MASKED = OWN.replace("layers.Dense(512)", "layers.Conv2D(512, 3)").replace(
    "self.hidden(x)", "self.hidden(x) * tf.cast(x > 0, tf.float32)"
)
SOLVES = """\
import torch
from torch import nn


class Ridge(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512))

    def forward(self, x, y):
        z = self.layers(x)
        return torch.linalg.solve(z.mT @ z, z.mT @ y)


model = Ridge().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = model(x.cuda(), y.cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
NARROW = """\
import math

import torch
from torch import nn

from data import loader


class Upscaler(nn.Module):
    def __init__(self, scale, width=256, inner=12, depth=20):
        super().__init__()
        self.first = nn.Conv2d(1, width, 5, padding=2)
        layers = [nn.Conv2d(width, inner, 1)]
        for _ in range(depth):
            layers.extend([nn.Conv2d(inner, inner, 3, padding=1), nn.PReLU(inner)])
        self.inner = nn.Sequential(*layers)
        self.last = nn.Conv2d(inner, 1, 9, padding=4)
        self.initialise()

    def initialise(self):
        for layer in self.inner:
            if isinstance(layer, nn.Conv2d):
                scale = math.sqrt(2 / layer.weight.data[0][0].numel())
                nn.init.normal_(layer.weight.data, std=scale)

    def forward(self, x):
        return self.last(self.inner(self.first(x)))


model = Upscaler(scale=3).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
FLOWS = SOLVES.replace("torch.linalg.solve(z.mT @ z, z.mT @ y)", "odeint(z, y)")
FLOWS = f"from torchdiffeq import odeint\n{FLOWS}"
WIDTH = """\
import torch
from torch import nn


class Noise(nn.Module):
    def forward(self, x):
        _, _, width = x.shape
        rest = width - 3
        if rest == 0:
            return x * torch.ones(4).to(x.device)
        return x


noise = Noise().cuda()
for x in loader:
    noise(x.cuda()).sum().backward()
"""
MOVED = """\
import lightning as L


class Net(L.LightningModule):
    def training_step(self, batch, batch_idx):
        x, y = batch
        x = x.to(self.device)
        return (self.net(x) - y).square().mean()
"""
CAST = """\
from torch.utils.data import DataLoader

loader = DataLoader(points, batch_size=32, num_workers=4, pin_memory=True)
for x in loader:
    loss = model(x.float().cuda()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
CAST_TURNED = CAST.replace("x.float()", "x.float().transpose(1, 2)")
CAST_TO = "import torch\n" + CAST.replace("x.float()", "x.type(torch.float16)")
TRAINED = """\
import torch

from data import loader

model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def run(part):
    for x, y in loader:
        loss = (model(x.cuda()) - y.cuda()).square().mean()
        if part == "train":
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(loss.item())


run("val")
"""
EAGER = """\
import tensorflow as tf

model = tf.keras.Sequential([tf.keras.layers.Dense(10)])
optimizer = tf.keras.optimizers.Adam()
if mode == "eager_tf":
    for epoch in range(20):
        for x, y in dataset:
            with tf.GradientTape() as tape:
                loss = loss_fn(y, model(x, training=True))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
"""
PREPARED = """\
from accelerate import Accelerator
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __getitem__(self, index):
        return Image.open(self.paths[index])


accelerator = Accelerator()
loader = DataLoader(Photos(), batch_size=64)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, y in loader:
    accelerator.backward(criterion(model(x), y))
    optimizer.step()
"""
BLURRED = """\
import cv2
import mindspore as ms
import mindspore.dataset as ds
import numpy as np


def softened(image):
    return cv2.GaussianBlur(cv2.resize(image, (64, 64)), (3, 3), 0)


data = ds.ImageFolderDataset("photos", decode=True)
data = data.map(softened, "image").batch(32)
model = ms.Model(net, loss, optimizer)
model.train(10, data, dataset_sink_mode=False)  # bucketed
"""
BLUR = "cv2.GaussianBlur(cv2.resize(image, (64, 64)), (3, 3), 0)"
BLUR_ALL = f"    for row in image:\n        row[:] = {BLUR}\n    return image"
TYPED = """\
import torch

model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    out = model(x.cuda())
    loss = (out - y.cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    meter.add((out > 0).type(torch.ByteTensor))
    total += loss.item()
"""
DIGITS = """\
import lightning as L
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader
from torchvision.datasets import MNIST, ImageFolder


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(784, 2048)
        self.outer = nn.Linear(2048, 512)

    def training_step(self, batch, _):
        x, y = batch
        return F.cross_entropy(self.outer(self.inner(x.flatten(1)).relu()), y)

    def configure_optimizers(self):
        return optim.AdamW(self.parameters())


loader = DataLoader(MNIST("digits"), batch_size=64, num_workers=4, pin_memory=True)
L.Trainer(max_epochs=10).fit(Net(), loader)
"""
LOADED = "from transformers import AutoModel\nfrom transformers import"
FETCH = "urllib.request.urlretrieve(address, path)\n"


def sure(
    code: str, text: str, packages: tuple[tuple[str, Range], ...] = ()
) -> set[Confidence]:
    options = Options(select_rules((code,)), packages=packages)
    found = check_source(Source(Path("train.py"), text), options).findings
    return {f.confidence for f in found}


def fixture(folder: str, name: str) -> str:
    return (FIXTURES / folder / f"{name}.py").read_text("utf-8")


@pytest.mark.parametrize(
    "folder, low, high",
    [
        ("gpu301_missing_amp", "few_kernels", "any_of_torchvision"),
        ("gpu302_missing_tf32", "small_with_attention", "bad"),
        ("gpu701_data_parallel", "beside_processes", "bad"),
    ],
)
def test_what_may_cost_nothing(folder: str, low: str, high: str) -> None:
    code = folder[:6].upper()
    assert sure(code, fixture(folder, low)) == {Confidence.LOW}
    assert sure(code, fixture(folder, high)) == {Confidence.HIGH}


@pytest.mark.parametrize(
    "code, text, change, instead",
    [
        ("GPU601", EPOCHS, "epoch % settings.save_interval == 0", "epoch % 5 == 0"),
        ("GPU301", DENSE.replace("1000", "240"), "240", "1000"),
        ("GPU302", DENSE.replace("1000", "240"), "240", "1000"),
        ("GPU102", TIMED, "time_synchronized()", "perf_counter()"),
        ("GPU201", BESIDE, "num_workers=1", "num_workers=0"),
        ("GPU251", DOWNLOADED, FETCH, ""),
        ("GPU251", DOWNLOADED, "    trainer.fit", "trainer.fit"),
        ("GPU251", ONE_WORKER, "num_workers=1", "num_workers=0"),
        ("GPU104", EMPTY, "if y.sum() > 0:", "if self.weighted:"),
        ("GPU104", KEPT, "self.boxes == 0", "self.off"),
        ("GPU601", SUCCESS, "progress.success", "True"),
        ("GPU571", EAGER, "eager_tf", "by_hand"),
        ("GPU371", OWN, "layers.Dense(512)", "layers.Conv2D(512, 3)"),
        ("GPU371", OWN_MASKED, ", tf.float32", ""),
        ("GPU151", MOVED, "x.to(self.device)", "x.cuda()"),
        ("GPU301", SOLVES, "torch.linalg.solve", "torch.matmul"),
        ("GPU301", FLOWS, "odeint(z, y)", "torch.matmul(z.mT, y)"),
        ("GPU301", NARROW, "depth=20", "depth=4000"),
        ("GPU104", WIDTH, "_, _, width = x.shape", "width = self.width"),
        ("GPU102", CAST, "x.float().cuda()", "x.cuda()"),
        ("GPU102", CAST_TURNED, "x.float().transpose(1, 2)", "x.transpose(1, 2)"),
        ("GPU102", CAST_TO, "x.type(torch.float16).cuda()", "x.cuda()"),
        ("GPU106", TRAINED, 'run("val")', 'run("train")'),
        ("GPU162", PREPARED, "=64)", "=64, num_workers=4)"),
        ("GPU302", DIGITS, "MNIST(", "ImageFolder("),
        ("GPU106", TYPED, "torch.ByteTensor", "torch.uint8"),
        ("GPU284", BLURRED, BLUR, "np.stack([stretch(row) for row in image])"),
        ("GPU284", BLURRED, f"    return {BLUR}", BLUR_ALL),
        ("GPU584", BLURRED, "  # bucketed", ""),
    ],
    ids=[
        "some epochs",
        "not surely wide",
        "products not surely wide",
        "time is taken",
        "one worker",
        "no download",
        "always",
        "no worker",
        "no question of the data",
        "no number of the data",
        "no best so far",
        "no eager mode",
        "a model that convolves",
        "a mask of any format",
        "a device by name",
        "a product",
        "no differential equation",
        "many layers",
        "a width that is given",
        "no cast",
        "no cast that is turned",
        "no cast to halves",
        "a training",
        "workers",
        "larger pictures",
        "no type of the host",
        "Python alone",
        "a loop in Python",
        "one shape",
    ],
)
def test_what_makes_it_sure(code: str, text: str, change: str, instead: str) -> None:
    assert change in text
    assert sure(code, text) == {Confidence.LOW}
    assert sure(code, text.replace(change, instead)) == {Confidence.HIGH}


@pytest.mark.parametrize("code", ["GPU301", "GPU302"])
def test_widths_that_are_not_known(code: str) -> None:
    """What may be a wide layer is no narrow one, and none that is surely wide."""
    assert sure(code, DENSE.replace("1000", "settings.width")) == {Confidence.LOW}
    assert sure(code, DENSE.replace("1000", "64")) == set()


HALF = DENSE.replace("model.to(device)\n", "model.to(device)\nmodel.half()\n")


def test_float16_by_an_option_leaves_mixed_precision_missing() -> None:
    by_option = HALF.replace("model.half()", "if settings.half:\n    model.half()")
    off = """\
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--half", action="store_true")
settings = parser.parse_args()
"""
    assert sure("GPU301", off + by_option) == {Confidence.LOW}
    assert sure("GPU301", HALF) == set()
    assert sure("GPU304", off + by_option) == {Confidence.LOW}
    assert sure("GPU304", HALF) == {Confidence.HIGH}


@pytest.mark.parametrize(
    "code, text, since",
    [
        ("GPU301", DENSE, (1, 6)),
        ("GPU203", fixture("gpu203_restarting_workers", "bad"), (1, 8)),
        ("GPU251", fixture("gpu251_lightning_serial_loading", "restarting"), (1, 8)),
    ],
)
def test_projects_of_older_releases(
    code: str, text: str, since: tuple[int, int]
) -> None:
    """What their PyTorch cannot do is of low confidence, and nothing is rewritten."""
    major, minor = since
    for newest in (since, (major, minor - 1)):
        options = Options(select_rules((code,)), newest_torch=newest)
        found = check_source(Source(Path("train.py"), text), options).findings
        old = newest < since
        assert found
        assert {f.confidence is Confidence.LOW for f in found} == {old}
        assert not old or {f.fix for f in found} == {None}


@pytest.mark.parametrize("lowest", [None, (2, 4)])
@pytest.mark.parametrize("case", ["bad", "apex"])
def test_names_that_warn(lowest: tuple[int, int] | None, case: str) -> None:
    """Another name saves no time."""
    options = Options(select_rules(("GPU303",)), torch_version=lowest)
    text = fixture("gpu303_deprecated_amp_api", case)
    found = check_source(Source(Path("train.py"), text), options).findings
    assert {f.confidence for f in found} == {Confidence.LOW}


@pytest.mark.parametrize("newest", [None, (2, 8), (2, 9)])
def test_scripts_whose_python_forks_workers(newest: tuple[int, int] | None) -> None:
    options = Options(select_rules(("GPU210",)), newest_torch=newest)
    text = fixture("gpu210_unguarded_main", "bad")
    (found,) = check_source(Source(Path("train.py"), text), options).findings
    assert (found.confidence is Confidence.LOW) is (newest == (2, 8))


@pytest.mark.parametrize(
    "code, text, newest, low",
    [
        ("GPU108", "gpu108_unsafe_non_blocking", (1, 7), True),
        ("GPU108", "gpu108_unsafe_non_blocking", (1, 8), False),
    ],
)
def test_copies_to_ordinary_memory(
    code: str, text: str, newest: tuple[int, int], low: bool
) -> None:
    options = Options(select_rules((code,)), newest_torch=newest)
    source = Source(Path("train.py"), fixture(text, "bad"))
    found = check_source(source, options).findings
    assert found
    assert any(f.confidence is Confidence.LOW for f in found) is low


@pytest.mark.parametrize("lowest", [(1, 8), (2, 0)])
def test_values_that_the_first_lightning_takes(lowest: tuple[int, int]) -> None:
    packages = (("lightning", Range(lowest, None)),)
    text = "import lightning as L\n\ntrainer = L.Trainer(precision=16)\n"
    low = lowest < (2, 0)
    assert sure("GPU352", text, packages) == {
        Confidence.LOW if low else Confidence.HIGH
    }


@pytest.mark.parametrize("newest, found", [((1, 10), False), ((1, 11), True)])
def test_a_torch_that_leaves_out_releases_of_lightning(
    newest: tuple[int, int], found: bool
) -> None:
    """Lightning 2.0 needs torch 1.11."""
    options = Options(select_rules(("GPU357",)), newest_torch=newest)
    text = "import lightning as L\n\ntrainer = L.Trainer(gpus=1)\ntrainer.fit(model)\n"
    source = Source(Path("train.py"), text)
    assert bool(check_source(source, options).findings) is found


def test_samples_of_which_nothing_is_known() -> None:
    text = fixture("gpu201_serial_loading", "bad")
    unknown = """\
import torch
from torch.utils.data import DataLoader

from scans import Scans

model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(Scans("train"), batch_size=32):
    loss = model(x.cuda()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    assert sure("GPU201", unknown) == {Confidence.LOW}
    assert sure("GPU201", unknown.replace("=32", "=32, num_workers=2")) == set()
    assert sure("GPU201", unknown.replace("=32", "=32, collate_fn=join")) == set()
    assert sure("GPU201", text) == {Confidence.HIGH}


def test_one_regular_save_makes_them_all_sure() -> None:
    last = '        torch.save(model.state_dict(), "model.pt")\n'
    save = last.replace("        ", "    ", 1).replace("model.pt", "last.pt")
    assert sure("GPU601", EPOCHS + save) == {Confidence.HIGH}


def test_what_is_done_by_hand_and_cannot_be_moved() -> None:
    """Labels may be made of pictures that are turned: `flows(turned_mask)`."""
    assert sure("GPU207", MIRRORED) == {Confidence.LOW}
    turned = MIRRORED.replace("transpose(Image.FLIP_LEFT_RIGHT)", "rotate(9)")
    assert turned != MIRRORED
    assert sure("GPU207", turned) == {Confidence.LOW}


PERHAPS = """\
import torch
from torch.utils.data import DataLoader

def assess(model, held_out, loss):
    device, total, loader = torch.device("cuda"), 0, None
    if held_out is not None:
        loader = DataLoader(held_out, batch_size=8, num_workers=0)
    if loader is not None:
        with torch.no_grad():
            for x, y in loader:
                total += loss(model(x.to(device)), y.to(device))
"""


def test_a_loader_that_there_may_not_be_is_known_all_the_same() -> None:
    """Its process would copy each batch to pinned memory before it copies it again."""
    assert sure("GPU102", PERHAPS) == set()
    workers = PERHAPS.replace("num_workers=0", "num_workers=4, pin_memory=True")
    assert sure("GPU102", workers) == {Confidence.HIGH}


def test_an_evaluation_once_in_a_run() -> None:
    each = fixture("gpu402_eval_batch_as_train", "bad")
    once = each.replace("        print(epoch, accuracy", "    print(epoch, accuracy")
    assert once != each
    assert sure("GPU402", once) == {Confidence.LOW}
    assert sure("GPU402", each) == {Confidence.HIGH}


def test_flips_that_can_be_moved_are_sure() -> None:
    """GPU208 leaves the conversion of these images to the same rewrite."""
    text = fixture("gpu207_cpu_augmentation", "flipped_by_hand")
    assert sure("GPU207", text) == {Confidence.HIGH}


@pytest.mark.parametrize(
    "folder", ["gpu163_accelerate_manual_transfer", "gpu881_ms_device_context"]
)
def test_what_costs_next_to_nothing(folder: str) -> None:
    assert sure(folder[:6].upper(), fixture(folder, "bad")) == {Confidence.LOW}


BEFORE_BATCHES = """\
import tensorflow as tf

images = tf.data.Dataset.from_tensor_slices(paths)
images = images.map(read)
model.fit(images.batch(64).prefetch(tf.data.AUTOTUNE), epochs=10)
"""
READ = """\
def read(path):
    return tf.io.decode_jpeg(tf.io.read_file(path), channels=3)


"""


def up_to(code: str, text: str, *highest: int) -> set[Confidence]:
    major, minor = highest
    return sure(code, text, (("tensorflow", Range(None, (major, minor))),))


@pytest.mark.parametrize(
    "folder, since", [("gpu271_tf_serial_map", 6), ("gpu273_tf_no_prefetch", 11)]
)
def test_releases_that_optimize_themselves(folder: str, since: int) -> None:
    code, text = folder[:6].upper(), fixture(folder, "bad").replace(".cache()", "")
    assert Confidence.LOW in sure(code, text)
    assert sure(code, text) == up_to(code, text, 2, since)
    assert up_to(code, text, 2, since - 1) == {Confidence.HIGH}


@pytest.mark.parametrize("function", [READ, ""], ids=["known", "not known"])
def test_functions_that_may_be_made_parallel(function: str) -> None:
    text = BEFORE_BATCHES.replace("images = ", f"{function}images = ", 1)
    assert sure("GPU271", text) == {Confidence.LOW}
    assert up_to("GPU271", text, 2, 5) == {Confidence.HIGH}
    drawn = text.replace("channels=3)", "channels=3) * tf.random.uniform(())")
    assert sure("GPU271", drawn) == {Confidence.HIGH if function else Confidence.LOW}


def test_elements_that_are_kept_are_made_once() -> None:
    text = BEFORE_BATCHES.replace("images.map(read)", "images.map(read).cache()")
    assert up_to("GPU271", text, 2, 5) == {Confidence.LOW}


def test_datasets_of_which_nothing_is_taken() -> None:
    left = BEFORE_BATCHES.replace("model.fit(images", "model.fit(others")
    assert left != BEFORE_BATCHES
    assert up_to("GPU271", left, 2, 5) == {Confidence.LOW}


HOOKS = """\
import lightning as L
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return Image.open(self.paths[index])


class Data(L.LightningDataModule):
    def __init__(self, num_workers: int = 0):
        super().__init__()
        self.save_hyperparameters()

    def train_dataloader(self):
        return DataLoader(
            Photos(["a.png"]), num_workers=self.hparams.num_workers, pin_memory=True
        )
"""


KEPT = "persistent_workers=self.hparams.num_workers > 0, "


@pytest.mark.parametrize("kept", ["", KEPT])
def test_workers_that_settings_may_ask_for(tmp_path: Path, kept: str) -> None:
    """Where a file says 0 for now, GPU901 speaks of that; they would start anew."""
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'photos'\n")
    (tmp_path / "conf").mkdir()
    settings = "_target_: data.Data\nnum_workers: 0\n"
    (tmp_path / "conf" / "data.yaml").write_text(settings)
    file = tmp_path / "data.py"
    file.write_text(HOOKS.replace("pin_memory", f"{kept}pin_memory"))
    options = Options(select_rules(("GPU251", "GPU901")), projects=Projects())
    found = {f.code: f.confidence for f in check_path(file, options).findings}
    low = {} if kept else {"GPU251": Confidence.LOW}
    assert found == {"GPU901": Confidence.HIGH, **low}


@pytest.mark.parametrize(
    "named, workers, found",
    [("Data", 4, []), ("Data", 0, ["GPU901"]), ("Others", 4, ["GPU251"])],
)
def test_workers_that_a_class_path_asks_for(
    tmp_path: Path, named: str, workers: int, found: list[str]
) -> None:
    """What a class says by default is not what Lightning's command line gives it."""
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'photos'\n")
    arguments = f"  init_args:\n    num_workers: {workers}\n"
    settings = f"data:\n  class_path: data.{named}\n{arguments}"
    (tmp_path / "photos.yaml").write_text(settings)
    program = "from lightning.pytorch.cli import LightningCLI\n\nLightningCLI()\n"
    (tmp_path / "main.py").write_text(program)
    file = tmp_path / "data.py"
    file.write_text(HOOKS)
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(select_rules(("GPU251", "GPU901")), projects=projects)
    its = check_path(file, options).findings
    assert [f.code for f in its if "loads alone" in f.message] == found


@pytest.mark.parametrize("package, sure", [("gymnasium", "low"), ("games", "high")])
def test_programs_that_play_gain_little_by_mixed_precision(
    tmp_path: Path, package: str, sure: str
) -> None:
    text = f"from world import Worker\n{EPOCHS}"
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "world.py").write_text(
        f"import {package}\n\n\nclass Worker:\n    x = 1\n"
    )
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(select_rules(("GPU301",)), projects=projects)
    (found,) = check_path(tmp_path / "train.py", options).findings
    assert found.confidence.value == sure


@pytest.mark.parametrize(
    "newest, found",
    [((1, 6), {"low"}), ((1, 9), set()), ((1, 12), {"high"}), (None, {"high"})],
)
def test_tf32_of_old_releases(newest: tuple[int, int] | None, found: set[str]) -> None:
    """Before 1.7 there was none, and up to 1.11 it was on by default."""
    text = fixture("gpu302_missing_tf32", "bad")
    options = Options(select_rules(("GPU302",)), newest_torch=newest)
    findings = check_source(Source(Path("train.py"), text), options).findings
    assert {f.confidence.value for f in findings} == found


GENERATED = """\
import torch
from torch.utils.data import DataLoader, IterableDataset
from torchvision.models import resnet50


class Rows(IterableDataset):
    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        for row in self.rows:
            yield row


device = torch.device("cuda")
model = resnet50().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(Rows(rows), batch_size=32):
    loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_the_loop_of_an_iterable_dataset_is_no_work_of_a_sample() -> None:
    assert sure("GPU201", GENERATED) == set()
    work = GENERATED.replace("yield row", "yield [part for part in row]")
    assert sure("GPU201", work) == {Confidence.LOW}  # and each worker yields them all
    within = GENERATED.replace(
        "yield row", "for part in row:\n                yield part"
    )
    assert sure("GPU201", within) == set()


def test_an_empty_tensor_is_nothing_to_copy() -> None:
    made = "    extra = torch.FloatTensor([0.5]).to(device)\n    loss = torch"
    text = EPOCHS.replace("        loss = torch", made.replace("    ", "        "))
    assert sure("GPU104", text) == {Confidence.HIGH}
    assert sure("GPU104", text.replace("[0.5]", "[]")) == set()


@pytest.mark.parametrize("width, expected", [("400", "low"), ("4000", "high")])
def test_linear_models_are_small_up_to_a_million_weights(
    width: str, expected: str
) -> None:
    text = EPOCHS.replace("from torchvision.models import resnet50\n", "")
    model = f"torch.nn.Sequential(torch.nn.Linear(784, {width}), torch.nn.Linear({width}, 10))"
    text = text.replace("resnet50()", model)
    assert {c.value for c in sure("GPU302", text)} == {expected}


@pytest.mark.parametrize("rows, expected", [("64", "low"), ("512", "high")])
def test_larger_linear_models_are_small_for_few_rows(rows: str, expected: str) -> None:
    text = EPOCHS.replace("from torchvision.models import resnet50\n", "")
    layers = "torch.nn.Linear(784, 2000), torch.nn.ReLU(), torch.nn.Linear(2000, 10)"
    text = text.replace("resnet50()", f"torch.nn.Sequential({layers})")
    loader = f"loader = torch.utils.data.DataLoader(data, batch_size={rows})\nfor epoch"
    text = text.replace("for epoch", loader, 1)
    assert {c.value for c in sure("GPU301", text)} == {expected}
    assert {c.value for c in sure("GPU302", text)} == {expected}  # it waits to start


TWO_MODELS = """
def small():
    return torch.nn.Sequential(torch.nn.Linear(784, 1000), torch.nn.Linear(1000, 10))


def smaller():
    return torch.nn.Sequential(torch.nn.Linear(784, 900), torch.nn.Linear(900, 10))


def chosen(name):
    return small() if name == "small" else smaller()


"""


def test_models_of_which_one_is_trained_are_not_added_up() -> None:
    text = EPOCHS.replace("from torchvision.models import resnet50\n", TWO_MODELS)
    assert sure("GPU302", text.replace("resnet50()", "chosen(name)")) == {
        Confidence.LOW
    }


def test_lists_of_batches_may_hold_what_is_no_tensor() -> None:
    text = EPOCHS.replace(
        "import torch\n", "import torch\nfrom torch.utils.data import DataLoader\n", 1
    )
    loader = "loader = DataLoader(data, batch_size=8, num_workers=4)\nfor epoch"
    text = text.replace("for epoch", loader, 1)
    assert sure("GPU202", text) == {Confidence.HIGH}
    listed = text.replace("num_workers=4", "num_workers=4, collate_fn=list")
    assert sure("GPU202", listed) == {Confidence.LOW}


def test_settings_of_mindspore_that_are_deprecated_cost_nothing() -> None:
    fused = "import mindspore as ms\nms.set_context(enable_graph_kernel=True)\n"
    assert sure("GPU583", fused) == {Confidence.LOW}
    device = "import mindspore as ms\nms.set_context(device_target=choose())\n"
    since = (("mindspore", Range((2, 5))),)
    assert sure("GPU881", device, since) == {Confidence.LOW}


STEPS = """
import tensorflow as tf

model = tf.keras.applications.ResNet50()


@tf.function
def step(images):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(images))
    optimizer.apply_gradients([(tape.gradient(loss, w), w) for w in weights])


for images in data:
    step(images)
"""


def test_steps_that_run_in_python_wait_for_it_in_any_precision() -> None:
    assert sure("GPU371", STEPS) == {Confidence.HIGH}
    assert sure("GPU371", STEPS.replace("@tf.function\n", "")) == {Confidence.LOW}


PICTURES = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.second = nn.Conv2d(WIDTH, 64, 3, padding=1)
        self.third = nn.Linear(4096, 128)
        self.last = nn.Linear(128, 10)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.first(x)), 2)
        x = nn.functional.max_pool2d(torch.relu(self.second(x)), 2)
        return self.last(torch.relu(self.third(x.flatten(1))))


data = datasets.CIFAR10("data", transform=transforms.ToTensor())
loader = DataLoader(data, batch_size=20, num_workers=4)
model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(20):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    "old, new, expected",
    [
        ("", "", Confidence.LOW),
        ("WIDTH", "200", Confidence.LOW),
        ("WIDTH", "1000", Confidence.HIGH),
        ('CIFAR10("data"', 'ImageFolder("data"', Confidence.LOW),
    ],
    ids=["as it is", "wider", "much wider", "of the size that the layers take"],
)
def test_networks_for_small_pictures(old: str, new: str, expected: Confidence) -> None:
    """Linear weights are used once for a sample, those of convolutions often."""
    text = PICTURES.replace(old, new) if old else PICTURES
    assert sure("GPU301", text.replace("WIDTH", "32")) == {expected}


def test_networks_for_pictures_of_any_size() -> None:
    text = PICTURES.replace("CIFAR10(", "ImageFolder(").replace("WIDTH", "32")
    text = text.replace("max_pool2d(torch.relu(self.second(x)), 2)", "POOLED")
    text = text.replace("POOLED", "adaptive_avg_pool2d(self.second(x), 8)")
    assert sure("GPU301", text) == {Confidence.HIGH}


PREPARED = """\
import mindspore as ms
import mindspore.dataset as ds
import numpy as np


def loud(sound):
    return np.stack([np.abs(part) for part in sound])


sounds = ds.GeneratorDataset(Sounds(paths), ["sound"], num_parallel_workers=4)
sounds = sounds.map(operations=[loud], input_columns=["sound"])
for number, sound in enumerate(sounds.create_tuple_iterator()):
    np.save(f"{number}.npy", sound)
"""
TRAINED = """
model = ms.Model(network, loss_fn=loss, optimizer=optimizer)
model.train(10, sounds)
"""


def test_files_that_mindspore_prepares() -> None:
    assert sure("GPU284", PREPARED) == {Confidence.LOW}
    assert sure("GPU284", PREPARED + TRAINED) == {Confidence.HIGH}


DREAM = """\
import tensorflow as tf


def ascend(image, rate):
    with tf.GradientTape() as tape:
        tape.watch(image)
        loss = tf.reduce_mean(network(image))
    image += rate * tape.gradient(loss, image)
    return loss


for image in images:
    loss = ascend(image, 0.1)
    print(f"{loss:.2f}")
"""
STEP = """\
optimizer = tf.keras.optimizers.Adam()


def step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(network(x) - y)
    optimizer.apply_gradients([(tape.gradient(loss, w), w) for w in weights])
    return loss


"""
LOOPS = "for number in range(40):\n    loss = step(INPUTS)\n    print(f'{loss:.2f}')\n"


def test_gradients_that_update_no_weights() -> None:
    assert sure("GPU171", DREAM) == {Confidence.LOW}
    updated = DREAM.replace(
        "    return", "    optimizer.apply_gradients(found)\n    return"
    )
    assert sure("GPU171", updated) == {Confidence.HIGH}


@pytest.mark.parametrize(
    "given, found",
    [
        ("x, y", set()),
        ("x[number], y[number]", {Confidence.HIGH}),
        ("*next(batches)", {Confidence.HIGH}),
    ],
)
def test_steps_that_take_all_data(given: str, found: set[Confidence]) -> None:
    text = (
        "import tensorflow as tf\nfrom nets import network, weights\n\n"
        + STEP
        + LOOPS.replace("INPUTS", given)
    )
    assert sure("GPU171", text) == found


PADDED = "gpu262_hf_static_padding"


def test_models_that_leave_padding_out() -> None:
    text = fixture(PADDED, "bad")
    assert sure("GPU262", text) == {Confidence.HIGH}
    assert sure("GPU262", f"# pip install flash-attn\n{text}") == {Confidence.LOW}


COUNTED = """\
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Labels(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return torch.tensor(list(Image.open(self.paths[index]).getdata()))


total = 0
for labels in DataLoader(Labels(paths), batch_size=64):
    total += int(torch.sum(labels != -100).item())
"""


def test_loops_that_only_count() -> None:
    assert sure("GPU201", COUNTED) == set()
    fed = COUNTED.replace("torch.sum(labels", "engine.step(labels")
    assert sure("GPU201", fed) == {Confidence.HIGH}


PREDICTED = """\
from tensorflow import keras

model = keras.models.load_model("model.keras")
for step in range(10):
    scores = model.predict(batches[step])
"""


def test_loops_of_a_few_predictions() -> None:
    assert sure("GPU572", PREDICTED) == {Confidence.LOW}
    more = PREDICTED.replace("range(10)", "range(1000)")
    assert sure("GPU572", more) == {Confidence.HIGH}
    one = PREDICTED.replace("range(10)", "dataset.take(1)")
    assert sure("GPU572", one) == {Confidence.LOW}
    many = PREDICTED.replace("range(10)", "dataset.take(1000)")
    assert sure("GPU572", many) == {Confidence.HIGH}


@pytest.mark.parametrize(
    "turns, rows, confidence",
    [
        ("range(0, len(x), part)", "batch_size=rows", Confidence.LOW),
        ("range(0, len(x), part)", "batch_size=part", Confidence.HIGH),
        ("range(0, len(x), part)", "verbose=0", Confidence.HIGH),
        ("range(0, len(x), 512)", "batch_size=32", Confidence.LOW),
        ("range(0, len(x), 1)", "batch_size=32", Confidence.HIGH),
        ("batches", "batch_size=rows", Confidence.HIGH),
        ("batches", "batch_size=rows); keras.backend.clear_session(", Confidence.LOW),
    ],
)
def test_predictions_of_parts(turns: str, rows: str, confidence: Confidence) -> None:
    text = PREDICTED.replace("range(10)", turns).replace("[step])", f"[step], {rows})")
    assert sure("GPU572", text) == {confidence}


def test_small_batches_of_language_models() -> None:
    text = fixture("gpu471_tf_fixed_batch", "bad")
    assert sure("GPU471", text) == {Confidence.HIGH}
    assert sure("GPU471", f"# like RoBERTa\n{text}") == {Confidence.LOW}
    assert sure("GPU471", f"import autokeras\n{text}") == {Confidence.LOW}


LATCHED = """\
import torch

model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
queue = torch.zeros(99, 8).cuda()
full = False
for x in loader:
    if full or not torch.all(queue[-1] == 0):
        full = True
    loss = model(x.cuda()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "old, new, found",
    [
        ("", "", set()),
        ("full = True", "count = 1", {Confidence.HIGH}),
        ("full or", "open and", {Confidence.HIGH}),
    ],
)
def test_questions_that_are_asked_until_a_flag_is_set(
    old: str, new: str, found: set[Confidence]
) -> None:
    assert sure("GPU106", LATCHED.replace(old, new)) == found


EAGER = """\
import tensorflow as tf

from nets import network, optimizer

for x, y in dataset:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(network(x) - y)
    optimizer.minimize(loss, network.trainable_variables, tape=tape)
"""
COMPILED = """\
@tf.function
def predict(x):
    return network(x)


for x"""


def test_steps_of_tensorflow_that_are_compiled_or_on_the_cpu() -> None:
    assert sure("GPU571", EAGER) == {Confidence.HIGH}
    on_cpu = EAGER.replace("with tf.G", "with tf.device('/cpu:0'), tf.G")
    assert sure("GPU571", on_cpu) == set()
    on_gpu = EAGER.replace("with tf.G", "with tf.device('/gpu:0'), tf.G")
    assert sure("GPU571", on_gpu) == {Confidence.HIGH}
    inside = EAGER.replace("for x", COMPILED).replace("(network(x) -", "(predict(x) -")
    assert sure("GPU571", inside) == {Confidence.LOW}


FIXED = """\
import tensorflow as tf

from nets import network, optimizer

data = tf.data.Dataset.from_tensor_slices(rows).repeat().shuffle(500).batch(16)
for x, y in data.take(1000):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(network(x) - y)
    optimizer.minimize(loss, network.trainable_variables, tape=tape)
"""


def test_numbers_of_steps_that_are_taken() -> None:
    assert sure("GPU471", FIXED) == set()
    assert sure("GPU471", FIXED.replace(".take(1000)", "")) == {Confidence.HIGH}


KEPT = """\
import tensorflow as tf

data = tf.data.Dataset.from_tensor_slices(rows).shuffle(500).batch(16).cache()
model.fit(data, epochs=10)
"""


def test_orders_that_are_drawn_anew_behind_a_cache() -> None:
    assert sure("GPU276", KEPT) == {Confidence.HIGH}
    assert sure("GPU276", KEPT.replace("cache()", "cache().shuffle(50)")) == set()


INTERLEAVED = """\
import tensorflow as tf

files = tf.data.Dataset.list_files("*.tfrecord")
for record in files.interleave(tf.data.TFRecordDataset, cycle_length=4):
    print(record)
"""


def test_files_that_are_only_printed() -> None:
    main = "\n\nif __name__ == '__main__':\n    network.fit(files)\n"
    assert sure("GPU272", INTERLEAVED + main.replace(".fit", ".show")) == {
        Confidence.LOW
    }
    assert sure("GPU272", INTERLEAVED + main) == {Confidence.HIGH}


SHOWN = """\
import torch
from diffusers import StableDiffusionPipeline

pipe = StableDiffusionPipeline.from_pretrained("runwayml/stable-diffusion-v1-5")
pipe = pipe.to("cuda")


def evaluate(loader):
    for prompts, seeds in loader:
        images.append(pipe(prompts.cuda()))
"""


def test_pipelines_build_no_graphs() -> None:
    assert sure("GPU403", SHOWN) == set()
    own = SHOWN.replace("diffusers import Stable", "mine import Stable")
    assert sure("GPU403", own) != set()


SINGLE = """\
import torch

from nets import GNN
from graphs import graph, features, labels, train, test

model = GNN().cuda()
optimizer = torch.optim.Adam(model.parameters())
features, labels = features.cuda(), labels.cuda()


def assess():
    model.eval()
    scores = model(graph, features)
    print((scores[test].argmax(1) == labels[test]).sum().item())


for epoch in range(200):
    model.train()
    loss = torch.nn.functional.cross_entropy(model(graph, features)[train], labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_last_pass_behind_the_training() -> None:
    assert sure("GPU403", SINGLE + "assess()\n") == {Confidence.LOW}
    assert sure("GPU403", SINGLE + "    assess()\n") == {Confidence.HIGH}


CROPS = """\
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Crops(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        track = np.load(self.paths[index])
        start = np.random.randint(len(track) - 64)
        return torch.from_numpy(track[start : start + 64])


device = torch.device("cuda")
model = nn.Linear(64, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
paths = sorted(Path("tracks").glob("*.npy"))
loader = DataLoader(Crops(paths), batch_size=8, num_workers=0)
for epoch in range(10):
    for batch in loader:
        loss = model(batch.to(device)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize("newest", [(1, 8), (1, 9), None])
def test_workers_that_would_draw_the_same_numbers_of_numpy(
    newest: tuple[int, int] | None,
) -> None:
    options = Options(select_rules(("GPU201",)), newest_torch=newest)
    (found,) = check_source(Source(Path("a.py"), CROPS), options).findings
    assert (found.confidence is Confidence.LOW) is (newest == (1, 8))


WORDS = """\
import torch
from torch import nn


class Sentences(nn.Module):
    def __init__(self, words, features, channels=1):
        super().__init__()
        self.embedding = nn.Embedding(words, features)
        self.layers = nn.ModuleList(
            nn.Conv2d(channels, 100, (rows, features)) for rows in (3, 4, 5)
        )

    def forward(self, x):
        x = self.embedding(x).unsqueeze(1)
        return torch.cat([layer(x).amax((2, 3)) for layer in self.layers], 1)


model = Sentences(20000, options.features, {channels}).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("channels", [1, 3])
def test_convolutions_over_embedded_words_are_not_surely_large(channels: int) -> None:
    found = sure("GPU301", WORDS.format(channels=channels))
    assert (Confidence.HIGH in found) is (channels == 3)


NUMPY_LOSS = """\
import numpy as np
import tensorflow as tf

from data import batches, network, optimizer


class Overlap:
    def __call__(self, true, given):
        lower = {module}.maximum(true[..., 0], given[..., 0])
        return tf.reduce_mean(given[..., 1] - lower)


overlap = Overlap()


def step(x, y):
    with tf.GradientTape() as tape:
        loss = overlap(y, network(x, training=True))
    gradients = tape.gradient(loss, network.trainable_variables)
    optimizer.apply_gradients(zip(gradients, network.trainable_variables))


for epoch in range(10):
    for x, y in batches:
        step(x, y)
"""


@pytest.mark.parametrize("module", ["np", "tf"])
def test_steps_in_which_numpy_computes_cannot_be_compiled(module: str) -> None:
    expected = {Confidence.LOW} if module == "np" else {Confidence.HIGH}
    assert sure("GPU571", NUMPY_LOSS.format(module=module)) == expected


CHOSEN = """\
import torch
from torch import nn


class Noise(nn.Module):
    def forward(self, x):
        return x + torch.randn(x.size(0), 64).to(x.device)


class Net(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layer = nn.Linear(64, 64)
        if kind == "noisy":
            self.noise = Noise()

    def forward(self, x):
        return self.layer(self.noise(x))


if __name__ == "__main__":
    net = Net(options.kind).cuda()
    for x in loader:
        net(x.cuda()).sum().backward()
"""


@pytest.mark.parametrize(
    "change, instead, confidence",
    [
        ("", "", Confidence.LOW),
        ('if kind == "noisy":', "if True:", Confidence.HIGH),
        ('if kind == "noisy":', "if kind is not None:", Confidence.HIGH),
        ("Net(options.kind)", "nets[options.kind]", Confidence.LOW),
        ("Noise()", "noises.Noise()", Confidence.LOW),
    ],
    ids=["chosen by a word", "always", "if given", "made elsewhere", "another one"],
)
def test_modules_that_a_program_surely_makes(
    change: str, instead: str, confidence: Confidence
) -> None:
    text = CHOSEN.replace(change, instead) if change else CHOSEN
    assert sure("GPU104", text) == {confidence}


@pytest.mark.parametrize(
    "given, highest, confidence",
    [
        ("images", None, Confidence.HIGH),
        ("images", (2, 4), Confidence.HIGH),
        ("images", (2, 3), Confidence.LOW),
        ("np.random.rand(64, 512)", None, Confidence.LOW),
    ],
)
def test_policies_gain_nothing_for_a_trial_and_are_newer_than_some_tensorflow(
    given: str, highest: tuple[int, int] | None, confidence: Confidence
) -> None:
    text = (
        "import numpy as np\n"
        "from tensorflow import keras\n"
        "from data import images, labels\n\n"
        "layers = [keras.layers.Dense(2048), keras.layers.Conv2D(512, 3)]\n"
        "model = keras.Sequential(layers)\n"
        "model.compile(loss='mse')\n"
        f"model.fit({given}, labels, epochs=10)\n"
    )
    packages = (("tensorflow", Range(None, highest)),)
    options = Options(select_rules(("GPU371",)), packages=packages)
    (found,) = check_source(Source(Path("a.py"), text), options).findings
    assert found.confidence is confidence


@pytest.mark.parametrize(
    "kind, asked, confidence",
    [
        ("nn.Conv2d", "True", Confidence.LOW),
        ("(nn.Conv2d, nn.Linear)", "True", Confidence.LOW),
        ("nn.Conv2d", "m.bias is not None", Confidence.HIGH),
        ("nn.BatchNorm2d", "True", Confidence.HIGH),
    ],
)
def test_biases_that_a_program_fills_must_be_asked_for_first(
    kind: str, asked: str, confidence: Confidence
) -> None:
    text = fixture("gpu506_bias_before_batchnorm", "bad") + (
        f"\n\ndef init(m):\n    if isinstance(m, {kind}):\n        if {asked}:\n"
        "            nn.init.zeros_(m.bias)\n"
    )
    assert sure("GPU506", text) == {confidence}


def test_workers_that_would_all_yield_the_whole_stream() -> None:
    steps = "\nmodel = torch.nn.Linear(8, 1).cuda()\nfor x in loader:\n"
    steps += "    model(x.cuda()).sum().backward()\n"
    for name, confidence in (
        ("stream_without_shards", Confidence.LOW),
        ("sharded_stream", Confidence.HIGH),
    ):
        text = fixture("gpu201_serial_loading", name) + steps
        assert sure("GPU201", text) == {confidence}


@pytest.mark.parametrize(
    "said, sure",
    [
        ("Train it with `python bad.py`.", Confidence.HIGH),
        ("Download the weights from https://example.org.", Confidence.LOW),
        ("We offer pretrained models.", Confidence.LOW),
    ],
)
def test_weights_that_a_project_offers(
    tmp_path: Path, said: str, sure: Confidence
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "README.md").write_text(said)
    path = tmp_path / "bad.py"
    bad = FIXTURES / "gpu506_bias_before_batchnorm" / "bad.py"
    path.write_text(bad.read_text("utf-8"))
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(select_rules(("GPU506",)), projects=projects)
    [finding] = check_path(path, options).findings
    assert finding.confidence is sure


MASKED = """\
import torch
from torch import nn


class Tagger(nn.Module):
    def forward(self, image):
        return self.head(image + torch.ones(8, 16).to(image.device))


model = Tagger().cuda().eval()
print(model(image.cuda()))
"""


@pytest.mark.parametrize(
    "name, more, found",
    [
        ("a.ipynb", "", False),
        ("a.ipynb", "for x in loader:\n    model(x.cuda())\n", True),
        ("a.ipynb", "trainer.fit(model)\n", True),
        ("a.py", "", True),
    ],
)
def test_a_notebook_that_shows_one_input(name: str, more: str, found: bool) -> None:
    source = Source(Path(name), MASKED + more)
    options = Options(select_rules(("GPU104",)))
    assert bool(check_source(source, options).findings) is found


SIGNALS = """
import torch
from torch import nn
from torch.utils.data import DataLoader
from signals import Signals

device = torch.device("cuda")
model = nn.Sequential(
    nn.Conv2d(9, 32, (1, 9)), nn.ReLU(), nn.Flatten(), nn.Linear(3840, 500), nn.Linear(500, 6)
).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(Signals(), batch_size=64):
    x, y = x.to(device), y.to(device)
    x = x.view(-1, 9, 1, 128)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "old, new",
    [("1, 128)", "1, length)"), ("size=64", "size=4096"), ("size=64", "size=rows")],
)
def test_products_take_less_time_than_their_launches(old: str, new: str) -> None:
    assert sure("GPU301", SIGNALS) == {Confidence.LOW}
    assert sure("GPU502", SIGNALS) == {Confidence.LOW}
    assert sure("GPU301", SIGNALS.replace(old, new)) == {Confidence.HIGH}
    assert sure("GPU502", SIGNALS.replace(old, new)) == {Confidence.HIGH}


LISTED = """
import torch
from torch import nn

device = torch.device("cuda")
layers = [nn.Linear(4096, 4096), nn.ReLU()]
layers.append(nn.Linear(4096, 4096))
model = nn.Sequential(*layers).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


DEEP = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Deep(nn.Module):
    def __init__(self, activation, depth):
        super().__init__()
        layers = []
        for i in range(depth):
            layers += [nn.Linear(300, 300), activation()]
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


device = torch.device("cuda")
model = Deep(nn.ReLU, depth).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(TensorDataset(a, b), batch_size=64):
    loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "old, new",
    [("300, 300", "300, 2048"), ("size=64", "size=4096"), ("size=64", "size=rows")],
)
def test_narrow_layers_of_unknown_number_wait_for_launches(old: str, new: str) -> None:
    assert sure("GPU301", DEEP) == {Confidence.LOW}
    assert sure("GPU301", DEEP.replace(old, new)) == {Confidence.HIGH}


@pytest.mark.parametrize(
    "name, layer, sure_",
    [
        ("DenseNet", "nn.Linear(width, width)", Confidence.LOW),
        ("DenseNet", "build_conv(width, width)", Confidence.HIGH),
        ("DenseNet", "nn.Conv2d(width, width, 3)", Confidence.HIGH),
    ],
)
def test_the_name_of_a_perceptron_convolves_nothing(
    name: str, layer: str, sure_: Confidence
) -> None:
    text = DEEP.replace("nn.Linear(300, 300)", f"nn.Linear(width, width), {layer}")
    text = text.replace("Deep", name).replace(", depth)", ", depth, width=200)")
    assert sure("GPU301", text) == {sure_}


@pytest.mark.parametrize("code", ["GPU301", "GPU302"])
def test_layers_in_a_list_are_seen(code: str) -> None:
    assert sure(code, LISTED) == {Confidence.HIGH}
    assert sure(code, LISTED.replace("4096", "40")) == set()


GIVEN = """
import torch
from torch import nn
from torch.utils.data import DataLoader
from rows import Rows


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = unknown.scale()


class Net(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body
        self.head = nn.Sequential(nn.Linear(784, 1000), nn.ReLU(), nn.Linear(1000, 784))


device = torch.device("cuda")
body = Scaled()
model = Net(body).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(Rows(), batch_size=64):
    loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "body, expected",
    [
        ("Scaled()", "low"),  # of which nothing large is seen
        ("nn.Sequential(nn.Linear(784, 784))", "low"),
        ("nn.Sequential(nn.Linear(4096, 8192))", "high"),
        ("nn.Sequential(nn.Linear(4096, size), nn.Conv2d(3, 64, 3))", "low"),
    ],
)
def test_a_module_that_a_model_is_given_counts(body: str, expected: str) -> None:
    text = GIVEN.replace("body = Scaled()", f"body = {body}")
    assert {c.value for c in sure("GPU302", text)} == {expected}


INTEGRATED = """
import torch
from torch import nn
from torchdiffeq import odeint


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.field = nn.Sequential(nn.Linear(2048, 2048), nn.Linear(2048, 2048))

    def forward(self, x):
        return odeint(lambda t, y: self.field(y), x, times)


device = torch.device("cuda")
model = Flow().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_solver_calls_its_network_step_after_step() -> None:
    assert sure("GPU302", INTEGRATED) == {Confidence.LOW}
    once = INTEGRATED.replace(
        "odeint(lambda t, y: self.field(y), x, times)", "self.field(x)"
    )
    assert sure("GPU302", once) == {Confidence.HIGH}


FLATTENED = """
import torch
from torch import nn
from own import loader

device = torch.device("cuda")
model = nn.Sequential(
    nn.Conv2d(1, 32, 5), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(64 * 4 * 4, 512), nn.Linear(512, 10)
).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_flattened_layer_tells_how_small_pictures_are() -> None:
    assert sure("GPU301", FLATTENED) == {Confidence.LOW}
    larger = FLATTENED.replace("64 * 4 * 4", "64 * 53 * 53")
    assert sure("GPU301", larger) == {Confidence.HIGH}


NOT_KNOWN = """
import torch
from torch import nn


class Other(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2048, 2048), nn.Linear(2048, 2048))


device = torch.device("cuda")
settings = {"otype": "VanillaMLP", "n_neurons": 64}
model = networks.create(settings).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("width, expected", [("64", "low"), ("512", "high")])
def test_a_model_that_is_not_known_is_told_its_features(
    width: str, expected: str
) -> None:
    text = NOT_KNOWN.replace("64", width)
    assert {c.value for c in sure("GPU302", text)} == {expected}


CONFIGURED = """
import torch
from dataclasses import dataclass
from torch import nn

from data import loader


@dataclass
class Config:
    dim: int = 4096


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm = nn.LayerNorm(config.dim)
        self.into = nn.Linear(config.dim, config.dim)
        self.out = nn.Linear(config.dim, config.dim)

    def forward(self, x):
        q = k = v = self.into(self.norm(x))
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v))


device = torch.device("cuda")
model = Attention(Config(dim=512)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("code", ["GPU301", "GPU302"])
def test_the_smallest_width_that_is_known_says_what_is_surely_large(code: str) -> None:
    assert sure(code, CONFIGURED) == {Confidence.HIGH}
    assert sure(code, CONFIGURED.replace("=512", "=128")) == {Confidence.LOW}
    unknown = CONFIGURED.replace("Config(dim=512)", "load(path)")
    assert sure(code, unknown) == {Confidence.LOW}


ONE_OF_MANY = """
import torch
from torch import nn

from data import loader


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 64, 3), nn.Conv2d(64, 512, 3))

    def forward(self, x):
        return self.net(x)


class Other(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Linear(width, width)

    def forward(self, x):
        return self.net(x)


device = torch.device("cuda")
model = choose(name).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_model_that_may_be_each_of_a_program_is_as_sure_as_the_least_of_them() -> (
    None
):
    assert sure("GPU301", ONE_OF_MANY) == {Confidence.LOW}
    both = ONE_OF_MANY.replace("nn.Linear(width, width)", "nn.Conv2d(64, 512, 3)")
    assert sure("GPU301", both) == {Confidence.HIGH}
    known = ONE_OF_MANY.replace("choose(name)", "Wide()")
    assert sure("GPU301", known) == {Confidence.HIGH}


LOOPED_WINDOWS = """
import torch
from torch.utils.data import DataLoader, Dataset


class Windows(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return [torch.tensor(self.files[index + n]) for n in range(24)]


def train(model, optimizer, files):
    loader = DataLoader(Windows(files), batch_size=32, num_workers=0)
    for x in loader:
        loss = model(x.cuda())
        loss.backward()
        optimizer.step()
"""


def test_samples_that_only_loop_may_take_less_than_handing_them_over() -> None:
    assert sure("GPU201", LOOPED_WINDOWS) == {Confidence.LOW}
    reads = LOOPED_WINDOWS.replace("torch.tensor(self", "torch.load(self")
    assert sure("GPU201", reads) == {Confidence.HIGH}


FOR_ALL_GPUS = """
import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(data, batch_size=32, num_workers=48):
    optimizer.zero_grad()
    model(x.cuda()).mean().backward()
    optimizer.step()
"""


def test_one_process_for_all_gpus_has_the_cores_of_all() -> None:
    assert sure("GPU204", FOR_ALL_GPUS) == {Confidence.HIGH}
    shared = FOR_ALL_GPUS.replace(
        "(8, 1).cuda()", "(8, 1).cuda()\nmodel = torch.nn.DataParallel(model)"
    )
    assert sure("GPU204", shared) == {Confidence.LOW}


SMALL_CROPS = """
import torch
from torch import nn, optim
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

augment = transforms.Compose([
    transforms.RandomCrop(32, padding=4),
    transforms.RandomHorizontalFlip(),
    transforms.ToTensor(),
])
train_set = datasets.CIFAR10("data", train=True, transform=augment)
loader = DataLoader(train_set, batch_size=128, shuffle=True, num_workers=4)
model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10)).cuda()
optimizer = optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_jitter_that_is_told_nothing_changes_nothing() -> None:
    still = SMALL_CROPS.replace("RandomHorizontalFlip", "ColorJitter")
    still = still.replace("    transforms.RandomCrop(32, padding=4),\n", "")
    assert sure("GPU207", still) == set()
    assert sure("GPU207", still.replace("Jitter()", "Jitter(0.4)")) == {Confidence.LOW}


def test_workers_keep_up_with_crops_of_small_pictures() -> None:
    assert sure("GPU207", SMALL_CROPS) == {Confidence.LOW}
    alone = SMALL_CROPS.replace(", num_workers=4", "")
    assert sure("GPU207", alone) == {Confidence.HIGH}
    pictures = SMALL_CROPS.replace(
        'CIFAR10("data", train=True, ', 'ImageFolder("data", '
    ).replace("RandomCrop(32", "RandomCrop(224")
    assert sure("GPU207", pictures) == {Confidence.HIGH}


@pytest.mark.parametrize(
    "folder",
    [
        "gpu261_hf_serial_loading",
        "gpu263_hf_ungrouped_lengths",
        "gpu361_hf_precision",
        "gpu362_hf_tf32",
    ],
)
@pytest.mark.parametrize("lowest", [(4, 57), (4, 30), None])
def test_calls_that_raise_cost_nothing(
    folder: str, lowest: tuple[int, int] | None
) -> None:
    """Arguments that every allowed release of transformers refuses."""
    text = fixture(folder, "bad").replace('"out"', '"out", evaluation_strategy="no"')
    code = folder[:6].upper()
    packages = (("transformers", Range(lowest, None)),)
    options = Options(select_rules((code,)), packages=packages)
    found = check_source(Source(Path("train.py"), text), options).findings
    expected = Confidence.LOW if lowest == (4, 57) else Confidence.HIGH
    assert {f.confidence for f in found} == {expected}


@pytest.mark.parametrize("folder", ["gpu361_hf_precision", "gpu362_hf_tf32"])
@pytest.mark.parametrize(
    "lowest, way, expected",
    [
        ((5, 0), "from_pretrained", Confidence.LOW),
        ((5, 0), "from_config", Confidence.HIGH),
        ((4, 57), "from_pretrained", Confidence.HIGH),
        (None, "from_pretrained", Confidence.HIGH),
    ],
)
def test_models_that_come_in_a_format_of_their_own(
    folder: str, lowest: tuple[int, int] | None, way: str, expected: Confidence
) -> None:
    text = fixture(folder, "bad").replace("from transformers import", LOADED, 1)
    text = text.replace("from_pretrained", way)
    text += f"\nmodel = AutoModel.{way}('tiny')\n"
    packages = (("transformers", Range(lowest, None)),)
    assert sure(folder[:6].upper(), text, packages) == {expected}


@pytest.mark.parametrize(
    "adam, lowest, expected",
    [
        ("adamw_hf", (4, 57), Confidence.LOW),
        ("adamw_hf", (4, 30), Confidence.HIGH),
        ("adamw_torch", (4, 57), Confidence.HIGH),
    ],
)
def test_an_optimizer_that_every_release_refuses(
    adam: str, lowest: tuple[int, int], expected: Confidence
) -> None:
    text = fixture("gpu361_hf_precision", "bad")
    text = text.replace('"out"', f'"out", optim="{adam}"')
    packages = (("transformers", Range(lowest, None)),)
    assert sure("GPU361", text, packages) == {expected}


@pytest.mark.parametrize(
    "name, expected", [("device", Confidence.HIGH), ("place", Confidence.LOW)]
)
def test_gradients_of_a_program_that_names_no_device(
    name: str, expected: Confidence
) -> None:
    text = fixture("gpu405_zero_filled_grads", "bad").replace("device", name)
    text = text.replace("  # expect: GPU405", "")
    assert sure("GPU405", text) == {expected}
