"""What GPU601 makes of scripts: the same losses, and files of the same weights."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from equivalence import assert_same_losses, run_script

from gpulint.engine import Options, check_path, fix_source
from gpulint.finding import Finding
from gpulint.index import Projects
from gpulint.registry import find_rule
from gpulint.rule import Rule
from gpulint.source import Source

torch = pytest.importorskip("torch")

SCRIPT = """
import json
import os
import sys

import torch
from torch import nn

OUT = os.environ.get("OUT", "runs")


def read_back(name):
    weights = torch.load(os.path.join(OUT, name))
    return [weights[key].double().sum().item() for key in weights]


def main():
    torch.manual_seed(0)
    os.makedirs(OUT, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    width = int(os.environ.get("WIDTH", "24"))
    x = torch.randn(64, 8)
    y = x.sum(1, keepdim=True)
    model = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 1))
    model = model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses, best = [], float("inf")
    for epoch in range(6):
        for x_batch, y_batch in zip(x.split(16), y.split(16)):
            prediction = model(x_batch.to(device))
            loss = nn.functional.mse_loss(prediction, y_batch.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if losses[-1] < best:
            best = losses[-1]
            torch.save(model.state_dict(), os.path.join(OUT, "best.pt"))
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "losses": losses,
            "epoch": epoch,
        }
        torch.save(state, f"{OUT}/epoch_{epoch}.pt")
    if "--fail" in sys.argv:
        raise RuntimeError("the script fails")
    losses += read_back("best.pt")
    print(json.dumps({"losses": losses, "samples": 384, "seconds": 1.0}))


if __name__ == "__main__":
    main()
"""


def rule() -> Rule:
    found = find_rule("GPU601")
    assert found is not None
    return found


@functools.cache
def rewritten() -> str:
    fixed = fix_source(Source(Path("train.py"), SCRIPT), Options((rule(),)))
    assert fixed.remaining == ()
    assert fixed.text.count("runtime.async_save(") == 2
    assert fixed.text.count("runtime.flush()\n") == 1
    assert "torch.save" not in fixed.text
    return fixed.text


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        alike = (one.dtype, one.stride()) == (other.dtype, other.stride())
        return alike and torch.equal(one, other)
    if isinstance(one, dict):
        keys = list(one) == list(other)
        return keys and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("state", ["off", "on"])
def test_losses_and_files_are_those_of_torch_save(tmp_path: Path, state: str) -> None:
    env = {"GPULINT_RUNTIME": state}
    before = run_script(SCRIPT, env={"OUT": str(tmp_path / "before")})
    after = run_script(rewritten(), env={**env, "OUT": str(tmp_path / "after")})
    assert_same_losses(before, after)
    names = sorted(file.name for file in (tmp_path / "before").iterdir())
    assert names == ["best.pt", *(f"epoch_{n}.pt" for n in range(6))]
    assert sorted(file.name for file in (tmp_path / "after").iterdir()) == names
    for name in names:
        one, other = (torch.load(tmp_path / f / name) for f in ("before", "after"))
        assert same(one, other), name


def test_a_script_that_fails_fails_in_the_same_way(tmp_path: Path) -> None:
    done = []
    for name, text in (("before", SCRIPT), ("after", rewritten())):
        (tmp_path / f"{name}.py").write_text(text, "utf-8")
        done.append(
            subprocess.run(
                [sys.executable, f"{name}.py", "--fail"],
                cwd=tmp_path,
                env={**os.environ, "OUT": name},
                capture_output=True,
                text=True,
                check=False,
            )
        )
    assert [d.returncode for d in done] == [1, 1]
    assert [d.stdout for d in done] == ["", ""]
    for result in done:
        said = [x for x in result.stderr.splitlines() if not x.startswith("gpulint: ")]
        assert said[0] == "Traceback (most recent call last):"
        assert said[-1] == "RuntimeError: the script fails"
    last = [torch.load(tmp_path / f / "epoch_5.pt") for f in ("before", "after")]
    assert same(*last)


# Projects: the function that saves stands beside the loop

LOOP = """
import argparse

import torch
from torch import nn

from data import loader
from models import VisionTransformer
from saving import save, {names}

parser = argparse.ArgumentParser()
parser.add_argument("--out", default="last.pt")
args = parser.parse_args()
model = VisionTransformer().cuda()
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(20):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    save(model, args.out)
{after}
"""
SAVING = """
import os
import torch


def save(model, path):
    torch.save(model.state_dict(), path)


def load(model, path):
    model.load_state_dict(torch.load(path))


def send(path):
    os.system("scp " + path)
"""


def found(folder: Path, after: str, saving: str) -> Finding:
    (folder / "pyproject.toml").touch()
    names = "load" if "load" in after else "send" if "send" in after else "os"
    (folder / "train.py").write_text(LOOP.format(names=names, after=after))
    (folder / "saving.py").write_text(saving)
    options = Options((rule(),), projects=Projects(lambda root: root.rglob("*.py")))
    (finding,) = check_path(folder / "saving.py", options).findings
    assert not check_path(folder / "train.py", options).findings
    return finding


def without_send() -> str:
    return SAVING.partition("def send")[0]


def test_a_function_of_another_file(tmp_path: Path) -> None:
    finding = found(tmp_path, "load(model, args.out)", without_send())
    assert finding.fix is not None
    contents = [edit.content.strip() for edit in finding.fix.edits]
    assert contents == ["runtime.async_save", "runtime.flush()"]


@pytest.mark.parametrize(
    "after,saving,reason",
    [
        ("", SAVING, "`os.system` starts a program that may look for the file"),
        ("open(args.out)", without_send(), "the path is given to `open`"),
        ("print(args.out)", without_send(), None),
        (
            "model.load_state_dict(torch.load(args.out))",
            without_send(),
            "`torch.load` in train.py may be of the same file",
        ),
        (
            "paths = [args.out]",
            without_send(),
            "where `args.out` goes is not known",
        ),
        (
            "paths, number = args.out, 3",
            without_send(),
            "where `args.out` goes is not known",
        ),
        ("args.out.upper()", without_send(), "the path is given to `args.out.upper`"),
        (
            "torch.save(model.state_dict(), args.out)",
            without_send(),
            "`torch.save` in train.py may be of the same file",
        ),
        ("assert args.out", without_send(), None),
        ("kept[0] = args.out", without_send(), "the path is kept in `kept[0]`"),
        ("other = args.out\nprint(other)", without_send(), None),
        ("other = args.out\nsend(other)", SAVING, "`os.system` starts"),
        ("args.where = args.out\nopen(args.where)", without_send(), "given to `open`"),
    ],
)
def test_what_another_file_does_with_the_path(
    tmp_path: Path, after: str, saving: str, reason: str | None
) -> None:
    finding = found(tmp_path, after, saving)
    if reason is None:
        assert finding.fix is not None
    else:
        assert finding.fix is None
        assert reason in (finding.fix_withheld or "")
