"""Baselines and fingerprints over the real engine."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import gpulint
from gpulint.cli import main

FIXTURES = Path(gpulint.__file__).resolve().parent.parent / "fixtures"
NAME = "gpulint-baseline.json"
KNOWN = (
    *("check", "--select", "GPU303", "--baseline", NAME),
    *("--output-format", "concise"),
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def fixture(name: str) -> str:
    text = (FIXTURES / name / "bad.py").read_text("utf-8")
    return re.sub(r"  # expect:.*", "", text)


NEW = """

def score(model, batch):
    with torch.cuda.amp.autocast():
        return model(batch)
"""


def scores(number: int) -> str:
    """A file of functions that differ in their names alone, with a finding each."""
    parts = [NEW.replace("score(", f"score_{n}(") for n in range(number)]
    return "import torch\n" + "".join(parts)


def test_one_new_finding_in_a_repository_with_two_thousand(tmp_path: Path) -> None:
    text = scores(50)
    for number in range(40):
        (tmp_path / f"train_{number}.py").write_text(text)
    created = run("baseline", "create", "--select", "GPU303")
    assert f"accepts {40 * 50} findings in 40 files" in created.stdout
    assert run(*KNOWN).exit_code == 0
    (tmp_path / "train_0.py").write_text(text + NEW)
    moved = "# A licence\n# of many lines\n\n" + text.replace("\n\n\n", "\n\n\n\n")
    (tmp_path / "train_1.py").write_text(moved)
    result = run(*KNOWN)
    assert result.exit_code == 1
    told = [line for line in result.stdout.splitlines() if line.startswith("train_")]
    assert len(told) == 1
    assert told[0].startswith(f"train_0.py:{len(text.splitlines()) + 4}:")
    assert "Found 1 finding in 1 file" in result.stdout


LOADER = """\
from torch.utils.data import DataLoader


def main(data, model, optimizer):
    loader = DataLoader(data["train"], batch_size=64, num_workers=2)
    for x, y in loader:
        loss = model(x.cuda(), y.cuda())
        loss.backward()
        optimizer.step()
        print(loss.item())
"""


@pytest.mark.parametrize(
    "old,new",
    [
        ("def main", "# here\n\n\ndef main"),
        ('data["train"], ', "data['train'],\n        "),
        ("loader = DataLoader(", "loader = DataLoader(  # noqa: E501\n        "),
        ("num_workers=2)", "num_workers=2, drop_last=True)"),
        ("print(loss.item())", "print(\n            loss.item(),  # logged\n        )"),
        ("for x, y in loader:", "for (x, y) in loader:  # each"),
        ("    ", "\t"),
    ],
)
def test_the_same_findings_in_another_form(tmp_path: Path, old: str, new: str) -> None:
    (tmp_path / "a.py").write_text(LOADER)
    assert run("baseline", "create").exit_code == 0
    assert LOADER.replace(old, new) != LOADER
    (tmp_path / "a.py").write_text(LOADER.replace(old, new))
    assert not re.search(r"^\+", run("baseline", "diff").stdout, re.MULTILINE)


def test_other_findings_of_the_same_rule(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(LOADER)
    run("baseline", "create")
    for old, new in (("main", "other"), ("loader", "loader_2"), ("loss", "cost")):
        (tmp_path / "a.py").write_text(LOADER.replace(old, new))
        assert run("baseline", "diff").stdout.count("\n+ ") >= 1, old


def test_what_fixes_leave_over_is_still_known(tmp_path: Path) -> None:
    for name in ("gpu202_unpinned_loader", "gpu106_host_sync_in_loop"):
        (tmp_path / f"{name}.py").write_text(fixture(name))
    run("baseline", "create")
    result = run("fix", "--baseline", NAME)
    assert "Fixed" in result.stdout
    assert "All checks passed!" in result.stdout
    assert run("baseline", "prune").exit_code == 0
    assert run("baseline", "status").exit_code == 0


def test_settings_files_have_entries_too(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "projects" / "gpu902_yaml", tmp_path, dirs_exist_ok=True)
    assert run("baseline", "create", "--select", "GPU902").exit_code == 0
    text = (tmp_path / NAME).read_text()
    assert '"path": "train.yaml", "code": "GPU902"' in text
    strict = ("check", "--select", "GPU902", "--baseline", NAME, "--strict-baseline")
    assert run(*strict).exit_code == 0
    settings = tmp_path / "train.yaml"
    settings.write_text(f"# moved\n{settings.read_text()}")
    assert run(*strict).exit_code == 0
    assert run("fix", *strict[1:-1]).exit_code == 0
    settings.write_text(settings.read_text().replace("alse", "ALSE"))
    assert run(*strict).exit_code == 1
