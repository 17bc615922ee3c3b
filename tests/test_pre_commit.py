"""The hooks of `.pre-commit-hooks.yaml`, run by pre-commit in a git repository."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

REPO = Path(__file__).resolve().parent.parent
MANIFEST = REPO / ".pre-commit-hooks.yaml"

WASTEFUL = '''\
"""Trains a line; each batch is copied to the GPU column by column."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(TensorDataset(torch.rand(64, 3)), batch_size=8, shuffle=True)
model = nn.Linear(2, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(2):
    for (batch,) in loader:
        first = batch[:, 0].to(device)
        second = batch[:, 1].to(device)
        target = batch[:, 2].to(device)
        output = model(torch.stack([first, second], dim=1))
        loss = nn.functional.mse_loss(output.squeeze(1), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
'''
HARMLESS = '"""Adds two numbers."""\n\nprint(1 + 2)\n'


def hooks() -> list[dict[str, Any]]:
    """The manifest, with `gpulint` taken from where the tests run."""
    manifest: list[dict[str, Any]] = yaml.safe_load(MANIFEST.read_text("utf-8"))
    return [{**hook, "language": "system"} for hook in manifest]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty git repository whose pre-commit settings name both hooks."""
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path / "pre-commit"))
    scripts = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", os.pathsep.join([scripts, os.environ["PATH"]]))
    root = tmp_path / "repository"
    root.mkdir()
    config = {"repos": [{"repo": "local", "hooks": hooks()}]}
    (root / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config), "utf-8")
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    return root


def run(root: Path, hook: str) -> subprocess.CompletedProcess[str]:
    """`pre-commit run` on all files, with all of them staged."""
    subprocess.run(["git", "add", "--all"], cwd=root, check=True)
    command = [sys.executable, "-m", "pre_commit", "run", "--color=never"]
    return subprocess.run(
        [*command, "--all-files", "--verbose", hook],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )


def test_manifest_is_valid(repository: Path) -> None:
    command = [sys.executable, "-m", "pre_commit", "validate-manifest"]
    subprocess.run([*command, str(MANIFEST)], cwd=repository, check=True)


def test_check_reports_and_leaves_the_file(repository: Path) -> None:
    script = repository / "train.py"
    script.write_text(WASTEFUL, "utf-8")
    done = run(repository, "gpulint-check")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "GPU101" in done.stdout
    assert script.read_text("utf-8") == WASTEFUL


def test_check_passes_harmless_files(repository: Path) -> None:
    (repository / "add.py").write_text(HARMLESS, "utf-8")
    (repository / "notes.txt").write_text("import torch\n", "utf-8")
    done = run(repository, "gpulint-check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Passed" in done.stdout


def test_fix_fails_once_with_the_file_rewritten(repository: Path) -> None:
    script = repository / "train.py"
    script.write_text(WASTEFUL, "utf-8")
    first = run(repository, "gpulint-fix")
    assert first.returncode == 1, first.stdout + first.stderr
    assert "files were modified by this hook" in first.stdout
    fixed = script.read_text("utf-8")
    assert "batch[:, 0].to(device)" not in fixed

    run(repository, "gpulint-fix")
    assert script.read_text("utf-8") == fixed
    assert "GPU101" not in run(repository, "gpulint-check").stdout


def test_a_vendored_runtime_is_checked_with_all_its_scripts(repository: Path) -> None:
    script = repository / "train.py"
    script.write_text("import _gpulint_runtime as runtime\nruntime.device()\n", "utf-8")
    done = run(repository, "gpulint-vendor-check")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "_gpulint_runtime.py: missing, for train.py" in done.stdout

    command = [sys.executable, "-m", "gpulint", "vendor"]
    subprocess.run(command, cwd=repository, check=True, capture_output=True)
    for hook in ("gpulint-vendor-check", "gpulint-check", "gpulint-fix"):
        done = run(repository, hook)
        assert done.returncode == 0, done.stdout + done.stderr


def test_excluded_files_stay_as_they_are(repository: Path) -> None:
    settings = '[tool.gpulint]\nextend-exclude = ["vendored"]\n'
    (repository / "pyproject.toml").write_text(settings, "utf-8")
    script = repository / "vendored" / "train.py"
    script.parent.mkdir()
    script.write_text(WASTEFUL, "utf-8")
    for hook in ("gpulint-check", "gpulint-fix"):
        done = run(repository, hook)
        assert done.returncode == 0, done.stdout + done.stderr
    assert script.read_text("utf-8") == WASTEFUL
