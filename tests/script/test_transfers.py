"""What is said of the copies of a batch."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from gpulint.engine import Options, check_source, fix_source
from gpulint.finding import Confidence, Effect
from gpulint.index import Projects
from gpulint.registry import find_rule
from gpulint.source import Source

TRAIN = """
import torch

def train(model, loader, optimizer, args):
    for x, more, y in loader:
{}
        loss = model(x, y).mean()
        loss.backward()
        optimizer.step()
"""
BOTH_SIDES = """
if args.more:
    x, more = x.cuda(), more.cuda()
    y = y.cuda()
else:
    x, y = x.cuda(), y.cuda()
"""
ONE_ON_EACH_SIDE = """
if args.more:
    x = x.cuda()
else:
    x = more.cuda()
"""
TWO_BRANCHES = """
if args.more:
    x, more = x.cuda(), more.cuda()
if args.labels:
    y = y.cuda()
"""
LEFT_BEFORE = """
if args.more:
    model(x.cuda(), more.cuda())
    continue
x = x.cuda()
"""
CHAIN = """
if args.more:
    more = more.cuda()
elif args.labels:
    y = y.cuda()
else:
    x = x.cuda() if args.images else y.cuda()
"""
NAMED = """
if args.data == "images":
    x = x.cuda()
elif args.data == "pairs":
    x, more = more.cuda(), y.cuda()
else:
    x = y.cuda()
"""
NAMED_APART = """
if args.data == "images":
    x = x.cuda()
if args.data == "pairs":
    more = more.cuda()
if args.data != "pairs":
    y = y.cuda()
"""
PARTS_FILE = """
from torch.nn.utils.rnn import pad_sequence

class Parts:
    def __init__(self, tensors):
        self.tensors = tensors

    def to(self, device{}):
        return Parts([t.to(device) for t in self.tensors])

    @classmethod
    def padded(cls, rows):
        return cls([pad_sequence(row) for row in rows])
"""
HEIR = """
from parts import Parts

class Pair(Parts):
    pass

class Parts(Pair):  # names that go round
    pass
"""
RECORDS = """
import torch
{}
from torch.nn.utils.rnn import pad_sequence

class Single(torch.utils.data.Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return torch.ones(3), [torch.ones(1), torch.ones(2)]

def collate(samples):
    rows = torch.stack([row for row, _ in samples])
    return rows, {}
"""
RUN = """
import torch
from records import Single, collate
from torch.utils.data import DataLoader

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(3, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(Single(8), 4, num_workers=2, pin_memory=True, collate_fn=collate)
for rows, parts in loader:
    rows = rows.to(device)
    parts = parts.to(device)
    loss = model(rows).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


PARTS_ONE_BY_ONE = """
x = x.cuda()
y = [part.cuda() for part in y]
"""


@pytest.mark.parametrize(
    "lines, copies",
    [
        (BOTH_SIDES, "3 copies"),
        (PARTS_ONE_BY_ONE, "copies"),
        (ONE_ON_EACH_SIDE, "a copy"),
        (TWO_BRANCHES, "3 copies"),
        (LEFT_BEFORE, "2 copies"),
        (CHAIN, "a copy"),
        (NAMED, "2 copies"),
        (NAMED_APART, "2 copies"),
    ],
)
def test_one_side_of_a_branch_counts(lines: str, copies: str) -> None:
    rule = find_rule("GPU102")
    assert rule is not None
    text = TRAIN.format(textwrap.indent(lines.strip(), " " * 8))
    source = Source(Path("train.py"), text)
    (found,) = check_source(source, Options((rule,))).findings
    assert f"waits for {copies} of batch data" in found.message


PARTS = "Parts([pad_sequence(parts) for _, parts in samples])"
TENSOR = "torch.stack([parts[1] for _, parts in samples])"


@pytest.mark.parametrize(
    "taken, made, rewritten",
    [
        ("", PARTS, False),
        (", non_blocking=False", PARTS, True),
        ("", "Parts.padded([parts for _, parts in samples])", False),
        ("", "Pair([pad_sequence(parts) for _, parts in samples])", False),
        ("", TENSOR, True),  # nothing that makes batches makes one of them
    ],
)
def test_parts_of_batches_with_their_own_to_are_left_as_they_are(
    taken: str, made: str, rewritten: bool, tmp_path: Path
) -> None:
    head = made.partition("(")[0].partition(".")[0]
    home = {"Parts": "from parts import Parts", "Pair": "from pairs import Pair"}
    records = RECORDS.format(home.get(head, ""), made)
    (tmp_path / "parts.py").write_text(PARTS_FILE.format(taken), "utf-8")
    (tmp_path / "pairs.py").write_text(HEIR, "utf-8")
    (tmp_path / "records.py").write_text(records, "utf-8")
    path = tmp_path / "train.py"
    rule = find_rule("GPU102")
    assert rule is not None
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options((rule,), projects=projects, allow=frozenset({Effect.EXACT}))
    fixed = fix_source(Source(path, RUN), options)
    assert ("non_blocking" in fixed.text) is rewritten
    path.write_text(fixed.text, "utf-8")
    run = subprocess.run(
        [sys.executable, path], check=False, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr


WRAPPER = """
import torch
from torch import nn


class Wrapper:
    def __init__(self, device):
        self.device = device
        self.words = nn.Linear(300, 512).to(device)
        self.moves = nn.Linear(256, 512).to(device)

    def embed(self, texts, motions):
        {}
        motions = motions.to(self.device)
        return self.words(texts), self.moves(motions)
"""
EVALUATED = """
import torch
from torch.utils.data import DataLoader
from wrapper import Wrapper


@torch.no_grad()
def evaluate(loader, wrapper):
    for texts, motions in loader:
        motions = motions.cuda()
        print(wrapper.embed({}, motions))


def main(dataset):
    loader = DataLoader(dataset, batch_size=32, num_workers=4, pin_memory=True)
    evaluate(loader, Wrapper("cuda"))
"""


@pytest.mark.parametrize(
    "line, given, sure",
    [
        ("words = texts.to(self.device); texts.zero_()", "texts", Confidence.LOW),
        ("texts = texts.detach().to(self.device)", "texts", Confidence.HIGH),
        ("texts = texts.to(self.device, non_blocking=True)", "texts", Confidence.HIGH),
        ("texts = texts.to(self.device)", "texts.cuda()", Confidence.HIGH),
        ("texts = texts.to('cpu')", "texts", Confidence.HIGH),
    ],
    ids=["stays", "reported there", "queued", "moved before", "to the host"],
)
def test_a_copy_of_another_file_that_stays(
    line: str, given: str, sure: Confidence, tmp_path: Path
) -> None:
    (tmp_path / "wrapper.py").write_text(WRAPPER.format(line), "utf-8")
    path = tmp_path / "evaluate.py"
    path.write_text(EVALUATED.format(given), "utf-8")
    projects = Projects(lambda root: sorted(root.rglob("*.py")))
    options = Options((find_rule("GPU102"),), projects=projects)
    source = Source(path, path.read_text("utf-8"))
    (found,) = check_source(source, options).findings
    assert found.confidence is sure
