"""The GitHub action and the GitLab template: what their steps do when they are run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpulint.setup import Origin, texts

ROOT = Path(__file__).resolve().parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
TEMPLATE = (ROOT / "contrib/gitlab/gpulint.yml").read_text("utf-8")
STEPS = {step.get("name", ""): step for step in ACTION["runs"]["steps"]}
WASTEFUL = """\
import torch

device = torch.device("cuda")
model = torch.nn.Linear(2, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a script, and `gpulint` on the path."""
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "gpulint"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gpulint "$@"\n', "utf-8")
    program.chmod(0o755)
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    root = tmp_path / "checkout"
    root.mkdir()
    (root / "train.py").write_text(WASTEFUL, "utf-8")
    (root / "requirements.txt").write_text("torch>=2.4\n", "utf-8")
    return root


def bash(script: str, root: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """As the runner starts `shell: bash`."""
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=root,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_action_annotates_and_summarises(checkout: Path) -> None:
    given = {"PATHS": ". $(touch pwned)", "ARGS": "--select ALL", "SARIF": "out.sarif"}
    done = bash(STEPS["Check"]["run"], checkout, **given)
    assert done.returncode == 2  # a path that is none, and no command
    assert not (checkout / "pwned").exists()
    given["PATHS"] = "train.py"
    done = bash(STEPS["Check"]["run"], checkout, **given)
    assert done.returncode == 1, done.stderr
    assert "::warning" in done.stdout or "::error" in done.stdout
    results = json.loads((checkout / "out.sarif").read_text("utf-8"))["runs"][0][
        "results"
    ]
    assert results

    summary = checkout / "summary.md"
    given["GITHUB_STEP_SUMMARY"] = str(summary)
    done = bash(STEPS["Summarise"]["run"], checkout, **given)
    assert done.returncode == 0, done.stderr
    text = summary.read_text("utf-8")
    assert text.startswith("### gpulint\n```text\n")
    assert results[0]["ruleId"] in text


def test_the_action_declares_what_it_uses() -> None:
    text = (ROOT / "action.yml").read_text("utf-8")
    for name in ACTION["inputs"]:
        assert f"inputs.{name}" in text, name
    for step in STEPS.values():
        assert "${{" not in step.get("run", ""), "inputs are no shell code"
        assert ("shell" in step) == ("run" in step)
    assert STEPS["Upload to code scanning"]["if"].startswith("always()")


def test_the_template_is_what_init_writes(checkout: Path) -> None:
    job = texts.gitlab_job(Origin())
    assert TEMPLATE.endswith(f"\n{job}")
    its = yaml.safe_load(TEMPLATE)["gpulint"]
    done = bash(its["script"][-1], checkout)
    assert done.returncode == 1, done.stderr
    report = its["artifacts"]["reports"]["codequality"]
    assert json.loads((checkout / report).read_text("utf-8"))
