"""Whether batches hold texts and numbers alone, of which nothing is pinned."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulint.engine import Options, check_path
from gpulint.index import Projects
from gpulint.registry import select_rules

TEXTS = '''
import json
import os

import torch
from torch.utils.data import Dataset

LABELS = ["yes", "no"]


def count(folder):
    return len(os.listdir(folder))


class Texts(Dataset):
    """Articles, one a file."""

    def __init__(self, folder):
        self.folder = folder
        self.size = count(folder)

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        with open(os.path.join(self.folder, f"{i}.json")) as file:
            article = json.load(file)
        return article["words"], LABELS.index(article["label"])
'''
PROGRAM = """
import os
import torch
from torch.utils.data import DataLoader

from net import Encoder
from texts import Texts

FOLDER = os.environ["DATA"]


def lower(words):
    return [word.lower() for word in words]


class Texts2(Texts):
    def __getitem__(self, i):
        words, label = super().__getitem__(i)
        return lower(words), label


def join(samples):
    words, labels = zip(*samples)
    return list(map(lower, words)), list(labels)


def main():
    device = torch.device("cuda")
    net = Encoder().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(Texts(FOLDER), 64, num_workers=8, collate_fn=join)
    for batch in loader:
        loss = net(batch).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
"""


def is_pinned(folder: Path, texts: str, program: str) -> bool:
    """Whether GPU202 finds the loader of a program."""
    (folder / "texts.py").write_text(texts)
    (folder / "train.py").write_text(program)
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options(select_rules(("GPU202",)), projects=projects)
    return bool(check_path(folder / "train.py", options).findings)


@pytest.mark.parametrize(
    "text, other",
    [
        ("", ""),
        ("Texts(FOLDER)", "Texts2(os.path.join(FOLDER, 'train'))"),
        ("samples)\n    return", "samples)\n    print(len(words))\n    return"),
        ("collate_fn=join", "collate_fn=lambda samples: list(samples)"),
    ],
)
def test_texts_and_numbers_alone(tmp_path: Path, text: str, other: str) -> None:
    assert not is_pinned(tmp_path, TEXTS, PROGRAM.replace(text, other))


@pytest.mark.parametrize(
    "text, other",
    [
        ("list(labels)\n", "torch.tensor(labels)\n"),
        (", collate_fn=join", ""),  # which joins numbers to tensors
        ("collate_fn=join", "collate_fn=join if Encoder.joins else None"),
        ("collate_fn=join", "collate_fn=Encoder.join"),
        ("list(labels)\n", "encode(labels)\n"),
        ("Texts(FOLDER)", "Texts(read())"),
        ("lower(words), label", "tokens[words], label"),
    ],
)
def test_batches_that_may_hold_tensors(tmp_path: Path, text: str, other: str) -> None:
    program = PROGRAM.replace("Texts(FOLDER)", "Texts2(FOLDER)")
    assert text in program or text in PROGRAM
    program = (program if text in program else PROGRAM).replace(text, other)
    assert is_pinned(tmp_path, TEXTS, program)


@pytest.mark.parametrize(
    "text, other",
    [
        ("json.load(file)", "torch.load(file)"),
        ("json.load(file)", "pickle.load(file)"),
        ("LABELS.index", "self.labels.index"),
        ("(Dataset)", "(Dataset, Base)"),
        ('["yes", "no"]', "[]"),
        ("= folder\n", "= torch.ones(3)\n"),
    ],
)
def test_samples_that_may_hold_tensors(tmp_path: Path, text: str, other: str) -> None:
    assert text in TEXTS
    assert is_pinned(tmp_path, TEXTS.replace(text, other), PROGRAM)
