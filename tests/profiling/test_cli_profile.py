"""`gpulint profile`: real processes, with a torch that is imported in milliseconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import gpulint

REPO = Path(gpulint.__file__).resolve().parent.parent
Profile = Callable[..., Result]
Write = Callable[..., Path]
QUICK = ("--isolated", "--steps", "5", "--warmup", "3")
DATA = """
import time

class Rows:
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        time.sleep(0.004)
        return index
"""
SCRIPT = """
import sys, time, torch
from pathlib import Path
from torch.utils.data import DataLoader
from data import Rows

assert __file__ == str(Path("folder/train.py").absolute()), __file__
assert sys.argv == ["folder/train.py", "--data", "here"], sys.argv
assert Path(sys.path[0]).name == "folder"

def main():
    loader = DataLoader(
        Rows(),
        batch_size=2)
    optimizer = torch.optim.SGD()
    for step, batch in enumerate(loader):
        time.sleep(0.002)
        if step < 0:
            torch.cuda.synchronize()
        optimizer.step()

main()
1 / 0  # never reached
"""


@pytest.fixture
def scripts(write: Write, tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    write(DATA, "folder/data.py")
    return write(SCRIPT, "folder/train.py")


def test_a_script(profile: Profile, scripts: Path, tmp_path: Path) -> None:
    before = {p: p.read_bytes() for p in scripts.parent.rglob("*.py")}
    words = ("folder/train.py", *QUICK, "--json", "-o", "out.json")
    result = profile(*words, "--", "--data", "here")
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert "written: out.json" in result.stderr
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["arguments"] == ["--data", "here"]
    assert found["steps"] == len(found["step_ms"]) >= 5
    assert found["machine"]["device"] is None
    assert found["parts"]["wait"] > 0.4
    first = found["lines"][0]
    assert (Path(first["filename"]).name, first["text"]) == (
        "data.py",
        "time.sleep(0.004)",
    )
    assert first["kind"] == "wait"
    texts = [line["text"] for line in found["lines"]]
    assert "time.sleep(0.002)" in texts
    assert not any("torch" in line["filename"] for line in found["lines"])
    assert {p: p.read_bytes() for p in scripts.parent.rglob("*.py")} == before


def test_no_findings_and_few_steps(profile: Profile, write: Write) -> None:
    write(
        "import torch\no = torch.optim.SGD()\nfor _ in range(6): o.step()\nprint('printed')"
    )
    result = profile("train.py", *QUICK, "-v")
    assert result.exit_code == 0, result.output
    assert "3 steps after 3 of warm-up" in result.stdout
    assert "The script ended after 3 steps that could be recorded." in result.stdout
    assert "Only " in result.stdout
    assert "`gpulint check` finds nothing" in result.stdout
    assert "printed" in result.stderr


@pytest.mark.parametrize(
    "text,line",
    [
        ("raise ValueError('no data')", "ValueError: no data"),
        ("import time; time.sleep(60)", "no step within 1 s (--timeout)"),
        ("print('done')", "it ended without a step of an optimizer"),
        ("import sys; sys.exit('no --data')", "exit code 1: no --data"),
        ("import no_such_thing", "No module named 'no_such_thing' (it runs with"),
        (
            "import torch\no = torch.optim.SGD()\nfor _ in range(2): o.step()",
            "it ended after 2 steps, 8 are needed (--steps, --warmup)",
        ),
    ],
)
def test_scripts_that_cannot_be_recorded(
    profile: Profile, write: Write, text: str, line: str
) -> None:
    write(text)
    result = profile("train.py", *QUICK, "--timeout", "1" if "sleep" in text else "60")
    assert result.exit_code == 2
    last = result.stderr.splitlines()[-1]
    assert last.startswith("gpulint: error: train.py: ")
    assert line in last


@pytest.mark.parametrize(
    "words,line",
    [
        (("missing.py",), "'missing.py' does not exist"),
        (("book.ipynb",), "is a notebook"),
        (("train.py", "--warmup", "2"), "2"),
        (("train.py", "--steps", "0"), "0"),
        (("train.py", "--select", "GPU777"), "GPU777"),
        (("train.py", "-o", "no/out.txt"), "can be written to"),
    ],
)
def test_bad_input(profile: Profile, write: Write, words: Any, line: str) -> None:
    write("x = 1\n")
    write("{}", "book.ipynb")
    result = profile(*words)
    assert result.exit_code == 2
    assert line in result.stderr
    assert result.stderr.startswith("gpulint: error: ")
    assert result.stderr.count("\n") == 1


def test_files_that_cannot_be_checked(profile: Profile, write: Write) -> None:
    write(f"import torch\nx = {'(' * 120}1{')' * 120}\n", "deep.py")
    write("import torch, deep\no = torch.optim.SGD()\nfor _ in range(9): o.step()")
    result = profile("train.py", *QUICK)
    assert result.exit_code == 0, result.output
    assert "deep.py: not analysed: brackets nested" in result.stderr


REAL = """
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

class Rows(Dataset):
    def __len__(self):
        return 40000

    def __getitem__(self, index):
        row = np.load("row.npy")
        for _ in range(4):
            row = np.sort(row, axis=0)
        return torch.from_numpy(row[0]), index % 2

model = nn.Sequential(nn.Linear(200, 8), nn.ReLU(), nn.Linear(8, 2)).to(device)
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(Rows(), batch_size=4, shuffle=True)
total = 0.0
for x, y in loader:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad(set_to_none=False)
    loss = nn.functional.cross_entropy(model(x), y)
    for _ in range(9):
        big = torch.ones(300, 300) @ torch.ones(300, 300)
    loss.backward()
    optimizer.step()
    total += loss.item()
"""


@pytest.fixture
def real(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    numpy = pytest.importorskip("numpy")
    monkeypatch.setenv("PYTHONPATH", str(REPO))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    write(REAL)
    numpy.save(tmp_path / "row.npy", numpy.ones((200, 200), dtype="float32"))
    yield
    assert {p.name for p in tmp_path.iterdir()} == {"train.py", "row.npy"}


@pytest.mark.usefixtures("real")
def test_a_real_training(profile: Profile) -> None:
    result = profile("train.py", *QUICK, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    shares = {line["text"]: line["share"] for line in found["lines"]}
    # An operator is no call, which profilers of functions would see.
    assert shares["big = torch.ones(300, 300) @ torch.ones(300, 300)"] > 0.02
    assert shares["row = np.sort(row, axis=0)"] > 0.02
    assert sum(found["parts"].values()) == pytest.approx(1.0, abs=1e-3)
    costs = {its["code"]: its for its in found["findings"]}
    assert costs["GPU201"]["at_most"] == found["parts"]["wait"] > 0.02
    assert costs["GPU106"]["at_most"] is None
    places = [c["cost"] for c in found["findings"]]
    order = ["measured", "not measurable", "not seen", "nothing"]
    assert places == sorted(places, key=order.index)


@pytest.mark.usefixtures("real")
def test_what_is_shown(profile: Profile) -> None:
    result = profile("train.py", *QUICK, "--top", "1")
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.stdout
    lines = result.stdout.splitlines()
    assert lines[0] == "train.py"
    assert "no GPU was used" in lines[1]
    assert lines[2].startswith("a step: ")
    table = lines[lines.index("") + 1 :]
    assert table[0].split() == ["share", "place", "statement", "in"]
    assert table[2] == ""  # after one line of source
    assert table[3] == "Findings by the most that they cost here, of a step:"
    assert any("GPU201 serial-loading: the wait for its loader" in x for x in lines)
    without = "Not measurable here: it takes a GPU, and none was used"
    assert any("GPU106" in x for x in lines[lines.index(without) :])
    assert lines[-1].startswith("At most: ")


def test_the_parent_never_imports_torch(write: Write) -> None:
    write("import torch\no = torch.optim.SGD()\nfor _ in range(9): o.step()")
    words = ["profile", "train.py", *QUICK]
    program = (
        "import sys\nfrom gpulint.cli import main\n"
        f"try:\n    main({words!r})\n"
        "except SystemExit as stop:\n"
        "    assert 'torch' not in sys.modules\n    sys.exit(stop.code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False,
        env=os.environ,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
