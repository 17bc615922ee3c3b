"""Loaders that nothing which runs iterates, or of which a pass takes one batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_path
from gpulint.finding import Confidence
from gpulint.index import Projects
from gpulint.registry import select_rules

LOW, HIGH = Confidence.LOW, Confidence.HIGH

DATA = """\
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return torch.tensor(list(Image.open(self.paths[index]).getdata()))
"""
MAKE = """

def make_loader(paths):
    return DataLoader(Photos(paths), batch_size=4)
"""
FIT = """\
import torch

from show import show


def fit(model, optimizer, loader, test_loader):
    for epoch in range(9):
        for x in loader:
            loss = model(x.cuda()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        show(model, test_loader)
"""
SHOW = """\
import torch


def show(model, loader):
    with torch.no_grad():
        for x in loader:
            print(model(x.cuda()))
            break
"""
MAIN = """\
import sys

import torch

from data import make_loader
from fit import fit

model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader([torch.ones(4)], num_workers=2)
test_loader = make_loader(sys.argv[1:])
fit(model, optimizer, loader, test_loader)
"""


def confidences(folder: Path, name: str, files: dict[str, str]) -> list[Confidence]:
    """Of GPU201 in the file of that name."""
    for file, text in files.items():
        (folder / file).write_text(text)
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(select_rules(("GPU201",)), projects=projects)
    return [f.confidence for f in check_path(folder / name, options).findings]


@pytest.mark.parametrize(
    "old, new, found",
    [
        ("", "", []),
        ("            break\n", "", [HIGH]),
        ("            break\n", "            if x.sum() > 0:\n                break\n", [HIGH]),
    ],
    ids=["one batch", "all batches", "some batches"],
)  # fmt: skip
def test_a_loader_handed_on_twice(
    tmp_path: Path, old: str, new: str, found: list[Confidence]
) -> None:
    show = SHOW.replace(old, new)
    assert (show == SHOW) is (old == new)
    files = {"data.py": DATA + MAKE, "fit.py": FIT, "show.py": show, "main.py": MAIN}
    assert confidences(tmp_path, "data.py", files) == found


PROGRAM = f"""\
{DATA}

loader = DataLoader(Photos(["a.png", "b.png"]), batch_size=4)
model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def embed(x, norm):
    return norm(model(x))


def train(loader):
    for x in loader:
        loss = embed(x.cuda(), torch.tanh).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


train(loader)
"""


@pytest.mark.parametrize(
    "old, new, sure",
    [
        ("", "", HIGH),
        ("embed(x.cuda(), torch.tanh)", "embed(x.cuda())", LOW),
        ("return norm(model(x))", "return normalise(model(x))", LOW),
        ("return norm(model(x))", "return torch.tanh(model(x))", HIGH),
    ],
    ids=["trains", "loop fails", "undefined", "defined"],
)
def test_loaders_that_nothing_running_iterates(
    tmp_path: Path, old: str, new: str, sure: Confidence
) -> None:
    text = PROGRAM.replace(old, new)
    assert (text == PROGRAM) is (old == new)
    assert confidences(tmp_path, "train.py", {"train.py": text}) == [sure]


READ = """
for epoch in range(9):
    model.load_state_dict(torch.load(f"{epoch}.pt"))
    print(model(torch.ones(1, 4).cuda()))
    metrics(model, loader)
"""


@pytest.mark.parametrize(
    "old, new, sure",
    [
        ("    metrics(model, loader)\n", "", LOW),
        ("metrics(model, loader)", "print(len(loader), len(loader.dataset))", LOW),
        ("metrics(model, loader)", "metrics(model, loader.sampler)", HIGH),
        ("", "", HIGH),
        ("for epoch in range(9):\n    ", "if model:\n    epoch = 9\n    ", HIGH),
    ],
    ids=["not read", "only asked", "its sampler", "read", "no program"],
)
def test_loaders_that_nobody_reads(
    tmp_path: Path, old: str, new: str, sure: Confidence
) -> None:
    text = PROGRAM.partition("optimizer =")[0] + READ.replace(old, new)
    assert confidences(tmp_path, "test.py", {"test.py": text}) == [sure]


@pytest.mark.parametrize(
    "kept, sure",
    [
        ("loader = [b for b in loader]\n", LOW),
        ("loader = list(loader)\n", LOW),
        ("for n in range(9):\n    batches = list(loader)\n", HIGH),
        ("batches = zip(loader, loader)\n", HIGH),
    ],
)
def test_loaders_that_are_put_into_a_list(
    tmp_path: Path, kept: str, sure: Confidence
) -> None:
    text = PROGRAM.partition("optimizer =")[0] + kept + READ
    assert confidences(tmp_path, "test.py", {"test.py": text}) == [sure]


MODEL = """\
import torch
from torch import nn

from layers import Block


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.block(x))


model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    loss = model(x.cuda()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
LAYERS = """\
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        return self.norm(self.conv(x)).mean((2, 3))
"""


@pytest.mark.parametrize(
    "old, new, sure",
    [("", "", HIGH), ("nn.Linear(8, 2)", "Head(8, 2)", LOW)],
    ids=["made", "raises"],
)
def test_layers_of_a_model_that_cannot_be_made(
    tmp_path: Path, old: str, new: str, sure: Confidence
) -> None:
    (tmp_path / "layers.py").write_text(LAYERS)
    (tmp_path / "train.py").write_text(MODEL.replace(old, new) + "# ...\n" * 50)
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(select_rules(("GPU506",)), projects=projects)
    found = check_path(tmp_path / "layers.py", options).findings
    assert [f.confidence for f in found] == [sure]


HANDED = """
from elsewhere import fit, score


def make_loaders(paths):
    train_loader = DataLoader(Photos(paths), batch_size=4)
    test_loader = DataLoader(Photos(paths), batch_size=4)
    return train_loader, test_loader


def show(paths):
    {taken}
    model = torch.nn.Linear(4, 4).cuda()
    for number in range(9):
        print(model(test_loader.dataset[number].cuda()))
    {read}


show(["a.png", "b.png"])
"""
BOTH = "train_loader, test_loader = make_loaders(paths)"


@pytest.mark.parametrize(
    "taken, read, sure",
    [
        (BOTH, "", [LOW, LOW]),
        (BOTH, "score(model, test_loader)", [LOW, HIGH]),
        (BOTH, "fit(model, train_loader)", [HIGH, LOW]),
        ("test_loader = make_loaders(paths)[1]", "", [HIGH, HIGH]),
        ("*_, test_loader = make_loaders(paths)", "", [HIGH, HIGH]),
        (f"global test_loader\n    {BOTH}", "fit()", [LOW, LOW]),
    ],
)
def test_loaders_that_callers_leave(
    tmp_path: Path, taken: str, read: str, sure: list[Confidence]
) -> None:
    text = DATA + HANDED.format(taken=taken, read=read)
    assert confidences(tmp_path, "test.py", {"test.py": text}) == sure


LIMITED = """

def score(model, paths, most=None):
    loader = DataLoader(Photos(paths), batch_size=4)
    with torch.no_grad():
        for number, x in enumerate(loader):
            print(model(x.cuda()).sum())
            if most is not None and number >= most:
                break


model = torch.nn.Linear(4, 4).cuda()
score(model, ["a.png"], most=9)
{call}
"""


@pytest.mark.parametrize(
    "call, found",
    [
        ('score(model, ["b.png"], 10)', []),
        ('score(model, ["b.png"], 900)', [HIGH]),
        ('score(model, ["b.png"])', [HIGH]),
        ('score(model, ["b.png"], **options)', [HIGH]),
        ('score(model, ["b.png"], len(names))', [HIGH]),
    ],
)
def test_a_limit_that_each_call_writes(
    tmp_path: Path, call: str, found: list[Confidence]
) -> None:
    text = DATA + LIMITED.format(call=call)
    assert confidences(tmp_path, "test.py", {"test.py": text}) == found


KEPT = """

class Fit:
    def __init__(self, paths):
        self.loader = DataLoader(Photos(paths), batch_size=4)
        self.held_out = DataLoader(Photos(paths), batch_size=4)

    def step(self, model):
        for x in self.loader:
            print(model(x.cuda()))


class Other:
    def __init__(self, held_out):
        self.held_out = held_out

    def step(self):
        print(self.held_out)


def run(model, paths):
    fit = Fit(paths)
    fit.step(model)
    {read}


run(torch.nn.Linear(4, 4).cuda(), ["a.png", "b.png"])
"""


@pytest.mark.parametrize(
    "read, sure",
    [("print(fit)", [HIGH, LOW]), ("print(list(fit.held_out))", [HIGH, HIGH])],
)
def test_a_loader_under_a_name_that_nothing_reads(
    tmp_path: Path, read: str, sure: list[Confidence]
) -> None:
    text = DATA + KEPT.format(read=read)
    assert confidences(tmp_path, "test.py", {"test.py": text}) == sure


GUARDED = """

def look():
    for x in DataLoader(Photos(["a.png", "b.png"]), batch_size=4):
        print(x.shape)


if __name__ == "__main__":
    {run}
"""


@pytest.mark.parametrize(
    "run, user, found",
    [
        ("look()", "from data import Photos\n", []),
        ("look()\n    print(torch.cuda.memory_allocated())", "", [HIGH]),
    ],
)
def test_samples_that_a_file_of_data_looks_at(
    tmp_path: Path, run: str, user: str, found: list[Confidence]
) -> None:
    files = {"data.py": DATA + GUARDED.format(run=run), "train.py": user}
    assert confidences(tmp_path, "data.py", files) == found


INFER = f"""\
from train import build

{DATA}{MAKE}

def main():
    model = build()
    for batch in make_loader(["a.png", "b.png"]):
        pixels = batch
        print(model(pixels), {{shown}})


if __name__ == "__main__":
    main()
"""
BUILD = """\
import torch


def build():
    return torch.nn.Linear(4, 4)


def train(model, x):
    return model.cuda()(x.cuda())
"""


@pytest.mark.parametrize(
    "shown, found",
    [
        ("pixels.numpy()", []),  # which a tensor on the GPU has not
        ("pixels.mean()", [HIGH]),
        ("model.weight.numpy()", [HIGH]),
    ],
)
def test_batches_read_as_arrays(
    tmp_path: Path, shown: str, found: list[Confidence]
) -> None:
    files = {"train.py": BUILD, "infer.py": INFER.format(shown=shown)}
    assert confidences(tmp_path, "infer.py", files) == found


KEYED = """

def make_loaders(paths):
    loaders = {{}}
    loaders["train"] = DataLoader(Photos(paths), batch_size=4)
    loaders["test"] = DataLoader(Photos(paths), batch_size=4)
    return loaders


def show(paths):
    loaders = make_loaders(paths)
    model = torch.nn.Linear(4, 4).cuda()
    print([model(x.cuda()) for x in loaders["test"]])
    for number in range(9):
        print(number)
    {read}


show(["a.png", "b.png"])
"""


@pytest.mark.parametrize(
    "read, sure",
    [
        ("print(len(loaders['test'].dataset))", [LOW, HIGH]),
        ("print(list(loaders['train']))", [HIGH, HIGH]),
        ("print(loaders)", [HIGH, HIGH]),
        ("print(loaders[paths[0]])", [HIGH, HIGH]),
        ("for key, loader in loaders.items():\n        print(key)", [HIGH, HIGH]),
    ],
)
def test_a_loader_under_a_key_that_nothing_reads(
    tmp_path: Path, read: str, sure: list[Confidence]
) -> None:
    text = DATA + KEYED.format(read=read)
    assert confidences(tmp_path, "test.py", {"test.py": text}) == sure


@pytest.mark.parametrize(
    "names, found",
    [
        ("loader, _", [HIGH, LOW]),
        ("loader, tests", [HIGH, HIGH]),  # others may import it
        ("_, loader", [LOW, HIGH]),
    ],
)
def test_loaders_that_a_program_throws_away(
    tmp_path: Path, names: str, found: list[Confidence]
) -> None:
    both = MAKE.replace("make_loader(paths)", "make_loaders(paths)").replace(
        "return DataLoader(Photos(paths), batch_size=4)",
        "first = DataLoader(Photos(paths), batch_size=4)\n"
        "    second = DataLoader(Photos(paths), batch_size=8)\n"
        "    return first, second",
    )
    main = MAIN.replace("make_loader\n", "make_loaders\n").replace(
        "loader = torch.utils.data.DataLoader([torch.ones(4)], num_workers=2)\n"
        "test_loader = make_loader(sys.argv[1:])\n"
        "fit(model, optimizer, loader, test_loader)",
        f"{names} = make_loaders(sys.argv[1:])\nfit(model, optimizer, loader, loader)",
    )
    both += "\n\ndef count(rows):\n    for row in rows:\n        print(row)\n"
    files = {"data.py": DATA + both, "fit.py": FIT, "show.py": SHOW, "main.py": main}
    assert confidences(tmp_path, "data.py", files) == found
